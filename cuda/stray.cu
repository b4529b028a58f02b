/*
 * A kernel that writes where nothing is, for tests: its error shows only after the call that started it.
 * Owns nothing.  Must not be started but on request (base/fault.h).
 */
#include "cuda/stray.h"

static __global__ void stray(int *nowhere)
{
    *nowhere = 1;
}

extern "C" cudaError_t dry_cuda_stray_launch(cudaStream_t stream)
{
    stray<<<1, 1, 0, stream>>>((int *)(uintptr_t)64);
    return cudaGetLastError();
}
