/*
 * The end of a run: the adapter on disk, proved by reading it back and computing a loss with it.
 * Owns nothing.
 * Must not know how the adapter was trained.
 */
#include "config.h"

#include "command/finetune.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/peft.h"

#include <math.h>
#include <string.h>

/* Local. Sums of the first held-out micro-batch (of the training data where there is none) with the values in
 * the backend. */
static enum dry_status first_loss(struct dry_finetune *f, int64_t words[DRY_SUMS])
{
    struct dry_plan *plan = f->validation_plan ? f->validation_plan : f->plan;
    struct dry_loader *loader = f->validation_plan ? f->validation_loader : f->loader;
    const struct dry_backend_ops *ops = f->backend->ops;
    const struct dry_batch *batch;
    struct dry_plan_step s;
    enum dry_status status;

    if ((status = ops->sums_clear(f->backend)) || (status = dry_plan_step(plan, 1, &s)) ||
        (status = dry_loader_load(loader, &s, 0, &batch)) ||
        (status = dry_engine_batch(f->engine, batch, 0)) || (status = dry_engine_evaluate(f->engine)))
        return status;
    return ops->sums_read(f->backend, words);
}

/* Local. The adapter in a folder as any reader would find it. */
static enum dry_status read_back(struct dry_finetune *f, const char *folder, float **values)
{
    struct dry_adapter *a = NULL;
    float *got = NULL;
    enum dry_status status = dry_peft_open(folder, &f->base->arch, &a);

    if (!status && a->parameters != f->adapter->parameters) {
        dry_error("%s: read back with %lld parameters, trained were %lld", folder, (long long)a->parameters,
                  (long long)f->adapter->parameters);
        status = DRY_ERR_INTERNAL;
    }
    if (!status && !(got = dry_alloc((size_t)a->parameters, sizeof *got, "the adapter read back")))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = dry_peft_values(folder, a, got);
    dry_adapter_destroy(a);
    if (status)
        dry_free(got);
    else
        *values = got;
    return status;
}

/* Local. The loss with the adapter from disk has the bits of the loss with the adapter in memory. */
static enum dry_status prove(struct dry_finetune *f, const char *folder)
{
    int64_t before[DRY_SUMS], after[DRY_SUMS];
    char hex[DRY_HASH_HEX];
    float *values = NULL;
    enum dry_status status = first_loss(f, before);

    if (!status)
        status = read_back(f, folder, &values);
    if (!status)
        status = f->backend->ops->state_set(f->backend, values, NULL, NULL);
    if (!status)
        status = first_loss(f, after);
    if (!status)
        status = dry_peft_hash(folder, hex);
    if (!status && (memcmp(before, after, sizeof before) ||
                    memcmp(values, f->values, (size_t)f->adapter->parameters * sizeof *values))) {
        dry_error("%s: read back from disk it gives another loss than in memory (sums %lld and %lld); the "
                  "disk or the memory "
                  "of this machine is not to be trusted",
                  folder, (long long)after[DRY_SUM_LOSS], (long long)before[DRY_SUM_LOSS]);
        status = DRY_ERR_INTERNAL;
    }
    if (!status)
        dry_info("adapter %s: %lld parameters, sha256 %s; read back: loss %.6f over %lld tokens, the same "
                 "bits as in memory",
                 folder, (long long)f->adapter->parameters, hex,
                 ldexp((double)after[DRY_SUM_LOSS], -DRY_LOSS_BITS) / (double)after[DRY_SUM_TOKENS],
                 (long long)after[DRY_SUM_TOKENS]);
    dry_free(values);
    return status;
}

enum dry_status dry_finetune_export(struct dry_finetune *f)
{
    const struct dry_config *c = f->call->config;
    char *folder = dry_path_join(c->output, "adapter");
    enum dry_status status = folder ? DRY_OK : DRY_ERR_MEMORY;

    if (!status)
        status = f->backend->ops->state_get(f->backend, f->values, NULL, NULL);
    if (!status && f->rank == 0) {
        status = dry_dir_make(folder);
        if (!status)
            status = dry_peft_save(folder, f->adapter, f->values, c->base);
        if (!status)
            status = prove(f, folder);
    }
    dry_free(folder);
    status = dry_comm_agree(f->comm, status);
    f->exported = !status;
    return status;
}

json_t *dry_finetune_results(const struct dry_finetune *f, const struct dry_loop *l)
{
    char *folder = dry_path_join(f->call->config->output, "adapter"), hex[DRY_HASH_HEX] = "";
    json_t *r = json_pack("{s:I, s:I, s:I, s:f}", "parameters", (json_int_t)f->adapter->parameters,
                          "steps_this_start", (json_int_t)f->steps_done, "tokens_this_start",
                          (json_int_t)f->tokens_done, "loop_seconds", f->loop_seconds);
    int bad = !r;

    if (f->steps_done > 0) {
        bad = bad || json_object_set_new(r, "first_loss", json_real(f->first_loss));
        bad = bad || json_object_set_new(r, "last_loss", json_real(f->last_loss));
        bad = bad || json_object_set_new(
                         r, "tokens_per_second",
                         json_real(f->loop_seconds > 0 ? (double)f->tokens_done / f->loop_seconds : 0));
    }
    if (f->validation_loss < INFINITY) {
        bad = bad || json_object_set_new(r, "validation_loss", json_real(f->validation_loss));
        bad = bad || json_object_set_new(r, "perplexity", json_real(exp(f->validation_loss)));
    }
    if (l->best_step > 0)
        bad =
            bad || json_object_set_new(r, "best",
                                       json_pack("{s:I, s:f, s:s}", "step", (json_int_t)l->best_step,
                                                 "validation_loss", l->best_loss, "folder", "adapter-best"));
    if (folder && f->exported && !dry_peft_hash(folder, hex))
        bad = bad || json_object_set_new(r, "adapter_sha256", json_string(hex));
    dry_free(folder);
    if (bad) {
        json_decref(r);
        return NULL;
    }
    return r;
}
