/*
 * prepare: JSONL to cache, with the preflight and the length report.
 * Owns nothing.
 * Must not know how records become tokens.
 */
#include "config.h"

#include "command/lengths.h"
#include "command/setup.h"

#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *outcomes_json(const struct dry_cache_view *v)
{
    json_t *o = json_object();

    for (int k = 0; k < DRY_RECORD_OUTCOMES; k++)
        json_object_set_new(o, dry_outcome_name(k), json_integer((json_int_t)v->outcome[k]));
    return o;
}

/* Rank 0. One data file: its table for people, or its JSON into *json. */
static enum dry_status report(const struct dry_config *c, const struct dry_cache *cache, json_t **json)
{
    const struct dry_cache_view *v = dry_cache_view(cache);
    struct dry_lengths l;
    enum dry_status st = dry_lengths_report(c, v, c->max_seq_length, &l);

    if (st)
        return st;
    if (!c->json) {
        printf("lengths of %s\n", v->data_path);
        dry_lengths_print(stdout, &l);
        return DRY_OK;
    }
    *json = json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:o}", "data", v->data_path, "cache",
                      dry_cache_path(cache), "key", v->key, "records", (json_int_t)v->records, "outcomes",
                      outcomes_json(v), "special_text", (json_int_t)v->special_text, "truncated",
                      (json_int_t)v->truncated, "duplicates", (json_int_t)v->duplicates, "largest_id",
                      (json_int_t)v->largest_id, "lengths", dry_lengths_json(&l));
    if (!*json) {
        dry_error("cannot make JSON: out of memory, or a text that is not UTF-8");
        return DRY_ERR_MEMORY;
    }
    return DRY_OK;
}

static enum dry_status report_all(const struct dry_config *c, const struct dry_cache *train,
                                  const struct dry_cache *validation)
{
    json_t *first = NULL, *second = NULL;
    int64_t overlap = 0;
    enum dry_status st = report(c, train, &first);

    if (!st && validation)
        st = report(c, validation, &second);
    if (!st && validation)
        st = dry_cache_overlap(dry_cache_view(train), dry_cache_view(validation), &overlap);
    if (!st && overlap)
        dry_warn("%s: %lld of %lld records also stand in %s: their loss will not tell how the model does on "
                 "unseen data",
                 c->validation_data, (long long)overlap, (long long)dry_cache_view(validation)->records,
                 c->data);
    if (!st && validation && !c->json)
        printf("\nrecords of %s that also stand in %s: %" PRId64 "\n", c->validation_data, c->data, overlap);
    if (!st && validation && c->json) {
        json_object_set_new(first, "validation", second);
        json_object_set_new(first, "overlap", json_integer((json_int_t)overlap));
        second = NULL;
    }
    if (!st && c->json)
        return dry_print_json(first);
    if (!st)
        st = dry_print_end();
    json_decref(first);
    json_decref(second);
    return st;
}

enum dry_status dry_command_prepare(const struct dry_call *call)
{
    const struct dry_config *c = call->config;
    struct dry_cache *train = NULL, *validation = NULL;
    struct dry_tokenizer *t = NULL;
    struct dry_record_rule rule;
    char *dir = NULL;
    enum dry_status st = dry_setup_tokenizer(call, &dir, &t);

    if (!st)
        st = dry_setup_rule(call, t, &rule);
    if (!st)
        st = dry_setup_cache(call, t, &rule, c->data, &train);
    if (!st && c->validation_data)
        st = dry_setup_cache(call, t, &rule, c->validation_data, &validation);
    if (!st && dry_comm_rank(call->comm) == 0)
        st = report_all(c, train, validation);
    st = dry_comm_agree(call->comm, st);
    dry_cache_close(train);
    dry_cache_close(validation);
    dry_tokenizer_destroy(t);
    dry_free(dir);
    return st;
}
