/*
 * Draws a run's stages and its samples above each other on one time axis, with checkpoints and validations.
 * Owns what it gathers during a call.
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
#include <stdlib.h>
#include <string.h>

enum {
    BINS = 300,
    SERIES = 6,
    BAND = 120,
    MARKS = 120,
    FIRST = 40,
    STAGES_HIGH = 110,
    LANE_HIGH = 76,
    LANE_GAP = 30
};

/* ---- lanes of samples */

static double busy(const struct dry_history_sample *s)
{
    return s->busy;
}

static double memory(const struct dry_history_sample *s)
{
    return s->memory / (1 << 30);
}

static double power(const struct dry_history_sample *s)
{
    return s->power;
}

static double clocks(const struct dry_history_sample *s)
{
    return s->clock;
}

/* What is offered of several kinds of traffic. */
static double sum(double a, double b)
{
    return isfinite(a) && isfinite(b) ? a + b : isfinite(a) ? a : b;
}

static double traffic(const struct dry_history_sample *s)
{
    return sum(sum(s->pcie_in, s->pcie_out), sum(s->nvlink_in, s->nvlink_out)) / 1e9;
}

static double storage(const struct dry_history_sample *s)
{
    return sum(s->read, s->written) / (1 << 20);
}

struct lane {
    const char *name, *unit;
    int gpu;     /* of gpu.csv, else of process.csv */
    int always;  /* of process.csv: shown also where there are GPUs */
    double most; /* of the axis, at least */
    double (*value)(const struct dry_history_sample *s);
};

static const struct lane lanes[] = {
    {"GPU utilisation", "%", 1, 0, 100, busy},
    {"GPU memory", "GiB", 1, 0, 0, memory},
    {"GPU power", "W", 1, 0, 0, power},
    {"SM clock", "MHz", 1, 0, 0, clocks},
    {"PCIe and NVLink traffic", "GB/s", 1, 0, 0.1, traffic},
    {"process: CPU", "% of a core", 0, 1, 100, busy},
    {"process: memory", "GiB", 0, 0, 0, memory},
    {"process: storage, read and written", "MiB/s", 0, 1, 0.1, storage},
};

enum { LANES = sizeof lanes / sizeof *lanes };

/* One device's or process's numbers by rising time; all of them lie behind each other in x and y. */
struct series {
    int rank, index, start;
    size_t first, n;
    size_t device; /* number of the device or process, which has a series for each start */
};

struct lines {
    struct series *series;
    size_t count, devices;
    double *x, *y; /* [samples] */
    const struct dry_history_sample **sample;
    size_t n;
};

/* A GPU is known by index on its host, which is told by rank where ranks have hosts of their own. */
static int same_device(const struct dry_history_sample *a, const struct dry_history_sample *b)
{
    return a->index == b->index && a->rank == b->rank;
}

static void release(struct lines *l)
{
    dry_free(l->series);
    dry_free(l->x);
    dry_free(l->y);
    dry_free(l->sample);
}

static int by_series(const void *left, const void *right)
{
    const struct dry_history_sample *a = *(const struct dry_history_sample *const *)left,
                                    *b = *(const struct dry_history_sample *const *)right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static enum dry_status gather(const struct dry_report *r, int gpu, struct lines *l)
{
    const struct dry_history *h = r->h;

    memset(l, 0, sizeof *l);
    l->series = dry_alloc(h->samples, sizeof *l->series, "samples to draw");
    l->x = dry_alloc(h->samples, sizeof *l->x, "samples to draw");
    l->y = dry_alloc(h->samples, sizeof *l->y, "samples to draw");
    l->sample = dry_alloc(h->samples, sizeof *l->sample, "samples to draw");
    if (!l->series || !l->x || !l->y || !l->sample)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->samples; i++)
        if ((h->sample[i].index >= 0) == gpu && isfinite(h->sample[i].at))
            l->sample[l->n++] = &h->sample[i];
    if (l->n)
        qsort(l->sample, l->n, sizeof *l->sample, by_series);
    for (size_t i = 0; i < l->n; i++) {
        const struct dry_history_sample *s = l->sample[i], *last = i ? l->sample[i - 1] : NULL;

        if (!last || !same_device(last, s))
            l->devices++;
        if (!last || !same_device(last, s) || last->start != s->start)
            l->series[l->count++] = (struct series){
                .rank = s->rank, .index = s->index, .start = s->start, .first = i, .device = l->devices - 1};
        l->series[l->count - 1].n++;
        l->x[i] = r->offset[l->sample[i]->start] + l->sample[i]->at;
    }
    return DRY_OK;
}

static int fill(struct lines *l, const struct lane *lane, double *least, double *most)
{
    *least = 0;
    *most = -INFINITY;
    for (size_t i = 0; i < l->n; i++)
        l->y[i] = lane->value(l->sample[i]);
    dry_chart_range(l->y, l->n, least, most);
    return *most >= *least;
}

/* A series' name, no longer than the margin is wide: the GPU's index where each rank has one of its own. */
static void name_of(const struct series *s, char *text, size_t size)
{
    if (s->index >= 0 && s->index == s->rank)
        snprintf(text, size, "GPU %d", s->index);
    else if (s->index >= 0)
        snprintf(text, size, "GPU %d, rank %d", s->index, s->rank);
    else
        snprintf(text, size, "rank %d", s->rank);
}

/* The label stands at a device's last value, and only where that is in the latest start. */
static void label_series(struct dry_chart *c, const struct lines *l, const struct series *s, const char *name,
                         int latest)
{
    size_t last = s->n;

    while (last > 0 && !isfinite(l->y[s->first + last - 1]))
        last--;
    if (last > 0 && s->start == latest)
        dry_chart_label(c, l->y[s->first + last - 1], dry_ink[s->device % DRY_INKS], name);
}

static void draw_series(struct dry_chart *c, const struct lines *l)
{
    int latest = 0;

    for (size_t i = 0; i < l->count; i++)
        latest = l->series[i].start > latest ? l->series[i].start : latest;
    for (size_t i = 0; i < l->count; i++) {
        const struct series *s = &l->series[i];
        size_t share = DRY_CHART_POINTS * s->n * l->devices / l->n;
        char name[48];

        name_of(s, name, sizeof name);
        dry_chart_curve(c, &(struct dry_curve){.x = l->x + s->first,
                                               .y = l->y + s->first,
                                               .n = s->n,
                                               .name = name,
                                               .colour = dry_ink[s->device % DRY_INKS],
                                               .width = 1.5,
                                               .opacity = 0.9,
                                               .most = share < 8                  ? 8
                                                       : share > DRY_CHART_POINTS ? DRY_CHART_POINTS
                                                                                  : share});
        label_series(c, l, s, name, latest);
    }
    dry_chart_labels(c);
}

/* Many devices: median, and the band from least to most. */
static enum dry_status draw_band(struct dry_chart *c, const struct lines *l, double length)
{
    double x[BAND], low[BAND], high[BAND], middle[BAND],
        *room = dry_alloc(l->n, sizeof *room, "samples to draw");
    size_t n = 0;

    if (!room)
        return DRY_ERR_MEMORY;
    for (int bin = 0; bin < BAND; bin++) {
        double from = length * bin / BAND, to = length * (bin + 1) / BAND;
        size_t count = 0;

        for (size_t i = 0; i < l->n; i++)
            if (l->x[i] >= from && l->x[i] < to && isfinite(l->y[i]))
                room[count++] = l->y[i];
        if (count == 0)
            continue;
        dry_sort_reals(room, count);
        x[n] = (from + to) / 2;
        low[n] = room[0];
        middle[n] = room[count / 2];
        high[n++] = room[count - 1];
    }
    dry_chart_band(c, x, low, high, n, dry_ink[0]);
    dry_chart_curve(
        c,
        &(struct dry_curve){
            .x = x, .y = middle, .n = n, .name = "median", .colour = dry_ink[0], .width = 1.6, .opacity = 1});
    if (n) {
        dry_chart_label(c, high[n - 1], dry_ink[0], "most");
        dry_chart_label(c, middle[n - 1], dry_ink[0], "median");
        dry_chart_label(c, low[n - 1], dry_ink[0], "least");
    }
    dry_chart_labels(c);
    dry_free(room);
    return DRY_OK;
}

/* NVML's reasons: the power cap; hardware slowdown, software and hardware thermal, power brake. */
static const uint64_t power_cap = 0x4, hot_or_hard = 0x8 | 0x20 | 0x40 | 0x80;

/* Under the clock: when the card was held back. */
static void draw_throttle(struct dry_chart *c, const struct lines *l)
{
    const char *kind[2] = {"power cap", "heat or hardware"}, *colour[2] = {"#f0a030", "#cc3d10"};

    for (int k = 0; k < 2; k++) {
        char drawn[BINS] = "";
        int any = 0;

        for (size_t i = 0; i < l->n; i++) {
            int bin = (int)((BINS - 1) * (l->x[i] - c->x.least) / (c->x.most - c->x.least));
            uint64_t reasons = l->sample[i]->throttle & (k ? hot_or_hard : power_cap);

            if (!reasons || bin < 0 || bin >= BINS || drawn[bin])
                continue;
            drawn[bin] = 1;
            dry_page_put(c->page, "%sM%.1f %.1fh2.8", any++ ? "" : "<path d=\"",
                         dry_chart_x(c, l->x[i]) - 1.4, c->bottom - 3 - 5 * k);
        }
        if (any)
            dry_page_put(c->page,
                         "\" stroke=\"%s\" stroke-width=\"4\"><title>clock held back: %s</title></path>\n",
                         colour[k], kind[k]);
    }
}

/* ---- the lane of stages */

struct mix {
    double share[BINS][DRY_STAGES];
};

/* Spreads seconds of a stage evenly over a piece of time. */
static void spread(struct mix *mix, double length, double from, double seconds, enum dry_stage stage,
                   double of)
{
    double bin = length / BINS, to = from + seconds;

    if (!(seconds > 0) || !(of > 0))
        return;
    for (int i = (int)fmax(0, floor(from / bin)); i < BINS && i * bin < to; i++) {
        double overlap = fmin(to, (i + 1) * bin) - fmax(from, i * bin);

        if (overlap > 0)
            mix->share[i][stage] += of * overlap / seconds / bin;
    }
}

/* The validation and the checkpoint lie at the end of a step's time, in this order. */
static void add_moment(struct mix *mix, double length, const struct dry_report_moment *m)
{
    double validation = m->stage[DRY_STAGE_VALIDATION], checkpoint = m->stage[DRY_STAGE_CHECKPOINT];
    double body = m->seconds - validation - checkpoint;

    if (m->phase == DRY_PHASE_START)
        body = m->seconds, validation = checkpoint = 0;
    for (int s = 0; s < DRY_STAGES; s++)
        if (m->phase == DRY_PHASE_START || (s != DRY_STAGE_VALIDATION && s != DRY_STAGE_CHECKPOINT))
            spread(mix, length, m->at, body, (enum dry_stage)s, m->stage[s]);
    spread(mix, length, m->at + body, validation, DRY_STAGE_VALIDATION, validation);
    spread(mix, length, m->at + body + validation, checkpoint, DRY_STAGE_CHECKPOINT, checkpoint);
}

static enum dry_status draw_stages(struct dry_chart *c, const struct dry_report *r, double length)
{
    struct mix *mix = dry_alloc(1, sizeof *mix, "stages to draw");
    double below[BINS] = {0}, bin = length / BINS;

    if (!mix)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < r->moments; i++)
        add_moment(mix, length, &r->moment[i]);
    for (int k = 0; k < DRY_STAGES; k++) {
        enum dry_stage stage = dry_draw_order(k);
        int any = 0;

        for (int i = 0; i < BINS; i++) {
            double low = fmin(1, below[i]), high = fmin(1, below[i] + mix->share[i][stage]);

            below[i] += mix->share[i][stage];
            if (high - low > 0.002)
                dry_page_put(c->page, "%sM%.1f %.1fV%.1fH%.1fV%.1fz", any++ ? "" : "<path d=\"",
                             dry_chart_x(c, i * bin), dry_chart_y(c, 100 * low), dry_chart_y(c, 100 * high),
                             dry_chart_x(c, (i + 1) * bin), dry_chart_y(c, 100 * low));
        }
        if (any)
            dry_page_put(c->page, "\" fill=\"%s\" shape-rendering=\"crispEdges\"><title>%s</title></path>\n",
                         dry_draw_colour(stage), dry_stage_name(stage));
    }
    dry_free(mix);
    return DRY_OK;
}

/* ---- marks */

static void draw_mark(struct dry_page *p, const struct dry_report_mark *m, double x, double bottom, int named)
{
    int checkpoint = m->stage == DRY_STAGE_CHECKPOINT;
    const char *colour = checkpoint ? "#0b7a55" : "#a8477f";

    dry_page_put(p, "<path d=\"M%.1f %dV%.1f\" stroke=\"%s\" stroke-width=\"1\" stroke-dasharray=\"%s\"/>", x,
                 FIRST - 6, bottom, colour, checkpoint ? "5 3" : "1.5 3");
    dry_page_put(p,
                 checkpoint ? "<path d=\"M%.1f %dl-5 -8h10z\" fill=\"%s\">"
                            : "<path d=\"M%.1f %dl-4.5 -5 4.5 -5 4.5 5z\" fill=\"%s\">",
                 x, FIRST - 4, colour);
    dry_page_put(p, "<title>%s after step %lld: %s</title></path>", checkpoint ? "checkpoint" : "validation",
                 (long long)m->step, dry_words_seconds(m->seconds).text);
    if (named)
        dry_page_put(p, "<text class=\"mid small\" x=\"%.1f\" y=\"%d\">%lld</text>", x, FIRST - 17,
                     (long long)m->step);
    dry_page_put(p, "\n");
}

static void draw_marks(struct dry_chart *c, const struct dry_report *r, double bottom)
{
    size_t each = r->marks / MARKS + 1;
    double free_from = 0;

    for (size_t i = 0; i < r->marks; i += each) {
        double x = dry_chart_x(c, r->mark[i].at);
        int named = x - 14 > free_from;

        draw_mark(c->page, &r->mark[i], x, bottom, named);
        if (named)
            free_from = x + 14;
    }
    for (int s = 1; s < r->starts; s++)
        dry_page_put(c->page,
                     "<path d=\"M%.1f %dV%.1f\" stroke=\"#111\" stroke-width=\"1.6\"/><text class=\"small\" "
                     "x=\"%.1f\" y=\"11\">start %d</text>\n",
                     dry_chart_x(c, r->offset[s]), 4, bottom, dry_chart_x(c, r->offset[s]) + 4, s + 1);
}

static int throttled(const struct dry_report *r)
{
    for (size_t i = 0; i < r->h->samples; i++)
        if (r->h->sample[i].throttle & (power_cap | hot_or_hard))
            return 1;
    return 0;
}

static void marks_legend(struct dry_page *p, const struct dry_report *r)
{
    int kinds[DRY_STAGES] = {0};

    for (size_t i = 0; i < r->marks; i++)
        kinds[r->mark[i].stage]++;
    dry_page_put(p, "<p class=\"note\">");
    if (kinds[DRY_STAGE_CHECKPOINT])
        dry_page_put(p, "<b style=\"color:#0b7a55\">&#9660;</b> checkpoint%s",
                     kinds[DRY_STAGE_VALIDATION] ? ", " : "");
    if (kinds[DRY_STAGE_VALIDATION])
        dry_page_put(p, "<b style=\"color:#a8477f\">&#9670;</b> validation");
    if (r->marks)
        dry_page_put(p, ", each with its step. ");
    if (r->starts > 1)
        dry_page_put(
            p, "The run was started %d times: the starts follow each other without the pauses between. ",
            r->starts);
    if (throttled(r))
        dry_page_put(
            p, "Under the SM clock: <b style=\"color:#f0a030\">&#9644;</b> held back by the power cap, <b "
               "style=\"color:#cc3d10\">&#9644;</b> by heat or hardware. ");
    dry_page_put(p, "Time counts from the start of the first process.</p>\n");
}

/* ---- all of it */

static int is_shown(const struct lane *lane, const struct lines *gpu)
{
    return lane->gpu || lane->always || gpu->n == 0;
}

static void draw_lane(struct dry_chart *c, const struct lane *lane, const struct lines *l, double most,
                      double length, int last)
{
    c->y = dry_axis_fit(0, fmax(1.06 * most, lane->most), 4, DRY_AXIS_REAL, 1);
    dry_chart_axes(c, last ? "" : NULL, NULL);
    dry_page_put(c->page, "<text class=\"name\" x=\"12\" y=\"%.1f\">%s, %s</text>\n", c->top - 8, lane->name,
                 lane->unit);
    dry_chart_group(c, "", "time", lane->unit);
    if (l->devices <= SERIES)
        draw_series(c, l);
    else if (draw_band(c, l, length))
        c->page->failed = 1;
    if (lane->value == clocks)
        draw_throttle(c, l);
    dry_chart_group_end(c);
}

static void draw(struct dry_page *p, const struct dry_report *r, struct lines *gpu, struct lines *process)
{
    struct dry_chart c = {.page = p, .left = 56, .right = 886, .top = FIRST, .bottom = FIRST + STAGES_HIGH};
    const struct lane *shown[LANES];
    double least, most, length = r->offset[r->starts], bottom;
    int count = 0;

    for (int i = 0; i < LANES; i++)
        if (is_shown(&lanes[i], gpu) && fill(lanes[i].gpu ? gpu : process, &lanes[i], &least, &most))
            shown[count++] = &lanes[i];
    bottom = c.bottom + count * (LANE_HIGH + LANE_GAP);
    c.x = dry_axis_fit(0, length, 10, DRY_AXIS_TIME, 1);
    dry_chart_open(p, DRY_CHART_WIDE, bottom + 26, "Stages and samples over the run's time");
    c.y = dry_axis_fit(0, 100, 2, DRY_AXIS_REAL, 0);
    dry_chart_axes(&c, count ? NULL : "", NULL);
    dry_page_put(p, "<text class=\"name\" x=\"12\" y=\"%d\">stages, %%</text>\n", FIRST - 18);
    if (draw_stages(&c, r, length))
        p->failed = 1;
    for (int i = 0; i < count; i++) {
        struct lines *l = shown[i]->gpu ? gpu : process;

        c.top = c.bottom + LANE_GAP;
        c.bottom = c.top + LANE_HIGH;
        fill(l, shown[i], &least, &most);
        draw_lane(&c, shown[i], l, most, length, i + 1 == count);
    }
    draw_marks(&c, r, bottom);
    dry_chart_close(p);
}

int dry_draw_timeline(struct dry_page *p, const struct dry_report *r)
{
    struct lines gpu = {0}, process = {0};

    if (!(r->offset[r->starts] > 0))
        return 0;
    dry_draw_begin(p, "wide", "The run over time: stages, devices, checkpoints");
    if (gather(r, 1, &gpu) || gather(r, 0, &process))
        p->failed = 1;
    else
        draw(p, r, &gpu, &process);
    release(&gpu);
    release(&process);
    dry_draw_legend(p, r);
    marks_legend(p, r);
    dry_draw_end(p);
    return 1;
}
