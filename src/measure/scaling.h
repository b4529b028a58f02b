/*
 * Scaling: how long a step takes on N ranks, from measured runs; how well that predicts; what follows.
 * Owns nothing.  Must not know how a plan deals micro-batches: the caller says the largest share per N.
 */
#ifndef DRY_MEASURE_SCALING_H
#define DRY_MEASURE_SCALING_H

#include "measure/verdict.h"

enum { DRY_SCALING_ROWS = 64 };

/* One measured rank count. */
struct dry_scaling_row {
    int ranks;
    struct dry_account account; /* of its steady steps */
    struct dry_verdict verdict;
    double load;      /* plan's cost of the most loaded rank, mean over the counted steps */
    double mean_load; /* all cost / ranks */
    int64_t effective_batch, steps_per_epoch,
        micros;          /* per step: mean micro-batches of the most loaded rank, rounded up */
    const char *differs; /* why the row cannot be compared with the others; NULL: it can */
};

/* t(N) = compute(N) load(N) + fixed + reduce(N): each part from the stages that it names. */
struct dry_scaling_model {
    double compute, contention; /* seconds per unit of cost on one rank; more of it for each further rank */
    double fixed;           /* data, copy, optimizer, amortised checkpoints and validation; seconds a step */
    double reduce, latency; /* seconds: reduce 2 (N - 1) / N + latency (N - 1) */
    int predicted;          /* reduce was not measured but follows from a bandwidth */
    double bandwidth;       /* bytes a second, when predicted */
    int left_out;           /* rank count predicted from the others; 0: too few rows */
    double left_out_seconds, left_out_error; /* predicted; relative */
};

/* Local. Fits to rows (1 or more; by rising ranks). bytes: of the reduced block. bandwidth: measured, for one
 * row. */
enum dry_status dry_scaling_fit(const struct dry_scaling_row *row, int rows, double bytes, double bandwidth,
                                struct dry_scaling_model *m);
/* Local. Seconds a step with that many ranks, of which the most loaded has `load`. */
double dry_scaling_seconds(const struct dry_scaling_model *m, int ranks, double load);
/* To and from scaling.json; caller decrefs. NULL: no memory. INPUT. */
json_t *dry_scaling_json(const struct dry_scaling_model *m);
enum dry_status dry_scaling_from_json(const json_t *object, const char *where, struct dry_scaling_model *m);

#endif
