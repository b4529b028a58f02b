/*
 * Fits a step's time over the number of ranks, and predicts with it.
 * Owns nothing.
 * Must not know how rows were measured, or what a plan is.
 */
#include "config.h"

#include "measure/scaling.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>

struct dry_scaling_parts dry_scaling_parts(const struct dry_scaling_row *row)
{
    const struct dry_spread *stage = row->account.stage;
    double steps = (double)row->account.steps;
    struct dry_scaling_parts p = {0};

    if (row->account.steps < 1)
        return p;
    p.arrive = (stage[DRY_STAGE_DATA].mean + stage[DRY_STAGE_COPY].mean + stage[DRY_STAGE_FORWARD].mean +
                stage[DRY_STAGE_BACKWARD].mean + stage[DRY_STAGE_WAIT].mean) /
               steps;
    p.reduce = stage[DRY_STAGE_REDUCE].mean / steps;
    p.fixed = (stage[DRY_STAGE_OPTIMIZER].mean + stage[DRY_STAGE_UNEXPLAINED].mean) / steps;
    if (row->account.ranks == 1) { /* nobody to wait for or to add up with: what these are, is done by all */
        p.fixed += p.reduce;
        p.reduce = 0;
    }
    if (row->checkpoints > 0)
        p.checkpoint = stage[DRY_STAGE_CHECKPOINT].mean / (double)row->checkpoints;
    if (row->validations > 0)
        p.validation = stage[DRY_STAGE_VALIDATION].mean / (double)row->validations;
    return p;
}

double dry_scaling_measured(const struct dry_scaling_row *row)
{
    struct dry_scaling_parts p = dry_scaling_parts(row);

    return p.arrive + p.reduce + p.fixed;
}

/* ---- the fit ---- */

struct point {
    double f, g, y; /* y is to be a f + b g */
};

/* Sum of squared relative errors. */
static double misfit(const struct point *p, int n, double a, double b)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        double e = (a * p[i].f + b * p[i].g) / p[i].y - 1;

        sum += e * e;
    }
    return sum;
}

/* Least squares of relative errors with a and b not below zero. Where g says nothing that f does not, b is
 * 0. Points of y <= 0 must not be given. */
static void fit_two(const struct point *p, int n, double *a, double *b)
{
    double ff = 0, fg = 0, gg = 0, fy = 0, gy = 0, det, only_f, only_g;

    for (int i = 0; i < n; i++) {
        double f = p[i].f / p[i].y, g = p[i].g / p[i].y;

        ff += f * f;
        fg += f * g;
        gg += g * g;
        fy += f;
        gy += g;
    }
    *a = *b = 0;
    if (!(ff > 0))
        return;
    only_f = fy / ff;
    *a = only_f;
    det = ff * gg - fg * fg;
    if (!(gg > 0) || !(det > 1e-9 * ff * gg))
        return;
    *a = (fy * gg - gy * fg) / det;
    *b = (gy * ff - fy * fg) / det;
    if (*a >= 0 && *b >= 0)
        return;
    only_g = gy / gg;
    if (misfit(p, n, only_f, 0) <= misfit(p, n, 0, only_g)) {
        *a = only_f;
        *b = 0;
    } else {
        *a = 0;
        *b = only_g;
    }
}

static double ring(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static void fit_compute(const struct dry_scaling_row *row, int rows, struct dry_scaling_model *m)
{
    struct point p[DRY_SCALING_ROWS];
    double slope;

    for (int i = 0; i < rows; i++) {
        p[i] = (struct point){1, row[i].together - 1, dry_scaling_parts(&row[i]).arrive / row[i].load};
        m->together = row[i].together > m->together ? row[i].together : m->together;
    }
    fit_two(p, rows, &m->compute, &slope);
    if (m->compute > 0)
        m->contention = slope / m->compute;
    else /* a rank alone takes time too, whatever noise says: then the first row counts */
        m->compute = p[0].y;
}

static void fit_reduce(const struct dry_scaling_row *row, int rows, double bytes, double bandwidth,
                       struct dry_scaling_model *m)
{
    struct point p[DRY_SCALING_ROWS];
    int n = 0;

    for (int i = 0; i < rows; i++) {
        double y = dry_scaling_parts(&row[i]).reduce;

        if (row[i].ranks > 1 && y > 0)
            p[n++] = (struct point){ring(row[i].ranks), row[i].ranks - 1, y};
    }
    if (n > 0) {
        fit_two(p, n, &m->reduce, &m->latency);
    } else if (bandwidth > 0) {
        m->predicted = 1;
        m->bandwidth = bandwidth;
        m->reduce = bytes / bandwidth;
    }
}

static void fit_rest(const struct dry_scaling_row *row, int rows, struct dry_scaling_model *m)
{
    int saved = 0, validated = 0;

    for (int i = 0; i < rows; i++) {
        struct dry_scaling_parts p = dry_scaling_parts(&row[i]);

        m->fixed += p.fixed / rows;
        m->checkpoint += p.checkpoint;
        m->validation += p.validation;
        saved += row[i].checkpoints > 0;
        validated += row[i].validations > 0;
    }
    if (saved)
        m->checkpoint /= saved;
    if (validated)
        m->validation /= validated;
}

static void fit(const struct dry_scaling_row *row, int rows, double bytes, double bandwidth,
                struct dry_scaling_model *m)
{
    *m = (struct dry_scaling_model){.together = 1};
    fit_compute(row, rows, m);
    fit_reduce(row, rows, bytes, bandwidth, m);
    fit_rest(row, rows, m);
}

enum dry_status dry_scaling_fit(const struct dry_scaling_row *row, int rows, double bytes, double bandwidth,
                                struct dry_scaling_model *model)
{
    struct dry_scaling_model m, without;

    for (int i = 0; i < rows; i++)
        if (row[i].account.steps < 1 || !(row[i].load > 0) || !(dry_scaling_measured(&row[i]) > 0)) {
            dry_error("scaling: %d rank%s: there is no counted step to fit a model to", row[i].ranks,
                      dry_plural(row[i].ranks));
            return DRY_ERR_INPUT;
        }
    if (rows < 1 || rows > DRY_SCALING_ROWS) {
        dry_error("scaling: a model is fitted to 1 to %d rank counts, and %d were measured", DRY_SCALING_ROWS,
                  rows);
        return DRY_ERR_INPUT;
    }
    fit(row, rows, bytes, bandwidth, &m);
    if (rows >= 3) { /* the last: what a model is asked for lies behind what was measured */
        const struct dry_scaling_row *last = &row[rows - 1];

        fit(row, rows - 1, bytes, bandwidth, &without);
        without.together = last->together;
        m.left_out = last->ranks;
        m.left_out_seconds = dry_scaling_seconds(&without, last->ranks, last->load);
        m.left_out_measured = dry_scaling_measured(last);
        m.left_out_error = m.left_out_seconds / m.left_out_measured - 1;
    }
    *model = m;
    return DRY_OK;
}

double dry_scaling_seconds(const struct dry_scaling_model *m, int ranks, double load)
{
    int together = ranks < m->together ? ranks : m->together;

    return m->compute * (1 + m->contention * (together - 1)) * load + m->fixed + m->reduce * ring(ranks) +
           m->latency * (ranks - 1);
}

enum dry_status dry_scaling_bandwidth(double bytes, double *bandwidth)
{
    size_t most = (size_t)64 << 20, least = (size_t)1 << 20, n;
    int64_t *sum, *with;
    double began, passed;
    int turns = 0;

    n = (bytes < (double)least ? least : bytes < (double)most ? (size_t)bytes : most) / sizeof *sum;
    sum = dry_alloc(n, sizeof *sum, "a block to measure memory with");
    with = dry_alloc(n, sizeof *with, "a block to measure memory with");
    if (!sum || !with) {
        dry_free(sum);
        dry_free(with);
        return DRY_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++)
        with[i] = (int64_t)i;
    began = dry_clock_now();
    do {
        for (size_t i = 0; i < n; i++)
            sum[i] += with[i];
        __asm__ volatile("" : : "r"(sum) : "memory"); /* each turn is to be done */
        turns++;
        passed = dry_clock_now() - began;
    } while (passed < 0.1);
    *bandwidth = (double)turns * (double)n * sizeof *sum / passed;
    dry_free(sum);
    dry_free(with);
    return DRY_OK;
}

/* ---- JSON ---- */

json_t *dry_scaling_json(const struct dry_scaling_model *m)
{
    json_t *all =
        json_pack("{s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:b}", "compute_seconds_per_cost", m->compute,
                  "contention", m->contention, "ranks_of_a_host", m->together, "fixed_seconds", m->fixed,
                  "checkpoint_seconds", m->checkpoint, "validation_seconds", m->validation, "reduce_seconds",
                  m->reduce, "latency_seconds", m->latency, "predicted", m->predicted);
    int bad = !all;

    if (m->predicted)
        bad = bad || json_object_set_new(all, "bandwidth", json_real(m->bandwidth));
    if (m->left_out)
        bad =
            bad || json_object_set_new(all, "left_out",
                                       json_pack("{s:i, s:f, s:f, s:f}", "ranks", m->left_out,
                                                 "predicted_seconds", m->left_out_seconds, "measured_seconds",
                                                 m->left_out_measured, "error", m->left_out_error));
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return all;
}

enum dry_status dry_scaling_from_json(const json_t *object, const char *where, struct dry_scaling_model *out)
{
    struct dry_scaling_model m = {.together = 1};
    const json_t *left = json_object_get(object, "left_out");
    int64_t together = 1, ranks = 0;
    struct {
        const char *key;
        double *value;
    } real[] = {
        {"compute_seconds_per_cost", &m.compute},
        {"contention", &m.contention},
        {"fixed_seconds", &m.fixed},
        {"checkpoint_seconds", &m.checkpoint},
        {"validation_seconds", &m.validation},
        {"reduce_seconds", &m.reduce},
        {"latency_seconds", &m.latency},
    };
    enum dry_status status = dry_json_int(object, "ranks_of_a_host", 1, 1, where, &together);

    for (size_t i = 0; i < sizeof real / sizeof *real && !status; i++)
        status = dry_json_real(object, real[i].key, 1, 0, where, real[i].value);
    if (!status)
        status = dry_json_bool(object, "predicted", 1, 0, where, &m.predicted);
    if (!status)
        status = dry_json_real(object, "bandwidth", m.predicted, 0, where, &m.bandwidth);
    if (!status && left && !json_is_null(left)) {
        status = dry_json_int(left, "ranks", 1, 0, where, &ranks);
        if (!status)
            status = dry_json_real(left, "predicted_seconds", 1, 0, where, &m.left_out_seconds);
        if (!status)
            status = dry_json_real(left, "measured_seconds", 1, 0, where, &m.left_out_measured);
        if (!status)
            status = dry_json_real(left, "error", 1, 0, where, &m.left_out_error);
    }
    if (!status &&
        (!(m.compute > 0) || together < 1 || together > INT32_MAX || ranks < 0 || ranks > INT32_MAX)) {
        dry_error("%s: is no model of a scale run: a step's computing must take time, on 1 rank or more",
                  where);
        status = DRY_ERR_INPUT;
    }
    if (status)
        return status;
    m.together = (int)together;
    m.left_out = (int)ranks;
    *out = m;
    return DRY_OK;
}
