/*
 * Errors of CUDA and its libraries as one line and a status.
 * Owns nothing.  Must not know what was being computed: the caller's line adds rank, stage and step.
 */
#include "config.h"

#include "cuda/cuda.h"

#include "base/log.h"

enum dry_status dry_cuda_check(const struct dry_cuda *c, cudaError_t e, const char *call)
{
    if (e == cudaSuccess)
        return DRY_OK;
    if (e == cudaErrorMemoryAllocation) {
        dry_error("GPU %d: %s failed: out of memory; another program may hold some of it, or use a smaller "
                  "--micro-batch-tokens",
                  c->device, call);
        return DRY_ERR_MEMORY;
    }
    dry_error("GPU %d: %s failed: %s (%s)", c->device, call, cudaGetErrorString(e), cudaGetErrorName(e));
    return DRY_ERR_DEVICE;
}

enum dry_status dry_cuda_check_blas(const struct dry_cuda *c, cublasStatus_t e, const char *call)
{
    if (e == CUBLAS_STATUS_SUCCESS)
        return DRY_OK;
    dry_error("GPU %d: %s failed: %s (%s)", c->device, call, cublasLtGetStatusString(e),
              cublasLtGetStatusName(e));
    return e == CUBLAS_STATUS_ALLOC_FAILED ? DRY_ERR_MEMORY : DRY_ERR_DEVICE;
}
