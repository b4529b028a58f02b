/*
 * The records that scale measures on, and their manifest.
 * Owns nothing that outlives a call but what it puts into struct dry_scale.
 * Must not know how they are measured.
 */
#include "config.h"

#include "command/scale.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "command/lengths.h"
#include "data/subset.h"
#include "measure/machine.h"
#include "measure/run.h"

#include <math.h>
#include <string.h>

/* Percentiles of a cache's lengths, for the manifest. */
static json_t *lengths_json(const struct dry_cache *cache, int64_t limit)
{
    const struct dry_cache_view *v = dry_cache_view(cache);
    struct dry_lengths l;

    if (dry_lengths_of(v, limit, &l))
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)l.records,
                     "tokens", (json_int_t)l.tokens, "supervised", (json_int_t)l.supervised, "mean", l.mean,
                     "least", (json_int_t)l.least, "p50", (json_int_t)l.p50, "p90", (json_int_t)l.p90, "p95",
                     (json_int_t)l.p95, "p99", (json_int_t)l.p99, "most", (json_int_t)l.most);
}

static json_t *records_json(const struct dry_cache_view *v, const int64_t *chosen, int64_t want,
                            char (*hash)[DRY_HASH_HEX])
{
    json_t *all = json_array();
    int bad = !all;

    for (int64_t i = 0; i < want && !bad; i++)
        bad = json_array_append_new(
            all, json_pack("{s:I, s:I, s:s}", "line", (json_int_t)v->line[chosen[i]], "tokens",
                           (json_int_t)(v->offset[chosen[i] + 1] - v->offset[chosen[i]]), "sha256", hash[i]));
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* Rank 0. subset.jsonl, and of subset.json what is known of the records. */
static enum dry_status draw(struct dry_scale *s)
{
    const struct dry_config *c = s->call->config;
    const struct dry_cache_view *v = dry_cache_view(s->whole);
    int64_t want = v->records, *chosen = NULL;
    char(*hash)[DRY_HASH_HEX] = NULL;
    json_t *records;
    enum dry_status status;

    if (s->contract.effective_batch <= v->records / c->steps)
        want = c->steps * s->contract.effective_batch;
    chosen = dry_alloc((size_t)want, sizeof *chosen, "the subset's records");
    hash = dry_alloc((size_t)want, sizeof *hash, "the subset's hashes");
    status = chosen && hash ? DRY_OK : DRY_ERR_MEMORY;
    if (!status)
        status = dry_subset_choose(v->offset, v->records, want, (uint64_t)c->seed, chosen);
    if (!status)
        status = dry_subset_write(c->data, v->line, chosen, want, s->part_path, hash);
    if (!status) {
        records = records_json(v, chosen, want, hash);
        s->manifest =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:o?}", "data", c->data, "data_sha256", v->data_hash, "seed",
                      (json_int_t)c->seed, "records_of_the_data", (json_int_t)v->records,
                      "records_of_the_subset", (json_int_t)want, "records", records);
        status = s->manifest && records ? DRY_OK : DRY_ERR_MEMORY;
    }
    if (!status)
        dry_info("subset: %lld of %lld records, drawn by length with seed %lld: %s", (long long)want,
                 (long long)v->records, (long long)c->seed, s->part_path);
    dry_free(chosen);
    dry_free(hash);
    return status;
}

static enum dry_status put(json_t *object, const char *key, json_t *value)
{
    if (!value || json_object_set_new(object, key, value)) {
        dry_error("not enough memory for subset.json");
        return DRY_ERR_MEMORY;
    }
    return DRY_OK;
}

static enum dry_status write_manifest(const struct dry_scale *s)
{
    char *path = dry_path_join(s->call->config->output, "subset.json");
    enum dry_status status = path ? dry_json_write(path, s->manifest) : DRY_ERR_MEMORY;

    dry_free(path);
    return status;
}

/* Rank 0. What the machine says before the first run: how much of the base it holds in memory. */
static enum dry_status describe(struct dry_scale *s)
{
    double resident = dry_machine_resident(s->dir);
    enum dry_status status;

    status = put(s->manifest, "lengths_of_the_data", lengths_json(s->whole, s->contract.max_seq_length));
    if (!status)
        status = put(s->manifest, "lengths_of_the_subset", lengths_json(s->part, s->contract.max_seq_length));
    if (!status)
        status = put(s->manifest, "contract", dry_contract_json(&s->contract));
    if (!status)
        status = put(s->manifest, "versions", dry_build_json());
    if (!status)
        status = put(s->manifest, "host", dry_host_json());
    if (!status)
        status = put(s->manifest, "page_cache",
                     json_pack("{s:o}", "base", isfinite(resident) ? json_real(resident) : json_null()));
    return status ? status : write_manifest(s);
}

enum dry_status dry_scale_manifest(struct dry_scale *s)
{
    static const char *const keys[] = {"backend", "devices", "libraries", "storage"};
    const json_t *run = s->rows > 0 ? s->run[s->of[s->rows - 1]].run : NULL;
    enum dry_status status = DRY_OK;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++) {
        json_t *value = json_object_get(run, keys[i]);

        if (value)
            status = put(s->manifest, keys[i], json_incref(value));
    }
    return status ? status : write_manifest(s);
}

/* Collective. The same steps on the subset: what the runs will plan. */
static enum dry_status plan_part(struct dry_scale *s)
{
    const struct dry_cache_view *v = dry_cache_view(s->part);
    struct dry_contract k = s->contract;

    k.records = v->records;
    k.steps_per_epoch = dry_pieces(k.records, k.effective_batch);
    k.steps = s->call->config->steps;
    k.epochs = dry_pieces(k.steps, k.steps_per_epoch);
    s->part_contract = k;
    return dry_setup_plan(s->call, &s->part_contract, s->part, &s->part_plan);
}

enum dry_status dry_scale_subset(struct dry_scale *s)
{
    const struct dry_call *call = s->call;
    struct dry_record_rule rule;
    enum dry_status status = dry_setup_tokenizer(call, &s->dir, &s->tokenizer);

    if (!status)
        status = dry_setup_base(call, s->dir, &s->base);
    if (!status)
        status = dry_setup_rule(call, s->tokenizer, &rule);
    if (!status)
        status = dry_setup_cache(call, s->tokenizer, &rule, call->config->data, &s->whole);
    if (!status)
        status = dry_setup_adapter(call, s->base, &s->adapter, &s->values);
    if (!status)
        status = dry_setup_contract(call, s->whole, s->base, s->adapter, s->values, &s->contract);
    if (!status)
        status = dry_setup_plan(call, &s->contract, s->whole, &s->plan);
    dry_log_defer(1);
    s->part_path = dry_path_join(call->config->output, "subset.jsonl");
    if (!status)
        status = dry_comm_agree(s->world, !s->part_path ? DRY_ERR_MEMORY : s->rank == 0 ? draw(s) : DRY_OK);
    dry_log_defer(0);
    if (!status) { /* quietly: it is a part of what has been told of */
        enum dry_log_level level = dry_log_level_now();

        if (level == DRY_LOG_INFO)
            dry_log_set_level(DRY_LOG_WARN);
        status = dry_setup_cache(call, s->tokenizer, &rule, s->part_path, &s->part);
        dry_log_set_level(level);
    }
    if (!status)
        status = plan_part(s);
    if (!status)
        status = dry_comm_agree(s->world, s->rank == 0 ? describe(s) : DRY_OK);
    return status;
}
