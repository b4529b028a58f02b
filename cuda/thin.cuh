/*
 * What kernels of thin products share: copies into shared memory under way, tiles for the matrix units and
 * their product, and gradients into the exact sums.  Owns nothing.  Device code only.
 */
#ifndef DRY_CUDA_THIN_CUH
#define DRY_CUDA_THIN_CUH

#include "cuda/fixed.cuh"

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* 16 bytes to shared memory, or zeros. */
static __device__ __forceinline__ void copy16(__nv_bfloat16 *to, const __nv_bfloat16 *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ void load4(uint32_t r[4], const __nv_bfloat16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
static __device__ __forceinline__ void load4_transposed(uint32_t r[4], const __nv_bfloat16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
/* d [16, 8] += a [16, 16] b [16, 8] */
static __device__ __forceinline__ void multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Where lane l points ldmatrix.x4 at, for a 16 x 16 tile with its corner at p: the four 8 x 8 matrices one
 * below the other first (down), or side by side first. */
static __device__ __forceinline__ const __nv_bfloat16 *tile_down(const __nv_bfloat16 *p, int pitch)
{
    int lane = threadIdx.x % 32;
    return p + (lane % 16) * pitch + lane / 16 * 8;
}
static __device__ __forceinline__ const __nv_bfloat16 *tile_across(const __nv_bfloat16 *p, int pitch)
{
    int lane = threadIdx.x % 32;
    return p + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

/* The transpose of an 8 x 8 matrix of bfloat16 that a warp holds: lane l has elements (l / 4, 2 (l % 4)) and
 * the next one. */
static __device__ __forceinline__ uint32_t transposed(uint32_t pair)
{
    uint32_t to;

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
    return to;
}

/* *to += add, before: what was there; nothing is done for 0. One predicated instruction, without a branch
 * that the compiler would wait for the answer in. */
static __device__ __forceinline__ int64_t add_atomically(int64_t *to, int64_t add)
{
    int64_t before;

    asm volatile("{\n\t.reg .pred any;\n\tsetp.ne.s64 any, %2, 0;\n\tmov.s64 %0, 0;\n\t"
                 "@any atom.global.add.u64 %0, [%1], %2;\n\t}"
                 : "=&l"(before)
                 : "l"(to), "l"(add)
                 : "memory");
    return before;
}

/* Some of a warp's gradients to the exact sums. Other blocks add to the same ones: integers, so in any order.
 * All atomics are on their way before the first answer is looked at. */
template <int N>
static __device__ __forceinline__ int64_t sums_add(int64_t *sums, const int64_t at[N], const float g[N])
{
    int64_t add[N], before[N], flags = 0;
    int beyond = 0;

#pragma unroll
    for (int i = 0; i < N; i++)
        add[i] = at[i] >= 0 ? dry_cuda_gradient_added(0, g[i], &flags) : 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        before[i] = add_atomically(sums + at[i], add[i]);
#pragma unroll
    for (int i = 0; i < N; i++)
        beyond |= before[i] + add[i] >= DRY_GRAD_LIMIT || before[i] + add[i] <= -DRY_GRAD_LIMIT;
    return beyond ? flags | DRY_FLAG_RANGE : flags;
}

#endif
