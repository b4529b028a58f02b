/*
 * Computes the length report from a cache's tables.
 * Owns nothing.
 * Must not know how it is shown.
 */
#include "config.h"

#include "data/lengths.h"

#include "data/tables.h"

#include "base/memory.h"
#include "base/number.h"

#include <assert.h>
#include <string.h>

/* Nearest rank: the least length that at least `percent` of the records do not exceed. */
static int64_t percentile(const int64_t *length, int64_t n, int percent)
{
    int64_t rank = n / 100 * percent + (n % 100 * percent + 99) / 100;

    return length[rank > 0 ? rank - 1 : 0];
}

static void add_buckets(const int64_t *length, int64_t n, int64_t longest, struct dry_lengths *l)
{
    int64_t buckets = dry_bucket_lengths(longest, NULL);
    int32_t of[DRY_LENGTH_BUCKETS];
    int b = 0;

    assert(buckets <= DRY_LENGTH_BUCKETS);
    dry_bucket_lengths(longest, of);
    for (int64_t i = 0; i < n; i++) { /* rising, as the buckets do */
        while (of[b] < length[i])
            b++;
        l->bucket[b].records++;
        l->bucket[b].tokens += length[i];
        l->bucket_positions += of[b];
    }
    l->buckets = b + 1;
    for (int i = 0; i <= b; i++)
        l->bucket[i].length = of[i];
}

enum dry_status dry_lengths_of(const struct dry_cache_view *v, int64_t limit, struct dry_lengths *l)
{
    int64_t n = v->records, *length = dry_alloc((size_t)n, sizeof *length, "the records' lengths");

    if (!length)
        return DRY_ERR_MEMORY;
    memset(l, 0, sizeof *l);
    for (int64_t i = 0; i < n; i++)
        length[i] = v->offset[i + 1] - v->offset[i];
    dry_sort_counts(length, (size_t)n);
    l->records = n;
    l->tokens = v->tokens;
    l->supervised = v->supervised;
    l->mean = (double)v->tokens / (double)n;
    l->least = length[0];
    l->p50 = percentile(length, n, 50);
    l->p90 = percentile(length, n, 90);
    l->p95 = percentile(length, n, 95);
    l->p99 = percentile(length, n, 99);
    l->most = length[n - 1];
    l->limit = limit;
    l->fixed_positions = n * limit;
    for (int64_t i = 0; i < n; i++) {
        l->over_limit += length[i] > limit;
        l->fixed_tokens += length[i] < limit ? length[i] : limit;
    }
    add_buckets(length, n, l->most > limit ? l->most : limit, l);
    dry_free(length);
    return DRY_OK;
}
