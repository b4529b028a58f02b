/*
 * The account of a run: a run's rows summed up over steps, and over ranks as least, median and most.
 * Owns nothing.  Must not know where it is shown.
 */
#ifndef DRY_MEASURE_ACCOUNT_H
#define DRY_MEASURE_ACCOUNT_H

#include "measure/history.h"

#include <stdio.h>

/* Over ranks. */
struct dry_spread {
    double least, median, most, mean;
    int most_rank; /* the slowest: who has the most */
};

struct dry_account {
    int ranks;
    int64_t first, last, steps;          /* steps counted */
    double wall;                         /* seconds of the counted rows, of the rank with most */
    double stepping;                     /* the same of rows of steps alone, without start and end */
    double step_seconds;                 /* stepping over steps; 0 without a step */
    struct dry_spread stage[DRY_STAGES]; /* seconds over all counted rows */
    double busy_least, busy_most;        /* forward + backward of the ranks with least and most */
    int busy_most_rank;                  /* who computes longest: the one that others wait for */
    double tokens, padded, supervised;   /* of all ranks */
    double micros, micros_most;          /* micro-batches of all ranks; of the rank with most */
    double unexplained;                  /* share of wall, of the rank where it is worst */
    double tokens_per_second, supervised_per_second; /* over stepping; 0 without a step */
    double flops_per_second;  /* by the LoRA count, of all ranks, over stepping; 0: not known */
    double matrix_per_second; /* what products of the run's own shapes reach, of all ranks; 0: not known */
    double energy;            /* joules of all GPUs over the counted time; NAN: not known */
    double step_energy;       /* the same over the time of the steps alone */
};

/* Which rows count. */
struct dry_account_range {
    int start;           /* number of the start; -1: the latest, -2: all */
    int64_t first, last; /* steps, inclusive; last 0: to the end */
    int whole;           /* also the phases start and end */
};

/* Local. Account of these rows; a run without stages.csv gives INPUT. */
enum dry_status dry_account_make(const struct dry_history *h, const struct dry_account_range *range,
                                 struct dry_account *a);
/* Local. The table for people: stages as least, median, most over ranks with share of wall-clock and the
 * slowest rank, then tokens, rates and the share of the matrix rate. */
void dry_account_print(FILE *out, const struct dry_account *a);
/* Local. The same for --json and run.json; caller decrefs. NULL: no memory. */
json_t *dry_account_json(const struct dry_account *a);

#endif
