/*
 * Draws axes, curves, bands and labels as SVG.
 * Owns nothing: all goes to the page.
 * Must not know what is drawn.
 */
#include "config.h"

#include "measure/chart.h"

#include "measure/words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 15 }; /* height of a line of labels */

/* ---- axes */

void dry_chart_range(const double *y, size_t n, double *least, double *most)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i]))
            continue;
        *least = fmin(*least, y[i]);
        *most = fmax(*most, y[i]);
    }
}

/* 1, 2 or 5 times a power of ten, at least `wanted`. */
static double round_step(double wanted)
{
    double power = pow(10, floor(log10(wanted)));

    for (int i = 0; i < 3; i++)
        if (power * (double)"\1\2\5"[i] >= wanted * 0.999)
            return power * (double)"\1\2\5"[i];
    return 10 * power;
}

static double time_step(double wanted)
{
    static const double steps[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                   600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};

    if (wanted <= 0.5)
        return round_step(wanted);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] >= wanted * 0.999)
            return steps[i];
    return 86400 * round_step(wanted / 86400);
}

struct dry_axis dry_axis_fit(double least, double most, int ticks, enum dry_axis_kind kind, int exact)
{
    struct dry_axis a = {.kind = kind, .exact = exact};
    double size;

    if (!isfinite(least) || !isfinite(most) || most < least) {
        least = 0;
        most = 1;
    }
    size = fmax(fabs(least), fabs(most));
    if (most - least <= 1e-9 * size || most <= least) { /* one value: room around it */
        double room = size > 0 ? 0.1 * size : 1;

        if (kind == DRY_AXIS_WHOLE)
            room = fmax(room, 1);
        least = least >= 0 ? fmax(0, least - room) : least - room;
        most += room;
    }
    a.step = kind == DRY_AXIS_TIME ? time_step((most - least) / ticks) : round_step((most - least) / ticks);
    if (kind == DRY_AXIS_WHOLE)
        a.step = fmax(a.step, 1);
    a.least = exact ? least : floor(least / a.step + 1e-6) * a.step;
    a.most = exact ? most : ceil(most / a.step - 1e-6) * a.step;
    return a;
}

static void time_text(double step, double s, char *text, size_t size)
{
    long long whole = llround(s);

    if (step < 1)
        snprintf(text, size, "%.*f s", (int)fmax(0, ceil(-log10(step) - 1e-9)), s);
    else if (whole < 60 && step < 60)
        snprintf(text, size, whole ? "%lld s" : "0", whole);
    else if (step < 60)
        snprintf(text, size, "%lld:%02lld", whole / 60, whole % 60);
    else if (step < 3600 && whole < 3600)
        snprintf(text, size, whole ? "%lld min" : "0", whole / 60);
    else if (step < 3600)
        snprintf(text, size, "%lld:%02lld h", whole / 3600, whole / 60 % 60);
    else
        snprintf(text, size, whole ? "%lld h" : "0", whole / 3600);
}

void dry_axis_text(const struct dry_axis *a, double value, char *text, size_t size)
{
    int digits = (int)fmax(0, ceil(-log10(a->step) - 1e-9));

    if (fabs(value) < 1e-6 * a->step)
        snprintf(text, size, "0");
    else if (a->kind == DRY_AXIS_TIME)
        time_text(a->step, value, text, size);
    else if (fabs(value) >= 1e6)
        snprintf(text, size, "%s", dry_words_unit(value, "").text);
    else if (a->step < 1e-3) {
        int exponent = (int)floor(log10(fmax(fabs(a->least), fabs(a->most))) + 1e-9);

        snprintf(text, size, "%.*fe%d", digits + exponent > 0 ? digits + exponent : 0,
                 value / pow(10, exponent), exponent);
    } else
        snprintf(text, size, "%s", dry_words_fixed(value, digits).text);
}

double dry_chart_x(const struct dry_chart *c, double x)
{
    return c->left + (c->right - c->left) * (x - c->x.least) / (c->x.most - c->x.least);
}

double dry_chart_y(const struct dry_chart *c, double y)
{
    return c->bottom - (c->bottom - c->top) * (y - c->y.least) / (c->y.most - c->y.least);
}

void dry_chart_open(struct dry_page *p, double width, double height, const char *what)
{
    dry_page_put(
        p, "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" class=\"%s\" role=\"img\" aria-label=\"",
        width, height, width > 600 ? "wide" : "half");
    dry_page_text(p, what);
    dry_page_put(p, "\">\n");
}

void dry_chart_close(struct dry_page *p)
{
    dry_page_put(p, "</svg></div>\n");
}

/* Calls for each tick of an axis: its number from 0. */
static int tick(const struct dry_axis *a, int i, double *value)
{
    double first = ceil(a->least / a->step - 1e-6);

    *value = (first + i) * a->step;
    return i < 100 && *value <= a->most + 1e-6 * a->step;
}

void dry_chart_x_axis(struct dry_chart *c, const char *title)
{
    char text[48];
    double v;

    dry_page_put(c->page, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>", c->left, c->bottom, c->right);
    for (int i = 0; tick(&c->x, i, &v); i++) {
        double x = dry_chart_x(c, v);

        dry_page_put(c->page, "<path class=\"tick\" d=\"M%.1f %.1fv4\"/>", x, c->bottom);
        dry_axis_text(&c->x, v, text, sizeof text);
        if (title)
            dry_page_put(c->page, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", x, c->bottom + 17,
                         text);
    }
    if (title && *title) {
        dry_page_put(c->page, "<text class=\"mid name\" x=\"%.1f\" y=\"%.1f\">", (c->left + c->right) / 2,
                     c->bottom + 34);
        dry_page_text(c->page, title);
        dry_page_put(c->page, "</text>\n");
    }
}

void dry_chart_axes(struct dry_chart *c, const char *x_title, const char *y_title)
{
    char text[48];
    double v;

    for (int i = 0; tick(&c->y, i, &v); i++) {
        double y = dry_chart_y(c, v);

        dry_page_put(c->page, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", c->left, y, c->right);
        dry_axis_text(&c->y, v, text, sizeof text);
        dry_page_put(c->page, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", c->left - 7, y + 4,
                     text);
    }
    dry_chart_x_axis(c, x_title);
    if (y_title) {
        dry_page_put(c->page, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">",
                     c->left - 44 > 2 ? c->left - 44 : 2, c->top - 13);
        dry_page_text(c->page, y_title);
        dry_page_put(c->page, "</text>\n");
    }
}

void dry_chart_group(struct dry_chart *c, const char *x_name, const char *x_unit, const char *y_unit)
{
    dry_page_put(c->page,
                 "<g class=\"plot\" data-box=\"%.1f %.1f %.1f %.1f\" data-range=\"%.9g %.9g %.9g %.9g\" "
                 "data-words=\"%s|%s|%s\">\n",
                 c->left, c->right, c->top, c->bottom, c->x.least, c->x.most, c->y.least, c->y.most, x_name,
                 x_unit, y_unit);
}

void dry_chart_group_end(struct dry_chart *c)
{
    dry_page_put(c->page, "</g>\n");
}

/* ---- curves */

size_t dry_chart_thin(const double *x, const double *y, size_t n, size_t most, size_t *keep)
{
    size_t pieces = most / 2 - 1, kept = 0, i = 0;
    size_t first = 0, last = n;

    while (first < n && !isfinite(y[first]))
        first++;
    while (last > first && !isfinite(y[last - 1]))
        last--;
    if (last - first <= most) {
        for (i = first; i < last; i++)
            if (isfinite(y[i]))
                keep[kept++] = i;
        return kept;
    }
    keep[kept++] = first;
    i = first + 1;
    for (size_t piece = 0; piece < pieces; piece++) {
        double end = x[first] + (x[last - 1] - x[first]) * (double)(piece + 1) / (double)pieces;
        size_t low = n, high = n;

        for (; i + 1 < last && (x[i] <= end || piece + 1 == pieces); i++) {
            if (!isfinite(y[i]))
                continue;
            low = low == n || y[i] < y[low] ? i : low;
            high = high == n || y[i] > y[high] ? i : high;
        }
        if (low == n)
            continue;
        keep[kept++] = low < high ? low : high;
        if (low != high)
            keep[kept++] = low < high ? high : low;
    }
    keep[kept++] = last - 1;
    return kept;
}

void dry_chart_curve(struct dry_chart *c, const struct dry_curve *curve)
{
    size_t keep[DRY_CHART_POINTS];
    size_t n =
        dry_chart_thin(curve->x, curve->y, curve->n, curve->most ? curve->most : DRY_CHART_POINTS, keep);
    struct dry_page *p = c->page;

    if (n == 0)
        return;
    if (n > 1) {
        dry_page_put(p, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"", curve->colour,
                     curve->width);
        if (curve->opacity < 1)
            dry_page_put(p, " opacity=\"%.2f\"", curve->opacity);
        if (curve->dashes)
            dry_page_put(p, " stroke-dasharray=\"6 4\"");
        if (curve->name) {
            dry_page_put(p, " data-name=\"");
            dry_page_text(p, curve->name);
            dry_page_put(p, "\"");
        }
        dry_page_put(p, " points=\"");
        for (size_t i = 0; i < n; i++)
            dry_page_put(p, "%s%.1f,%.1f", i ? " " : "", dry_chart_x(c, curve->x[keep[i]]),
                         dry_chart_y(c, curve->y[keep[i]]));
        dry_page_put(p, "\"/>\n");
    }
    if (n == 1 || (curve->dots && n <= 60))
        for (size_t i = 0; i < n; i++)
            dry_page_put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>",
                         dry_chart_x(c, curve->x[keep[i]]), dry_chart_y(c, curve->y[keep[i]]),
                         curve->dots ? 3.2 : 2.5, curve->colour);
}

void dry_chart_band(struct dry_chart *c, const double *x, const double *low, const double *high, size_t n,
                    const char *colour)
{
    if (n < 2)
        return;
    dry_page_put(c->page, "<path fill=\"%s\" opacity=\"0.25\" d=\"M", colour);
    for (size_t i = 0; i < n; i++)
        dry_page_put(c->page, "%.1f %.1f ", dry_chart_x(c, x[i]), dry_chart_y(c, high[i]));
    for (size_t i = n; i-- > 0;)
        dry_page_put(c->page, "%.1f %.1f ", dry_chart_x(c, x[i]), dry_chart_y(c, low[i]));
    dry_page_put(c->page, "z\"/>\n");
}

/* ---- labels */

void dry_chart_label(struct dry_chart *c, double y, const char *colour, const char *text)
{
    int i = c->labels;

    if (i == DRY_CHART_LABELS || !isfinite(y))
        return;
    c->labels++;
    for (; i > 0 && c->label[i - 1].at > dry_chart_y(c, y); i--) /* by height */
        c->label[i] = c->label[i - 1];
    c->label[i].at = dry_chart_y(c, y);
    c->label[i].colour = colour;
    snprintf(c->label[i].text, sizeof c->label[i].text, "%s", text);
}

void dry_chart_labels(struct dry_chart *c)
{
    double floor_at = c->bottom + 4;

    for (int i = 1; i < c->labels; i++)
        c->label[i].at = fmax(c->label[i].at, c->label[i - 1].at + LINE);
    for (int i = c->labels - 1; i >= 0; i--) {
        c->label[i].at = fmin(c->label[i].at, floor_at);
        floor_at = c->label[i].at - LINE;
    }
    for (int i = 0; i < c->labels; i++) {
        dry_page_put(c->page, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" fill=\"%s\">", c->right + 8,
                     c->label[i].at + 4, c->label[i].colour);
        dry_page_text(c->page, c->label[i].text);
        dry_page_put(c->page, "</text>\n");
    }
    c->labels = 0;
}
