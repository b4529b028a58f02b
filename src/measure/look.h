/*
 * What a run's steady steps show, as numbers: where their seconds are, and what each step would take without
 * one thing or another.  Private to measure.  Owns its arrays.  Must not know which number is a cause.
 *
 * Ranks work for themselves and then meet in the reduction: a step lasts as long as its last rank works, and
 * what follows.  So what a change would win is found step by step: the time at which the last rank arrives,
 * less that time had each rank worked without the thing.
 */
#ifndef DRY_MEASURE_LOOK_H
#define DRY_MEASURE_LOOK_H

#include "measure/history.h"

/* Things that a step could be without. */
enum dry_without {
    DRY_WITHOUT_DATA,    /* waiting for records */
    DRY_WITHOUT_COPY,    /* moving them to the device */
    DRY_WITHOUT_SLOW,    /* ranks that compute slower than others, were they like the others */
    DRY_WITHOUT_PLAN,    /* unequal shares, were all of the mean; steps that have work for every rank */
    DRY_WITHOUT_IDLE,    /* the same, of steps with fewer micro-batches than ranks */
    DRY_WITHOUT_MICRO,   /* what a micro-batch costs beyond its tokens */
    DRY_WITHOUT_PADDING, /* computing rows that are no tokens */
    DRY_WITHOUTS
};

struct dry_look {
    int ranks;
    int64_t first, last, steps; /* the steady steps */
    double wall, step;          /* seconds of all of them, of one; mean over ranks */
    /* the start as a whole, of the rank with most */
    double whole, startup, tokenise;
    /* seconds of the steady steps */
    double mean[DRY_STAGES]; /* mean over ranks */
    double most[DRY_STAGES]; /* of the rank with most */
    int most_rank[DRY_STAGES];
    double won[DRY_WITHOUTS];                /* see above */
    double last_checkpoint, last_validation; /* of them, of the rank with most: behind the run's last step */
    /* What reducing takes at every step: of the rank that needs least, in a step in which that is quick (one
     * of ten is quicker), times the steps. Longer ones wait for a rank that the system holds up: on busy
     * cores that is half of the steps. */
    double reduce;
    int64_t checkpoints, validations; /* steps that have one */
    /* work, of all ranks */
    double tokens, padded, micros;
    double weight;      /* the work in tokens: padded, and attention's as tokens */
    double load;        /* the most loaded rank's share of a step's cost over the mean share */
    double idle;        /* ranks without a micro-batch in a step, mean */
    double micros_most; /* micro-batches of the rank with most in a step, mean */
    double per_token,
        per_micro; /* what computing costs: seconds = per_token tokens + per_micro micro-batches */
    /* Seconds for the same work, over those of the median rank; [ranks]. */
    double *factor;
    int slow, slows; /* the slowest of the ranks that are slow throughout; their number, 0: none */
};

/* Local. Looks at the latest start; a rank is slow when it takes `slow` times as long as the median or more,
 * in every part of the run. INPUT: no account (logged), MEMORY. */
enum dry_status dry_look_at(const struct dry_history *h, double slow, struct dry_look *l);
void dry_look_release(struct dry_look *l);

#endif
