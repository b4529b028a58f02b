/*
 * merge: W + scale B A into a new Hugging Face folder.  Owns nothing.
 */
#ifndef DRY_STATE_MERGE_H
#define DRY_STATE_MERGE_H

#include "model/adapter.h"
#include "model/base.h"

/* Local. Writes OUTPUT/ with the base's files (config, tokenizer, generation config) and merged weights as
 * `to` (DRY_OTHER: each tensor's own type), in one model.safetensors or, above shard_bytes, shards with
 * model.safetensors.index.json; a tensor is never split, so one that is larger has a shard of its own. The
 * sum is made in float32 and rounded once, the same bits for any number of threads; memory stays at one block
 * of rows. config.json is written last, so that a folder with it is whole; on failure the weights written are
 * removed. USAGE: OUTPUT is the base or already holds weights. NUMERIC: a value is not finite in the new
 * type. IO, MEMORY. */
enum dry_status dry_merge(const struct dry_base *base, const struct dry_adapter *a, const float *values,
                          const char *output, enum dry_dtype to, int64_t shard_bytes);

#endif
