/*
 * finetune: from options to a proved adapter.
 * Owns everything of the run, in struct dry_finetune.
 * Must not know how a part does its work: this file is the order of the parts.
 */
#include "config.h"

#include "command/finetune.h"

#include "command/signals.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "measure/machine.h"
#include "state/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what the loop calls ---- */

static int hook_stop(void *context)
{
    (void)context;
    return dry_signals_asked();
}

static enum dry_status hook_step(void *context, const struct dry_step_report *r,
                                 const struct dry_stages *stages)
{
    struct dry_finetune *f = context;

    if (f->steps_done++ == 0)
        f->first_loss = r->loss;
    f->last_loss = r->loss;
    f->tokens_done += r->useful;
    if (f->rank != 0)
        return DRY_OK;
    dry_progress_step(f->progress, r);
    /* A full disk must not end the training: the finder has said what is wrong, once is enough. */
    if (!f->metrics_failed && dry_run_step(f->run, r, stages)) {
        dry_warn("metrics.jsonl has no line from step %lld on; training goes on", (long long)r->step);
        f->metrics_failed = 1;
    }
    return DRY_OK;
}

static enum dry_status hook_validated(void *context, const struct dry_validation_report *r)
{
    struct dry_finetune *f = context;
    char *folder = NULL;
    enum dry_status status = DRY_OK;

    f->validation_loss = r->loss;
    if (f->rank == 0) {
        dry_info("step %lld validation loss %.6f perplexity %.4f over %lld tokens%s", (long long)r->step,
                 r->loss, r->perplexity, (long long)r->supervised, r->best ? " (best)" : "");
        if (!f->metrics_failed && dry_run_validation(f->run, r))
            f->metrics_failed = 1;
        if (r->best) {
            status = f->backend->ops->state_get(f->backend, f->values, NULL, NULL);
            folder = dry_path_join(f->call->config->output, "adapter-best");
            if (!status)
                status = folder ? dry_dir_make(folder) : DRY_ERR_MEMORY;
            if (!status)
                status = dry_peft_save(folder, f->adapter, f->values, f->call->config->base);
        }
        dry_free(folder);
    }
    return dry_comm_agree(f->comm, status);
}

static enum dry_status hook_checkpoint(void *context, const struct dry_loop *l, int64_t step,
                                       enum dry_loop_why why)
{
    struct dry_finetune *f = context;
    enum dry_status status = dry_finetune_save(f, l, step);

    if (!status)
        dry_debug("step %lld: checkpoint written (%s)", (long long)step,
                  why == DRY_WHY_END    ? "end"
                  : why == DRY_WHY_STOP ? "stop"
                                        : "interval");
    return status;
}

static enum dry_status hook_account(void *context, int64_t step, const struct dry_share *share, int gather)
{
    struct dry_finetune *f = context;

    return dry_ledger_put(f->ledger, step > 0 ? DRY_PHASE_STEP : DRY_PHASE_START, step, share, gather);
}

/* ---- the order ---- */

/* Collective. All that needs no weights: folder, tokenizer, records. What can be refused is refused before a
 * folder is made. */
static enum dry_status set_up_data(struct dry_finetune *f)
{
    const struct dry_call *call = f->call;
    struct dry_record_rule rule;
    enum dry_status status = dry_finetune_look(f);

    if (!status) {
        dry_log_defer(1);
        status = dry_comm_agree(f->comm, dry_setup_early(call));
        dry_log_defer(0);
    }
    if (!status)
        status = dry_setup_tokenizer(call, &f->dir, &f->tokenizer);
    if (!status && f->rank == 0) /* before anything reads it */
        f->resident = dry_machine_resident(f->dir);
    if (!status) /* before the records are tokenised: a base that is refused is refused at once */
        status = dry_setup_base(call, f->dir, &f->base);
    if (!status)
        status = dry_setup_rule(call, f->tokenizer, &rule);
    if (!status)
        status = dry_finetune_folder(f);
    dry_stages_enter(&f->stages, DRY_STAGE_TOKENISE);
    if (!status)
        status = dry_setup_cache(call, f->tokenizer, &rule, call->config->data, &f->cache);
    if (!status && call->config->validation_data)
        status =
            dry_setup_cache(call, f->tokenizer, &rule, call->config->validation_data, &f->validation_cache);
    dry_stages_enter(&f->stages, DRY_STAGE_STARTUP);
    return status;
}

/* Collective. Loaders, and limits that hold for training and validation. */
static enum dry_status set_up_loaders(struct dry_finetune *f, struct dry_limits *limits)
{
    struct dry_plan_bounds b = {0}, v = {0};
    enum dry_status status;

    dry_log_defer(1);
    status = dry_plan_bounds(f->plan, &b);
    if (!status)
        status = dry_loader_create(f->cache, &b, &f->loader);
    if (!status && f->validation_plan) {
        status = dry_plan_bounds(f->validation_plan, &v);
        if (!status)
            status = dry_setup_check_records(f->base, f->validation_cache);
        if (!status)
            status = dry_loader_create(f->validation_cache, &v, &f->validation_loader);
    }
    status = dry_comm_agree(f->comm, status);
    dry_log_defer(0);
    *limits = (struct dry_limits){.tokens = dry_larger(b.tokens, v.tokens),
                                  .records = dry_larger(b.records, v.records),
                                  .rows = dry_larger(b.supervised, v.supervised),
                                  .longest = dry_larger(b.longest, v.longest),
                                  .training = 1,
                                  .recompute = dry_recompute_find(f->call->config->recompute)};
    return status;
}

/* Collective. Adapter and contract, and what an earlier run in the folder says to that. */
static enum dry_status set_up_contract(struct dry_finetune *f)
{
    const char *accept = f->call->config->accept_batch_change;
    size_t n;
    enum dry_status status = dry_setup_adapter(f->call, f->base, &f->adapter, &f->values);
    double factor;

    if (status)
        return status;
    status = dry_setup_contract(f->call, f->cache, f->base, f->adapter, f->values, &f->contract);
    if (status)
        return status;
    n = (size_t)f->adapter->parameters;
    dry_log_defer(1);
    f->m = dry_alloc(n, sizeof *f->m, "the adapter's first moments");
    f->v = dry_alloc(n, sizeof *f->v, "the adapter's second moments");
    if (!f->m || !f->v)
        status = DRY_ERR_MEMORY;
    if (!status && f->earlier && !accept)
        status = dry_finetune_compare(f, &f->then, NULL, &factor);
    status = dry_comm_agree(f->comm, status);
    dry_log_defer(0);
    if (!status)
        status = dry_finetune_resume(f);
    return status;
}

/* Collective. Backend, engine, and the state in them. */
static enum dry_status set_up_engine(struct dry_finetune *f)
{
    struct dry_limits limits;
    enum dry_status status = dry_setup_plan(f->call, &f->contract, f->cache, &f->plan);

    if (!status && f->validation_cache)
        status = dry_setup_validation_plan(f->call, &f->contract, f->validation_cache, &f->validation_plan);
    if (!status)
        status = set_up_loaders(f, &limits);
    if (!status)
        status = dry_setup_engine(f->call, f->base, f->adapter, &limits, (uint64_t)f->contract.seed,
                                  &f->backend, &f->engine, &f->layout);
    if (!status)
        status = dry_setup_device_comm(f->call, f->backend->ops, &f->device_comm);
    if (!status)
        status = dry_finetune_machine(f, &limits);
    if (!status)
        status = dry_comm_agree(f->comm, f->backend->ops->state_set(f->backend, f->values, f->m, f->v));
    return status;
}

/* Collective. The account's files, to which the sampler tells too. */
static enum dry_status open_ledger(struct dry_finetune *f)
{
    struct dry_ledger_input in = {.comm = f->comm,
                                  .output = f->call->config->output,
                                  .resumed = f->resumed,
                                  .started = f->call->started,
                                  .stages = &f->stages,
                                  .sampler = f->sampler};
    enum dry_status status;

    dry_log_defer(1);
    status = dry_ledger_open(&in, &f->ledger);
    dry_log_defer(0);
    return status;
}

/* Collective. Trains, and exports what was trained. */
static enum dry_status train(struct dry_finetune *f, struct dry_loop *l)
{
    double began = dry_clock_now();
    enum dry_status status = dry_loop_run(l);

    f->loop_seconds = dry_clock_now() - began;
    dry_progress_destroy(f->progress);
    f->progress = NULL;
    dry_stages_enter(&f->stages, DRY_STAGE_CHECKPOINT);
    if (status == DRY_STOPPED) {
        int64_t done = l->first_step - 1 + f->steps_done;

        dry_info("stopped %safter step %lld of %lld; %s", done == l->stop_after ? "" : "on request ",
                 (long long)done, (long long)l->last_step,
                 done == l->stop_after ? "that is --stop-after: the same command without it goes on"
                                       : "start the same command again to go on");
    } else if (status == DRY_OK || (status == DRY_ERR_IO && l->first_step + f->steps_done > l->last_step)) {
        /* A last checkpoint that found no room: the adapter is a third of it and may still find some. */
        enum dry_status exported = dry_finetune_export(f);

        status = status ? status : exported;
    }
    dry_stages_enter(&f->stages, DRY_STAGE_UNEXPLAINED);
    return status;
}

static enum dry_status run(struct dry_finetune *f)
{
    const struct dry_config *c = f->call->config;
    struct dry_loop l;
    int done = 0;
    enum dry_status status = set_up_data(f), told;

    if (!status) {
        dry_signals_watch();
        status = set_up_contract(f);
    }
    if (!status)
        status = dry_finetune_done(f, &done);
    if (status || done)
        return status;
    status = set_up_engine(f);
    dry_delay("start-up", f->call->started);
    if (status)
        return status;
    if (f->rank == 0)
        status = dry_finetune_say_start(f);
    if (!status && f->rank == 0)
        status = dry_finetune_open_run(f);
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = open_ledger(f);
    if (status)
        return status;
    l = (struct dry_loop){
        .comm = f->comm,
        .device_comm = f->device_comm,
        .engine = f->engine,
        .contract = &f->contract,
        .plan = f->plan,
        .loader = f->loader,
        .validation_plan = f->validation_plan,
        .validation_loader = f->validation_loader,
        .first_step = f->resumed ? f->state.step + 1 : 1,
        .last_step = f->contract.steps,
        .stop_after = c->stop_after,
        .checkpoint_interval = c->checkpoint_interval,
        .validation_interval = c->validation_interval,
        .rate_factor = f->state.rate_factor,
        .update_offset = f->state.update_offset,
        .best_loss = f->state.best_loss,
        .best_step = f->state.best_step,
        .validated_step = f->state.validated_step,
        .stages = &f->stages,
        .hooks = {f, hook_step, hook_validated, hook_checkpoint, hook_account, hook_stop},
    };
    status = train(f, &l);
    told = dry_ledger_put(f->ledger, DRY_PHASE_END, 0, &(struct dry_share){0}, 1);
    status = status ? status : told;
    if (f->rank == 0) {
        enum dry_status written = dry_finetune_finish(f, &l, status);

        status = status ? status : written;
    }
    return dry_comm_agree(f->comm, status);
}

static void release(struct dry_finetune *f, enum dry_status status)
{
    dry_progress_destroy(f->progress);
    if (f->run) /* the error is logged; a manifest that cannot be written adds nothing to it */
        (void)dry_run_finish(f->run, status, &f->stages, NULL);
    dry_ledger_close(f->ledger);
    dry_sampler_stop(f->sampler);
    if (f->device_comm)
        f->device_comm->ops->destroy(f->device_comm);
    dry_engine_destroy(f->engine);
    if (f->backend)
        f->backend->ops->destroy(f->backend);
    dry_loader_destroy(f->loader);
    dry_loader_destroy(f->validation_loader);
    dry_plan_destroy(f->plan);
    dry_plan_destroy(f->validation_plan);
    dry_checkpoint_release(&f->state);
    dry_free(f->values);
    dry_free(f->m);
    dry_free(f->v);
    dry_adapter_destroy(f->adapter);
    dry_base_close(f->base);
    dry_cache_close(f->cache);
    dry_cache_close(f->validation_cache);
    dry_tokenizer_destroy(f->tokenizer);
    dry_free(f->dir);
    dry_free(f->options_text);
    dry_free(f->manifest_text);
    json_decref(f->options);
    json_decref(f->before);
    json_decref(f->change);
    json_decref(f->devices);
    if (f->lock >= 0)
        close(f->lock);
}

enum dry_status dry_command_finetune(const struct dry_call *call)
{
    struct dry_finetune f = {.call = call,
                             .comm = call->comm,
                             .rank = dry_comm_rank(call->comm),
                             .ranks = dry_comm_size(call->comm),
                             .lock = -1,
                             .validation_loss = INFINITY,
                             .resident = NAN};
    enum dry_status status;

    dry_stages_start(&f.stages, call->started, DRY_STAGE_STARTUP);
    if (call->config->sample_interval > 0 && dry_sampler_start(call->config->sample_interval, &f.sampler))
        dry_warn("no thread for samples of the process and its device: process.csv and gpu.csv get none");
    status = run(&f);
    release(&f, status);
    return status;
}
