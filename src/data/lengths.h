/*
 * The length report: how long the records are, and what padding would cost.
 * Owns nothing.  Must not know where the lengths come from.
 */
#ifndef DRY_DATA_LENGTHS_H
#define DRY_DATA_LENGTHS_H

#include "data/cache.h"

enum { DRY_LENGTH_BUCKETS = 64 };

/* Shares are of the positions that would be computed: padding / (padding + tokens). */
struct dry_length_bucket {
    int32_t length;
    int64_t records, tokens;
};
struct dry_lengths {
    int64_t records, tokens, supervised;
    int64_t least, p50, p90, p95, p99,
        most; /* nearest rank: the smallest length that that share does not exceed */
    double mean;
    int64_t limit, over_limit; /* records longer than the limit */
    int64_t fixed_positions;   /* every record padded (or cut) to the limit */
    int64_t fixed_tokens;      /* what of them are tokens */
    int64_t bucket_positions;  /* every record padded to its bucket */
    struct dry_length_bucket bucket[DRY_LENGTH_BUCKETS];
    int buckets;                                    /* up to the last that holds a record */
    int64_t packed_positions, packed_micro_batches; /* an epoch of flat micro-batches; 0: no plan was given */
    int trained_fixed;                              /* training pads to the limit (--padding fixed) */
};

/* Local. Buckets and limit are those of `limit`, whatever limit the records were tokenised under. MEMORY. */
enum dry_status dry_lengths_of(const struct dry_cache_view *v, int64_t limit, struct dry_lengths *l);

#endif
