/*
 * The cache: tokenised records in one HDF5 file, keyed by the bytes that decide its content.
 * Owns its HDF5 handles.  The only home of <hdf5.h> besides state/checkpoint.c.
 *
 * Layout (format version 1), every dataset with Fletcher32:
 *   /tokens int32 [tokens]; /offset int64 [records + 1]; /span int32 [spans, 2] (within the record);
 *   /span_offset int64 [records + 1]; /line int64 [records]; /supervised int32 [records]; /bucket int32 [records];
 *   /bucket_length int32 [buckets]; attributes of /: format_version, key, the fields of the key one by one, counts per
 *   outcome, drydock's version.
 */
#ifndef DRY_DATA_CACHE_H
#define DRY_DATA_CACHE_H

#include "parallel/comm.h"
#include "text/record.h"

/* What the key is made of; each is kept in the file so that a stale cache is told by field. */
struct dry_cache_source {
    const char *data_path;          /* the user's file */
    char data_hash[DRY_HASH_HEX];   /* its bytes */
    char tokenizer_hash[DRY_HASH_HEX];
    char rule_hash[DRY_HASH_HEX];
};

struct dry_cache;

/* Per-record tables, in memory; borrowed from the cache. */
struct dry_cache_view {
    int64_t records, tokens, supervised;
    const int64_t *offset;     /* [records + 1] */
    const int32_t *supervised_of; /* [records] */
    const int64_t *line;       /* [records] */
    const int32_t *bucket;     /* [records], index into bucket_length */
    const int32_t *bucket_length;
    int32_t buckets;
    int64_t outcome[DRY_RECORD_OUTCOMES];
    const char *key;           /* hex */
};

/* Local. key = SHA-256 over format version and the three hashes; file name under the cache folder: "<first 16 digits>.h5".*/
enum dry_status dry_cache_key(const struct dry_cache_source *s, char key[DRY_HASH_HEX]);

/* Collective. Tokenises in parallel over ranks (contiguous shares of the lines), gathers on rank 0, which writes by the
 * publish protocol; shows progress. Bad records: named with file:line (first ten of each kind, then the count);
 * bad_drop / long_drop say whether they are left out or the preflight refuses (INPUT). The preflight table is printed. */
enum dry_status dry_cache_build(struct dry_comm *comm, struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                const struct dry_cache_source *s, const char *path, int bad_drop, int long_drop);

/* Local. Opens for reading and checks format, key and field by field; a mismatch or damage names field and remedy. INPUT. */
enum dry_status dry_cache_open(const char *path, const struct dry_cache_source *expected, struct dry_cache **c);
void dry_cache_close(struct dry_cache *c);
const struct dry_cache_view *dry_cache_view(const struct dry_cache *c);
/* Local. A record's tokens into ids[length], its spans into span[] (room for all; dry_cache_spans tells). INPUT, IO. */
enum dry_status dry_cache_read(struct dry_cache *c, int64_t record, int32_t *ids, struct dry_span *span,
                               int64_t *spans);
int64_t dry_cache_spans(const struct dry_cache *c, int64_t record);

#endif
