/*
 * evaluate: held-out loss and perplexity of the base, and of the base with an adapter.
 * Owns what it sets up for the time of the call.
 * Must not know how the adapter came to be.
 */
#include "config.h"

#include "command/lengths.h"
#include "command/setup.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct evaluation {
    const struct dry_call *call;
    char *dir, *folder; /* folder: the adapter's, or NULL */
    struct dry_tokenizer *tokenizer;
    struct dry_cache *cache;
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values;
    struct dry_plan *plan;
    struct dry_loader *loader;
    struct dry_backend *backend;
    struct dry_engine *engine;
    double base_loss, loss;
    int64_t supervised;
};

/* Collective. --adapter, else the adapter of the run in --output, else none. Rank 0 looks. */
static enum dry_status find_adapter(struct evaluation *e)
{
    const struct dry_config *c = e->call->config;
    int there = c->adapter != NULL;
    enum dry_status status = DRY_OK;

    e->folder = c->adapter ? dry_strdup(c->adapter) : c->output ? dry_path_join(c->output, "adapter") : NULL;
    if (!e->folder && (c->adapter || c->output))
        status = DRY_ERR_MEMORY;
    if (!there && e->folder && dry_comm_rank(e->call->comm) == 0)
        there = dry_file_is_dir(e->folder);
    status = dry_comm_agree(e->call->comm, status);
    if (!status)
        status = dry_comm_bcast(e->call->comm, &there, sizeof there, 0);
    if (!status && !there) {
        dry_free(e->folder);
        e->folder = NULL;
    }
    return status;
}

/* Collective. */
static enum dry_status set_up_data(struct evaluation *e)
{
    const struct dry_call *call = e->call;
    struct dry_record_rule rule;
    struct dry_contract k = {0};
    enum dry_status status = find_adapter(e);

    if (!status)
        status = dry_setup_tokenizer(call, &e->dir, &e->tokenizer);
    if (!status)
        status = dry_setup_base(call, e->dir, &e->base);
    if (!status && e->folder)
        status = dry_setup_peft(call, e->folder, e->base, &e->adapter, &e->values);
    if (!status)
        status = dry_setup_rule(call, e->tokenizer, &rule);
    if (!status)
        status = dry_setup_cache(call, e->tokenizer, &rule, call->config->data, &e->cache);
    if (status)
        return status;
    dry_log_defer(1);
    status = dry_comm_agree(call->comm, dry_contract_cut(call->config, &k.micro_records, &k.micro_tokens));
    dry_log_defer(0);
    /* The plan's steps are only the shares in which the ranks meet: as many records as keep them all busy. */
    k.effective_batch = dry_cache_view(e->cache)->records;
    if (!status)
        status = dry_setup_validation_plan(call, &k, e->cache, &e->plan);
    return status;
}

/* Collective. */
static enum dry_status set_up_engine(struct evaluation *e)
{
    const struct dry_cache_view *v = dry_cache_view(e->cache);
    struct dry_plan_bounds b = {0};
    struct dry_limits limits;
    struct dry_layout layout;
    enum dry_status status;

    dry_log_defer(1);
    status = dry_plan_bounds(e->plan, &b);
    if (!status)
        status = dry_setup_check_records(e->base, e->cache);
    if (!status)
        status = dry_loader_create(e->cache, &b, &e->loader);
    status = dry_comm_agree(e->call->comm, status);
    dry_log_defer(0);
    if (status)
        return status;
    limits = (struct dry_limits){
        .tokens = b.tokens, .records = b.records, .rows = b.supervised, .longest = b.longest, .training = 0};
    status = dry_setup_engine(e->call, e->base, e->adapter, &limits, 0, &e->backend, &e->engine, &layout);
    if (!status && e->adapter)
        status = dry_comm_agree(e->call->comm, e->backend->ops->state_set(e->backend, e->values, NULL, NULL));
    if (!status)
        dry_info("evaluating %lld records, %lld supervised tokens; ranks %d; backend %s",
                 (long long)v->records, (long long)v->supervised, dry_comm_size(e->call->comm),
                 e->backend->ops->describe(e->backend));
    return status;
}

/* Collective. The base alone, then with the adapter. */
static enum dry_status measure(struct evaluation *e)
{
    struct dry_comm *comm = e->call->comm;
    enum dry_status status;

    e->backend->ops->adapter_enable(e->backend, 0);
    status = dry_evaluate(comm, e->engine, e->plan, e->loader, NULL, NULL, &e->base_loss, &e->supervised);
    if (status || !e->adapter)
        return status;
    e->backend->ops->adapter_enable(e->backend, 1);
    return dry_evaluate(comm, e->engine, e->plan, e->loader, NULL, NULL, &e->loss, &e->supervised);
}

static json_t *row_json(double loss, int64_t supervised)
{
    return json_pack("{s:f, s:f, s:I}", "loss", loss, "perplexity", exp(loss), "supervised",
                     (json_int_t)supervised);
}

static enum dry_status print_json(const struct evaluation *e)
{
    const struct dry_cache_view *v = dry_cache_view(e->cache);
    json_t *root = json_pack("{s:s, s:s, s:I, s:I, s:o}", "base", e->call->config->base, "data",
                             e->call->config->data, "records", (json_int_t)v->records, "tokens",
                             (json_int_t)v->tokens, "base_result", row_json(e->base_loss, e->supervised));

    if (root && e->adapter &&
        (json_object_set_new(root, "adapter", json_string(e->folder)) ||
         json_object_set_new(root, "adapter_result", row_json(e->loss, e->supervised)) ||
         json_object_set_new(root, "difference", json_real(e->loss - e->base_loss)))) {
        json_decref(root);
        root = NULL;
    }
    return dry_print_json(root);
}

static void print_table(const struct evaluation *e)
{
    printf("%-10s %12s %12s %12s\n", "", "loss", "perplexity", "tokens");
    printf("%-10s %12.6f %12.4f %12lld\n", "base", e->base_loss, exp(e->base_loss), (long long)e->supervised);
    if (!e->adapter)
        return;
    printf("%-10s %12.6f %12.4f %12lld\n", "adapter", e->loss, exp(e->loss), (long long)e->supervised);
    printf("%-10s %+12.6f %+12.4f\n", "difference", e->loss - e->base_loss, exp(e->loss) - exp(e->base_loss));
}

static void release(struct evaluation *e)
{
    dry_engine_destroy(e->engine);
    if (e->backend)
        e->backend->ops->destroy(e->backend);
    dry_loader_destroy(e->loader);
    dry_plan_destroy(e->plan);
    dry_free(e->values);
    dry_adapter_destroy(e->adapter);
    dry_base_close(e->base);
    dry_cache_close(e->cache);
    dry_tokenizer_destroy(e->tokenizer);
    dry_free(e->dir);
    dry_free(e->folder);
}

enum dry_status dry_command_evaluate(const struct dry_call *call)
{
    struct evaluation e = {.call = call};
    enum dry_status status = set_up_data(&e);

    if (!status)
        status = set_up_engine(&e);
    if (!status)
        status = measure(&e);
    if (!status && dry_comm_rank(call->comm) == 0) {
        if (call->config->json) {
            status = print_json(&e);
        } else {
            print_table(&e);
            status = dry_print_end();
        }
    }
    if (!status && !e.adapter)
        dry_info("no adapter was given (--adapter, or --output of a run): the base alone");
    status = dry_comm_agree(call->comm, status);
    release(&e);
    return status;
}
