/*
 * The loop: the one place that sees every stage of every step.
 * Owns nothing that outlives the call.  Must not know how checkpoints, metrics or progress look: they are called through
 * a table.
 */
#ifndef DRY_TRAIN_LOOP_H
#define DRY_TRAIN_LOOP_H

#include "config/contract.h"
#include "data/batch.h"
#include "data/plan.h"
#include "parallel/comm.h"
#include "train/engine.h"
#include "train/schedule.h"
#include "train/stages.h"

/* What a step brought; the same on all ranks (but seconds and stages). */
struct dry_step_report {
    int64_t step, steps, epoch;
    double loss;          /* mean over the step's supervised tokens */
    double norm, rate;    /* gradient norm before clipping; learning rate */
    int64_t records, useful, tokens, supervised;
    double seconds;       /* this step on this rank */
};
struct dry_validation_report {
    int64_t step, records, supervised;
    double loss, perplexity;
    int best;             /* lowest so far */
};

/* Called by the loop; context first. Collective: all ranks call them at the same step. NULL entries are skipped. */
struct dry_loop_hooks {
    void *context;
    enum dry_status (*step)(void *context, const struct dry_step_report *r, const struct dry_stages *stages);
    enum dry_status (*validated)(void *context, const struct dry_validation_report *r);
    /* Save: values, m and v are in the backend. why: "interval", "stop", "end". */
    enum dry_status (*checkpoint)(void *context, int64_t step, const char *why);
    /* Local: non-zero when this rank was asked to stop (a signal); the loop agrees over ranks. */
    int (*stop)(void *context);
};

struct dry_loop {
    struct dry_comm *comm;
    struct dry_engine *engine;
    const struct dry_contract *contract;
    struct dry_plan *plan;
    struct dry_loader *loader;
    struct dry_plan *validation_plan;     /* NULL: none */
    struct dry_loader *validation_loader;
    int64_t first_step;                   /* 1, or after the checkpoint resumed from */
    int64_t last_step;                    /* contract->steps */
    int64_t checkpoint_interval, validation_interval; /* 0: only at the end */
    double best_loss;                     /* of earlier validations; INFINITY: none */
    struct dry_stages *stages;
    struct dry_loop_hooks hooks;
};

/* Collective. Runs steps first_step..last_step. OK, STOPPED (a checkpoint was written), or an error; an error inside a
 * step is logged by its finder and ends all ranks (dry_comm_abort). */
enum dry_status dry_loop_run(struct dry_loop *l);

/* Collective. Mean loss over a whole plan (its micro-batches dealt to the ranks) with the engine's adapter as enabled. */
enum dry_status dry_evaluate(struct dry_comm *comm, struct dry_engine *engine, struct dry_plan *plan,
                             struct dry_loader *loader, double *loss, int64_t *supervised);

#endif
