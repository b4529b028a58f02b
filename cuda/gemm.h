/*
 * Matrix products of the CUDA backend in full: what dry_cuda_gemm leaves out, for the general paths of a
 * linear. Owns nothing.  Only files of this folder may include it.
 */
#ifndef DRY_CUDA_GEMM_H
#define DRY_CUDA_GEMM_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Row-major out [m, n] = alpha op(A) op(B) + beta C0 (+ bias), all bfloat16, sums in float32; op(A) = A of
 * [m, k] or A^T of [k, m] (transpose_a), op(B) = B of [k, n] or B^T of [n, k] (transpose_b). wide: out and C0
 * are float32 [m, n], no bias. beta 0: C0 is not read. */
struct dry_cuda_product {
    int transpose_a, transpose_b, wide;
    int64_t m, n, k;
    const dry_bf16 *a;
    int64_t lda;
    const dry_bf16 *b;
    int64_t ldb;
    float alpha, beta;
    const void *c0;
    int64_t ldc0;
    const dry_bf16 *bias;
    void *out;
    int64_t ldc;
};

/* gemm.c. One algorithm per shape, strides and alignment; never split over k. */
enum dry_status dry_cuda_product(struct dry_cuda *c, const struct dry_cuda_product *p);
/* plain.cu. Any shape, strides and alignment, without matrix units: where cuBLASLt has no algorithm. */
cudaError_t dry_cuda_plain_launch(const struct dry_cuda_product *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
