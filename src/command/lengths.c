/*
 * lengths: how long the records are in tokens, and what padding would cost.
 * Owns nothing.
 * Must not know how the numbers are computed.
 */
#include "config.h"

#include "command/lengths.h"

#include "command/setup.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An epoch of micro-batches without padded records, with records cut to the limit as training would have
 * them. */
static enum dry_status pack(const struct dry_config *c, const struct dry_cache_view *v, int64_t limit,
                            struct dry_lengths *l)
{
    int64_t *offset = dry_alloc((size_t)v->records + 1, sizeof *offset, "record offsets");
    struct dry_plan_input in = {.records = v->records,
                                .offset = offset,
                                .supervised = v->supervised_of,
                                .effective_batch = c->effective_batch,
                                .epochs = 1,
                                .seed = (uint64_t)c->seed};
    struct dry_plan *p = NULL;
    enum dry_status st = offset ? DRY_OK : DRY_ERR_MEMORY;

    if (!st)
        st = dry_contract_cut(c, &in.micro_records, &in.micro_tokens);
    for (int64_t i = 0; i < v->records && !st; i++) {
        int64_t length = v->offset[i + 1] - v->offset[i];
        offset[i + 1] = offset[i] + (length < limit ? length : limit);
    }
    if (!st)
        st = dry_plan_create(&in, &p);
    for (int64_t step = 1; !st && step <= dry_plan_steps(p); step++) {
        struct dry_plan_step s;
        st = dry_plan_step(p, step, &s);
        if (!st) {
            l->packed_positions += s.tokens;
            l->packed_micro_batches += s.micros;
        }
    }
    dry_plan_destroy(p);
    dry_free(offset);
    return st;
}

enum dry_status dry_lengths_report(const struct dry_config *c, const struct dry_cache_view *v, int64_t limit,
                                   struct dry_lengths *l)
{
    enum dry_status st = dry_lengths_of(v, limit, l);

    l->trained_fixed = strcmp(c->padding, "fixed") == 0;
    return st ? st : pack(c, v, limit, l);
}

/* Share of the positions that are no tokens. */
static double padding(int64_t positions, int64_t tokens)
{
    return positions > 0 ? (double)(positions - tokens) / (double)positions : 0;
}

static void print_padding(FILE *out, const char *how, int64_t positions, int64_t tokens)
{
    fprintf(out, "  %-31s %14" PRId64 " %8.1f %%\n", how, positions, 100 * padding(positions, tokens));
}

void dry_lengths_print(FILE *out, const struct dry_lengths *l)
{
    const char *fixed = l->trained_fixed ? " (as trained)" : "";
    char how[48];

    fprintf(out, "  %-24s %14" PRId64 "\n", "records", l->records);
    fprintf(out, "  %-24s %14" PRId64 "\n", "tokens", l->tokens);
    fprintf(out, "  %-24s %14" PRId64 " %8.1f %%\n", "supervised tokens", l->supervised,
            100.0 * (double)l->supervised / (double)l->tokens);
    fprintf(out,
            "  tokens per record: min %" PRId64 ", 50 %% %" PRId64 ", 90 %% %" PRId64 ", 95 %% %" PRId64
            ", 99 %% %" PRId64 ", max %" PRId64 ", mean %.1f\n",
            l->least, l->p50, l->p90, l->p95, l->p99, l->most, l->mean);
    if (l->over_limit)
        fprintf(out, "  longer than %" PRId64 ": %" PRId64 " records (%.2f %%)\n", l->limit, l->over_limit,
                100.0 * (double)l->over_limit / (double)l->records);
    fprintf(out, "\n  %-31s %14s %10s\n", "an epoch", "positions", "padding");
    snprintf(how, sizeof how, "all padded to %" PRId64 "%s", l->limit, fixed);
    print_padding(out, how, l->fixed_positions, l->fixed_tokens);
    print_padding(out, "padded to their bucket", l->bucket_positions, l->tokens);
    print_padding(out, l->trained_fixed ? "packed" : "packed (as trained)", l->packed_positions,
                  l->fixed_tokens);
    fprintf(out, "\n  %-10s %12s %14s %10s\n", "bucket", "records", "tokens", "padding");
    for (int i = 0; i < l->buckets; i++) {
        const struct dry_length_bucket *b = &l->bucket[i];
        if (b->records)
            fprintf(out, "  %-10d %12" PRId64 " %14" PRId64 " %8.1f %%\n", (int)b->length, b->records,
                    b->tokens, 100 * padding(b->records * b->length, b->tokens));
    }
}

json_t *dry_lengths_json(const struct dry_lengths *l)
{
    json_t *buckets = json_array();

    for (int i = 0; i < l->buckets; i++)
        json_array_append_new(buckets, json_pack("{s:i, s:I, s:I}", "length", (int)l->bucket[i].length,
                                                 "records", (json_int_t)l->bucket[i].records, "tokens",
                                                 (json_int_t)l->bucket[i].tokens));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:{s:f, s:f, s:f, s:s}, s:I, s:o}",
        "records", (json_int_t)l->records, "tokens", (json_int_t)l->tokens, "supervised",
        (json_int_t)l->supervised, "min", (json_int_t)l->least, "p50", (json_int_t)l->p50, "p90",
        (json_int_t)l->p90, "p95", (json_int_t)l->p95, "p99", (json_int_t)l->p99, "max", (json_int_t)l->most,
        "mean", l->mean, "limit", (json_int_t)l->limit, "over_limit", (json_int_t)l->over_limit, "padding",
        "fixed", padding(l->fixed_positions, l->fixed_tokens), "bucket",
        padding(l->bucket_positions, l->tokens), "packed", padding(l->packed_positions, l->fixed_tokens),
        "as_trained", l->trained_fixed ? "fixed" : "packed", "packed_micro_batches",
        (json_int_t)l->packed_micro_batches, "buckets", buckets);
}

enum dry_status dry_print_end(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return DRY_OK;
    dry_error("cannot write to standard output: %s", strerror(errno));
    return DRY_ERR_IO;
}

enum dry_status dry_print_json(json_t *value)
{
    enum dry_status st;

    if (!value) {
        dry_error("cannot make JSON: out of memory, or a text that is not UTF-8");
        return DRY_ERR_MEMORY;
    }
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    st = dry_print_end();
    json_decref(value);
    return st;
}

/* Collective. All records as they are, whatever the limit: the report is what a limit is chosen by. */
static enum dry_status tokenise_all(const struct dry_call *call, struct dry_cache **cache)
{
    struct dry_cache_source s = {.data_path = call->config->data};
    struct dry_record_rule rule;
    struct dry_tokenizer *t = NULL;
    char *dir = NULL;
    enum dry_status st = dry_setup_tokenizer(call, &dir, &t);

    if (!st)
        st = dry_setup_rule(call, t, &rule);
    if (!st) {
        rule.limit = INT32_MAX;
        rule.truncate = 0;
        dry_log_defer(1);
        st = dry_cache_build_memory(call->comm, t, &rule, &s, 1, 1, cache);
        dry_log_defer(0);
    }
    dry_tokenizer_destroy(t);
    dry_free(dir);
    return st;
}

/* --cache FILE is a cache to report; --cache DIR and no --cache ask for --data. */
static enum dry_status open_or_tokenise(const struct dry_call *call, struct dry_cache **cache)
{
    const struct dry_config *c = call->config;
    enum dry_status st;

    if (c->cache && dry_file_exists(c->cache)) {
        dry_log_defer(1);
        st = dry_comm_agree(call->comm, dry_cache_open(c->cache, NULL, cache));
        dry_log_defer(0);
        return st;
    }
    if (!c->base || !c->data) {
        if (dry_comm_rank(call->comm) == 0 && c->cache && !dry_file_is_dir(c->cache))
            dry_error("cannot open cache %s: there is no such file", c->cache);
        else if (dry_comm_rank(call->comm) == 0)
            dry_error("lengths needs --data FILE and --base DIR, or --cache FILE.h5");
        return DRY_ERR_USAGE;
    }
    return tokenise_all(call, cache);
}

enum dry_status dry_command_lengths(const struct dry_call *call)
{
    const struct dry_config *c = call->config;
    struct dry_cache *cache = NULL;
    struct dry_lengths l;
    const struct dry_cache_view *v;
    int64_t limit = c->max_seq_length;
    enum dry_status st = open_or_tokenise(call, &cache);

    if (st)
        return st;
    v = dry_cache_view(cache);
    if (dry_comm_rank(call->comm) == 0) {
        if (dry_cache_path(cache) && dry_config_origin(c, "max-seq-length") == DRY_ORIGIN_DEFAULT)
            limit = v->limit;
        st = dry_lengths_report(c, v, limit, &l);
        if (!st && c->json) {
            st = dry_print_json(
                json_pack("{s:s, s:o}", "data", v->data_path, "lengths", dry_lengths_json(&l)));
        } else if (!st) {
            printf("lengths of %s\n", v->data_path);
            dry_lengths_print(stdout, &l);
            st = dry_print_end();
        }
    }
    dry_cache_close(cache);
    return dry_comm_agree(call->comm, st);
}
