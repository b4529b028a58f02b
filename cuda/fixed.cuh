/*
 * Exact sums on the GPU: a float32 gradient or a loss to fixed point, by the rules of compute/backend.h, and
 * bfloat16 as kernels read and write it.  Owns nothing.  Device code only.
 *
 * Integers add up to the same bits in any order, so flags and words may be added with atomics; floats never
 * are.
 */
#ifndef DRY_CUDA_FIXED_CUH
#define DRY_CUDA_FIXED_CUH

#include "compute/backend.h"

#include <cuda_bf16.h>
#include <stdint.h>

/* Raises flags (0: none) in the flag word; the words are those behind the gradient sums. */
static __device__ __forceinline__ void dry_cuda_flag(int64_t *words, int64_t flags)
{
    if (flags)
        atomicOr(reinterpret_cast<unsigned long long *>(words + DRY_SUM_FLAGS), (unsigned long long)flags);
}

/* sum + llrint(g 2^DRY_GRAD_BITS), or sum as it was and a flag or-ed to *flags, as compute/cpu/sums.c has it:
 * scaling a float32 by a power of two and rounding the product to an integer are exact where double is. */
static __device__ __forceinline__ int64_t dry_cuda_gradient_added(int64_t sum, float g, int64_t *flags)
{
    const float scale = (float)(INT64_C(1) << DRY_GRAD_BITS);
    const float limit = (float)(INT64_C(1) << (DRY_GRAD_LIMIT_BITS - DRY_GRAD_BITS));

    if (!(fabsf(g) < limit)) {
        *flags |= isfinite(g) ? DRY_FLAG_RANGE : DRY_FLAG_NOT_FINITE;
        return sum;
    }
    int64_t total = sum + __float2ll_rn(g * scale); /* both below 2^57 */
    if (total >= DRY_GRAD_LIMIT || total <= -DRY_GRAD_LIMIT) {
        *flags |= DRY_FLAG_RANGE;
        return sum;
    }
    return total;
}

/* A gradient to its sum; only one thread of a launch may own the sum. Flags are or-ed to *flags: give them to
 * dry_cuda_flag at the end, once a thread. */
static __device__ __forceinline__ void dry_cuda_gradient_add(int64_t *sum, float g, int64_t *flags)
{
    *sum = dry_cuda_gradient_added(*sum, g, flags);
}

/* Eight bfloat16 as one 16-byte word, and as floats. */
struct dry_cuda_eight {
    float v[8];
};

static __device__ __forceinline__ float dry_cuda_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float dry_cuda_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}
static __device__ __forceinline__ dry_cuda_eight dry_cuda_unpack(uint4 w)
{
    return {{dry_cuda_low(w.x), dry_cuda_high(w.x), dry_cuda_low(w.y), dry_cuda_high(w.y), dry_cuda_low(w.z),
             dry_cuda_high(w.z), dry_cuda_low(w.w), dry_cuda_high(w.w)}};
}
/* Two floats rounded to nearest even, the first in the low half. */
static __device__ __forceinline__ uint32_t dry_cuda_pair(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<const uint32_t *>(&pair);
}
static __device__ __forceinline__ uint4 dry_cuda_pack(const dry_cuda_eight &e)
{
    return make_uint4(dry_cuda_pair(e.v[0], e.v[1]), dry_cuda_pair(e.v[2], e.v[3]),
                      dry_cuda_pair(e.v[4], e.v[5]), dry_cuda_pair(e.v[6], e.v[7]));
}
/* One bfloat16, bits in and out. */
static __device__ __forceinline__ float dry_cuda_float(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}
static __device__ __forceinline__ uint16_t dry_cuda_bits(float f)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

/* One element of RMSNorm, r = 1 / rms: the same bits wherever it is computed. */
static __device__ __forceinline__ float dry_cuda_normed(float x, float r, float weight)
{
    return weight * (x * r);
}

/* The sum over the warp's lanes, the same bits in all of them: a butterfly, whose order is fixed. */
static __device__ __forceinline__ float dry_cuda_warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
static __device__ __forceinline__ double dry_cuda_warp_sum(double x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

#endif
