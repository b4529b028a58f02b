/*
 * Charts as inline SVG: axes with round ticks, curves thinned to a bounded number of points, stacked bars,
 * labels beside what they name.  Private to measure.  Owns nothing: all goes to the page.
 * Must not know what is drawn.
 */
#ifndef DRY_MEASURE_CHART_H
#define DRY_MEASURE_CHART_H

#include "measure/page.h"

#include <stddef.h>

enum { DRY_CHART_POINTS = 400, DRY_CHART_LABELS = 24, DRY_CHART_WIDE = 1000, DRY_CHART_HALF = 488 };

enum dry_axis_kind { DRY_AXIS_REAL, DRY_AXIS_WHOLE, DRY_AXIS_TIME };

/* From `least` to `most`, ticks at each multiple of `step` between. */
struct dry_axis {
    double least, most, step;
    enum dry_axis_kind kind;
    int exact; /* the ends are the data's, not ticks */
};

/* A plot's area on a drawing, in the drawing's units, y downwards. */
struct dry_chart {
    struct dry_page *page;
    double left, right, top, bottom;
    struct dry_axis x, y;
    struct {
        double at; /* height wanted */
        const char *colour;
        char text[64];
    } label[DRY_CHART_LABELS];
    int labels;
};

/* A curve: n points, x rising; y NAN: none there. */
struct dry_curve {
    const double *x, *y;
    size_t n;
    const char *name, *colour;
    double width, opacity;
    int dashes, dots; /* a dot at each point, where they are few */
    size_t most;      /* points that are drawn; 0: DRY_CHART_POINTS, which is the most */
};

/* Local. Least and most of y's numbers into *least and *most, which may hold earlier ones; start from
 * INFINITY and -INFINITY. */
void dry_chart_range(const double *y, size_t n, double *least, double *most);
/* Local. An axis around least..most with about `ticks` ticks; round ends unless exact. No number at all: 0 to
 * 1. */
struct dry_axis dry_axis_fit(double least, double most, int ticks, enum dry_axis_kind kind, int exact);
/* Local. A tick's or value's text on that axis. */
void dry_axis_text(const struct dry_axis *a, double value, char *text, size_t size);
/* Local. At most `most` (4 or more) indices of curve points that keep its look: first, last, and the least
 * and the most of each of the pieces between. Returns how many of keep[]. */
size_t dry_chart_thin(const double *x, const double *y, size_t n, size_t most, size_t *keep);

/* Local. <svg> of that size, scaled to its place; what: for those who cannot see it. */
void dry_chart_open(struct dry_page *p, double width, double height, const char *what);
void dry_chart_close(struct dry_page *p);
/* Local. Grid, ticks and texts of both axes; x_title NULL: ticks of x without texts (a panel above others).
 */
void dry_chart_axes(struct dry_chart *c, const char *x_title, const char *y_title);
/* Local. The axis of x alone. */
void dry_chart_x_axis(struct dry_chart *c, const char *title);
/* Local. Opens and closes the group of a plot, which the page's script reads values from. */
void dry_chart_group(struct dry_chart *c, const char *x_name, const char *x_unit, const char *y_unit);
void dry_chart_group_end(struct dry_chart *c);
void dry_chart_curve(struct dry_chart *c, const struct dry_curve *curve);
/* Local. A band between two curves of the same x. */
void dry_chart_band(struct dry_chart *c, const double *x, const double *low, const double *high, size_t n,
                    const char *colour);
/* Local. A text to the right of the plot at the height of y; dry_chart_labels draws them apart from each
 * other. Those over DRY_CHART_LABELS are left out. */
void dry_chart_label(struct dry_chart *c, double y, const char *colour, const char *text);
void dry_chart_labels(struct dry_chart *c);
double dry_chart_x(const struct dry_chart *c, double x);
double dry_chart_y(const struct dry_chart *c, double y);

#endif
