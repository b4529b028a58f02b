/*
 * Draws where the time went: step by step, and in total for each rank.
 * Owns nothing that outlives a call.
 * Must not know where the numbers come from.
 */
#include "config.h"

#include "measure/report_draw.h"

#include "measure/chart.h"
#include "measure/words.h"

#include "base/memory.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BARS = 200, RANKS = 32, LABELS = 10 };

/* Blues compute, greens and browns bring data, reds are the price of several ranks. Neighbours differ in
 * lightness too. */
static const char *const colours[DRY_STAGES] = {
    [DRY_STAGE_STARTUP] = "#b4bac2",    [DRY_STAGE_TOKENISE] = "#8c6d31",
    [DRY_STAGE_DATA] = "#e8c819",       [DRY_STAGE_COPY] = "#17a398",
    [DRY_STAGE_FORWARD] = "#0b62a4",    [DRY_STAGE_BACKWARD] = "#62b0e8",
    [DRY_STAGE_REDUCE] = "#f0a030",     [DRY_STAGE_WAIT] = "#cc3d10",
    [DRY_STAGE_OPTIMIZER] = "#10355c",  [DRY_STAGE_CHECKPOINT] = "#0f9d6e",
    [DRY_STAGE_VALIDATION] = "#cc79a7", [DRY_STAGE_UNEXPLAINED] = "#2b2b2b",
};

/* From the bottom of a bar upwards. */
static const enum dry_stage order[DRY_STAGES] = {
    DRY_STAGE_FORWARD,    DRY_STAGE_BACKWARD,   DRY_STAGE_OPTIMIZER, DRY_STAGE_REDUCE,
    DRY_STAGE_WAIT,       DRY_STAGE_COPY,       DRY_STAGE_DATA,      DRY_STAGE_TOKENISE,
    DRY_STAGE_CHECKPOINT, DRY_STAGE_VALIDATION, DRY_STAGE_STARTUP,   DRY_STAGE_UNEXPLAINED,
};

const char *dry_draw_colour(enum dry_stage stage)
{
    return colours[stage];
}

enum dry_stage dry_draw_order(int i)
{
    return order[i];
}

void dry_draw_legend(struct dry_page *p, const struct dry_report *r)
{
    dry_page_put(p, "<p class=\"legend\">");
    for (int i = 0; i < DRY_STAGES; i++) {
        double seconds = 0;

        for (size_t m = 0; m < r->moments; m++)
            seconds += r->moment[m].stage[order[i]];
        if (seconds > 0)
            dry_page_put(p, "<span><i style=\"background:%s\"></i>%s</span> ", colours[order[i]],
                         dry_stage_name(order[i]));
    }
    dry_page_put(p, "</p>\n");
}

/* ---- step by step */

struct bar {
    int64_t first, last;
    int steps;
    double seconds, stage[DRY_STAGES];
};

/* Steps as bars, several to a bar where there are many. */
static size_t make_bars(const struct dry_report *r, struct bar *bar, int64_t *first, int64_t *last)
{
    int64_t each;
    size_t count = 0;

    *first = INT64_MAX;
    *last = 0;
    for (size_t i = 0; i < r->moments; i++)
        if (r->moment[i].phase == DRY_PHASE_STEP && !r->moment[i].superseded) {
            *first = r->moment[i].step < *first ? r->moment[i].step : *first;
            *last = r->moment[i].step > *last ? r->moment[i].step : *last;
        }
    if (*last == 0)
        return 0;
    each = (*last - *first) / BARS + 1;
    for (size_t i = 0; i < r->moments; i++) {
        const struct dry_report_moment *m = &r->moment[i];
        size_t at = (size_t)((m->step - *first) / each);

        if (m->phase != DRY_PHASE_STEP || m->superseded)
            continue;
        bar[at].steps++;
        for (int s = 0; s < DRY_STAGES; s++)
            bar[at].stage[s] += m->stage[s];
        bar[at].seconds += m->seconds;
        count = at + 1 > count ? at + 1 : count;
    }
    for (size_t i = 0; i < count; i++) {
        bar[i].first = *first + (int64_t)i * each;
        bar[i].last = bar[i].first + each - 1 < *last ? bar[i].first + each - 1 : *last;
        for (int s = 0; s < DRY_STAGES && bar[i].steps; s++)
            bar[i].stage[s] /= bar[i].steps;
        if (bar[i].steps)
            bar[i].seconds /= bar[i].steps;
    }
    return count;
}

/* The top of the axis: a few steps with a checkpoint must not flatten all others. */
static double bars_top(const struct bar *bar, size_t n)
{
    double seconds[BARS], middle;
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        if (bar[i].steps)
            seconds[count++] = bar[i].seconds;
    dry_sort_reals(seconds, count);
    middle = seconds[count / 2];
    return count > 4 && seconds[count - 1] > 3 * middle ? 3 * middle : seconds[count - 1];
}

static void draw_stack(struct dry_chart *c, const struct bar *bar, size_t n, enum dry_stage stage,
                       double *below)
{
    double gap = n <= 80 ? 0.12 : 0, top = c->y.most;
    int any = 0;

    for (size_t i = 0; i < n; i++) {
        double low = fmin(below[i], top), high = fmin(below[i] + bar[i].stage[stage], top);
        double left = dry_chart_x(c, (double)bar[i].first - 0.5),
               right = dry_chart_x(c, (double)bar[i].last + 0.5);
        double width = right - left;

        below[i] += bar[i].stage[stage];
        if (!(high - low > 0.0005 * top))
            continue;
        dry_page_put(c->page, "%sM%.1f %.1fV%.1fH%.1fV%.1fz", any++ ? "" : "<path d=\"",
                     left + gap * width / 2, dry_chart_y(c, low), dry_chart_y(c, high),
                     right - gap * width / 2, dry_chart_y(c, low));
    }
    if (any)
        dry_page_put(c->page, "\" fill=\"%s\" shape-rendering=\"%s\"><title>%s</title></path>\n",
                     colours[stage], gap > 0 ? "auto" : "crispEdges", dry_stage_name(stage));
}

/* What the axis cut off is written over the bar. */
static void label_cut(struct dry_chart *c, const struct bar *bar, size_t n)
{
    double free_from = c->left;

    for (size_t i = 0; i < n; i++) {
        double x = dry_chart_x(c, (double)(bar[i].first + bar[i].last) / 2);

        if (bar[i].seconds <= c->y.most * 1.0001 || x - 24 < free_from)
            continue;
        dry_page_put(c->page, "<text class=\"%s small\" x=\"%.1f\" y=\"%.1f\">&#9650; %s</text>\n",
                     x + 28 > c->right ? "end" : "mid", x + 28 > c->right ? c->right + 8 : x, c->top - 4,
                     dry_words_seconds(bar[i].seconds).text);
        free_from = x + 24;
    }
}

int dry_draw_steps(struct dry_page *p, const struct dry_report *r)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 984, .top = 40, .bottom = 270};
    struct bar *bar = dry_alloc(BARS + 1, sizeof *bar, "a report's bars");
    double below[BARS + 1] = {0};
    int64_t first, last;
    size_t n = bar ? make_bars(r, bar, &first, &last) : 0;

    if (!bar)
        p->failed = 1;
    if (n == 0) {
        dry_free(bar);
        return 0;
    }
    c.x = dry_axis_fit((double)first - 0.5, (double)last + 0.5, 12, DRY_AXIS_WHOLE, 1);
    c.y = dry_axis_fit(0, 1.04 * bars_top(bar, n), 5, DRY_AXIS_REAL, 1);
    dry_draw_begin(p, "wide", "Each step's seconds by stage");
    dry_chart_open(p, DRY_CHART_WIDE, 314, "Seconds of each step, stacked by stage");
    dry_chart_axes(&c, "step", NULL);
    dry_page_put(p, "<text class=\"name\" x=\"12\" y=\"14\">seconds</text>\n");
    for (int i = 0; i < DRY_STAGES; i++)
        draw_stack(&c, bar, n, order[i], below);
    label_cut(&c, bar, n);
    dry_chart_close(p);
    dry_draw_legend(p, r);
    dry_page_put(p, "<p class=\"note\">Mean over the ranks; what follows a step (validation, checkpoint) is "
                    "part of its bar.");
    if (bar[0].last > bar[0].first)
        dry_page_put(p, " A bar is the mean of %lld steps.", (long long)(bar[0].last - bar[0].first + 1));
    dry_page_put(p, "</p>\n");
    dry_draw_end(p);
    dry_free(bar);
    return 1;
}

/* ---- each rank in total */

static double total_of(const double *stage)
{
    double sum = 0;

    for (int s = 0; s < DRY_STAGES; s++)
        sum += stage[s];
    return sum;
}

/* A bar from left to right, its name before and its sum behind it. */
static void draw_bar(struct dry_chart *c, const double *stage, const char *name, double y)
{
    double at = 0;

    dry_page_put(c->page, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", c->left - 8, y + 13, name);
    for (int i = 0; i < DRY_STAGES; i++) {
        double left = dry_chart_x(c, at), right = dry_chart_x(c, at + stage[order[i]]);

        at += stage[order[i]];
        if (right - left >= 0.05)
            dry_page_put(
                c->page,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" fill=\"%s\" stroke=\"#fff\" "
                "stroke-width=\"%.1f\"><title>%s, %s: %s</title></rect>",
                left, y, right - left, colours[order[i]], right - left > 3 ? 0.8 : 0, name,
                dry_stage_name(order[i]), dry_words_seconds(stage[order[i]]).text);
    }
    dry_page_put(c->page, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", dry_chart_x(c, at) + 7,
                 y + 13, dry_words_seconds(at).text);
}

int dry_draw_ranks(struct dry_page *p, const struct dry_report *r)
{
    int shown = r->ranks < RANKS ? r->ranks : RANKS;
    double height = 24.0 * shown, most = 0;
    struct dry_chart c = {.page = p, .left = 76, .right = 880, .top = 8, .bottom = 8 + height};

    for (int i = 0; i < r->ranks; i++)
        most = fmax(most, total_of(r->rank_stage[i]));
    if (!(most > 0))
        return 0;
    c.x = dry_axis_fit(0, most, 10, DRY_AXIS_TIME, 1);
    dry_draw_begin(p, "wide", "Each rank's seconds in total by stage");
    dry_chart_open(p, DRY_CHART_WIDE, height + 46, "Seconds of each rank, stacked by stage");
    for (int i = 0; i < shown; i++) {
        int rank = (int)((int64_t)i * r->ranks / shown);
        char name[24];

        snprintf(name, sizeof name, "rank %d", rank);
        draw_bar(&c, r->rank_stage[rank], name, c.top + 24.0 * i + 2);
    }
    dry_chart_x_axis(&c, r->starts > 1 ? "time of the latest start" : "time");
    dry_chart_close(p);
    if (shown < r->ranks)
        dry_page_put(p, "<p class=\"note\">%d of %d ranks, at even distances.</p>\n", shown, r->ranks);
    dry_draw_end(p);
    return 1;
}

/* ---- each rank count of a scale */

static double member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void read_stages(const json_t *row, double *stage)
{
    const json_t *stages = json_object_get(row, "stages");

    for (int s = 0; s < DRY_STAGES; s++) {
        double seconds = member(stages, dry_stage_name((enum dry_stage)s));

        stage[s] = seconds > 0 && isfinite(seconds) ? seconds : 0;
    }
}

/* Where the bar would end if the first rank count's step were shared without loss. */
static void draw_ideal(struct dry_chart *c, double seconds, double y)
{
    double x = dry_chart_x(c, seconds);

    if (isfinite(x))
        dry_page_put(
            c->page,
            "<path d=\"M%.1f %.1fv24\" stroke=\"#111\" stroke-width=\"2\"><title>ideal: %s</title></path>\n",
            x, y - 3, dry_words_seconds(seconds).text);
}

int dry_draw_scaling_steps(struct dry_page *p, const struct dry_report *r)
{
    const json_t *rows = json_object_get(r->scaling, "rows"), *first = json_array_get(rows, 0);
    int shown = json_array_size(rows) < RANKS ? (int)json_array_size(rows) : RANKS;
    double height = 34.0 * shown, most = 0, stage[DRY_STAGES];
    double work = member(first, "ranks") * member(first, "step_seconds");
    struct dry_chart c = {.page = p, .left = 66, .right = 410, .top = 12, .bottom = 12 + height};

    for (int i = 0; i < shown; i++) {
        read_stages(json_array_get(rows, (size_t)i), stage);
        most = fmax(most, total_of(stage));
    }
    if (!(most > 0))
        return 0;
    c.x = dry_axis_fit(0, most, 4, DRY_AXIS_TIME, 1);
    dry_draw_begin(p, "half", "A step on each rank count, by stage");
    dry_chart_open(p, DRY_CHART_HALF, height + 50, "Seconds of a step on each number of ranks, by stage");
    for (int i = 0; i < shown; i++) {
        const json_t *row = json_array_get(rows, (size_t)i);
        double ranks = member(row, "ranks"), y = c.top + 34.0 * i + 7;
        char name[32];

        read_stages(row, stage);
        snprintf(name, sizeof name, "%.0f rank%s", ranks, ranks == 1 ? "" : "s");
        draw_bar(&c, stage, name, y);
        draw_ideal(&c, work / ranks, y);
    }
    dry_chart_x_axis(&c, "time of a step");
    dry_chart_close(p);
    dry_draw_legend(p, r);
    dry_page_put(p, "<p class=\"note\">Mean over the ranks. The black line is where a step would end if more "
                    "ranks shared "
                    "it without loss.</p>\n");
    dry_draw_end(p);
    return 1;
}
