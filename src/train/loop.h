/*
 * The loop: the one place that sees every stage of every step.
 * Owns nothing that outlives the call.  Must not know how checkpoints, metrics or progress look: they are
 * called through a table.
 */
#ifndef DRY_TRAIN_LOOP_H
#define DRY_TRAIN_LOOP_H

#include "config/contract.h"
#include "data/batch.h"
#include "data/plan.h"
#include "parallel/device.h"
#include "train/engine.h"
#include "train/schedule.h"
#include "train/stages.h"

/* What a step brought; the same on all ranks (but seconds and stages). */
struct dry_step_report {
    int64_t step, steps, epoch;
    double loss;       /* mean over the step's supervised tokens */
    double norm, rate; /* gradient norm before clipping; learning rate */
    int64_t records, useful, tokens, supervised;
    double seconds; /* this step on this rank */
};
struct dry_validation_report {
    int64_t step, supervised;
    double loss, perplexity;
    int best; /* lowest so far (of equal ones the first) */
};

/* What this rank had of a step. */
struct dry_share {
    int64_t tokens, padded, supervised, micros; /* useful tokens, with padding, labels, micro-batches */
    int64_t square;                             /* sum of squared record lengths: the attention's work */
};

enum dry_loop_why { DRY_WHY_INTERVAL, DRY_WHY_STOP, DRY_WHY_END };

/* Called by the loop; context first. Collective: all ranks call them at the same step. NULL entries are
 * skipped. */
struct dry_loop;
struct dry_loop_hooks {
    void *context;
    enum dry_status (*step)(void *context, const struct dry_step_report *r, const struct dry_stages *stages);
    /* The values that were validated are in the backend: to be kept when they are the best. IO before the
     * last step is not the end of the run either: they then do not count as the best. */
    enum dry_status (*validated)(void *context, const struct dry_validation_report *r);
    /* Save: values, m and v are in the backend; the loop's fields say what else to keep. A failure at an
     * interval is not the end of the run: the older checkpoint is there, and the next one may succeed. */
    enum dry_status (*checkpoint)(void *context, const struct dry_loop *l, int64_t step,
                                  enum dry_loop_why why);
    /* The account of a step, with what followed it, can be closed: what comes now counts for the next one.
     * Step 0: before the first step. Local, but Collective with gather non-zero, which comes about once a
     * second and after what takes longer: ranks may then tell each other what they have. */
    enum dry_status (*account)(void *context, int64_t step, const struct dry_share *share, int gather);
    /* Local: non-zero when this rank was asked to stop (a signal); the loop agrees over ranks. */
    int (*stop)(void *context);
};

struct dry_loop {
    struct dry_comm *comm;
    struct dry_device_comm *device_comm; /* adds up gradients where they lie; NULL: over the host */
    struct dry_engine *engine;
    const struct dry_contract *contract;
    struct dry_plan *plan;
    struct dry_loader *loader;
    struct dry_plan *validation_plan; /* NULL: none */
    struct dry_loader *validation_loader;
    int64_t first_step; /* 1, or after the checkpoint resumed from */
    int64_t last_step;  /* contract->steps */
    int64_t stop_after; /* ends after this step as if asked to stop; 0: does not */
    int64_t checkpoint_interval, validation_interval; /* 0: only at the end */
    double rate_factor;                               /* product of accepted batch changes; 1: none */
    int64_t update_offset;                            /* updates made = step + this */
    struct dry_stages *stages;
    struct dry_loop_hooks hooks;
    /* kept up by the loop, in checkpoints with it */
    double best_loss;       /* lowest validation loss; INFINITY: none */
    int64_t best_step;      /* its step; 0: none */
    int64_t validated_step; /* last step whose validation was done; 0: none */
};

/* Collective. Runs steps first_step..last_step; a validation that a stop left undone is done first. OK;
 * STOPPED: asked to stop, and a checkpoint of all steps done is written; or an error, the same on all
 * ranks. An error that one rank meets inside a step is logged with rank, stage and step, and told to the
 * others where they meet before the reduction. Only a rank that fails between there and the step's end, where
 * the others wait in a collective of their own, ends all ranks of the job (dry_comm_abort). */
enum dry_status dry_loop_run(struct dry_loop *l);

/* Collective. Mean loss over a whole plan (its micro-batches dealt to the ranks) with the engine's adapter as
 * enabled. Uses the backend's sums. stop (with context): asked at each step of the plan, over all ranks; may
 * be NULL. STOPPED: no result. An error of one rank, logged with its number, is the result on all. */
enum dry_status dry_evaluate(struct dry_comm *comm, struct dry_engine *engine, struct dry_plan *plan,
                             struct dry_loader *loader, int (*stop)(void *context), void *context,
                             double *loss, int64_t *supervised);

#endif
