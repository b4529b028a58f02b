/*
 * The plan: step -> micro-batches -> records, a function of the contract, the record lengths and the seed
 * only. Owns the permutation of the epoch in use.  Must not know of ranks, except in dry_plan_deal, which
 * only distributes.
 */
#ifndef DRY_DATA_PLAN_H
#define DRY_DATA_PLAN_H

#include "base/status.h"

#include <stdint.h>

/* Inside a step, records are sorted by falling length (ties by index) and cut in that order: micro_records
 * each, or filled with at most micro_tokens, into as few micro-batches as fit and those as even as can be (a
 * longer record is one of its own). With record_tokens a record counts as that many, and so does its place in
 * a micro-batch: the rows that are no tokens stand at the micro-batch's end. */
enum { DRY_ROW_MULTIPLE = 16 }; /* a micro-batch's token count is padded up to a multiple of this */

struct dry_plan_input {
    int64_t records;
    const int64_t *offset;     /* [records + 1]: lengths (borrowed for the plan's life) */
    const int32_t *supervised; /* [records] (borrowed) */
    int64_t effective_batch;
    int64_t micro_records, micro_tokens; /* one of them 0 */
    int64_t record_tokens;               /* each record takes this many tokens of computing; 0: its own */
    int64_t epochs,
        max_steps; /* max_steps 0: epochs decide; else exactly max_steps, over as many epochs as needed */
    uint64_t seed;
    int ordered; /* validation: records in file order, no permutation */
};

struct dry_micro_batch {
    int64_t first, count; /* range in dry_plan_step.record */
    int64_t useful;       /* tokens of its records */
    int64_t tokens;       /* useful, or record_tokens for each record; padded up to DRY_ROW_MULTIPLE */
    int64_t supervised;   /* labels */
    int64_t longest;      /* longest record */
    int64_t square;       /* sum of squared record lengths: the attention's share of the cost */
};

/* One step; pointers are borrowed until the next call on the plan. */
struct dry_plan_step {
    int64_t step, epoch; /* step is 1-based, epoch 0-based */
    int64_t records, useful, tokens, supervised;
    const int64_t *record; /* [records], grouped by micro-batch */
    const struct dry_micro_batch *micro;
    int64_t micros;
    const int64_t *heaviest; /* [micros]: indices into micro by falling cost, ties by index */
};

struct dry_plan;
/* Local. USAGE when a number is out of range, MEMORY. */
enum dry_status dry_plan_create(const struct dry_plan_input *in, struct dry_plan **p);
void dry_plan_destroy(struct dry_plan *p);
int64_t dry_plan_steps(const struct dry_plan *p);
int64_t dry_plan_steps_per_epoch(const struct dry_plan *p);
/* Local. 1 <= step <= dry_plan_steps. Steps of one epoch in any order are cheap; another epoch costs a
 * permutation. MEMORY. */
enum dry_status dry_plan_step(struct dry_plan *p, int64_t step, struct dry_plan_step *s);
/* Local. The largest micro-batch over the whole run: bounds for the buffers. The first call of
 * dry_plan_bounds or dry_plan_hash walks the whole run once. */
struct dry_plan_bounds {
    int64_t tokens, records, supervised, longest, micros; /* each its own maximum */
};
enum dry_status dry_plan_bounds(struct dry_plan *p, struct dry_plan_bounds *b);
/* Local. What a micro-batch costs, in units that only compare: its tokens, and the attention's square. */
int64_t dry_plan_cost(const struct dry_micro_batch *m);
/* Local. owner[m] = rank of micro-batch m: by falling cost to the rank with the least load, ties to the
 * lowest; the same on every rank. With fewer micro-batches than ranks the highest ranks are idle. */
void dry_plan_deal(const struct dry_plan_step *s, int ranks, int *owner /* [micros] */);
/* Local. SHA-256 (hex) over all steps' records and cuts. */
enum dry_status dry_plan_hash(struct dry_plan *p, char hex[65]);

#endif
