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

/* A warp's step is 16 rows of 128 columns, loaded and stored two rows at a time, so that each warp touches
 * 256 bytes of a row and a block 2 KiB; memory is slower with less. The rows change lanes in shared memory,
 * where a row is 64 bytes longer, so that eight lanes of two rows hit all banks. */
enum { FORWARD_WARPS = 8, FORWARD_COLUMNS = 128, FORWARD_PITCH = FORWARD_COLUMNS / 8 + 4 /* vectors */ };

static __device__ __forceinline__ uint4 swiglu_eight(uint4 gate, uint4 up)
{
    dry_cuda_eight g = dry_cuda_unpack(gate), u = dry_cuda_unpack(up);

#pragma unroll
    for (int k = 0; k < 8; k++)
        g.v[k] = dry_cuda_swiglu(g.v[k], u.v[k]);
    return dry_cuda_pack(g);
}

/* Eight of the step's rows, from `row` on: the lane has vector lane % 16 of every other one. */
static __device__ __forceinline__ void swiglu_rows(const dry_cuda_swiglu_job &j, int row, int column,
                                                   bool inside, uint4 *tile)
{
    int lane = threadIdx.x % 32;
    uint4 gate[4], up[4];

    row += lane / 16;
    tile += lane / 16 * FORWARD_PITCH + lane % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const dry_bf16 *from = j.gate_up + (row + 2 * i) * j.x_pitch + column;
        gate[i] = load16(from, inside && row + 2 * i < j.useful);
        up[i] = load16(from + j.width, inside && row + 2 * i < j.useful);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 act = swiglu_eight(gate[i], up[i]);
        tile[2 * i * FORWARD_PITCH] = act;
        if (inside && row + 2 * i < j.tokens)
            *reinterpret_cast<uint4 *>(j.act + (row + 2 * i) * j.y_pitch + column) = act;
    }
}

/* A block has 16 rows and one slice of columns, which its warps walk through side by side. */
__global__ static void __launch_bounds__(FORWARD_WARPS * 32, 3)
    swiglu_kernel(const __grid_constant__ dry_cuda_swiglu_job j, int columns)
{
    __shared__ uint4 tiles[FORWARD_WARPS][ROWS][FORWARD_PITCH];
    float(*sums)[ROWS][UNIT + 4] = (float(*)[ROWS][UNIT + 4]) & tiles[0][0][0]; /* after the last step */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int row = (int)blockIdx.y * ROWS, end = min(((int)blockIdx.x + 1) * columns, j.width);
    float d[2][4] = {};

    for (int first = (int)blockIdx.x * columns + warp * FORWARD_COLUMNS; first < end;
         first += FORWARD_WARPS * FORWARD_COLUMNS) {
        int column = first + lane % 16 * 8;
        swiglu_rows(j, row, column, column < end, &tiles[warp][0][0]);
        swiglu_rows(j, row + 8, column, column < end, &tiles[warp][8][0]);
        __syncwarp();
#pragma unroll
        for (int s = 0; s < FORWARD_COLUMNS / SPAN; s++) {
            int k = first + s * SPAN + t * 8;
            const dry_bf16 *a = j.a + g * j.a_pitch + k;
            multiply_columns(d, tiles[warp][g][4 * s + t], tiles[warp][g + 8][4 * s + t], load16(a, k < end),
                             load16(a + 8 * j.a_pitch, k < end));
        }
        __syncwarp();
    }
    __syncthreads();
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
static_assert((UNIT + 4) * 4 <= FORWARD_PITCH * 16, "the sums fit into the tiles");

cudaError_t dry_cuda_swiglu_launch(const struct dry_cuda_swiglu_job *j, cudaStream_t stream)
{
    const int step = FORWARD_WARPS * FORWARD_COLUMNS;
    int columns = ((j->width + j->slices - 1) / j->slices + step - 1) / step * step;
    dim3 grid((unsigned)j->slices, (unsigned)((j->tokens + ROWS - 1) / ROWS));

    swiglu_kernel<<<grid, FORWARD_WARPS * 32, 0, stream>>>(*j, columns);
    return cudaGetLastError();
}

/* ---- backward */

enum { BACKWARD_WARPS = 8 };

enum {
    PARTS = 3,
    THIN_PITCH = UNIT + 8
}; /* act, d_gate, d_up, and the thin matrix that each is multiplied with */

/* A block has one slice of columns, 32 for each warp, and goes down its rows in steps of 16. */
template <int STAGES> struct sizes {
    static constexpr int threads = BACKWARD_WARPS * 32, columns = BACKWARD_WARPS * SPAN;
    static constexpr int vectors = 6; /* of a lane in a step: gate, up, d_act of two rows */
    static constexpr int ring = STAGES * vectors * threads;         /* vectors */
    static constexpr int matrix = 4 * threads;                      /* vectors: each lane's part of B */
    static constexpr int thin = STAGES * PARTS * ROWS * THIN_PITCH; /* elements of u, v */
    static constexpr int sum_pitch = 2 * UNIT + 4, sums = BACKWARD_WARPS * ROWS * sum_pitch; /* floats */
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
template <class K>
static __device__ __forceinline__ void partial_store(const dry_cuda_swiglu_back &j, int row,
                                                     const float *sums)
{
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * 2 * UNIT; i += K::threads) {
        int r = i / (2 * UNIT), n = i % (2 * UNIT);
        float sum = 0;
#pragma unroll
        for (int w = 0; w < BACKWARD_WARPS; w++)
            sum += sums[(w * ROWS + r) * K::sum_pitch + n];
        if (row + r < j.useful)
            j.partial[(((int64_t)(n / UNIT) * j.slices + blockIdx.x) * j.tokens + row + r) * UNIT +
                      n % UNIT] = sum;
    }
}

template <int STAGES>
__global__ static void __launch_bounds__(sizes<STAGES>::threads, STAGES > 2 ? 2 : 1)
    swiglu_fused_kernel(const __grid_constant__ dry_cuda_swiglu_back j)
{
    using K = sizes<STAGES>;
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
        partial_store<K>(j, row, sums);
    }
    int64_t flags = tiles_add(j.down, j.sums, 1, j.width, first, j.width, d_a);
    flags |= tiles_add(j.gate, j.sums, j.gate.rank, 1, first, j.width, d_gate);
    flags |= tiles_add(j.up, j.sums, j.up.rank, 1, first, j.width, d_up);
    dry_cuda_flag(j.words, flags);
}

/* With three stages a block has 113 KiB of shared memory, so that two run side by side on Hopper and one
 * works while the other waits; with two stages 87 KiB. */
enum { DEEP = 3, SHALLOW = 2 };

cudaError_t dry_cuda_swiglu_setup(struct dry_cuda_swiglu_plan *p)
{
    const int bytes[] = {sizes<DEEP>::bytes, sizes<SHALLOW>::bytes};
    void (*const kernel[])(const dry_cuda_swiglu_back) = {swiglu_fused_kernel<DEEP>,
                                                          swiglu_fused_kernel<SHALLOW>};
    int device, most = 0;
    cudaError_t e = cudaGetDevice(&device);

    *p = {0, 0, 0};
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (int i = 0; i < 2 && e == cudaSuccess; i++) {
        if (bytes[i] > most)
            continue;
        e = cudaFuncSetAttribute(kernel[i], cudaFuncAttributeMaxDynamicSharedMemorySize, bytes[i]);
        if (e == cudaSuccess)
            e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&p->resident, kernel[i], sizes<DEEP>::threads,
                                                              (size_t)bytes[i]);
        *p = {i ? SHALLOW : DEEP, sizes<DEEP>::columns, p->resident};
        break;
    }
    return e;
}

cudaError_t dry_cuda_swiglu_fused_launch(const struct dry_cuda_swiglu_back *j,
                                         const struct dry_cuda_swiglu_plan *p, cudaStream_t stream)
{
    dim3 grid((unsigned)j->slices, (unsigned)((j->tokens + j->chunk - 1) / j->chunk));

    if (p->stages == DEEP)
        swiglu_fused_kernel<DEEP><<<grid, sizes<DEEP>::threads, sizes<DEEP>::bytes, stream>>>(*j);
    else
        swiglu_fused_kernel<SHALLOW><<<grid, sizes<SHALLOW>::threads, sizes<SHALLOW>::bytes, stream>>>(*j);
    return cudaGetLastError();
}
