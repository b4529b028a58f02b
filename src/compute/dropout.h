/*
 * The dropout mask of LoRA's input: which elements stay, as a function of seed, step, record, position,
 * module and column. Owns nothing.  Every backend draws the mask through these definitions, so that all of
 * them drop the same elements.
 */
#ifndef DRY_COMPUTE_DROPOUT_H
#define DRY_COMPUTE_DROPOUT_H

#include "base/random.h"
#include "model/arch.h"

/* What CUDA's compiler is told, so that kernels call the same functions. */
#ifdef __CUDACC__
#define DRY_DROPOUT_SIDES __host__ __device__
#else
#define DRY_DROPOUT_SIDES
#endif

/* Counters of dry_random_words: one call gives the words of four neighbouring columns. Fields: step 28 bits,
 * record 36; position 26, layer 12, projection 3, column / 4 23. */
DRY_DROPOUT_SIDES static inline uint64_t dry_dropout_row(int64_t step, int64_t record)
{
    return (uint64_t)step << 36 | ((uint64_t)record & ((1ull << 36) - 1));
}

DRY_DROPOUT_SIDES static inline uint64_t dry_dropout_column(int64_t position, int64_t layer,
                                                            enum dry_proj proj, int64_t column)
{
    return (uint64_t)position << 38 | (uint64_t)layer << 26 | (uint64_t)proj << 23 | (uint64_t)column / 4;
}

/* An element is dropped when its word is below this; those that stay are multiplied by 1 / (1 - p). */
DRY_DROPOUT_SIDES static inline uint32_t dry_dropout_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

#endif
