/*
 * SwiGLU of one element and its gradient: the same bits wherever it is computed.  Owns nothing.  Device code
 * only.
 */
#ifndef DRY_CUDA_SWIGLU_CUH
#define DRY_CUDA_SWIGLU_CUH

/* 1 / (1 + exp(-g)); g of -89 or less gives 0. */
static __device__ __forceinline__ float dry_cuda_sigmoid(float g)
{
    return __fdividef(1.0f, 1.0f + __expf(-g));
}

static __device__ __forceinline__ float dry_cuda_swiglu(float gate, float up)
{
    return gate * dry_cuda_sigmoid(gate) * up;
}

/* The output again, and the gradient for dy: silu'(g) = s + g s (1 - s) with s = sigmoid(g). */
static __device__ __forceinline__ float dry_cuda_swiglu_gradient(float gate, float up, float dy,
                                                                 float *d_gate, float *d_up)
{
    float s = dry_cuda_sigmoid(gate), silu = gate * s;

    *d_gate = dy * up * (s + silu * (1.0f - s));
    *d_up = dy * silu;
    return silu * up;
}

#endif
