/*
 * The contract: what a run promises not to change (doc/design.md, section 4).  Resolved from options, number
 * of ranks and number of records; written to the run; compared at every later start. Owns its texts.  Must
 * not know of tokens, files of the run, or devices.
 */
#ifndef DRY_CONFIG_CONTRACT_H
#define DRY_CONFIG_CONTRACT_H

#include "base/hash.h"
#include "base/json.h"
#include "config/options.h"

/* Plain values; everything that decides the adapter's bits on a given build. */
struct dry_contract {
    int64_t effective_batch; /* records per step */
    int64_t micro_records;   /* records per micro-batch, or 0: micro_tokens decides */
    int64_t micro_tokens;    /* tokens per micro-batch, or 0 */
    int64_t records;         /* in the training cache */
    int64_t epochs, steps;   /* optimizer steps of the whole run */
    int64_t steps_per_epoch;
    int64_t warmup_steps;
    int64_t seed, max_seq_length;
    double learning_rate, weight_decay, max_grad_norm, adam_beta1, adam_beta2, adam_epsilon;
    char schedule[16];
    char padding[8];         /* flat | fixed */
    char data[DRY_HASH_HEX]; /* cache key of the training data (bytes, tokenizer, template, limit, rules) */
    char base[DRY_HASH_HEX]; /* config.json and the safetensors headers and sizes of the base */
    char adapter[DRY_HASH_HEX]; /* rank, alpha, patterns, targets, rsLoRA, dropout, initial adapter's bytes */
};

/* Local. How a step is cut into micro-batches: one of *micro_records and *micro_tokens is 0. USAGE. */
enum dry_status dry_contract_cut(const struct dry_config *c, int64_t *micro_records, int64_t *micro_tokens);

/* Local. Effective batch and the cut of a step, from the options and the ranks; refuses an ambiguous
 * accumulation and prints the two legal commands with steps per epoch and learning rate. `records`: of the
 * data (INPUT when there is none). Fills effective_batch, micro_records, micro_tokens, steps,
 * steps_per_epoch, warmup_steps and the plain copies; the hashes are the caller's. max_steps decides over
 * epochs, which then is the number of epochs that the steps take. Identical on all ranks. USAGE. */
enum dry_status dry_contract_resolve(const struct dry_config *c, int ranks, int64_t records,
                                     struct dry_contract *k);

/* Local. What a later start in the same folder would change. `then` was written by the run, `now` is asked
 * for. Equal: OK. A difference in the batch (effective batch, cut) with accept_batch_change: *rate_factor =
 * 1, ratio or sqrt(ratio) for the learning rate, logged, OK; `now` keeps the learning rate of its options:
 * the caller keeps the factor beside it, multiplied with those of earlier changes, since a start after the
 * change compares equal. What follows from the batch (steps, warm-up) may then differ too. Any other: each
 * difference is named with both values, USAGE. */
enum dry_status dry_contract_compare(const struct dry_contract *then, const struct dry_contract *now,
                                     const char *accept_batch_change, double *rate_factor);

/* Local. Under the error of a batch that differs: the two legal commands, on so many ranks, each with what it
 * does to steps per epoch and learning rate. MEMORY. */
enum dry_status dry_contract_ways(const struct dry_config *c, int ranks, const struct dry_contract *then,
                                  const struct dry_contract *now);
/* Local. Non-zero when neither effective batch nor cut differ. */
int dry_contract_same_batch(const struct dry_contract *a, const struct dry_contract *b);
/* Local. Tokens of computing that a record takes at least: max_seq_length under --padding fixed, else 0. */
int64_t dry_contract_record_tokens(const struct dry_contract *k);

/* Local. To and from run.json and checkpoints. `where` names the file for messages. A contract without
 * padding was written before there was a choice: flat. */
json_t *dry_contract_json(const struct dry_contract *k);
enum dry_status dry_contract_from_json(const json_t *object, const char *where, struct dry_contract *k);

#endif
