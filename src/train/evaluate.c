/*
 * Mean loss over a whole plan without gradients, on any number of ranks with the same bits.
 * Owns the dealing of one evaluation.
 * Must not know what the loss is for.
 */
#include "config.h"

#include "train/loop.h"

#include "base/log.h"
#include "base/memory.h"

#include <math.h>

/* This rank's share of one step of the plan. */
static enum dry_status evaluate_share(struct dry_comm *comm, struct dry_engine *engine,
                                      struct dry_loader *loader, const struct dry_plan_step *s, int *owner)
{
    enum dry_status status = DRY_OK;

    dry_plan_deal(s, dry_comm_size(comm), owner);
    for (int64_t m = 0; m < s->micros && !status; m++) {
        const struct dry_batch *batch;

        if (owner[m] != dry_comm_rank(comm))
            continue;
        status = dry_loader_load(loader, s, m, &batch);
        if (!status)
            status = dry_engine_batch(engine, batch, 0);
        if (!status)
            status = dry_engine_evaluate(engine);
    }
    return status;
}

/* The three words of all ranks together. */
static enum dry_status total(struct dry_comm *comm, struct dry_backend *b, int64_t words[DRY_SUMS])
{
    enum dry_status status = b->ops->sums_read(b, words);

    if (!status && dry_comm_size(comm) > 1)
        status = dry_comm_sum_i64(comm, words, DRY_SUMS);
    return status;
}

static enum dry_status run(struct dry_comm *comm, struct dry_engine *engine, struct dry_plan *plan,
                           struct dry_loader *loader, int (*stop)(void *), void *context, int *owner,
                           int64_t words[DRY_SUMS])
{
    struct dry_backend *b = dry_engine_backend(engine);
    enum dry_status status = b->ops->sums_clear(b);

    for (int64_t n = 1; n <= dry_plan_steps(plan) && !status; n++) {
        struct dry_plan_step s;
        int64_t asked = stop ? stop(context) : 0;

        if (stop && dry_comm_size(comm) > 1)
            status = dry_comm_max_i64(comm, &asked, 1);
        if (!status && asked)
            return DRY_STOPPED;
        if (!status)
            status = dry_plan_step(plan, n, &s);
        if (!status)
            status = evaluate_share(comm, engine, loader, &s, owner);
    }
    if (!status)
        status = total(comm, b, words);
    return status;
}

enum dry_status dry_evaluate(struct dry_comm *comm, struct dry_engine *engine, struct dry_plan *plan,
                             struct dry_loader *loader, int (*stop)(void *context), void *context,
                             double *loss, int64_t *supervised)
{
    struct dry_plan_bounds bounds;
    int64_t words[DRY_SUMS];
    enum dry_status status = dry_plan_bounds(plan, &bounds);
    int *owner =
        status ? NULL : dry_alloc((size_t)bounds.micros, sizeof *owner, "the dealing of micro-batches");

    if (!status)
        status = owner ? run(comm, engine, plan, loader, stop, context, owner, words) : DRY_ERR_MEMORY;
    dry_free(owner);
    if (status == DRY_STOPPED)
        return status;
    if (status) {
        dry_error("rank %d failed in an evaluation (%s)%s", dry_comm_rank(comm), dry_status_name(status),
                  dry_comm_size(comm) > 1 ? "; all ranks end" : "");
        if (dry_comm_size(comm) > 1)
            dry_comm_abort(comm);
        return status;
    }
    if (words[DRY_SUM_FLAGS] || words[DRY_SUM_TOKENS] <= 0) { /* the same on all ranks: rank 0 says it */
        if (dry_comm_rank(comm) == 0)
            dry_error("evaluation: %s", words[DRY_SUM_FLAGS]
                                            ? "a loss is not finite or left the range of exact sums"
                                            : "there is no supervised token");
        return DRY_ERR_NUMERIC;
    }
    *loss = ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS) / (double)words[DRY_SUM_TOKENS];
    *supervised = words[DRY_SUM_TOKENS];
    return DRY_OK;
}
