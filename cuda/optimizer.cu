/*
 * Kernels of the update: the norm of the summed gradients, and AdamW.
 * Owns nothing.  Must not know of layers, ranks or steps.
 *
 * The norm is added up in double over fixed blocks, in an order that follows from the number of gradients
 * alone.
 */
#include "cuda/optimizer.h"

#include "cuda/fixed.cuh"

enum {
    NORM_BLOCK = 256,
    FINISH_BLOCK = 1024,
    UPDATE_BLOCK = 256,
    UPDATE_EACH = 4 /* parameters that a thread takes at once */
};

/* The sum over a block of THREADS, the same bits in all threads: lanes by butterfly, then warps in order. */
template <int THREADS> static __device__ double block_sum(double x)
{
    __shared__ double part[THREADS / 32];

    x = dry_cuda_warp_sum(x);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
    for (int i = 1; i < THREADS / 32; i++)
        x += part[i];
    return x;
}

/* partial[block] = the squares of its DRY_CUDA_NORM_BLOCK sums, unscaled: below 2^126 together. */
__global__ static void __launch_bounds__(NORM_BLOCK)
    norm_partial(const int64_t *sums, int64_t gradients, double *partial)
{
    int64_t first = (int64_t)blockIdx.x * DRY_CUDA_NORM_BLOCK;
    double total = 0;

#pragma unroll 8
    for (int i = threadIdx.x; i < DRY_CUDA_NORM_BLOCK; i += NORM_BLOCK) {
        double g = first + i < gradients ? (double)sums[first + i] : 0.0;
        total += g * g;
    }
    total = block_sum<NORM_BLOCK>(total);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

static __device__ __forceinline__ double gradient_scale(const int64_t *words)
{
    return 1.0 / (double)(INT64_C(1) << DRY_GRAD_BITS) / (double)words[DRY_SUM_TOKENS];
}

/* One block: the partial sums, thread by thread in steps of the block, and the root. */
__global__ static void __launch_bounds__(FINISH_BLOCK)
    norm_finish(const double *partial, int64_t count, const int64_t *words, double *norm)
{
    double total = 0;

    for (int64_t i = threadIdx.x; i < count; i += FINISH_BLOCK)
        total += partial[i];
    total = block_sum<FINISH_BLOCK>(total); /* and all have read partial */
    if (threadIdx.x == 0)
        *norm = sqrt(total) * gradient_scale(words);
}

/* PyTorch's AdamW, term by term, as compute/cpu/sums.c. */
static __device__ __forceinline__ void update(const struct dry_adamw_terms &t, int64_t sum, double scale,
                                              double clip, float *value, float *m, float *v)
{
    float g = (float)((double)sum * scale * clip);

    *m += t.weight1 * (g - *m);
    *v = *v * t.beta2 + t.weight2 * g * g;
    *value = *value * t.decay - t.step * (*m / (sqrtf(*v) / t.root + t.epsilon));
}

/* 20 bytes read and 12 written per parameter. */
__global__ static void __launch_bounds__(UPDATE_BLOCK) adamw(struct dry_cuda_update u)
{
    const int64_t *words = u.sums + u.gradients;
    int64_t whole = u.gradients / UPDATE_EACH, step = (int64_t)gridDim.x * UPDATE_BLOCK;
    int64_t thread = (int64_t)blockIdx.x * UPDATE_BLOCK + threadIdx.x;

    if (words[DRY_SUM_FLAGS] || words[DRY_SUM_TOKENS] <= 0)
        return;
    double scale = gradient_scale(words), ratio = u.max_norm / (*u.norm + 1e-6);
    double clip = u.max_norm > 0 && ratio < 1 ? ratio : 1;
    float4 *values = reinterpret_cast<float4 *>(u.values), *ms = reinterpret_cast<float4 *>(u.m);
    float4 *vs = reinterpret_cast<float4 *>(u.v);
    const longlong2 *sums = reinterpret_cast<const longlong2 *>(u.sums);
    for (int64_t i = thread; i < whole; i += step) {
        longlong2 low = sums[2 * i], high = sums[2 * i + 1];
        float4 value = values[i], m = ms[i], v = vs[i];
        update(u.terms, low.x, scale, clip, &value.x, &m.x, &v.x);
        update(u.terms, low.y, scale, clip, &value.y, &m.y, &v.y);
        update(u.terms, high.x, scale, clip, &value.z, &m.z, &v.z);
        update(u.terms, high.y, scale, clip, &value.w, &m.w, &v.w);
        values[i] = value;
        ms[i] = m;
        vs[i] = v;
    }
    for (int64_t i = whole * UPDATE_EACH + thread; i < u.gradients; i += step)
        update(u.terms, u.sums[i], scale, clip, &u.values[i], &u.m[i], &u.v[i]);
}

cudaError_t dry_cuda_norm_launch(const int64_t *sums, int64_t gradients, double *partial, double *norm,
                                 cudaStream_t stream)
{
    int64_t blocks = (gradients + DRY_CUDA_NORM_BLOCK - 1) / DRY_CUDA_NORM_BLOCK;

    norm_partial<<<(unsigned)blocks, NORM_BLOCK, 0, stream>>>(sums, gradients, partial);
    cudaError_t e = cudaGetLastError();
    if (e)
        return e;
    norm_finish<<<1, FINISH_BLOCK, 0, stream>>>(partial, blocks, sums + gradients, norm);
    return cudaGetLastError();
}

cudaError_t dry_cuda_update_launch(const struct dry_cuda_update *u, int blocks, cudaStream_t stream)
{
    int64_t each = UPDATE_BLOCK * UPDATE_EACH, needed = (u->gradients + each - 1) / each;

    adamw<<<(unsigned)(needed < blocks ? needed : blocks), UPDATE_BLOCK, 0, stream>>>(*u);
    return cudaGetLastError();
}
