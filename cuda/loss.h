/*
 * The loss of rows of logits on the GPU, as a launcher.
 * Owns nothing.
 */
#ifndef DRY_CUDA_LOSS_H
#define DRY_CUDA_LOSS_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* logits [rows, vocab] (pitch): -log softmax of each row's label goes to the words of loss and tokens (+=),
 * with flags as compute/backend.h has them; with `gradient` the logits become softmax - onehot. 2 V bytes a
 * row, with gradient 6 V. */
cudaError_t dry_cuda_loss_rows_launch(dry_bf16 *logits, int64_t rows, int64_t vocab, int64_t pitch,
                                      const int32_t *label, int gradient, int64_t *words,
                                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
