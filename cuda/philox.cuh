/*
 * Dropout's mask on the GPU: the words of base/random.h (Philox4x32-10; Salmon et al., SC 2011) with the
 * counters of compute/dropout.h, so that every backend drops the same elements.  Owns nothing.  Device code
 * only.
 */
#ifndef DRY_CUDA_PHILOX_CUH
#define DRY_CUDA_PHILOX_CUH

#include "compute/dropout.h"

#include <stdint.h>

/* dry_random_words: key of seed and purpose, counter (a, b). */
static __device__ __forceinline__ uint4 dry_cuda_random_words(uint64_t seed, enum dry_random_purpose purpose,
                                                              uint64_t a, uint64_t b)
{
    uint64_t key = seed + (uint64_t)purpose * 0x9E3779B97F4A7C15u;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)a, c1 = (uint32_t)(a >> 32), c2 = (uint32_t)b, c3 = (uint32_t)(b >> 32);

#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
        uint32_t low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* What a launch needs of a member's dropout; made on the host. */
struct dry_cuda_drop {
    uint64_t seed;
    int64_t layer;
    enum dry_proj proj;
    uint32_t threshold; /* dry_dropout_threshold(p) */
    float scale;        /* (float)(1 / (1 - p)) */
};

/* Factors of columns column .. column + 3 (column: a multiple of 4) of a row: 0 or d.scale. row_key: of the
 * row. */
static __device__ __forceinline__ float4 dry_cuda_drop_factors(const struct dry_cuda_drop &d,
                                                               uint64_t row_key, int64_t position,
                                                               int64_t column)
{
    uint4 w = dry_cuda_random_words(d.seed, DRY_RANDOM_DROPOUT, row_key,
                                    dry_dropout_column(position, d.layer, d.proj, column));

    return make_float4(w.x < d.threshold ? 0.0f : d.scale, w.y < d.threshold ? 0.0f : d.scale,
                       w.z < d.threshold ? 0.0f : d.scale, w.w < d.threshold ? 0.0f : d.scale);
}

#endif
