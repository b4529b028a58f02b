/*
 * The cache: tokenised records in one HDF5 file, keyed by the bytes that decide its content; or the same in
 * memory. Owns its HDF5 handles and the tables that it gives out.  Must not know what the tokens are used
 * for.
 *
 * Layout (format version 1), every dataset with Fletcher32, chunks of at most 1 MiB:
 *   /tokens int32 [tokens]; /offset int64 [records + 1]; /span int32 [spans, 2] (begin and end within the
 * record); /span_offset int64 [records + 1]; /line int64 [records], 1-based; /supervised int32 [records]:
 * labels; /digest uint64 [records]: the first 64 bits of SHA-256 of the record's ids; /bucket int32
 * [records], index into /bucket_length int32 [buckets]; attributes of /: format_version, key, the fields of
 * the key one by one (data_hash, tokenizer_hash, rule_hash), count_* per outcome, special_text, truncated,
 * duplicates, limit, largest_id, and for people data_path, template, version. The same data, tokenizer and
 * rule give the same bytes on any number of ranks.
 *
 * Bucket lengths: 64, then every power of two and the length halfway between two of them (128, 192, 256, 384,
 * 512, 768, 1024, ...) below the limit, and the limit itself.
 */
#ifndef DRY_DATA_CACHE_H
#define DRY_DATA_CACHE_H

#include "parallel/comm.h"
#include "text/record.h"

enum { DRY_CACHE_VERSION = 1 };

/* What the key is made of; each is kept in the file so that a stale cache is told by field. */
struct dry_cache_source {
    const char *data_path;        /* the user's file */
    char data_hash[DRY_HASH_HEX]; /* its bytes; "": what is built is not compared with them */
    char tokenizer_hash[DRY_HASH_HEX];
    char rule_hash[DRY_HASH_HEX]; /* the record rule, and what happens to bad and to long records */
};

struct dry_cache;

/* Per-record tables, in memory; borrowed from the cache. */
struct dry_cache_view {
    int64_t records, tokens, supervised;
    const int64_t *offset;        /* [records + 1] */
    const int32_t *supervised_of; /* [records] */
    const int64_t *line;          /* [records] */
    const uint64_t *digest;       /* [records]: equal ids, equal digest */
    const int32_t *bucket;        /* [records], index into bucket_length */
    const int32_t *bucket_length; /* rising */
    int32_t buckets;
    int64_t outcome[DRY_RECORD_OUTCOMES]; /* of all lines of the data; [DRY_RECORD_GOOD] = records */
    int64_t special_text;                 /* special tokens written in the text of the records */
    int64_t truncated;                    /* records cut to the limit */
    int64_t duplicates;                   /* records whose ids an earlier record has too */
    int64_t limit;                        /* tokens per record */
    int32_t largest_id;
    const char *data_path;                              /* as given when the cache was made */
    const char *key;                                    /* hex */
    const char *data_hash, *tokenizer_hash, *rule_hash; /* hex: what the key is made of */
    const char *template_name;
};

/* Local. key = SHA-256 over format version and the three hashes; file name under the cache folder: "<first 16
 * digits>.h5".*/
enum dry_status dry_cache_key(const struct dry_cache_source *s, char key[DRY_HASH_HEX]);

/* Collective. Tokenises in parallel over ranks (contiguous shares of the lines), gathers on rank 0, which
 * writes by the publish protocol; shows progress. Bad records: named with file:line (first ten of each kind,
 * then the count); bad_drop / long_drop say whether they are left out or the preflight refuses (INPUT). */
enum dry_status dry_cache_build(struct dry_comm *comm, struct dry_tokenizer *t,
                                const struct dry_record_rule *rule, const struct dry_cache_source *s,
                                const char *path, int bad_drop, int long_drop);
/* Collective. The same without a file: the whole cache in memory on every rank, for commands that were given
 * no folder. */
enum dry_status dry_cache_build_memory(struct dry_comm *comm, struct dry_tokenizer *t,
                                       const struct dry_record_rule *rule, const struct dry_cache_source *s,
                                       int bad_drop, int long_drop, struct dry_cache **c);

/* Local. Opens for reading and checks format, key and field by field; a mismatch or damage names field and
 * remedy. expected NULL: whatever the file holds (inspect, lengths), checked against itself. INPUT. */
enum dry_status dry_cache_open(const char *path, const struct dry_cache_source *expected,
                               struct dry_cache **c);
void dry_cache_close(struct dry_cache *c);
const struct dry_cache_view *dry_cache_view(const struct dry_cache *c);
const char *dry_cache_path(const struct dry_cache *c); /* NULL: in memory */
/* Local. Reads every token of part `part` of `parts` equal shares of the records, so that damage is found
 * before work begins. INPUT. */
enum dry_status dry_cache_check(struct dry_cache *c, int part, int parts);
/* Local. A record's tokens into ids[length], its spans into span[] (room for all; dry_cache_spans tells).
 * Either may be NULL. INPUT, IO. */
enum dry_status dry_cache_read(struct dry_cache *c, int64_t record, int32_t *ids, struct dry_span *span,
                               int64_t *spans);
int64_t dry_cache_spans(const struct dry_cache *c, int64_t record);

/* Local. The preflight table on rank 0's log: records by outcome, tokens, supervised tokens, special-token
 * text, duplicates. */
void dry_cache_preflight(const struct dry_cache_view *v);
/* Local. How many records of b also stand in a, by their digests. MEMORY. */
enum dry_status dry_cache_overlap(const struct dry_cache_view *a, const struct dry_cache_view *b,
                                  int64_t *records);

#endif
