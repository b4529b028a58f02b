/*
 * Mean loss over a whole plan without gradients, on any number of ranks with the same bits.
 * Owns the dealing of one evaluation.
 * Must not know what the loss is for.
 */
#include "config.h"

#include "train/loop.h"

#include "base/fault.h"
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
        if (dry_fault("evaluate")) {
            dry_error("evaluation: failed on purpose (DRY_FAULT)");
            return DRY_ERR_DEVICE;
        }
        status = dry_loader_load(loader, s, m, &batch);
        if (!status)
            status = dry_engine_batch(engine, batch, 0);
        if (!status)
            status = dry_engine_evaluate(engine);
    }
    return status;
}

/* The worst status of all ranks, which a rank that has it tells of, and whether one is asked to stop. */
static enum dry_status meet(struct dry_comm *comm, enum dry_status mine, int64_t asked)
{
    int64_t word[] = {mine, asked};
    enum dry_status status = DRY_OK;

    if (mine)
        dry_error("rank %d failed in an evaluation (%s)%s", dry_comm_rank(comm), dry_status_name(mine),
                  dry_comm_size(comm) > 1 ? "; all ranks end" : "");
    if (dry_comm_size(comm) > 1)
        status = dry_comm_max_i64(comm, word, sizeof word / sizeof *word);
    if (!status)
        status = (enum dry_status)word[0];
    return !status && word[1] ? DRY_STOPPED : status;
}

static enum dry_status run(struct dry_comm *comm, struct dry_engine *engine, struct dry_plan *plan,
                           struct dry_loader *loader, int (*stop)(void *), void *context, int *owner,
                           int64_t words[DRY_SUMS])
{
    struct dry_backend *b = dry_engine_backend(engine);
    enum dry_status mine = b->ops->sums_clear(b), status;

    for (int64_t n = 1; n <= dry_plan_steps(plan); n++) {
        struct dry_plan_step s;

        status = meet(comm, mine, stop ? stop(context) : 0);
        if (status)
            return status;
        mine = dry_plan_step(plan, n, &s);
        if (!mine)
            mine = evaluate_share(comm, engine, loader, &s, owner);
    }
    if (!mine)
        mine = b->ops->sums_read(b, words);
    status = meet(comm, mine, 0);
    if (!status && dry_comm_size(comm) > 1)
        status = dry_comm_sum_i64(comm, words, DRY_SUMS);
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

    status = meet(comm, owner || status ? status : DRY_ERR_MEMORY, 0);
    if (!status)
        status = run(comm, engine, plan, loader, stop, context, owner, words);
    dry_free(owner);
    if (status)
        return status;
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
