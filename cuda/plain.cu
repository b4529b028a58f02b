/*
 * A matrix product for any shape, stride and alignment, in plain float32 arithmetic.
 * Owns nothing.  Must not know what is multiplied; cuBLASLt does every product that it has an algorithm for.
 *
 * 2 m n k operations at some 10 % of the rate without matrix units: for models of odd width, which are small.
 */
#include "cuda/gemm.h"

#include <cuda_bf16.h>

enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = TILE / 16 };

/* Element (row, k) of op(A), or (k, column) of op(B), by strides; zero outside. */
struct operand {
    const __nv_bfloat16 *at;
    int64_t along, depth, size; /* strides of m or n, and of k; m or n */
};

__device__ static void tile_load(const struct operand &o, int64_t first, int64_t k, int64_t depth,
                                 float tile[DEPTH][TILE + 1])
{
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        /* Neighbouring threads along the dimension that is contiguous. */
        int x = o.along == 1 ? i % TILE : i / DEPTH, y = o.along == 1 ? i / TILE : i % DEPTH;
        bool inside = first + x < o.size && k + y < depth;
        tile[y][x] = inside ? __bfloat162float(o.at[(first + x) * o.along + (k + y) * o.depth]) : 0.0f;
    }
}

__device__ static void element_store(const struct dry_cuda_product &p, int64_t row, int64_t column, float sum)
{
    int64_t from = row * p.ldc0 + column, to = row * p.ldc + column;
    float value = p.alpha * sum;

    if (p.bias)
        value += __bfloat162float(((const __nv_bfloat16 *)p.bias)[column]);
    if (p.wide) {
        ((float *)p.out)[to] = p.beta != 0 ? value + p.beta * ((const float *)p.c0)[from] : value;
        return;
    }
    if (p.beta != 0)
        value += p.beta * __bfloat162float(((const __nv_bfloat16 *)p.c0)[from]);
    ((__nv_bfloat16 *)p.out)[to] = __float2bfloat16_rn(value);
}

__global__ static void __launch_bounds__(THREADS) plain_kernel(const struct dry_cuda_product p)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    struct operand oa = {(const __nv_bfloat16 *)p.a, p.transpose_a ? 1 : p.lda, p.transpose_a ? p.lda : 1,
                         p.m};
    struct operand ob = {(const __nv_bfloat16 *)p.b, p.transpose_b ? p.ldb : 1, p.transpose_b ? 1 : p.ldb,
                         p.n};
    int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float sum[EACH][EACH] = {};

    for (int64_t k = 0; k < p.k; k += DEPTH) {
        tile_load(oa, row, k, p.k, a);
        tile_load(ob, column, k, p.k, b);
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += a[d][y + 16 * i] * b[d][x + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            if (row + y + 16 * i < p.m && column + x + 16 * j < p.n)
                element_store(p, row + y + 16 * i, column + x + 16 * j, sum[i][j]);
}

cudaError_t dry_cuda_plain_launch(const struct dry_cuda_product *p, cudaStream_t stream)
{
    /* The second dimension of a grid ends at 65535: 4 million rows. */
    dim3 grid((unsigned)((p->n + TILE - 1) / TILE), (unsigned)((p->m + TILE - 1) / TILE));

    plain_kernel<<<grid, THREADS, 0, stream>>>(*p);
    return cudaGetLastError();
}
