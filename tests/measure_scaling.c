/*
 * The model of a step's time: known parameters come back, noise does little, a rank count left out is
 * predicted, and what cannot be known is not made up.
 * Owns made-up rows.
 * Must not know how rows are measured.
 */
#include "config.h"

#include "measure/scaling.h"

#include "base/log.h"

#include "tap.h"

struct truth {
    double compute, contention, fixed, reduce, latency, checkpoint;
};

/* A row of 40 counted steps as that truth has it, times 1 + noise. */
static struct dry_scaling_row row_of(const struct truth *t, int ranks, double load, double noise)
{
    double steps = 40, arrive = t->compute * (1 + t->contention * (ranks - 1)) * load * (1 + noise);
    struct dry_scaling_row r = {
        .ranks = ranks, .together = ranks, .load = load, .mean_load = load, .checkpoints = 2};
    struct dry_spread *s = r.account.stage;

    r.account.ranks = ranks;
    r.account.steps = (int64_t)steps;
    s[DRY_STAGE_DATA].mean = 0.02 * arrive * steps;
    s[DRY_STAGE_FORWARD].mean = 0.33 * arrive * steps;
    s[DRY_STAGE_BACKWARD].mean = 0.60 * arrive * steps;
    s[DRY_STAGE_WAIT].mean = 0.05 * arrive * steps;
    s[DRY_STAGE_REDUCE].mean = (t->reduce * 2 * (ranks - 1) / ranks + t->latency * (ranks - 1)) * steps;
    s[DRY_STAGE_OPTIMIZER].mean = 0.9 * t->fixed * steps;
    s[DRY_STAGE_UNEXPLAINED].mean = 0.1 * t->fixed * steps;
    s[DRY_STAGE_CHECKPOINT].mean = t->checkpoint * 2;
    return r;
}

static const struct truth known = {.compute = 2e-8,
                                   .contention = 0.05,
                                   .fixed = 0.004,
                                   .reduce = 0.012,
                                   .latency = 0.0007,
                                   .checkpoint = 0.5};
static const int counts[] = {1, 2, 3, 4, 8};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Shares that are not quite even. */
static double load(int ranks)
{
    return 6e7 / ranks * (1 + 0.03 * (ranks - 1));
}

static void test_known(void)
{
    struct dry_scaling_row row[COUNTS];
    struct dry_scaling_model m;

    for (int i = 0; i < COUNTS; i++)
        row[i] = row_of(&known, counts[i], load(counts[i]), 0);
    tap_ok(dry_scaling_fit(row, COUNTS, 1e8, 0, &m) == DRY_OK, "fits");
    tap_near(m.compute, known.compute, 1e-9 * known.compute, "computing");
    tap_near(m.contention, known.contention, 1e-9, "contention");
    tap_near(m.fixed, known.fixed, 1e-9, "fixed part");
    tap_near(m.reduce, known.reduce, 1e-9, "reduction");
    tap_near(m.latency, known.latency, 1e-9, "latency");
    tap_near(m.checkpoint, known.checkpoint, 1e-9, "a checkpoint");
    tap_ok(!m.predicted, "nothing is predicted");
    tap_equal(m.left_out, 8, "the most ranks are left out once");
    tap_near(m.left_out_error, 0, 1e-9, "and met");
    tap_near(dry_scaling_seconds(&m, 4, load(4)), dry_scaling_measured(&row[3]), 1e-9, "a measured step");
    tap_near(dry_scaling_seconds(&m, 64, load(64)),
             known.compute * (1 + 7 * known.contention) * load(64) + known.fixed +
                 known.reduce * 2 * 63 / 64 + known.latency * 63,
             1e-9, "behind what was measured a host has no more ranks than it had");
}

static void test_noise(void)
{
    static const double noise[COUNTS] = {0.01, -0.02, 0.02, -0.01, 0.015};
    struct dry_scaling_row row[COUNTS];
    struct dry_scaling_model m;

    for (int i = 0; i < COUNTS; i++)
        row[i] = row_of(&known, counts[i], load(counts[i]), noise[i]);
    tap_ok(dry_scaling_fit(row, COUNTS, 1e8, 0, &m) == DRY_OK, "fits with noise of 2 %%");
    for (int i = 0; i < COUNTS; i++)
        tap_near(dry_scaling_seconds(&m, counts[i], load(counts[i])) / dry_scaling_measured(&row[i]), 1, 0.04,
                 "a step within 4 %");
    tap_ok(fabs(m.left_out_error) <= 0.06, "the one left out within 6 %%: %+.1f %%", 100 * m.left_out_error);
    row[4] = row_of(&known, 8, load(8), 1.0);
    tap_ok(dry_scaling_fit(row, COUNTS, 1e8, 0, &m) == DRY_OK && m.left_out_error < -0.3,
           "a rank count that is like no other shows as an error: %+.1f %%", 100 * m.left_out_error);
}

static void test_few(void)
{
    struct dry_scaling_row row[2] = {row_of(&known, 1, load(1), 0), row_of(&known, 4, load(4), 0)};
    struct dry_scaling_model m;

    tap_ok(dry_scaling_fit(row, 1, 1e8, 1e10, &m) == DRY_OK && m.predicted, "one rank alone predicts");
    tap_near(m.reduce, 0.01, 1e-12, "the reduction from bytes and bandwidth");
    tap_near(m.contention, 0, 0, "and knows of no contention");
    tap_equal(m.left_out, 0, "nothing can be left out of one row");
    tap_near(dry_scaling_seconds(&m, 1, load(1)), dry_scaling_measured(&row[0]), 1e-12,
             "its own step is met");
    tap_ok(dry_scaling_fit(row, 2, 1e8, 0, &m) == DRY_OK && m.left_out == 0, "nor of two");
    tap_near(dry_scaling_seconds(&m, 4, load(4)), dry_scaling_measured(&row[1]), 1e-9, "both are met");
    tap_ok(dry_scaling_fit(&row[1], 1, 1e8, 0, &m) == DRY_OK && !m.predicted && m.reduce > 0,
           "four ranks alone: the reduction is measured");
    tap_near(dry_scaling_seconds(&m, 4, load(4)), dry_scaling_measured(&row[1]), 1e-9, "and the step met");
}

/* Faster than in proportion (a cache that holds a smaller share) is no negative contention: many ranks would
 * compute in no time. */
static void test_bounds(void)
{
    struct truth odd = known;
    struct dry_scaling_row row[3];
    struct dry_scaling_model m;

    odd.contention = -0.05;
    for (int i = 0; i < 3; i++)
        row[i] = row_of(&odd, i + 1, load(i + 1), 0);
    tap_ok(dry_scaling_fit(row, 3, 1e8, 0, &m) == DRY_OK && m.contention >= 0 && m.compute > 0,
           "contention is never below zero");
    dry_log_defer(1);
    row[1].account.steps = 0;
    tap_ok(dry_scaling_fit(row, 3, 1e8, 0, &m) == DRY_ERR_INPUT, "a row without steps is refused");
    dry_log_discard();
    dry_log_defer(0);
}

static void test_json(void)
{
    struct dry_scaling_row row[COUNTS];
    struct dry_scaling_model m, back;
    json_t *text;

    for (int i = 0; i < COUNTS; i++)
        row[i] = row_of(&known, counts[i], load(counts[i]), 0.001 * i);
    dry_scaling_fit(row, COUNTS, 1e8, 0, &m);
    text = dry_scaling_json(&m);
    tap_ok(text && dry_scaling_from_json(text, "test", &back) == DRY_OK, "to JSON and back");
    tap_ok(back.compute == m.compute && back.contention == m.contention && back.together == m.together &&
               back.fixed == m.fixed && back.checkpoint == m.checkpoint && back.reduce == m.reduce &&
               back.latency == m.latency && back.left_out == m.left_out &&
               back.left_out_error == m.left_out_error,
           "with the same numbers");
    dry_log_defer(1);
    json_object_set_new(text, "fixed_seconds", json_string("much"));
    tap_ok(dry_scaling_from_json(text, "test", &back) == DRY_ERR_INPUT, "a wrong type is named");
    json_object_del(text, "fixed_seconds");
    tap_ok(dry_scaling_from_json(text, "test", &back) == DRY_ERR_INPUT, "a missing number too");
    dry_log_discard();
    dry_log_defer(0);
    json_decref(text);
}

int main(void)
{
    test_known();
    test_noise();
    test_few();
    test_bounds();
    test_json();
    return tap_done();
}
