/*
 * finetune: from options to a proved adapter.
 * Owns everything of the run, in struct dry_finetune, and the flag that signals set.
 * Must not know how a part does its work: this file is the order of the parts.
 */
#include "config.h"

#include "command/finetune.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "state/peft.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signals ---- */

/* A handler can reach nothing but a global. */
static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    asked_to_stop = number;
}

/* From here on a signal means: finish the step, save, exit 75. Before, there is nothing to save, and it ends
 * the process. A second SIGINT ends it too. */
static void watch_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

        if (numbers[i] == SIGINT)
            a.sa_flags |= (int)SA_RESETHAND;
        sigemptyset(&a.sa_mask);
        sigaction(numbers[i], &a, NULL);
    }
}

/* ---- what the loop calls ---- */

static int hook_stop(void *context)
{
    (void)context;
    return asked_to_stop;
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
        status = dry_comm_agree(f->comm, f->backend->ops->state_set(f->backend, f->values, f->m, f->v));
    return status;
}

/* Local, rank 0. "step 3 has 4 micro-batches, accumulation 1 to 2": how a step's micro-batches fall to the
 * ranks. */
static enum dry_status share_text(struct dry_finetune *f, int64_t step, int *owner, int64_t *share,
                                  char text[128])
{
    struct dry_plan_step s;
    int64_t least, most;
    size_t n;
    enum dry_status status = dry_plan_step(f->plan, step, &s);

    if (status)
        return status;
    memset(share, 0, (size_t)f->ranks * sizeof *share);
    dry_plan_deal(&s, f->ranks, owner);
    for (int64_t m = 0; m < s.micros; m++)
        share[owner[m]]++;
    least = most = share[0];
    for (int r = 1; r < f->ranks; r++) {
        least = share[r] < least ? share[r] : least;
        most = dry_larger(most, share[r]);
    }
    n = (size_t)snprintf(text, 128, "step %lld has %lld micro-batch%s, accumulation ", (long long)step,
                         (long long)s.micros, s.micros == 1 ? "" : "es");
    if (least == most)
        snprintf(text + n, 128 - n, "%lld", (long long)most);
    else
        snprintf(text + n, 128 - n, "%lld to %lld", (long long)least, (long long)most);
    return DRY_OK;
}

/* Local. The first of the steps that have the most micro-batches. */
static enum dry_status largest_step(const struct dry_finetune *f, int64_t micros, int64_t *step)
{
    struct dry_plan_step s = {0};
    enum dry_status status = DRY_OK;

    for (*step = 0; !status && s.micros < micros;)
        status = dry_plan_step(f->plan, ++*step, &s);
    return status;
}

/* Local, rank 0. How the micro-batches of the next step and of the largest one fall to the ranks. */
static enum dry_status say_shares(struct dry_finetune *f)
{
    struct dry_plan_bounds b;
    int64_t first = f->resumed ? f->state.step + 1 : 1, largest = 0, *share = NULL;
    int *owner = NULL;
    char next[128], most[128];
    enum dry_status status = dry_plan_bounds(f->plan, &b);

    if (!status)
        status = largest_step(f, b.micros, &largest);
    if (!status) {
        owner = dry_alloc((size_t)b.micros, sizeof *owner, "the dealing of micro-batches");
        share = dry_alloc((size_t)f->ranks, sizeof *share, "the shares of ranks");
        status = owner && share ? DRY_OK : DRY_ERR_MEMORY;
    }
    if (first > f->contract.steps) /* only the end of the run is left to be done */
        first = f->contract.steps;
    if (!status)
        status = share_text(f, first, owner, share, next);
    if (!status)
        status = share_text(f, largest, owner, share, most);
    if (!status)
        dry_info("ranks %d: %s%s%s", f->ranks, next,
                 largest == first ? "" : "; the largest: ", largest == first ? "" : most);
    if (!status && b.micros < f->ranks)
        dry_warn("ranks without work in any step: %lld of %d; no step has more than %lld micro-batch%s, "
                 "smaller ones (--micro-batch-tokens) would keep more ranks busy",
                 (long long)(f->ranks - b.micros), f->ranks, (long long)b.micros, b.micros == 1 ? "" : "es");
    dry_free(owner);
    dry_free(share);
    return status;
}

static void count_text(int64_t count, char text[32])
{
    if (count < 1000000)
        snprintf(text, 32, "%lld", (long long)count);
    else
        snprintf(text, 32, "%.1f million", (double)count / 1e6);
}

/* Local, rank 0. What is about to happen. */
static enum dry_status say_start(struct dry_finetune *f)
{
    const struct dry_contract *k = &f->contract;
    const struct dry_arch *a = &f->base->arch;
    const struct dry_cache_view *v = dry_cache_view(f->cache);
    int64_t cut = k->micro_records ? k->micro_records : k->micro_tokens;
    char total[16], arena[16], size[32], trained[32];

    dry_bytes_text((double)f->layout.total, total);
    dry_bytes_text((double)f->layout.arena, arena);
    count_text(dry_arch_parameters(a), size);
    count_text(f->adapter->parameters, trained);
    dry_info("base %s: %s, %lld layers, %s parameters", f->call->config->base, a->family,
             (long long)a->layers, size);
    dry_info("adapter: rank %lld, %lld matrices, %s parameters%s", (long long)f->adapter->max_rank,
             (long long)(2 * f->adapter->parts), trained, f->adapter->dropout > 0 ? ", dropout" : "");
    dry_info("records %lld: %lld tokens, %lld supervised", (long long)v->records, (long long)v->tokens,
             (long long)v->supervised);
    dry_info(
        "contract: effective batch %lld record%s, micro-batches of %lld %s%s, %lld step%s (%lld per epoch), "
        "warm-up %lld, "
        "%s schedule, learning rate %.3g, seed %lld",
        (long long)k->effective_batch, dry_plural(k->effective_batch), (long long)cut,
        k->micro_records ? "record" : "token", dry_plural(cut), (long long)k->steps, dry_plural(k->steps),
        (long long)k->steps_per_epoch, (long long)k->warmup_steps, k->schedule,
        k->learning_rate * f->state.rate_factor, (long long)k->seed);
    dry_info("memory: %s per rank, of it %s activations; backend %s", total, arena,
             f->backend->ops->describe(f->backend));
    if (k->warmup_steps >= k->steps)
        dry_warn("the learning rate does not reach %.3g: warm-up takes %lld of %lld step%s, and begins at 0; "
                 "--warmup-steps says how long it is",
                 k->learning_rate * f->state.rate_factor, (long long)k->warmup_steps, (long long)k->steps,
                 dry_plural(k->steps));
    if (f->resumed)
        dry_info("resumed from step %lld of %lld", (long long)f->state.step, (long long)k->steps);
    return say_shares(f);
}

/* Local, rank 0. Manifest, metrics and progress. */
static enum dry_status open_run(struct dry_finetune *f)
{
    char hash[DRY_HASH_HEX], *libraries = NULL;
    struct dry_manifest m = {.command = "finetune",
                             .argc = f->call->argc,
                             .argv = f->call->argv,
                             .options = f->options,
                             .contract = &f->contract,
                             .plan_hash = hash,
                             .base = f->dir,
                             .backend = f->backend->ops->describe(f->backend),
                             .ranks = f->ranks,
                             .resumed_from = f->resumed ? f->state.step : 0,
                             .resumed_validated = f->resumed ? f->state.validated_step : 0,
                             .change = f->change};
    enum dry_status status = dry_plan_hash(f->plan, hash);
    char *text;

    if (!status && !(libraries = dry_format("{\"hdf5\": \"%s\"}", dry_checkpoint_library())))
        status = DRY_ERR_MEMORY;
    m.libraries = libraries;
    if (!status)
        status = dry_run_start(f->call->config->output, &m, &f->run);
    dry_free(libraries);
    if (status)
        return status;
    text = json_dumps(f->options, JSON_COMPACT);
    f->options_text = text ? dry_strdup(text) : NULL;
    free(text);
    f->manifest_text = dry_run_manifest_text(f->run);
    if (!f->options_text || !f->manifest_text)
        return DRY_ERR_MEMORY;
    return dry_progress_create(f->contract.steps, f->resumed ? f->state.step + 1 : 1,
                               f->call->config->log_interval, &f->progress);
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
        dry_info("stopped on request after step %lld of %lld; start the same command again to go on",
                 (long long)(l->first_step - 1 + f->steps_done), (long long)l->last_step);
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
        watch_signals();
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
        status = say_start(f);
    if (!status && f->rank == 0)
        status = open_run(f);
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
        enum dry_status written = dry_run_finish(f->run, status, &f->stages, dry_finetune_results(f, &l));

        f->run = NULL;
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
                             .validation_loss = INFINITY};
    enum dry_status status;

    dry_stages_start(&f.stages, call->started, DRY_STAGE_STARTUP);
    if (call->config->sample_interval > 0 && dry_sampler_start(call->config->sample_interval, &f.sampler))
        dry_warn("no thread for samples of the process and its device: process.csv and gpu.csv get none");
    status = run(&f);
    release(&f, status);
    return status;
}
