/*
 * The arrays of a cache: made complete, checked, shown.
 * Owns what struct dry_tables points to.
 * Must not know of HDF5, ranks or text.
 */
#include "config.h"

#include "data/tables.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void dry_tables_reset(struct dry_tables *t)
{
    dry_free(t->token);
    dry_free(t->offset);
    dry_free(t->span);
    dry_free(t->span_offset);
    dry_free(t->line);
    dry_free(t->supervised);
    dry_free(t->digest);
    dry_free(t->bucket);
    dry_free(t->bucket_length);
    memset(t, 0, sizeof *t);
}

enum dry_status dry_tables_offsets(const int32_t *length, int64_t records, const char *what, int64_t **offset,
                                   int64_t *total)
{
    int64_t *o = dry_alloc((size_t)records + 1, sizeof *o, what);

    if (!o)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < records; i++)
        o[i + 1] = o[i] + length[i];
    *offset = o;
    *total = o[records];
    return DRY_OK;
}

int64_t dry_bucket_lengths(int64_t limit, int32_t *length)
{
    int64_t n = 0;

    for (int64_t power = 64; power < limit; power *= 2) {
        if (length)
            length[n] = (int32_t)power;
        n++;
        if (power > 64 && power + power / 2 < limit) {
            if (length)
                length[n] = (int32_t)(power + power / 2);
            n++;
        }
    }
    if (length)
        length[n] = (int32_t)limit;
    return n + 1;
}

static int64_t bucket_of(const struct dry_tables *t, int64_t length)
{
    int64_t low = 0, high = t->buckets - 1;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->bucket_length[middle] >= length)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int rising(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* A sorted copy of digests, or NULL. */
static uint64_t *sorted(const uint64_t *digest, int64_t n)
{
    uint64_t *copy = dry_alloc((size_t)n, sizeof *copy, "the records' digests");

    if (copy) {
        memcpy(copy, digest, (size_t)n * sizeof *copy);
        qsort(copy, (size_t)n, sizeof *copy, rising);
    }
    return copy;
}

enum dry_status dry_tables_complete(struct dry_tables *t)
{
    uint64_t *digest = sorted(t->digest, t->records);

    if (!digest)
        return DRY_ERR_MEMORY;
    t->duplicates = 0;
    for (int64_t i = 1; i < t->records; i++)
        t->duplicates += digest[i] == digest[i - 1];
    dry_free(digest);
    t->buckets = dry_bucket_lengths(t->limit, NULL);
    t->bucket_length = dry_alloc((size_t)t->buckets, sizeof *t->bucket_length, "bucket lengths");
    t->bucket = dry_alloc((size_t)t->records, sizeof *t->bucket, "the records' buckets");
    if (!t->bucket_length || !t->bucket)
        return DRY_ERR_MEMORY;
    dry_bucket_lengths(t->limit, t->bucket_length);
    for (int64_t i = 0; i < t->records; i++)
        t->bucket[i] = (int32_t)bucket_of(t, t->offset[i + 1] - t->offset[i]);
    return DRY_OK;
}

enum dry_status dry_cache_overlap(const struct dry_cache_view *a, const struct dry_cache_view *b,
                                  int64_t *records)
{
    uint64_t *known = sorted(a->digest, a->records);
    int64_t found = 0;

    if (!known)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < b->records; i++)
        found += bsearch(&b->digest[i], known, (size_t)a->records, sizeof *known, rising) != NULL;
    dry_free(known);
    *records = found;
    return DRY_OK;
}

int64_t dry_tables_labels(const struct dry_tables *t, int64_t record)
{
    int64_t labels = 0;

    for (int64_t i = t->span_offset[record]; i < t->span_offset[record + 1]; i++)
        labels += t->span[i].end - (t->span[i].begin > 0 ? t->span[i].begin : 1);
    return labels;
}

static enum dry_status damaged(const char *where, const char *dataset, int64_t record, const char *why)
{
    dry_error("%s: dataset /%s is damaged at record %lld: %s; delete the file and run prepare again", where,
              dataset, (long long)record, why);
    return DRY_ERR_INPUT;
}

static enum dry_status check_spans(const struct dry_tables *t, const char *where, int64_t r)
{
    int64_t length = t->offset[r + 1] - t->offset[r], before = 0;

    if (t->span_offset[r + 1] < t->span_offset[r] || t->span_offset[r + 1] > t->spans)
        return damaged(where, "span_offset", r, "offsets must not fall");
    for (int64_t i = t->span_offset[r]; i < t->span_offset[r + 1]; i++) {
        if (t->span[i].begin < before || t->span[i].end <= t->span[i].begin || t->span[i].end > length)
            return damaged(where, "span", r, "a span does not lie in order within its record");
        before = t->span[i].end;
    }
    if (t->supervised[r] < 1 || t->supervised[r] != dry_tables_labels(t, r))
        return damaged(where, "supervised", r, "the count of labels is not that of the spans");
    return DRY_OK;
}

enum dry_status dry_tables_check(const struct dry_tables *t, const char *where)
{
    enum dry_status st;

    if (t->offset[0] != 0)
        return damaged(where, "offset", 0, "the first offset must be 0");
    if (t->span_offset[0] != 0)
        return damaged(where, "span_offset", 0, "the first offset must be 0");
    for (int64_t b = 0; b < t->buckets; b++)
        if (t->bucket_length[b] < 1 || (b && t->bucket_length[b] <= t->bucket_length[b - 1]))
            return damaged(where, "bucket_length", 0, "bucket lengths must rise");
    for (int64_t r = 0; r < t->records; r++) {
        /* Offsets come from a file: their difference is taken only once both are known to lie in [0, tokens].
         */
        if (t->offset[r + 1] <= t->offset[r] || t->offset[r + 1] > t->tokens)
            return damaged(where, "offset", r, "offsets must rise");
        int64_t length = t->offset[r + 1] - t->offset[r];
        if (length > t->limit)
            return damaged(where, "offset", r, "a record is longer than the limit");
        st = check_spans(t, where, r);
        if (st)
            return st;
        if (t->line[r] < 1 || (r && t->line[r] <= t->line[r - 1]))
            return damaged(where, "line", r, "line numbers must rise");
        if (t->bucket[r] < 0 || t->bucket[r] >= t->buckets || t->bucket_length[t->bucket[r]] < length)
            return damaged(where, "bucket", r, "the bucket does not hold the record");
    }
    if (t->offset[t->records] != t->tokens)
        return damaged(where, "offset", t->records, "the last offset must be the number of tokens");
    if (t->span_offset[t->records] != t->spans)
        return damaged(where, "span_offset", t->records, "the last offset must be the number of spans");
    return DRY_OK;
}

void dry_tables_view(const struct dry_tables *t, struct dry_cache_view *v)
{
    v->records = t->records;
    v->tokens = t->tokens;
    v->supervised = 0;
    for (int64_t i = 0; i < t->records; i++)
        v->supervised += t->supervised[i];
    v->offset = t->offset;
    v->supervised_of = t->supervised;
    v->line = t->line;
    v->digest = t->digest;
    v->bucket = t->bucket;
    v->bucket_length = t->bucket_length;
    v->buckets = (int32_t)t->buckets;
    memcpy(v->outcome, t->outcome, sizeof v->outcome);
    v->special_text = t->special_text;
    v->truncated = t->truncated;
    v->duplicates = t->duplicates;
    v->limit = t->limit;
    v->largest_id = (int32_t)t->largest_id;
}
