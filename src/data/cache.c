/*
 * The cache as its users see it: made by tokenising, kept in a file or in memory, read record by record.
 * Owns the tables and the open file.
 * Must not know of HDF5 itself, nor of what the tokens are used for.
 */
#include "config.h"

#include "data/cache.h"

#include "data/cache_file.h"
#include "data/tables.h"
#include "data/tokenise.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CHECK_TOKENS = 1 << 20 }; /* read at a time by dry_cache_check */

struct dry_cache {
    char *path;                  /* NULL: in memory */
    struct dry_cache_file *file; /* NULL: in memory */
    struct dry_cache_origin origin;
    struct dry_tables t;
    struct dry_cache_view view;
};

enum dry_status dry_cache_key(const struct dry_cache_source *s, char key[DRY_HASH_HEX])
{
    struct dry_hash *h;
    char version[16];
    enum dry_status st = dry_hash_create(&h);

    if (st)
        return st;
    snprintf(version, sizeof version, "%d", DRY_CACHE_VERSION);
    dry_hash_text(h, "cache format", version);
    dry_hash_text(h, "data", s->data_hash);
    dry_hash_text(h, "tokenizer", s->tokenizer_hash);
    dry_hash_text(h, "rule", s->rule_hash);
    dry_hash_finish(h, key);
    return DRY_OK;
}

static enum dry_status origin_of(const struct dry_cache_source *s, const char *template_name,
                                 struct dry_cache_origin *o)
{
    memset(o, 0, sizeof *o);
    memcpy(o->data_hash, s->data_hash, sizeof o->data_hash);
    memcpy(o->tokenizer_hash, s->tokenizer_hash, sizeof o->tokenizer_hash);
    memcpy(o->rule_hash, s->rule_hash, sizeof o->rule_hash);
    snprintf(o->data_path, sizeof o->data_path, "%s", s->data_path);
    snprintf(o->template_name, sizeof o->template_name, "%s", template_name);
    return dry_cache_key(s, o->key);
}

static void show(struct dry_cache *c)
{
    dry_tables_view(&c->t, &c->view);
    c->view.data_path = c->origin.data_path;
    c->view.key = c->origin.key;
    c->view.data_hash = c->origin.data_hash;
    c->view.tokenizer_hash = c->origin.tokenizer_hash;
    c->view.rule_hash = c->origin.rule_hash;
    c->view.template_name = c->origin.template_name;
}

/* Collective. The lines that were tokenised are those that were hashed: nobody edited the file in between,
 * and it is the same one on every host. */
static enum dry_status check_unchanged(struct dry_comm *comm, const struct dry_cache_source *s)
{
    char hex[DRY_HASH_HEX];
    enum dry_status st = DRY_OK;

    if (s->data_hash[0] && dry_comm_local_rank(comm) == 0 && !(st = dry_hash_file(s->data_path, hex)) &&
        (strcmp(hex, s->data_hash) != 0 || dry_fault("edit"))) {
        dry_error("%s: changed while it was read, or is another file on this host (sha256 %.12s..., at the "
                  "start and on rank 0 %.12s...); start again with a file that stays as it is",
                  s->data_path, hex, s->data_hash);
        st = DRY_ERR_INPUT;
    }
    return dry_comm_agree(comm, st);
}

enum dry_status dry_cache_build(struct dry_comm *comm, struct dry_tokenizer *t,
                                const struct dry_record_rule *rule, const struct dry_cache_source *s,
                                const char *path, int bad_drop, int long_drop)
{
    struct dry_policy policy = {bad_drop, long_drop};
    struct dry_cache c = {0};
    enum dry_status st = dry_tokenise(comm, t, rule, s->data_path, policy, &c.t);

    if (!st)
        st = check_unchanged(comm, s);
    if (!st && dry_comm_rank(comm) == 0) {
        st = origin_of(s, rule->template_name, &c.origin);
        if (!st)
            st = dry_cache_file_write(path, &c.origin, &c.t);
    }
    if (dry_comm_rank(comm) == 0)
        dry_tables_reset(&c.t);
    return dry_comm_agree(comm, st);
}

/* Collective. An array of rank 0 on every rank. */
static enum dry_status share(struct dry_comm *comm, void *out, int64_t count, size_t size, const char *what)
{
    void *data;
    enum dry_status st = DRY_OK;

    memcpy(&data, out, sizeof data);
    if (dry_comm_rank(comm) != 0) {
        data = dry_alloc((size_t)count, size, what);
        st = data ? DRY_OK : DRY_ERR_MEMORY;
        memcpy(out, &data, sizeof data);
    }
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_comm_agree(comm, dry_comm_bcast(comm, data, (size_t)count * size, 0));
    return st;
}

/* Collective. Rank 0's tables on every rank. */
static enum dry_status share_tables(struct dry_comm *comm, struct dry_tables *t)
{
    struct dry_tables plain = *t; /* its pointers mean nothing on another rank */
    enum dry_status st = dry_comm_agree(comm, dry_comm_bcast(comm, &plain, sizeof plain, 0));

    if (st)
        return st;
    if (dry_comm_rank(comm) != 0) {
        *t = plain;
        t->token = NULL;
        t->offset = t->span_offset = t->line = NULL;
        t->span = NULL;
        t->supervised = t->bucket = t->bucket_length = NULL;
        t->digest = NULL;
    }
    st = share(comm, &t->token, t->tokens, sizeof *t->token, "token ids");
    if (!st)
        st = share(comm, &t->offset, t->records + 1, sizeof *t->offset, "record offsets");
    if (!st)
        st = share(comm, &t->span, t->spans, sizeof *t->span, "supervised spans");
    if (!st)
        st = share(comm, &t->span_offset, t->records + 1, sizeof *t->span_offset, "span offsets");
    if (!st)
        st = share(comm, &t->line, t->records, sizeof *t->line, "line numbers");
    if (!st)
        st = share(comm, &t->supervised, t->records, sizeof *t->supervised, "label counts");
    if (!st)
        st = share(comm, &t->digest, t->records, sizeof *t->digest, "record digests");
    if (!st)
        st = share(comm, &t->bucket, t->records, sizeof *t->bucket, "the records' buckets");
    if (!st)
        st = share(comm, &t->bucket_length, t->buckets, sizeof *t->bucket_length, "bucket lengths");
    return st;
}

enum dry_status dry_cache_build_memory(struct dry_comm *comm, struct dry_tokenizer *t,
                                       const struct dry_record_rule *rule, const struct dry_cache_source *s,
                                       int bad_drop, int long_drop, struct dry_cache **out)
{
    struct dry_policy policy = {bad_drop, long_drop};
    struct dry_cache *c = dry_alloc(1, sizeof *c, "a cache");
    enum dry_status st =
        dry_comm_agree(comm, c ? origin_of(s, rule->template_name, &c->origin) : DRY_ERR_MEMORY);

    if (!st)
        st = dry_tokenise(comm, t, rule, s->data_path, policy, &c->t);
    if (!st)
        st = check_unchanged(comm, s);
    if (!st)
        st = share_tables(comm, &c->t);
    if (st) {
        dry_cache_close(c);
        return st;
    }
    show(c);
    *out = c;
    return DRY_OK;
}

/* The file against what it must have been made from, field by field. */
static enum dry_status check_origin(const char *path, const struct dry_cache_origin *o,
                                    const struct dry_cache_source *expected)
{
    const struct {
        const char *field, *has, *wanted, *means;
    } fields[] = {
        {"data_hash", o->data_hash, expected->data_hash, "the data file's bytes"},
        {"tokenizer_hash", o->tokenizer_hash, expected->tokenizer_hash, "the tokenizer"},
        {"rule_hash", o->rule_hash, expected->rule_hash,
         "template, fields, separator, special text, limit, or what happens to bad and long records"},
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].has, fields[i].wanted) != 0) {
            dry_error("cache %s is stale: attribute %s is %.12s..., this run has %.12s... (%s); delete the "
                      "file and run "
                      "prepare again",
                      path, fields[i].field, fields[i].has, fields[i].wanted, fields[i].means);
            return DRY_ERR_INPUT;
        }
    return DRY_OK;
}

static enum dry_status check_key(const char *path, const struct dry_cache_origin *o)
{
    struct dry_cache_source own = {.data_path = o->data_path};
    char key[DRY_HASH_HEX];
    enum dry_status st;

    memcpy(own.data_hash, o->data_hash, sizeof own.data_hash);
    memcpy(own.tokenizer_hash, o->tokenizer_hash, sizeof own.tokenizer_hash);
    memcpy(own.rule_hash, o->rule_hash, sizeof own.rule_hash);
    st = dry_cache_key(&own, key);
    if (st)
        return st;
    if (strcmp(key, o->key) != 0) {
        dry_error("cache %s: attribute key is not that of its fields; delete the file and run prepare again",
                  path);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

enum dry_status dry_cache_open(const char *path, const struct dry_cache_source *expected,
                               struct dry_cache **out)
{
    struct dry_cache *c = dry_alloc(1, sizeof *c, "a cache");
    char where[1100];
    enum dry_status st;

    if (!c)
        return DRY_ERR_MEMORY;
    c->path = dry_strdup(path);
    st = c->path ? dry_cache_file_open(path, &c->origin, &c->t, &c->file) : DRY_ERR_MEMORY;
    if (!st && expected)
        st = check_origin(path, &c->origin, expected);
    if (!st)
        st = check_key(path, &c->origin);
    snprintf(where, sizeof where, "cache %s", path);
    if (!st)
        st = dry_tables_check(&c->t, where);
    if (st) {
        dry_cache_close(c);
        return st;
    }
    show(c);
    *out = c;
    return DRY_OK;
}

void dry_cache_close(struct dry_cache *c)
{
    if (!c)
        return;
    dry_cache_file_close(c->file);
    dry_tables_reset(&c->t);
    dry_free(c->path);
    dry_free(c);
}

const struct dry_cache_view *dry_cache_view(const struct dry_cache *c)
{
    return &c->view;
}

const char *dry_cache_path(const struct dry_cache *c)
{
    return c->path;
}

/* Tokens [first, first + count), each of them an id that the file may hold. */
static enum dry_status read_tokens(struct dry_cache *c, int64_t first, int64_t count, int32_t *ids)
{
    enum dry_status st;

    if (!c->file) {
        memcpy(ids, c->t.token + first, (size_t)count * sizeof *ids);
        return DRY_OK;
    }
    st = dry_cache_file_tokens(c->file, first, count, ids);
    for (int64_t i = 0; i < count && !st; i++)
        if (ids[i] < 0 || ids[i] > c->t.largest_id) {
            dry_error("cache %s: dataset /tokens is damaged: token %lld has id %d, not 0 to %lld; delete the "
                      "file and run "
                      "prepare again",
                      c->path, (long long)(first + i), (int)ids[i], (long long)c->t.largest_id);
            st = DRY_ERR_INPUT;
        }
    return st;
}

enum dry_status dry_cache_check(struct dry_cache *c, int part, int parts)
{
    int64_t records = c->t.records;
    int64_t first = c->t.offset[records / parts * part + records % parts * part / parts];
    int64_t end = c->t.offset[records / parts * (part + 1) + records % parts * (part + 1) / parts];
    int32_t *ids = dry_alloc(CHECK_TOKENS, sizeof *ids, "tokens to check");
    enum dry_status st = ids ? DRY_OK : DRY_ERR_MEMORY;

    for (int64_t at = first; at < end && !st; at += CHECK_TOKENS)
        st = read_tokens(c, at, end - at < CHECK_TOKENS ? end - at : CHECK_TOKENS, ids);
    dry_free(ids);
    return st;
}

enum dry_status dry_cache_read(struct dry_cache *c, int64_t record, int32_t *ids, struct dry_span *span,
                               int64_t *spans)
{
    int64_t first, count;

    assert(record >= 0 && record < c->t.records);
    first = c->t.span_offset[record];
    count = c->t.span_offset[record + 1] - first;
    if (ids) {
        int64_t at = c->t.offset[record];
        enum dry_status st = read_tokens(c, at, c->t.offset[record + 1] - at, ids);
        if (st)
            return st;
    }
    if (span)
        memcpy(span, c->t.span + first, (size_t)count * sizeof *span);
    if (spans)
        *spans = count;
    return DRY_OK;
}

int64_t dry_cache_spans(const struct dry_cache *c, int64_t record)
{
    return c->t.span_offset[record + 1] - c->t.span_offset[record];
}
