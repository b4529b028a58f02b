/*
 * A cache's content as plain arrays: what tokenising makes, the HDF5 file keeps, and a view shows.
 * Owns the arrays.  Private to data/: others see struct dry_cache_view.
 */
#ifndef DRY_DATA_TABLES_H
#define DRY_DATA_TABLES_H

#include "data/cache.h"

struct dry_tables {
    int64_t records, tokens, spans;
    int32_t *token;        /* [tokens]; NULL when they stay in the file */
    int64_t *offset;       /* [records + 1] */
    struct dry_span *span; /* [spans] */
    int64_t *span_offset;  /* [records + 1] */
    int64_t *line;         /* [records] */
    int32_t *supervised;   /* [records] */
    uint64_t *digest;      /* [records] */
    int32_t *bucket;       /* [records] */
    int32_t *bucket_length;
    int64_t buckets;
    int64_t outcome[DRY_RECORD_OUTCOMES];
    int64_t special_text, truncated, duplicates, limit, largest_id;
};

void dry_tables_reset(struct dry_tables *t);
/* Local. offset[i + 1] = offset[i] + length[i], in new memory; *total = the last. MEMORY. */
enum dry_status dry_tables_offsets(const int32_t *length, int64_t records, const char *what, int64_t **offset,
                                   int64_t *total);
/* Local. The bucket lengths under a limit (cache.h) into length[]; NULL: only counts them. Returns how many,
 * 64 at most. */
int64_t dry_bucket_lengths(int64_t limit, int32_t *length);
/* Local. Fills buckets and duplicates from offset, digest and limit. MEMORY. */
enum dry_status dry_tables_complete(struct dry_tables *t);
/* Local. Checks what every user relies on: offsets rise, spans lie in order within their records and count up
 * to `supervised`, buckets hold their records. `where` names the cache. INPUT names dataset and record. */
enum dry_status dry_tables_check(const struct dry_tables *t, const char *where);
/* Local. Labels of a record: supervised tokens but the first of the record. */
int64_t dry_tables_labels(const struct dry_tables *t, int64_t record);
void dry_tables_view(const struct dry_tables *t, struct dry_cache_view *v);

#endif
