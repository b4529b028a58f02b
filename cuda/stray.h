/*
 * A kernel that fails, for tests.
 * Owns nothing.
 */
#ifndef DRY_CUDA_STRAY_H
#define DRY_CUDA_STRAY_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t dry_cuda_stray_launch(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
