/*
 * What happens to q and k between the linear and attention, on the GPU: RMSNorm per head (Qwen3) and rotary
 * embedding, and the gradient of both.  Owns nothing; the tables lie in the workspace.  Must not know of the
 * attention itself.
 */
#ifndef DRY_CUDA_ROTARY_H
#define DRY_CUDA_ROTARY_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Cosine and sine [longest, D / 2] as the CPU backend has them: float32 angles, as Transformers. Waits for
 * the copy. */
enum dry_status dry_cuda_rotary_tables(struct dry_cuda *c);

/* qkv [T, Q + 2K] (pitch + pad): q and k of the useful rows normalised per head (with qk_norm) and rotated,
 * in place; v is not touched. With qk_norm the values before go to raw [T, Q + K] (dense) unless it is NULL.
 */
cudaError_t dry_cuda_rotary_forward_launch(const struct dry_cuda *c, const struct dry_cuda_layer *w,
                                           dry_bf16 *qkv, dry_bf16 *raw);
/* dqkv [T, Q + 2K] (pitch + pad): the gradient of rotated q and k becomes that of the linear's output, in
 * place, useful rows. raw as forward left it; NULL without qk_norm. */
cudaError_t dry_cuda_rotary_backward_launch(const struct dry_cuda *c, const struct dry_cuda_layer *w,
                                            const dry_bf16 *raw, dry_bf16 *dqkv);

#ifdef __cplusplus
}
#endif
#endif
