/*
 * What a plan means for its steps and for a number of ranks: counts for people, no part of any result.
 * Owns nothing.
 */
#ifndef DRY_DATA_SHARES_H
#define DRY_DATA_SHARES_H

#include "data/plan.h"

/* Sums and extremes over steps. */
struct dry_plan_totals {
    int64_t steps;
    int64_t records, useful, tokens, supervised, square, micros;
    int64_t micros_least, micros_most; /* micro-batches of one step */
};

/* One number of ranks. */
struct dry_plan_share {
    int ranks;
    int64_t least, most; /* micro-batches that a rank gets in a step, over all steps and ranks; most is the
                            accumulation */
    double mean;         /* micro-batches per rank and step */
    int64_t idle_most;   /* most ranks without a micro-batch in one step */
    double idle;         /* mean of them per step */
    double balance; /* all cost / (ranks x the costliest rank's), over all steps: the share of time that ranks
                       do not wait for each other when cost is time */
    double load;    /* cost of the costliest rank, mean over the steps */
    double mean_load; /* all cost / ranks, mean over the steps */
};

/* Local. The first `steps` steps of the plan. MEMORY. */
enum dry_status dry_plan_total(struct dry_plan *p, int64_t steps, struct dry_plan_totals *t);
enum dry_status dry_plan_shares(struct dry_plan *p, int64_t steps, int ranks, struct dry_plan_share *s);
/* Local. The same of steps first..last. MEMORY. */
enum dry_status dry_plan_shares_of(struct dry_plan *p, int64_t first, int64_t last, int ranks,
                                   struct dry_plan_share *s);

#endif
