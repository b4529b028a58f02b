/*
 * Tokenising a data file in parallel: each rank encodes a contiguous share of the lines, rank 0 gathers the
 * tables. Owns nothing afterwards.  Private to data/.
 */
#ifndef DRY_DATA_TOKENISE_H
#define DRY_DATA_TOKENISE_H

#include "data/preflight.h"
#include "data/tables.h"

/* Collective. Encodes every line of `path` by the rule. On rank 0 *t holds all good records in line order,
 * complete with buckets and counts; elsewhere it stays empty. The preflight is judged and printed on the way
 * (preflight.h). The worst status of all ranks. */
enum dry_status dry_tokenise(struct dry_comm *comm, struct dry_tokenizer *tokenizer,
                             const struct dry_record_rule *rule, const char *path, struct dry_policy policy,
                             struct dry_tables *t);

#endif
