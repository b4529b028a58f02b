/*
 * Scaling: how long a step takes on N ranks, from measured runs; how well that predicts; what follows.
 * Owns nothing.  Must not know how a plan deals micro-batches: the caller says the largest share per N.
 *
 * A step lasts until its last rank arrives at the reduction, and then as long as what all ranks do alike:
 *
 *   t(N) = compute (1 + contention (H(N) - 1)) load(N) + reduce 2 (N - 1) / N + latency (N - 1) + fixed
 *
 * load(N): the plan's cost of the most loaded rank; H(N): ranks that share a host, N up to `together` of
 * them.  Reading, copying and computing micro-batches, and waiting for the last rank to have done so, make
 * the first part; the optimizer and what is not explained, the last. Checkpoints and validations are seconds
 * each: the caller spreads them over its own intervals.
 */
#ifndef DRY_MEASURE_SCALING_H
#define DRY_MEASURE_SCALING_H

#include "measure/verdict.h"

enum { DRY_SCALING_ROWS = 64 };

/* One measured rank count. */
struct dry_scaling_row {
    int ranks;
    int together;               /* most of them on one host */
    struct dry_account account; /* of its steady steps */
    struct dry_verdict verdict;
    double load;      /* plan's cost of the most loaded rank, mean over the counted steps */
    double mean_load; /* all cost / ranks */
    int64_t effective_batch, steps_per_epoch, micros; /* most micro-batches of a rank in a step */
    int64_t checkpoints, validations;                 /* among the counted steps */
    const char *differs; /* why the row cannot be compared with the others; NULL: it can */
};

struct dry_scaling_model {
    double compute, contention; /* seconds per unit of cost on one rank; more of it for each further rank of
                                   its host */
    int together;               /* most ranks of a host that were measured */
    double fixed;               /* seconds a step */
    double checkpoint, validation;              /* seconds each; 0: none was measured */
    double reduce, latency;                     /* seconds */
    int predicted;                              /* reduce was not measured but follows from a bandwidth */
    double bandwidth;                           /* bytes a second, when predicted */
    int left_out;                               /* rank count predicted from the others; 0: too few rows */
    double left_out_seconds, left_out_measured; /* a step of it */
    double left_out_error;                      /* predicted / measured - 1 */
};

/* Parts of a measured step, seconds: mean over the ranks. */
struct dry_scaling_parts {
    double arrive; /* until the last rank is at the reduction */
    double reduce, fixed;
    double checkpoint, validation; /* each */
};
/* Local. A row without steps gives zeros. */
struct dry_scaling_parts dry_scaling_parts(const struct dry_scaling_row *row);
/* Local. arrive + reduce + fixed: a measured step without checkpoints and validations. */
double dry_scaling_measured(const struct dry_scaling_row *row);

/* Local. Fits to rows (1 or more; by rising ranks). bytes: of the reduced block. bandwidth: measured, for
 * rows of which none has a second rank. INPUT: a row has no step or no load. */
enum dry_status dry_scaling_fit(const struct dry_scaling_row *row, int rows, double bytes, double bandwidth,
                                struct dry_scaling_model *m);
/* Local. Seconds a step with that many ranks, of which the most loaded has `load`; without checkpoints and
 * validations. */
double dry_scaling_seconds(const struct dry_scaling_model *m, int ranks, double load);
/* Local. Bytes a second at which this host adds up two blocks like the reduced one in its memory: what its
 * ranks do when they reduce over memory that they share. Takes a tenth of a second. MEMORY. */
enum dry_status dry_scaling_bandwidth(double bytes, double *bandwidth);
/* To and from scaling.json; caller decrefs. NULL: no memory. INPUT. */
json_t *dry_scaling_json(const struct dry_scaling_model *m);
enum dry_status dry_scaling_from_json(const json_t *object, const char *where, struct dry_scaling_model *m);

#endif
