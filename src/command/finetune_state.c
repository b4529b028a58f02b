/*
 * What a run goes on from and what it leaves to go on from: checkpoints, and the state they hold, over all
 * ranks. Owns nothing; the state is struct dry_finetune's. Must not know how a step is computed.
 */
#include "config.h"

#include "command/finetune.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/peft.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0. Reads the checkpoint to go on from, if there is one. */
static enum dry_status find_and_load(struct dry_finetune *f)
{
    const struct dry_config *c = f->call->config;
    char *path = NULL;
    int64_t newest = 0;
    enum dry_status status = DRY_OK;

    if (strcmp(c->resume, "never") == 0) {
        status = dry_checkpoint_newest(c->output, &newest);
        if (!status && newest >= 0) {
            dry_error("--resume never: %s holds a run with checkpoints up to step %lld; give another "
                      "--output, or remove it",
                      c->output, (long long)newest);
            status = DRY_ERR_USAGE;
        }
        return status;
    }
    status = dry_checkpoint_find(c->output, c->resume, f->adapter, &path);
    if (!status && path) {
        status = dry_checkpoint_load(path, f->adapter, &f->state);
        f->resumed = !status;
    }
    dry_free(path);
    return status;
}

/* Collective. Rank 0's state to all: only rank 0 needs to see the folder. */
static enum dry_status share_state(struct dry_finetune *f)
{
    float *const block[] = {f->values, f->m, f->v};
    size_t bytes = (size_t)f->adapter->parameters * sizeof(float);
    struct dry_checkpoint *s = &f->state;
    enum dry_status status = dry_comm_bcast(f->comm, &f->resumed, sizeof f->resumed, 0);

    if (status || !f->resumed || f->ranks == 1)
        return status;
    if ((status = dry_comm_bcast(f->comm, &s->step, sizeof s->step, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->validated_step, sizeof s->validated_step, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->update_offset, sizeof s->update_offset, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->best_step, sizeof s->best_step, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->best_loss, sizeof s->best_loss, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->rate_factor, sizeof s->rate_factor, 0)) ||
        (status = dry_comm_bcast(f->comm, &s->contract, sizeof s->contract, 0)))
        return status;
    for (int i = 0; i < 3 && !status; i++)
        status = dry_comm_bcast(f->comm, block[i], bytes, 0);
    return status;
}

/* Rank 0. metrics.jsonl counts the steps of the contract before. */
static enum dry_status set_metrics_aside(const char *output)
{
    char *from = dry_path_join(output, "metrics.jsonl"), *to = NULL;
    enum dry_status status = from ? DRY_OK : DRY_ERR_MEMORY;

    for (int n = 1; !status && dry_file_exists(from) && !to; n++) {
        to = dry_format("%s/metrics-before-change-%d.jsonl", output, n);
        if (!to) {
            status = DRY_ERR_MEMORY;
        } else if (dry_file_exists(to)) {
            dry_free(to);
            to = NULL;
        }
    }
    if (to && rename(from, to)) {
        dry_error("%s: cannot be renamed to %s: %s", from, to, strerror(errno));
        status = DRY_ERR_IO;
    }
    dry_free(from);
    dry_free(to);
    return status;
}

/* Rank 0. The new contract's state first, under its own step; only then are the old checkpoints moved away: a
 * kill in between leaves a folder that the same command finds a way on from. */
static enum dry_status store_change(struct dry_finetune *f)
{
    const char *output = f->call->config->output;
    enum dry_status status = dry_checkpoint_save(output, f->adapter, &f->state, 0);

    if (!status)
        status = dry_checkpoint_set_aside(output, f->state.step);
    if (!status)
        status = set_metrics_aside(output);
    return status;
}

/* The step of the new contract that has seen the records of the old one's step (in an epoch that is begun,
 * rounded down: none is left out). */
static int64_t step_under(const struct dry_contract *then, const struct dry_contract *now, int64_t step,
                          int64_t *again)
{
    int64_t epoch = step / then->steps_per_epoch;
    int64_t seen = step % then->steps_per_epoch * then->effective_batch;
    int64_t mapped = epoch * now->steps_per_epoch + seen / now->effective_batch;

    *again = seen % now->effective_batch;
    return mapped < now->steps ? mapped : now->steps;
}

/* Collective. Carries an accepted batch change out. */
static enum dry_status change_batch(struct dry_finetune *f, double factor)
{
    struct dry_checkpoint *s = &f->state;
    struct dry_contract before = s->contract;
    int64_t again = 0, step = step_under(&before, &f->contract, s->step, &again), was = s->step;
    enum dry_status status = DRY_OK;

    f->change = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:I}", "at_step", (json_int_t)was,
        "continues_as_step", (json_int_t)step, "effective_batch_before", (json_int_t)before.effective_batch,
        "effective_batch", (json_int_t)f->contract.effective_batch, "steps_per_epoch_before",
        (json_int_t)before.steps_per_epoch, "steps_per_epoch", (json_int_t)f->contract.steps_per_epoch,
        "rule", f->call->config->accept_batch_change, "rate_factor", factor, "learning_rate_before",
        before.learning_rate * s->rate_factor, "learning_rate",
        f->contract.learning_rate * s->rate_factor * factor, "records_seen_twice", (json_int_t)again);
    if (!f->change)
        status = DRY_ERR_MEMORY;
    s->update_offset += was - step;
    s->validated_step = s->validated_step == was ? step : 0;
    s->step = step;
    s->rate_factor *= factor;
    s->contract = f->contract;
    if (!status && f->rank == 0)
        status = store_change(f);
    status = dry_comm_agree(f->comm, status);
    if (!status)
        dry_info("step %lld of the contract before is step %lld of the new one; %lld records of this epoch "
                 "are seen twice; "
                 "the checkpoints before are in checkpoints/before-change-N",
                 (long long)was, (long long)step, (long long)again);
    return status;
}

/* Local. A finished run has no step left that another batch could apply to. */
static enum dry_status check_unfinished(const struct dry_finetune *f)
{
    const struct dry_contract *then = &f->state.contract;
    const char *output = f->call->config->output;

    if (!f->call->config->accept_batch_change || f->state.step < then->steps ||
        dry_contract_same_batch(then, &f->contract))
        return DRY_OK;
    dry_error(
        "--accept-batch-change: the run in %s has done all of its %lld step%s: no step is left to change; "
        "to train on, give a new --output and --init-adapter '%s/adapter'",
        output, (long long)then->steps, dry_plural(then->steps), output);
    return DRY_ERR_USAGE;
}

enum dry_status dry_finetune_compare(const struct dry_finetune *f, const struct dry_contract *then,
                                     const char *accept, double *factor)
{
    enum dry_status status = dry_contract_compare(then, &f->contract, accept, factor);

    if (status == DRY_ERR_USAGE && f->before)
        dry_config_differences(f->before, f->options);
    if (status == DRY_ERR_USAGE && !accept && !dry_contract_same_batch(then, &f->contract) &&
        dry_contract_ways(f->call->config, f->ranks, then, &f->contract))
        return DRY_ERR_MEMORY;
    return status;
}

enum dry_status dry_finetune_resume(struct dry_finetune *f)
{
    const char *accept = f->call->config->accept_batch_change;
    struct dry_checkpoint *s = &f->state;
    double factor = 1;
    enum dry_status status = DRY_OK;

    *s = (struct dry_checkpoint){.best_loss = INFINITY,
                                 .rate_factor = 1,
                                 .contract = f->contract,
                                 .values = f->values,
                                 .m = f->m,
                                 .v = f->v};
    dry_log_defer(1);
    if (f->rank == 0)
        status = find_and_load(f);
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = share_state(f);
    if (!status && f->resumed) {
        status = check_unfinished(f);
        if (!status)
            status = dry_finetune_compare(f, &s->contract, accept, &factor);
        status = dry_comm_agree(f->comm, status);
        if (!status && !dry_contract_same_batch(&s->contract, &f->contract))
            status = change_batch(f, factor);
    } else if (!status && f->earlier) {
        status = dry_comm_agree(f->comm, dry_finetune_compare(f, &f->then, accept, &factor));
        s->rate_factor = factor;
        if (!status)
            dry_info("the run in %s left no checkpoint: it begins anew", f->call->config->output);
    }
    dry_log_defer(0);
    return status;
}

/* Collective. All ranks apply the same updates to the same values; a machine that computes otherwise shows
 * here. */
static enum dry_status check_same(struct dry_finetune *f, int64_t step)
{
    char hex[DRY_HASH_HEX], what[64];
    enum dry_status status = dry_comm_agree(
        f->comm, dry_hash_bytes(f->values, (size_t)f->adapter->parameters * sizeof(float), hex));

    if (status || f->ranks == 1)
        return status;
    snprintf(what, sizeof what, "adapter after step %lld", (long long)step);
    status = dry_comm_same(f->comm, what, hex);
    return status == DRY_ERR_USAGE ? DRY_ERR_NUMERIC : status;
}

enum dry_status dry_finetune_save(struct dry_finetune *f, const struct dry_loop *l, int64_t step)
{
    struct dry_checkpoint *s = &f->state;
    enum dry_status status = f->backend->ops->state_get(f->backend, f->values, f->m, f->v);

    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = check_same(f, step);
    if (status)
        return status;
    s->step = step;
    s->best_loss = l->best_loss;
    s->best_step = l->best_step;
    s->validated_step = l->validated_step;
    if (f->rank == 0) {
        struct dry_checkpoint saved = *s;

        saved.options = f->options_text;
        saved.manifest = f->manifest_text;
        status = dry_checkpoint_save(f->call->config->output, f->adapter, &saved,
                                     f->call->config->keep_checkpoints);
    }
    return dry_comm_agree(f->comm, status);
}

/* Rank 0. Does OUTPUT/adapter hold these very values? A folder that cannot be read does not. */
static int exported(const struct dry_finetune *f, const char *folder)
{
    struct dry_adapter *a = NULL;
    float *values = NULL;
    int same = 0;

    if (dry_file_is_dir(folder) && !dry_peft_open(folder, &f->base->arch, &a) &&
        a->parameters == f->adapter->parameters &&
        (values = dry_alloc((size_t)a->parameters, sizeof *values, "the exported adapter")) &&
        !dry_peft_values(folder, a, values))
        same = memcmp(values, f->values, (size_t)a->parameters * sizeof *values) == 0;
    dry_free(values);
    dry_adapter_destroy(a);
    return same;
}

enum dry_status dry_finetune_done(struct dry_finetune *f, int *done)
{
    char *folder = dry_path_join(f->call->config->output, "adapter"), hex[DRY_HASH_HEX] = "";
    const struct dry_contract *k = &f->contract;
    enum dry_status status = dry_comm_agree(f->comm, folder ? DRY_OK : DRY_ERR_MEMORY);

    *done = 0;
    if (!status && f->resumed && f->state.step == k->steps &&
        (!f->validation_cache || f->state.validated_step == k->steps) && f->rank == 0) {
        dry_log_defer(1);
        *done = exported(f, folder);
        dry_log_discard(); /* what is wrong with a half-written adapter: it is written again */
        dry_log_defer(0);
        if (*done)
            status = dry_peft_hash(folder, hex);
        if (*done && !status)
            dry_info("all %lld steps are done: %s holds the adapter (sha256 %s)", (long long)k->steps, folder,
                     hex);
    }
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = dry_comm_bcast(f->comm, done, sizeof *done, 0);
    dry_free(folder);
    return status;
}
