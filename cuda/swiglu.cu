/*
 * SwiGLU with the thin products beside it, forward and backward.
 * Owns nothing.  Must not know of layers: mlp.c makes the jobs.
 *
 * A lane holds eight neighbouring columns of rows g and g + 8 (g = lane / 4), as they come from memory.  That
 * is an operand of the matrix units once the columns are counted in another order, the same one for the other
 * operand: the columns 8 t .. 8 t + 7 of lane t = lane % 4 are terms 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of a
 * first product and of a second one.  Where rows are the terms (gradients), a transpose inside the warp makes
 * the operand.  So no value goes through shared memory to change lanes.
 *
 * Sums over columns end as one partial product per slice of columns, sums over rows in the exact sums, by
 * integer atomics, whose order does not matter.
 */
#include "cuda/swiglu.h"

#include "cuda/swiglu.cuh"
#include "cuda/thin.cuh"

#include <cuda_bf16.h>

enum {
    UNIT = DRY_SKINNY_UNIT,
    ROWS = DRY_SWIGLU_ROWS, /* of a step: one tile of the matrix units */
    SPAN = 32               /* columns that a warp has in a lane's vectors */
};

static __device__ __forceinline__ uint4 load16(const dry_bf16 *p, bool inside)
{
    return inside ? __ldg(reinterpret_cast<const uint4 *>(p)) : make_uint4(0, 0, 0, 0);
}

/* d [16 rows, 16] += the warp's 16 x 32 values times 32 columns of a 16-row matrix: low has row g, high row
 * g + 8; n0 and n1 are the lane's columns of the matrix's rows g and g + 8. */
static __device__ __forceinline__ void multiply_columns(float d[2][4], uint4 low, uint4 high, uint4 n0,
                                                        uint4 n1)
{
    const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};

    multiply(d[0], first, n0.x, n0.y);
    multiply(d[1], first, n1.x, n1.y);
    multiply(d[0], second, n0.z, n0.w);
    multiply(d[1], second, n1.z, n1.w);
}

/* ---- forward */

enum {
    FORWARD_WARPS = 8,
    FORWARD_SPANS = 2 /* of a warp in a step */
};

static __device__ __forceinline__ uint4 swiglu_eight(uint4 gate, uint4 up)
{
    dry_cuda_eight g = dry_cuda_unpack(gate), u = dry_cuda_unpack(up);

#pragma unroll
    for (int k = 0; k < 8; k++)
        g.v[k] = dry_cuda_swiglu(g.v[k], u.v[k]);
    return dry_cuda_pack(g);
}

/* A block has 16 rows and one slice of columns, which its warps walk through side by side. */
__global__ static void __launch_bounds__(FORWARD_WARPS * 32, 3)
    swiglu_kernel(const __grid_constant__ dry_cuda_swiglu_job j, int columns)
{
    __shared__ float sums[FORWARD_WARPS][ROWS][UNIT + 4];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row = (int)blockIdx.y * ROWS + g, end = min(((int)blockIdx.x + 1) * columns, j.width);
    const dry_bf16 *from[2] = {j.gate_up + row * j.x_pitch, j.gate_up + (row + 8) * j.x_pitch};
    dry_bf16 *to[2] = {j.act + row * j.y_pitch, j.act + (row + 8) * j.y_pitch};
    const dry_bf16 *a[2] = {j.a + g * j.a_pitch, j.a + (g + 8) * j.a_pitch};
    float d[2][4] = {};

    for (int first = (int)blockIdx.x * columns + warp * SPAN * FORWARD_SPANS; first < end;
         first += FORWARD_WARPS * SPAN * FORWARD_SPANS) {
        uint4 gate[FORWARD_SPANS][2], up[FORWARD_SPANS][2], n[FORWARD_SPANS][2];
#pragma unroll
        for (int s = 0; s < FORWARD_SPANS; s++) {
            int k = first + s * SPAN + t * 8;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                bool inside = k < end && row + 8 * r < j.useful;
                gate[s][r] = load16(from[r] + k, inside);
                up[s][r] = load16(from[r] + j.width + k, inside);
                n[s][r] = load16(a[r] + k, k < end);
            }
        }
#pragma unroll
        for (int s = 0; s < FORWARD_SPANS; s++) {
            int k = first + s * SPAN + t * 8;
            uint4 act[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                act[r] = swiglu_eight(gate[s][r], up[s][r]);
                if (k < end && row + 8 * r < j.tokens)
                    *reinterpret_cast<uint4 *>(to[r] + k) = act[r];
            }
            multiply_columns(d, act[0], act[1], n[s][0], n[s][1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        *reinterpret_cast<float2 *>(&sums[warp][g][8 * i + 2 * t]) = make_float2(d[i][0], d[i][1]);
        *reinterpret_cast<float2 *>(&sums[warp][g + 8][8 * i + 2 * t]) = make_float2(d[i][2], d[i][3]);
    }
    __syncthreads();
    int r = threadIdx.x / UNIT, c = threadIdx.x % UNIT;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < FORWARD_WARPS; w++)
        sum += sums[w][r][c];
    if ((int)blockIdx.y * ROWS + r < j.useful)
        j.partial[((int64_t)blockIdx.x * j.tokens + (int)blockIdx.y * ROWS + r) * UNIT + c] = sum;
}
static_assert(FORWARD_WARPS * 32 == ROWS * UNIT, "a thread for each sum");

cudaError_t dry_cuda_swiglu_launch(const struct dry_cuda_swiglu_job *j, cudaStream_t stream)
{
    const int step = FORWARD_WARPS * SPAN * FORWARD_SPANS;
    int columns = ((j->width + j->slices - 1) / j->slices + step - 1) / step * step;
    dim3 grid((unsigned)j->slices, (unsigned)((j->tokens + ROWS - 1) / ROWS));

    swiglu_kernel<<<grid, FORWARD_WARPS * 32, 0, stream>>>(*j, columns);
    return cudaGetLastError();
}

/* ---- backward */

enum {
    PARTS = 3,
    THIN_PITCH = UNIT + 8
}; /* act, d_gate, d_up, and the thin matrix that each is multiplied with */

/* A block has one slice of columns, 32 for each warp, and goes down its rows in steps of 16. */
template <int WARPS, int STAGES> struct sizes {
    static constexpr int threads = WARPS * 32, columns = WARPS * SPAN;
    static constexpr int vectors = 6; /* of a lane in a step: gate, up, d_act of two rows */
    static constexpr int ring = STAGES * vectors * threads;         /* vectors */
    static constexpr int matrix = 4 * threads;                      /* vectors: each lane's part of B */
    static constexpr int thin = STAGES * PARTS * ROWS * THIN_PITCH; /* elements of u, v */
    static constexpr int sum_pitch = 2 * UNIT + 8, sums = WARPS * ROWS * sum_pitch; /* floats */
    static constexpr int bytes = (ring + matrix) * 16 + thin * 2 + sums * 4;
};

/* A lane's part of B [columns, 16] as the second operand of multiply_columns, for row (g or g + 8) n of B^T.
 */
static __device__ uint4 matrix_part(const dry_bf16 *b, int64_t pitch, int first, int width, int n)
{
    uint32_t pair[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = first + 2 * i < width ? b[(first + 2 * i) * pitch + n] : 0;
        uint32_t high = first + 2 * i + 1 < width ? b[(first + 2 * i + 1) * pitch + n] : 0;
        pair[i] = high << 16 | low;
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* Gradient tiles: d [two 16-column tiles][two halves of 16] += (16 x 32 values)^T thin [16 rows, 16]. Tile m
 * has the columns of vector words 2 m (rows 0..7 of the tile) and 2 m + 1. */
static __device__ __forceinline__ void multiply_rows(float d[2][2][4], uint4 low, uint4 high,
                                                     const uint32_t b[4])
{
    const uint32_t first[4] = {transposed(low.x), transposed(low.y), transposed(high.x), transposed(high.y)};
    const uint32_t second[4] = {transposed(low.z), transposed(low.w), transposed(high.z), transposed(high.w)};

#pragma unroll
    for (int i = 0; i < 2; i++) {
        multiply(d[0][i], first, b[2 * i], b[2 * i + 1]);
        multiply(d[1][i], second, b[2 * i], b[2 * i + 1]);
    }
}

/* The tiles to the sums of A [rank, width] (across: 1) or B [width, rank] (across: rank). */
static __device__ int64_t tiles_add(const dry_cuda_thin_target &to, int64_t *sums, int across, int down,
                                    int first, int width, const float d[2][2][4])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t flags = 0;

#pragma unroll
    for (int m = 0; m < 2; m++) {
        int64_t at[8];
        float value[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int column = first + g / 2 * 8 + 4 * m + k / 2 % 2 * 2 + g % 2,
                n = k / 4 * 8 + 2 * t + k % 2 - to.first;
            at[k] = n >= 0 && n < to.rank && column < width
                        ? to.at + (int64_t)column * across + (int64_t)n * down
                        : -1;
            value[k] = d[m][k / 4][k % 4];
        }
        flags |= sums_add<8>(sums, at, value);
    }
    return flags;
}

/* One step's vectors of this lane, and the step's thin rows, on their way to shared memory. */
template <class K>
static __device__ __forceinline__ void stage_load(const dry_cuda_swiglu_back &j, int row, int end, int column,
                                                  uint4 *ring, __nv_bfloat16 *thin)
{
    int g = threadIdx.x % 32 / 4;

#pragma unroll
    for (int r = 0; r < 2; r++) {
        int at = row + g + 8 * r;
        bool inside = at < end && column < j.width;
        const dry_bf16 *x = j.gate_up + (inside ? at * j.x_pitch + column : 0);
        const dry_bf16 *up = x + (inside ? j.width : 0),
                       *y = j.d_act + (inside ? at * j.y_pitch + column : 0);
        copy16((__nv_bfloat16 *)(ring + (3 * r) * K::threads + threadIdx.x), (const __nv_bfloat16 *)x,
               inside);
        copy16((__nv_bfloat16 *)(ring + (3 * r + 1) * K::threads + threadIdx.x), (const __nv_bfloat16 *)up,
               inside);
        copy16((__nv_bfloat16 *)(ring + (3 * r + 2) * K::threads + threadIdx.x), (const __nv_bfloat16 *)y,
               inside);
    }
    if (threadIdx.x < PARTS * ROWS * 2) {
        int part = threadIdx.x / (ROWS * 2), r = threadIdx.x / 2 % ROWS, k = threadIdx.x % 2 * 8;
        const dry_bf16 *from = part == 0 ? j.u : part == 1 ? j.v_gate : j.v_up;
        bool inside = row + r < end;
        if (inside)
            from += (row + r) * (part == 0 ? j.u_pitch : j.v_pitch) + k;
        copy16(thin + (part * ROWS + r) * THIN_PITCH + k, (const __nv_bfloat16 *)from, inside);
    }
}

/* The lane's values of one row: act, and d_gate and d_up in place of gate and up. */
static __device__ __forceinline__ uint4 gradient_eight(uint4 *gate, uint4 *up, uint4 d_act)
{
    dry_cuda_eight g = dry_cuda_unpack(*gate), u = dry_cuda_unpack(*up), d = dry_cuda_unpack(d_act);

#pragma unroll
    for (int k = 0; k < 8; k++)
        d.v[k] = dry_cuda_swiglu_gradient(g.v[k], u.v[k], d.v[k], &g.v[k], &u.v[k]);
    *gate = dry_cuda_pack(g);
    *up = dry_cuda_pack(u);
    return dry_cuda_pack(d);
}

/* The warps' sums in order, to the slice's partial products of both members. */
template <int WARPS, class K>
static __device__ __forceinline__ void partial_store(const dry_cuda_swiglu_back &j, int row,
                                                     const float *sums)
{
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * 2 * UNIT; i += K::threads) {
        int r = i / (2 * UNIT), n = i % (2 * UNIT);
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += sums[(w * ROWS + r) * K::sum_pitch + n];
        if (row + r < j.useful)
            j.partial[(((int64_t)(n / UNIT) * j.slices + blockIdx.x) * j.tokens + row + r) * UNIT +
                      n % UNIT] = sum;
    }
}

template <int WARPS, int STAGES>
__global__ static void __launch_bounds__(WARPS * 32, 1)
    swiglu_fused_kernel(const __grid_constant__ dry_cuda_swiglu_back j)
{
    using K = sizes<WARPS, STAGES>;
    extern __shared__ __align__(128) unsigned char memory[];
    uint4 *ring = (uint4 *)memory, *matrix = ring + K::ring;
    float *sums = (float *)(matrix + K::matrix);
    __nv_bfloat16 *thin = (__nv_bfloat16 *)(sums + K::sums);
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int first = (int)blockIdx.x * K::columns + warp * SPAN, column = first + t * 8;
    int begin = (int)blockIdx.y * j.chunk, last = min(begin + j.chunk, j.tokens), end = min(last, j.useful);
    int steps = (last - begin + ROWS - 1) / ROWS;
    float d_a[2][2][4] = {}, d_gate[2][2][4] = {}, d_up[2][2][4] = {};

    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            stage_load<K>(j, begin + s * ROWS, end, column, ring + s * K::vectors * K::threads,
                          thin + s * PARTS * ROWS * THIN_PITCH);
        copies_commit();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        matrix[i * K::threads + threadIdx.x] = matrix_part(j.b_gate, j.b_pitch, column, j.width, g + 8 * i);
        matrix[(2 + i) * K::threads + threadIdx.x] =
            matrix_part(j.b_up, j.b_pitch, column, j.width, g + 8 * i);
    }
    for (int s = 0; s < steps; s++) {
        int row = begin + s * ROWS, next = s + STAGES - 1, slot = s % STAGES, into = next % STAGES;
        copies_wait<STAGES - 2>();
        __syncthreads(); /* the thin rows have come, and the sums of the step before have been read */
        if (next < steps)
            stage_load<K>(j, begin + next * ROWS, end, column, ring + into * K::vectors * K::threads,
                          thin + into * PARTS * ROWS * THIN_PITCH);
        copies_commit();
        const uint4 *mine = ring + slot * K::vectors * K::threads + threadIdx.x;
        const __nv_bfloat16 *rows = thin + slot * PARTS * ROWS * THIN_PITCH;
        uint4 gate[2], up[2], act[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            gate[r] = mine[(3 * r) * K::threads];
            up[r] = mine[(3 * r + 1) * K::threads];
            act[r] = gradient_eight(&gate[r], &up[r], mine[(3 * r + 2) * K::threads]);
            int at = row + g + 8 * r;
            if (at < last && column < j.width) {
                *reinterpret_cast<uint4 *>(j.gate_up + at * j.x_pitch + column) = gate[r];
                *reinterpret_cast<uint4 *>(j.gate_up + at * j.x_pitch + j.width + column) = up[r];
            }
        }
        uint32_t b[4];
        load4_transposed(b, tile_down(rows, THIN_PITCH));
        multiply_rows(d_a, act[0], act[1], b);
        float d[2][2][4] = {};
        multiply_columns(d[0], gate[0], gate[1], matrix[threadIdx.x], matrix[K::threads + threadIdx.x]);
        multiply_columns(d[1], up[0], up[1], matrix[2 * K::threads + threadIdx.x],
                         matrix[3 * K::threads + threadIdx.x]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *to = sums + (warp * ROWS + g) * K::sum_pitch + 8 * i + 2 * t;
            *reinterpret_cast<float2 *>(to) = make_float2(d[i / 2][i % 2][0], d[i / 2][i % 2][1]);
            *reinterpret_cast<float2 *>(to + 8 * K::sum_pitch) =
                make_float2(d[i / 2][i % 2][2], d[i / 2][i % 2][3]);
        }
        load4_transposed(b, tile_down(rows + ROWS * THIN_PITCH, THIN_PITCH));
        multiply_rows(d_gate, gate[0], gate[1], b);
        load4_transposed(b, tile_down(rows + 2 * ROWS * THIN_PITCH, THIN_PITCH));
        multiply_rows(d_up, up[0], up[1], b);
        __syncthreads();
        partial_store<WARPS, K>(j, row, sums);
    }
    int64_t flags = tiles_add(j.down, j.sums, 1, j.width, first, j.width, d_a);
    flags |= tiles_add(j.gate, j.sums, j.gate.rank, 1, first, j.width, d_gate);
    flags |= tiles_add(j.up, j.sums, j.up.rank, 1, first, j.width, d_up);
    dry_cuda_flag(j.words, flags);
}

/* The wide one needs 223 KiB of shared memory, the narrow one 87. */
enum { WIDE_WARPS = 16, WIDE_STAGES = 3, NARROW_WARPS = 8, NARROW_STAGES = 2 };
typedef sizes<WIDE_WARPS, WIDE_STAGES> wide;
typedef sizes<NARROW_WARPS, NARROW_STAGES> narrow;

cudaError_t dry_cuda_swiglu_setup(int *columns)
{
    int device, most = 0;
    cudaError_t e = cudaGetDevice(&device);

    *columns = 0;
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e != cudaSuccess)
        return e;
    if (wide::bytes <= most) {
        *columns = wide::columns;
        return cudaFuncSetAttribute(swiglu_fused_kernel<WIDE_WARPS, WIDE_STAGES>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, wide::bytes);
    }
    if (narrow::bytes > most)
        return cudaSuccess;
    *columns = narrow::columns;
    return cudaFuncSetAttribute(swiglu_fused_kernel<NARROW_WARPS, NARROW_STAGES>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, narrow::bytes);
}

cudaError_t dry_cuda_swiglu_fused_launch(const struct dry_cuda_swiglu_back *j, int columns,
                                         cudaStream_t stream)
{
    dim3 grid((unsigned)j->slices, (unsigned)((j->tokens + j->chunk - 1) / j->chunk));

    if (columns == wide::columns)
        swiglu_fused_kernel<WIDE_WARPS, WIDE_STAGES><<<grid, wide::threads, wide::bytes, stream>>>(*j);
    else
        swiglu_fused_kernel<NARROW_WARPS, NARROW_STAGES>
            <<<grid, narrow::threads, narrow::bytes, stream>>>(*j);
    return cudaGetLastError();
}
