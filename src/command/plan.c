/*
 * plan: what a run would do, without training: contract, steps, shares of ranks, memory, checkpoints,
 * traffic. Owns nothing. Must not know how steps are computed.
 */
#include "config.h"

#include "command/plan_report.h"

#include "command/lengths.h"
#include "command/setup.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Rank 0. The lines of the data in each micro-batch of each step, as one JSON object a line. */
static enum dry_status show_records(struct dry_plan *plan, const struct dry_cache_view *v)
{
    for (int64_t step = 1; step <= dry_plan_steps(plan); step++) {
        struct dry_plan_step s;
        enum dry_status st = dry_plan_step(plan, step, &s);
        if (st)
            return st;
        printf("{\"step\": %lld, \"epoch\": %lld, \"micro_batches\": [", (long long)s.step,
               (long long)s.epoch + 1);
        for (int64_t m = 0; m < s.micros; m++) {
            printf("%s[", m ? ", " : "");
            for (int64_t i = 0; i < s.micro[m].count; i++)
                printf("%s%lld", i ? ", " : "", (long long)v->line[s.record[s.micro[m].first + i]]);
            printf("]");
        }
        printf("]}\n");
    }
    return dry_print_end();
}

/* Rank 0. The same as a JSON array. */
static json_t *records_json(struct dry_plan *plan, const struct dry_cache_view *v)
{
    json_t *steps = json_array();

    for (int64_t step = 1; step <= dry_plan_steps(plan); step++) {
        struct dry_plan_step s;
        json_t *cuts = json_array();
        if (dry_plan_step(plan, step, &s)) {
            json_decref(cuts);
            json_decref(steps);
            return NULL;
        }
        for (int64_t m = 0; m < s.micros; m++) {
            json_t *lines = json_array();
            for (int64_t i = 0; i < s.micro[m].count; i++)
                json_array_append_new(lines,
                                      json_integer((json_int_t)v->line[s.record[s.micro[m].first + i]]));
            json_array_append_new(cuts, lines);
        }
        json_array_append_new(steps, json_pack("{s:I, s:I, s:o}", "step", (json_int_t)s.step, "epoch",
                                               (json_int_t)s.epoch + 1, "micro_batches", cuts));
    }
    return steps;
}

/* Rank 0. */
static enum dry_status show(const struct dry_config *c, const struct dry_plan_report *r,
                            struct dry_plan *plan, const struct dry_cache_view *v)
{
    json_t *all;

    if (!c->json && c->show_records)
        return show_records(plan, v);
    if (!c->json) {
        enum dry_status status = dry_plan_report_print(stdout, r);

        return status ? status : dry_print_end();
    }
    all = dry_plan_report_json(r);
    if (all && c->show_records && json_object_set_new(all, "records", records_json(plan, v)) != 0) {
        json_decref(all);
        all = NULL;
    }
    return dry_print_json(all);
}

/* What was asked for on the way to a plan. */
struct parts {
    char *dir;
    struct dry_tokenizer *tokenizer;
    struct dry_cache *cache, *validation;
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values;
    struct dry_plan *plan, *validation_plan;
};

static void release(struct parts *p)
{
    dry_plan_destroy(p->plan);
    dry_plan_destroy(p->validation_plan);
    dry_cache_close(p->cache);
    dry_cache_close(p->validation);
    dry_free(p->values);
    dry_adapter_destroy(p->adapter);
    dry_base_close(p->base);
    dry_tokenizer_destroy(p->tokenizer);
    dry_free(p->dir);
}

/* Collective. */
static enum dry_status set_up(const struct dry_call *call, struct parts *p, struct dry_contract *k)
{
    const struct dry_config *c = call->config;
    struct dry_record_rule rule;
    enum dry_status st;

    dry_log_defer(1);
    st = dry_comm_agree(call->comm, dry_setup_early(call));
    dry_log_defer(0);
    if (!st)
        st = dry_setup_tokenizer(call, &p->dir, &p->tokenizer);
    if (!st)
        st = dry_setup_rule(call, p->tokenizer, &rule);
    if (!st)
        st = dry_setup_cache(call, p->tokenizer, &rule, c->data, &p->cache);
    if (!st && c->validation_data)
        st = dry_setup_cache(call, p->tokenizer, &rule, c->validation_data, &p->validation);
    if (!st)
        st = dry_setup_base(call, p->dir, &p->base);
    if (!st)
        st = dry_setup_adapter(call, p->base, &p->adapter, &p->values);
    if (!st)
        st = dry_setup_contract(call, p->cache, p->base, p->adapter, p->values, k);
    if (!st)
        st = dry_setup_plan(call, k, p->cache, &p->plan);
    if (!st && p->validation)
        st = dry_setup_validation_plan(call, k, p->validation, &p->validation_plan);
    return st;
}

enum dry_status dry_command_plan(const struct dry_call *call)
{
    const struct dry_config *c = call->config;
    struct parts p = {0};
    struct dry_contract k;
    struct dry_plan_report *r = NULL;
    enum dry_status st = set_up(call, &p, &k);

    if (st)
        goto out;
    if (dry_comm_rank(call->comm) == 0) {
        struct dry_plan_subject about = {.config = c,
                                         .contract = &k,
                                         .cache = dry_cache_view(p.cache),
                                         .validation = p.validation ? dry_cache_view(p.validation) : NULL,
                                         .plan = p.plan,
                                         .validation_plan = p.validation_plan,
                                         .base = p.base,
                                         .adapter = p.adapter,
                                         .ranks = dry_comm_size(call->comm)};
        st = dry_plan_report_create(&about, &r);
        if (!st)
            st = show(c, r, p.plan, about.cache);
        dry_plan_report_destroy(r);
    }
    st = dry_comm_agree(call->comm, st);
out:
    release(&p);
    return st;
}
