/*
 * The update on the GPU, as launchers: norm of the summed gradients, and AdamW over all masters at once.
 * Owns nothing.
 */
#ifndef DRY_CUDA_OPTIMIZER_H
#define DRY_CUDA_OPTIMIZER_H

#include "compute/update.h"
#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* norm = the 2-norm of sums / (2^DRY_GRAD_BITS tokens), over blocks of DRY_CUDA_NORM_BLOCK in order; tokens
 * as the words behind the sums have them. partial: as many doubles as there are blocks; *norm may be the
 * first. 8 bytes per gradient. */
cudaError_t dry_cuda_norm_launch(const int64_t *sums, int64_t gradients, double *partial, double *norm,
                                 cudaStream_t stream);

struct dry_cuda_update {
    const int64_t *sums;
    int64_t gradients;
    const double *norm; /* before clipping */
    double max_norm;    /* 0: no clipping */
    struct dry_adamw_terms terms;
    float *values, *m, *v;
};
/* AdamW on all masters; nothing happens when the words have flags or no tokens. 32 bytes per parameter.
 * blocks: at most so many at once; the result does not depend on it. */
cudaError_t dry_cuda_update_launch(const struct dry_cuda_update *u, int blocks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
