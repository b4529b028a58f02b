/*
 * Row-wise operations on the GPU, as launchers: embedding, RMSNorm and its gradient, SwiGLU and its gradient.
 * Owns nothing.  Bytes are per row; H, F as in compute/backend.h.
 */
#ifndef DRY_CUDA_ELEMENTWISE_H
#define DRY_CUDA_ELEMENTWISE_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of bfloat16; those from `useful` on are padding. */
struct dry_cuda_rows {
    int64_t rows, useful, width;
    int64_t x_pitch, y_pitch; /* elements from row to row on either side */
    const int32_t *index;     /* row i of y belongs to row index[i] of x; NULL: to row i */
};

/* y [rows, width] = table rows id[i] (x_pitch); padding: zeros. 4 H bytes. */
cudaError_t dry_cuda_embed_launch(const struct dry_cuda_rows *r, const int32_t *id, const dry_bf16 *table,
                                  dry_bf16 *y, cudaStream_t stream);
/* y = weight * x / sqrt(mean(x^2) + eps); padding: zeros. 4 H bytes. inverse [useful], or NULL: 1 / sqrt(...)
 * of each row. */
cudaError_t dry_cuda_norm_forward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x,
                                         const dry_bf16 *weight, double eps, dry_bf16 *y, float *inverse,
                                         cudaStream_t stream);
/* dx (rows and pitch of x) = or (add) += the gradient of the above for dy (rows and pitch of y); padding is
 * left as it is. 6 H bytes, 8 H with add. */
cudaError_t dry_cuda_norm_backward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x,
                                          const dry_bf16 *weight, const dry_bf16 *dy, double eps, int add,
                                          dry_bf16 *dx, cudaStream_t stream);
/* y [rows, width] (y_pitch) = silu(gate) * up of x [rows, 2 width] (x_pitch); padding: zeros. 6 F bytes. */
cudaError_t dry_cuda_swiglu_forward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x, dry_bf16 *y,
                                           cudaStream_t stream);
/* In place: x [rows, 2 width] = its gradient for y [rows, width], and y = what forward gave; padding: zeros.
 * 12 F bytes. */
cudaError_t dry_cuda_swiglu_backward_launch(const struct dry_cuda_rows *r, dry_bf16 *x, dry_bf16 *y,
                                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
