/*
 * Draws a report's curves over steps, the lengths of its records, and the scaling curve.
 * Owns nothing.
 * Must not know where the numbers come from.
 */
#include "config.h"

#include "measure/report_draw.h"

#include "measure/chart.h"
#include "measure/words.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const dry_ink[DRY_INKS] = {"#0072b2", "#d55e00", "#009e73", "#aa4499",
                                       "#b8860b", "#3aa6dd", "#555555"};

void dry_draw_begin(struct dry_page *p, const char *class, const char *title)
{
    dry_page_put(p, "<figure class=\"%s\">\n<figcaption>", class);
    dry_page_text(p, title);
    dry_page_put(p, "</figcaption>\n");
}

void dry_draw_end(struct dry_page *p)
{
    dry_page_put(p, "</figure>\n");
}

/* The x axis of steps: from 0 or the first step to the run's last one, so that what is left to do is seen. */
static struct dry_axis step_axis(const struct dry_report *r, int ticks)
{
    double first = r->h->steps && r->step[0] > 1 ? r->step[0] : 0;
    double last = fmax((double)r->done, r->h->validations ? r->validation_step[r->h->validations - 1] : 0);

    if (r->steps > last && r->steps < 4 * last)
        last = (double)r->steps;
    return dry_axis_fit(first, fmax(last, first + 1), ticks, DRY_AXIS_WHOLE, 1);
}

/* ---- loss */

static void loss_labels(struct dry_chart *c, const struct dry_report *r)
{
    char text[64];
    size_t n = r->h->steps, v = r->h->validations;

    if (n) {
        snprintf(text, sizeof text, "smoothed %s", dry_words_fixed(r->smooth[n - 1], 4).text);
        dry_chart_label(c, r->smooth[n - 1], dry_ink[0], text);
    }
    if (v) {
        snprintf(text, sizeof text, "validation %s", dry_words_fixed(r->validation[v - 1], 4).text);
        dry_chart_label(c, r->validation[v - 1], dry_ink[1], text);
    }
    dry_chart_labels(c);
}

static void best_validation(struct dry_chart *c, const struct dry_report *r)
{
    size_t best = r->h->validations;

    for (size_t i = 0; i < r->h->validations; i++)
        if (isfinite(r->validation[i]) &&
            (best == r->h->validations || r->validation[i] < r->validation[best]))
            best = i;
    if (best < r->h->validations)
        dry_page_put(
            c->page,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"><title>"
            "lowest validation loss: %s at step %.0f</title></circle>\n",
            dry_chart_x(c, r->validation_step[best]), dry_chart_y(c, r->validation[best]), dry_ink[1],
            dry_words_fixed(r->validation[best], 4).text, r->validation_step[best]);
}

int dry_draw_loss(struct dry_page *p, const struct dry_report *r)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 842, .top = 24, .bottom = 300};
    double least = INFINITY, most = -INFINITY;

    dry_chart_range(r->loss, r->h->steps, &least, &most);
    dry_chart_range(r->validation, r->h->validations, &least, &most);
    if (least > most)
        return 0;
    c.x = step_axis(r, 10);
    c.y = dry_axis_fit(least, most, 6, DRY_AXIS_REAL, 0);
    dry_draw_begin(p, "wide", "Loss: mean over the supervised tokens of a step");
    dry_chart_open(p, DRY_CHART_WIDE, 344, "Training and validation loss over steps");
    dry_chart_axes(&c, "step", "nats per token");
    dry_chart_group(&c, "step", "", "");
    dry_chart_curve(&c, &(struct dry_curve){.x = r->step,
                                            .y = r->loss,
                                            .n = r->h->steps,
                                            .name = "loss",
                                            .colour = dry_ink[0],
                                            .width = 1,
                                            .opacity = 0.4});
    if (r->h->steps > 4)
        dry_chart_curve(&c, &(struct dry_curve){.x = r->step,
                                                .y = r->smooth,
                                                .n = r->h->steps,
                                                .name = "smoothed",
                                                .colour = dry_ink[0],
                                                .width = 2.4,
                                                .opacity = 1});
    dry_chart_curve(&c, &(struct dry_curve){.x = r->validation_step,
                                            .y = r->validation,
                                            .n = r->h->validations,
                                            .name = "validation",
                                            .colour = dry_ink[1],
                                            .width = 2,
                                            .opacity = 1,
                                            .dots = 1});
    best_validation(&c, r);
    dry_chart_group_end(&c);
    loss_labels(&c, r);
    dry_chart_close(p);
    dry_page_put(
        p, "<p class=\"note\">Thin: each step. Thick: smoothed, looking back over about %.0f steps.%s</p>\n",
        r->span, r->h->validations ? " Dots: whole validation set; the ring marks the lowest." : "");
    dry_draw_end(p);
    return 1;
}

/* ---- small curves */

static int small_curve(struct dry_page *p, const struct dry_report *r, const char *title, const char *name,
                       const double *y, const char *colour)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 474, .top = 24, .bottom = 180};
    double least = 0, most = -INFINITY;

    dry_chart_range(y, r->h->steps, &least, &most);
    if (!(most >= least))
        return 0;
    c.x = step_axis(r, 6);
    c.y = dry_axis_fit(least, most, 4, DRY_AXIS_REAL, 0);
    dry_draw_begin(p, "half", title);
    dry_chart_open(p, DRY_CHART_HALF, 224, title);
    dry_chart_axes(&c, "step", name);
    dry_chart_group(&c, "step", "", "");
    dry_chart_curve(&c, &(struct dry_curve){.x = r->step,
                                            .y = y,
                                            .n = r->h->steps,
                                            .name = name,
                                            .colour = colour,
                                            .width = 1.8,
                                            .opacity = 1});
    if (y == r->norm && dry_report_number_at(r, "contract.max_grad_norm") > 0 &&
        dry_report_number_at(r, "contract.max_grad_norm") < c.y.most) {
        double norm = dry_report_number_at(r, "contract.max_grad_norm"), at = dry_chart_y(&c, norm);

        dry_page_put(p,
                     "<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/><text class=\"end\" x=\"%.1f\" "
                     "y=\"%.1f\">clipped above %g</text>\n",
                     c.left, at, c.right, c.right, at - 5, norm);
    }
    dry_chart_group_end(&c);
    dry_chart_close(p);
    dry_draw_end(p);
    return 1;
}

int dry_draw_rate(struct dry_page *p, const struct dry_report *r)
{
    return small_curve(p, r, "Learning rate", "learning rate", r->rate, dry_ink[2]);
}

int dry_draw_norm(struct dry_page *p, const struct dry_report *r)
{
    return small_curve(p, r, "Gradient norm before clipping", "norm", r->norm, dry_ink[3]);
}

/* ---- lengths */

static double member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void length_rule(struct dry_chart *c, double length, const char *name, int row)
{
    double x = dry_chart_x(c, length);

    if (!(length >= c->x.least && length <= c->x.most))
        return;
    dry_page_put(
        c->page,
        "<path class=\"rule\" d=\"M%.1f %.1fV%.1f\"/><text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s %s</text>\n",
        x, c->bottom, c->top + 14 * row - 8, x > c->right - 80 ? "end" : "",
        x > c->right - 80 ? x - 4 : x + 4, c->top + 14 * row + 1, name, dry_words_count(length).text);
}

int dry_draw_lengths(struct dry_page *p, const struct dry_report *r)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 474, .top = 24, .bottom = 216};
    const json_t *bins = json_object_get(r->lengths, "bins"), *bin;
    double width = member(r->lengths, "width"), most = 0;
    size_t i;

    json_array_foreach(bins, i, bin) most = fmax(most, member(bin, "records"));
    if (!(most > 0) || !(width > 0))
        return 0;
    c.x = dry_axis_fit(0, width * (double)json_array_size(bins), 6, DRY_AXIS_WHOLE, 1);
    c.y = dry_axis_fit(0, most, 4, DRY_AXIS_WHOLE, 0);
    dry_draw_begin(p, "half", "Lengths of the training records");
    dry_chart_open(p, DRY_CHART_HALF, 260, "Histogram of the records' lengths in tokens");
    dry_chart_axes(&c, "tokens in a record", "records");
    json_array_foreach(bins, i, bin)
    {
        double n = member(bin, "records"), left = dry_chart_x(&c, width * (double)i),
               right = dry_chart_x(&c, width * (double)(i + 1)), top = dry_chart_y(&c, n);

        if (n > 0)
            dry_page_put(p,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>%.0f "
                         "to %.0f tokens: %s records</title></rect>\n",
                         left + 0.5, top, fmax(right - left - 1, 0.5), c.bottom - top, dry_ink[0],
                         width * (double)i + 1, width * (double)(i + 1), dry_words_count(n).text);
    }
    length_rule(&c, member(r->lengths, "p50"), "median", 0);
    length_rule(&c, member(r->lengths, "p95"), "95 %", 1);
    length_rule(&c, member(r->lengths, "limit"), "limit", 2);
    dry_chart_close(p);
    dry_page_put(
        p, "<p class=\"note\">%s records, %s to %s tokens, mean %s; %s of the tokens are supervised.</p>\n",
        dry_words_count(member(r->lengths, "records")).text,
        dry_words_count(member(r->lengths, "least")).text, dry_words_count(member(r->lengths, "most")).text,
        dry_words_fixed(member(r->lengths, "mean"), 1).text,
        dry_words_share(member(r->lengths, "supervised") / member(r->lengths, "tokens")).text);
    dry_draw_end(p);
    return 1;
}

/* ---- padding */

static void padding_bar(struct dry_page *p, int row, const char *name, double tokens, double positions,
                        double most)
{
    double y = 30 + 48 * row, scale = 400 / most;

    if (!(positions > 0))
        return;
    dry_page_put(p, "<text x=\"4\" y=\"%.1f\">", y);
    dry_page_text(p, name);
    dry_page_put(p, "</text><text class=\"end\" x=\"484\" y=\"%.1f\">%s padding</text>", y,
                 dry_words_share(fmax(0, 1 - tokens / positions)).text);
    dry_page_put(
        p,
        "<rect x=\"4\" y=\"%.1f\" width=\"%.1f\" height=\"16\" fill=\"%s\"/><rect x=\"%.1f\" y=\"%.1f\" "
        "width=\"%.1f\" height=\"16\" fill=\"#f0c9a8\" stroke=\"%s\" stroke-width=\"0.8\"/>\n",
        y + 7, tokens * scale * 1.2, dry_ink[0], 4 + tokens * scale * 1.2, y + 7,
        fmax(0, positions - tokens) * scale * 1.2, dry_ink[1]);
}

int dry_draw_padding(struct dry_page *p, const struct dry_report *r)
{
    double tokens = 0, padded = 0, all = member(r->lengths, "tokens"),
           fixed = member(r->lengths, "fixed_positions"), bucket = member(r->lengths, "bucket_positions"),
           share, most;

    for (size_t i = 0; i < r->h->steps; i++) {
        tokens += (double)r->h->step[i].tokens;
        padded += (double)r->h->step[i].padded;
    }
    share = tokens > 0 ? padded / tokens : 1;
    if (!r->lengths || !(all > 0))
        return 0;
    most = fmax(fmax(fixed, bucket), all * share);
    dry_draw_begin(p, "half", "What an epoch computes: tokens and padding");
    dry_chart_open(p, DRY_CHART_HALF, 176, "Share of padding in this run and with other ways to pad");
    padding_bar(p, 0, tokens > 0 ? "this run, as counted" : "the records alone", all, all * share, most);
    padding_bar(p, 1, "each record padded to its bucket", all, bucket, most);
    padding_bar(p, 2, "each record padded to the limit", all, fixed, most);
    dry_page_put(p,
                 "<rect x=\"4\" y=\"158\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"20\" "
                 "y=\"168\">tokens</text>"
                 "<rect x=\"84\" y=\"158\" width=\"11\" height=\"11\" fill=\"#f0c9a8\" stroke=\"%s\" "
                 "stroke-width=\"0.8\"/><text x=\"100\" y=\"168\">padding</text>\n",
                 dry_ink[0], dry_ink[1]);
    dry_chart_close(p);
    dry_page_put(p, "<p class=\"note\">Padding is computed like tokens and teaches nothing.</p>\n");
    dry_draw_end(p);
    return 1;
}

/* ---- scaling */

/* Dots of the measured rank counts from right to left, with texts where these have room. */
static void scaling_points(struct dry_chart *c, const json_t *rows)
{
    double x = NAN, y = NAN, room_to = INFINITY;

    for (size_t i = json_array_size(rows); i-- > 0;) {
        const json_t *row = json_array_get(rows, i);
        double ranks = member(row, "ranks"), speedup = member(row, "speedup"), left = dry_chart_x(c, ranks),
               top = dry_chart_y(c, speedup);

        if (!(ranks >= 1) || !isfinite(speedup))
            continue;
        if (isfinite(x))
            dry_page_put(
                c->page,
                "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2.4\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
                dry_ink[1], x, y, left, top);
        x = left;
        y = top;
        dry_page_put(c->page,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"><title>%.0f ranks: %.2f times as "
                     "fast</title></circle>",
                     x, y, dry_ink[1], ranks, speedup);
        if (left + 88 > room_to)
            continue;
        dry_page_put(c->page, "<text class=\"label halo\" x=\"%.1f\" y=\"%.1f\">%.2f (%.0f %%)</text>\n",
                     x + 8, y + 17, speedup, 100 * speedup / ranks);
        room_to = left;
    }
}

/* The model's speed-up at the rank counts that were measured: how well it fits. */
static void scaling_model(struct dry_chart *c, const json_t *rows)
{
    double base =
        member(json_array_get(rows, 0), "step_seconds") * member(json_array_get(rows, 0), "speedup");
    const json_t *row;
    size_t i;
    int any = 0;

    json_array_foreach(rows, i, row)
    {
        double seconds = member(row, "model_seconds"), ranks = member(row, "ranks");

        if (!(seconds > 0) || !(base > 0) || !(ranks >= 1))
            continue;
        dry_page_put(c->page, "%s%.1f %.1f",
                     any++ ? "L" : "<path fill=\"none\" stroke=\"#7a838c\" stroke-width=\"1.6\" d=\"M",
                     dry_chart_x(c, ranks), fmax(c->top, dry_chart_y(c, base / seconds)));
    }
    if (any)
        dry_page_put(c->page, "\"><title>the fitted model</title></path>\n");
}

int dry_draw_scaling(struct dry_page *p, const struct dry_report *r)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 392, .top = 24, .bottom = 256};
    const json_t *rows = json_object_get(r->scaling, "rows"), *row;
    double most = 1;
    size_t i;

    json_array_foreach(rows, i, row) if (member(row, "ranks") > most) most = member(row, "ranks");
    if (json_array_size(rows) == 0)
        return 0;
    c.x = dry_axis_fit(0, most, (int)fmin(most, 8), DRY_AXIS_WHOLE, 1);
    c.y = dry_axis_fit(0, most, (int)fmin(most, 8), DRY_AXIS_WHOLE, 1);
    dry_draw_begin(p, "half", "Speed-up over ranks, same records per step");
    dry_chart_open(p, DRY_CHART_HALF, 300, "Speed-up over the number of ranks with the ideal line");
    dry_chart_axes(&c, "ranks", "times as fast as one");
    dry_page_put(p,
                 "<path fill=\"none\" stroke=\"#555\" stroke-width=\"1.4\" stroke-dasharray=\"6 4\" "
                 "d=\"M%.1f %.1fL%.1f %.1f\"/>"
                 "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">ideal</text>\n",
                 dry_chart_x(&c, 0), dry_chart_y(&c, 0), dry_chart_x(&c, most), dry_chart_y(&c, most),
                 c.right + 6, dry_chart_y(&c, most) + 4);
    scaling_model(&c, rows);
    scaling_points(&c, rows);
    dry_chart_close(p);
    dry_page_put(p, "<p class=\"note\">Dots: measured, with efficiency. Dashed: ideal.%s</p>\n",
                 member(json_array_get(rows, 0), "model_seconds") > 0 ? " Grey: the fitted model." : "");
    dry_draw_end(p);
    return 1;
}
