/*
 * Errors of CUDA and its libraries as one line and a status.
 * Owns nothing.  Must not know what was being computed: the caller's line adds rank, stage and step.
 */
#include "config.h"

#include "cuda/cuda.h"

#include "base/fault.h"
#include "base/log.h"

/* A kernel fails after the call that started it has returned, and every call from then on tells of it. */
static int from_before(cudaError_t e)
{
    static const cudaError_t late[] = {
        cudaErrorIllegalAddress,      cudaErrorLaunchFailure,
        cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc,           cudaErrorAssert,
        cudaErrorLaunchTimeout,       cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable,
    };

    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (e == late[i])
            return 1;
    return 0;
}

enum dry_status dry_cuda_check(const struct dry_cuda *c, cudaError_t e, const char *call)
{
    if (c->faults && dry_fault("cuda"))
        e = cudaErrorLaunchFailure;
    if (e == cudaSuccess)
        return DRY_OK;
    if (e == cudaErrorMemoryAllocation) {
        dry_error("GPU %d: %s failed: out of memory; another program may hold some of it, or use a smaller "
                  "--micro-batch-tokens",
                  c->device, call);
        return DRY_ERR_MEMORY;
    }
    dry_error("GPU %d: %s failed: %s (%s)%s", c->device, call, cudaGetErrorString(e), cudaGetErrorName(e),
              from_before(e)
                  ? ", in this or an earlier kernel: with CUDA_LAUNCH_BLOCKING=1 the one that fails "
                    "is named; dmesg shows faults of the card as Xid"
                  : "");
    return DRY_ERR_DEVICE;
}

const char *dry_cuda_pending(const struct dry_cuda *c)
{
    cudaError_t e = cudaStreamQuery(c->stream);

    return e && e != cudaErrorNotReady ? cudaGetErrorString(e) : "nothing";
}

enum dry_status dry_cuda_check_blas(const struct dry_cuda *c, cublasStatus_t e, const char *call)
{
    if (c->faults && dry_fault_at("cublas", c->batch.step))
        e = CUBLAS_STATUS_EXECUTION_FAILED;
    if (e == CUBLAS_STATUS_SUCCESS)
        return DRY_OK;
    dry_error("GPU %d: %s failed: %s (%s); CUDA itself says: %s", c->device, call, cublasLtGetStatusString(e),
              cublasLtGetStatusName(e), dry_cuda_pending(c));
    return e == CUBLAS_STATUS_ALLOC_FAILED ? DRY_ERR_MEMORY : DRY_ERR_DEVICE;
}
