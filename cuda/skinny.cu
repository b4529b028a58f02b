/*
 * The adapters' thin products on the matrix units, dropout on their input, and the copies of A and B.
 * Owns nothing.  Must not know of layers or groups: linear.c makes the jobs.
 *
 * One kernel does all kinds.  A block takes one column slice of Z and one run of rows, and goes down it
 * in steps of 32 rows that arrive through a ring in shared memory; each element of Z is read from memory
 * once.  Its part of the other matrix (A or B) lies in shared memory, or in registers when it is small.  A
 * step's product with it is a partial sum over the slice's columns and goes out as float32; the gradient Z^T
 * V stays in registers until the last row and goes to the exact sums by integer atomics, whose order does not
 * matter.  Runs depend on the shape alone, so bits do too.
 *
 *   bytes       2 T W of Z; partials 8 T width W / slice (written, then read by finish); gradients 8 W rank T
 * / run operations  2 T W width for each of the two products
 */
#include "cuda/skinny.h"

#include "cuda/fixed.cuh"
#include "cuda/philox.cuh"
#include "cuda/thin.cuh"

#include <cuda_bf16.h>

enum { THREADS = 256, WARPS = THREADS / 32, ROWS = DRY_SKINNY_ROWS, UNIT = DRY_SKINNY_UNIT, QUARTERS = 4 };

/* Sizes of a kernel. Rows in shared memory are 16 bytes longer, so that the eight rows of an ldmatrix hit all
 * banks. */
template <dry_skinny KIND, int UNITS, int COLUMNS> struct sizes {
    static constexpr bool product = KIND == DRY_SKINNY_XA || KIND == DRY_SKINNY_DY,
                          gradient = KIND != DRY_SKINNY_XA;
    static constexpr bool normed = KIND == DRY_SKINNY_NORMED_DA;
    static constexpr int units = UNITS, columns = COLUMNS, width = UNITS * UNIT;
    static constexpr int stages = COLUMNS > 256 ? (UNITS > 2 ? 3 : 4) : (UNITS > 2 && product ? 2 : 3);
    static constexpr int z_pitch = COLUMNS + 8, v_pitch = width + 8;
    static constexpr int m_pitch =
        KIND == DRY_SKINNY_XA ? z_pitch : v_pitch; /* A [width, columns], B [columns, width] */
    static constexpr int z = ROWS * z_pitch, v = gradient ? ROWS * v_pitch : 0;
    static constexpr int m = !product ? 0 : KIND == DRY_SKINNY_XA ? width * z_pitch : COLUMNS * v_pitch;
    static constexpr int sum_pitch = width + 8, sums = product ? QUARTERS * ROWS * sum_pitch : 0;
    static constexpr int bytes = (stages * (z + v) + m) * 2 + sums * 4;
    static constexpr int depth =
        COLUMNS / QUARTERS / 16;                       /* steps of 16 over a warp's columns in the product */
    static constexpr int tiles = COLUMNS / WARPS / 16; /* a warp's tiles of 16 columns in the gradient */
    static constexpr bool keep = product && UNITS * depth <= 16; /* the warp's part of m fits in registers */
    static constexpr int blocks = COLUMNS > 256 || UNITS > 2 ? 1 : 2;
};

/* What one block works on. */
struct slice {
    int first, columns; /* of Z */
    int row, end;       /* rows */
    const dry_skinny_segment *segment;
};

__device__ __forceinline__ static slice slice_find(const dry_skinny_job &j, int columns)
{
    const dry_skinny_segment *s = j.segment;
    slice w;

    for (int i = 1; i < j.segments; i++)
        if ((int)blockIdx.x >= j.segment[i].slice_first)
            s = &j.segment[i];
    int inside = ((int)blockIdx.x - s->slice_first) * columns;
    w.segment = s;
    w.first = s->first + inside;
    w.columns = min(columns, s->columns - inside);
    w.row = (int)blockIdx.y * j.chunk;
    w.end = min(w.row + j.chunk, j.useful);
    return w;
}

/* ROWS rows of Z and of V from `row` on; what is outside is zero. */
template <class K>
__device__ __forceinline__ static void stage_load(const dry_skinny_job &j, const slice &w, int row,
                                                  __nv_bfloat16 *z, __nv_bfloat16 *v)
{
    constexpr int across = K::columns / 8, pieces = ROWS * across / THREADS, thin = K::width / 8;
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)j.z;

#pragma unroll
    for (int i = 0; i < pieces; i++) {
        int at = i * THREADS + (int)threadIdx.x, r = at / across, k = at % across * 8;
        bool inside = row + r < w.end && k < w.columns;
        copy16(z + r * K::z_pitch + k, inside ? from + (row + r) * j.z_pitch + w.first + k : from, inside);
    }
    if (K::gradient && (int)threadIdx.x < ROWS * thin) {
        int r = (int)threadIdx.x / thin, k = (int)threadIdx.x % thin * 8;
        bool inside = row + r < w.end;
        const __nv_bfloat16 *thin_from = (const __nv_bfloat16 *)j.v + w.segment->pad_first;
        copy16(v + r * K::v_pitch + k, inside ? thin_from + (row + r) * j.v_pitch + k : thin_from, inside);
    }
}

/* The slice's part of A [width, columns] or B [columns, width]. */
template <dry_skinny KIND, class K>
__device__ __forceinline__ static void matrix_load(const dry_skinny_job &j, const slice &w, __nv_bfloat16 *m)
{
    constexpr int across = (KIND == DRY_SKINNY_XA ? K::columns : K::width) / 8;
    constexpr int pieces = K::columns * K::width / 8;
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)j.m;

    if (KIND == DRY_SKINNY_XA)
        from += w.segment->pad_first * j.m_pitch + w.first;
    else
        from += w.first * j.m_pitch + w.segment->pad_first;
#pragma unroll 4
    for (int at = (int)threadIdx.x; at < pieces; at += THREADS) {
        int r = at / across, k = at % across * 8;
        bool inside = (KIND == DRY_SKINNY_XA ? k : r) < w.columns;
        copy16(m + r * K::m_pitch + k, inside ? from + r * j.m_pitch + k : from, inside);
    }
}

/* The two column halves (8 wide) of m's 16 x 16 tile at (k, n), as mma's B. */
template <dry_skinny KIND, class K>
__device__ __forceinline__ static void matrix_fragment(uint32_t b[4], const __nv_bfloat16 *m, int k, int n)
{
    if (KIND == DRY_SKINNY_XA)
        load4(b, tile_across(m + n * K::m_pitch + k, K::m_pitch));
    else
        load4_transposed(b, tile_down(m + k * K::m_pitch + n, K::m_pitch));
}

/* A warp's share of a step's product: 16 of the 32 rows, a quarter of the columns; to `sums` for adding up.
 */
template <dry_skinny KIND, class K>
__device__ __forceinline__ static void product_step(const __nv_bfloat16 *z, const __nv_bfloat16 *m,
                                                    const uint32_t (*kept)[4], float *sums)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp % 2 * 16, quarter = warp / 2;
    float d[2 * K::units][4] = {};

#pragma unroll
    for (int i = 0; i < K::depth; i++) {
        int k = (quarter * K::depth + i) * 16;
        uint32_t a[4], b[4];
        load4(a, tile_down(z + row * K::z_pitch + k, K::z_pitch));
#pragma unroll
        for (int u = 0; u < K::units; u++) {
            if (!K::keep)
                matrix_fragment<KIND, K>(b, m, k, u * UNIT);
            const uint32_t *f = K::keep ? kept[i * K::units + u] : b;
            multiply(d[2 * u], a, f[0], f[1]);
            multiply(d[2 * u + 1], a, f[2], f[3]);
        }
    }
    float *to = sums + (quarter * ROWS + row + lane / 4) * K::sum_pitch + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2 * K::units; n++) {
        *(float2 *)(to + n * 8) = make_float2(d[n][0], d[n][1]);
        *(float2 *)(to + 8 * K::sum_pitch + n * 8) = make_float2(d[n][2], d[n][3]);
    }
}

/* The four quarters in order, to the slice's partial product. */
template <class K>
__device__ __forceinline__ static void product_store(const dry_skinny_job &j, const slice &w, int row,
                                                     const float *sums)
{
    float *to = j.partial + ((int64_t)blockIdx.x * j.tokens + row) * K::width;

#pragma unroll
    for (int i = 0; i < K::units; i++) {
        int at = (i * THREADS + (int)threadIdx.x) * 2, r = at / K::width, n = at % K::width;
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            float2 part = *(const float2 *)(sums + (q * ROWS + r) * K::sum_pitch + n);
            sum.x += part.x;
            sum.y += part.y;
        }
        if (row + r < w.end)
            *(float2 *)(to + at) = sum;
    }
}

/* The norm's weight at the lane's columns of each of the warp's tiles. */
template <class K>
__device__ __forceinline__ static void weight_load(const dry_skinny_job &j, const slice &w,
                                                   float (*weight)[2])
{
    int first = (int)(threadIdx.x / 32) * K::tiles * 16 + (int)threadIdx.x % 32 / 4;

#pragma unroll
    for (int t = 0; t < 2 * K::tiles; t++)
        weight[t / 2][t % 2] =
            first + t * 8 < w.columns ? dry_cuda_float(j.weight[w.first + first + t * 8]) : 0;
}

/* A tile's operand from the norm's input to its output; the lane has rows row, row + 1, row + 8 and row + 9
 * of two columns. */
__device__ __forceinline__ static void norm_tile(const dry_skinny_job &j, const slice &w, int row,
                                                 const float *weight, uint32_t a[4])
{
    float r[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = row + i / 2 * 8 + i % 2;
        r[i] = at < w.end ? __ldg(j.inverse + at) : 0;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = dry_cuda_pair(dry_cuda_normed(dry_cuda_low(a[i]), r[i / 2 * 2], weight[i % 2]),
                             dry_cuda_normed(dry_cuda_high(a[i]), r[i / 2 * 2 + 1], weight[i % 2]));
}

/* d += Z^T V over the 32 rows from `row` on; the warp has COLUMNS / 8 columns of Z. */
template <class K>
__device__ __forceinline__ static void gradient_step(const dry_skinny_job &j, const slice &w, int row,
                                                     float (*d)[2 * K::units][4], const __nv_bfloat16 *z,
                                                     const __nv_bfloat16 *v, const float (*weight)[2])
{
    int first = (int)(threadIdx.x / 32) * K::tiles * 16;

#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        uint32_t b[K::units][4];
#pragma unroll
        for (int u = 0; u < K::units; u++)
            load4_transposed(b[u], tile_down(v + k * K::v_pitch + u * UNIT, K::v_pitch));
#pragma unroll
        for (int t = 0; t < K::tiles; t++) {
            uint32_t a[4];
            load4_transposed(a, tile_across(z + k * K::z_pitch + first + t * 16, K::z_pitch));
            if (K::normed)
                norm_tile(j, w, row + k + (int)threadIdx.x % 4 * 2, weight[t], a);
#pragma unroll
            for (int u = 0; u < K::units; u++) {
                multiply(d[t][2 * u], a, b[u][0], b[u][1]);
                multiply(d[t][2 * u + 1], a, b[u][2], b[u][3]);
            }
        }
    }
}

/* Where in the sums column n of V begins; -1: nowhere. Column x of the segment lies x strides behind: B [out,
 * rank] of the segment's target, or A [rank, in] of that target whose rank column n is. */
template <dry_skinny KIND>
__device__ __forceinline__ static int64_t gradient_column(const dry_skinny_job &j, const slice &w, int n)
{
    const dry_skinny_segment &s = *w.segment;
    int first = KIND == DRY_SKINNY_DY ? s.target : 0, last = KIND == DRY_SKINNY_DY ? s.target + 1 : j.targets;

    for (int i = first; i < last; i++) {
        const dry_skinny_target &t = j.target[i];
        int r = s.pad_first + n - t.rank_first;
        if (r >= 0 && r < t.rank)
            return t.at + (KIND == DRY_SKINNY_DY ? r : (int64_t)r * s.columns);
    }
    return -1;
}

template <dry_skinny KIND, class K>
__device__ __forceinline__ static void gradient_store(const dry_skinny_job &j, const slice &w,
                                                      const float (*d)[2 * K::units][4])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int inside = w.first - w.segment->first,
        stride = KIND == DRY_SKINNY_DY ? j.target[w.segment->target].rank : 1;
    int64_t flags = 0;

#pragma unroll
    for (int u = 0; u < 2 * K::units; u++) {
        int64_t first[2] = {gradient_column<KIND>(j, w, u * 8 + lane % 4 * 2),
                            gradient_column<KIND>(j, w, u * 8 + lane % 4 * 2 + 1)};
        int64_t at[4 * K::tiles];
        float g[4 * K::tiles];
#pragma unroll
        for (int i = 0; i < 4 * K::tiles; i++) {
            int x = (warp * K::tiles + i / 4) * 16 + lane / 4 + i / 2 % 2 * 8;
            at[i] = first[i % 2] >= 0 && x < w.columns ? first[i % 2] + (int64_t)(inside + x) * stride : -1;
            g[i] = d[i / 4][u][i % 4] * j.factor;
        }
        flags |= sums_add<4 * K::tiles>(j.sums, at, g);
    }
    dry_cuda_flag(j.words, flags);
}

template <dry_skinny KIND, int UNITS, int COLUMNS>
__global__ static void __launch_bounds__(THREADS, sizes<KIND, UNITS, COLUMNS>::blocks)
    skinny_kernel(const __grid_constant__ dry_skinny_job j)
{
    using K = sizes<KIND, UNITS, COLUMNS>;
    extern __shared__ __align__(128) unsigned char memory[];
    __nv_bfloat16 *z = (__nv_bfloat16 *)memory, *v = z + K::stages * K::z, *m = v + K::stages * K::v;
    float *sums = (float *)(m + K::m);
    slice w = slice_find(j, COLUMNS);
    int steps = (w.end - w.row + ROWS - 1) / ROWS;
    uint32_t kept[K::keep ? K::depth * UNITS : 1][4];
    float d[K::gradient ? K::tiles : 1][2 * UNITS][4] = {}, weight[K::normed ? K::tiles : 1][2] = {};

    if (steps <= 0)
        return;
    if (K::normed)
        weight_load<K>(j, w, weight);
    if (K::product)
        matrix_load<KIND, K>(j, w, m);
    for (int s = 0; s < K::stages - 1; s++) {
        if (s < steps)
            stage_load<K>(j, w, w.row + s * ROWS, z + s * K::z, v + s * K::v);
        copies_commit();
    }
    for (int s = 0; s < steps; s++) {
        int slot = s % K::stages, next = s + K::stages - 1, into = next % K::stages;
        copies_wait<K::stages - 2>();
        __syncthreads(); /* the step has come, and all are done with the one before, whose room the next one
                            takes */
        if (next < steps)
            stage_load<K>(j, w, w.row + next * ROWS, z + into * K::z, v + into * K::v);
        copies_commit();
        if (K::keep && s == 0) {
#pragma unroll
            for (int i = 0; i < K::depth * UNITS; i++)
                matrix_fragment<KIND, K>(kept[i], m, ((int)(threadIdx.x / 64) * K::depth + i / UNITS) * 16,
                                         i % UNITS * UNIT);
        }
        if (K::product)
            product_step<KIND, K>(z + slot * K::z, m, kept, sums);
        if (K::gradient)
            gradient_step<K>(j, w, w.row + s * ROWS, d, z + slot * K::z, v + slot * K::v, weight);
        if (K::product) {
            __syncthreads();
            product_store<K>(j, w, w.row + s * ROWS, sums);
        }
    }
    if (K::gradient)
        gradient_store<KIND, K>(j, w, d);
}

/* Every kernel by kind, units - 1, and wide. */
typedef void (*kernel)(const dry_skinny_job);
struct entry {
    kernel run;
    int bytes;
};
#define ENTRY(KIND, UNITS, COLUMNS)                                             \
    {                                                                           \
        skinny_kernel<KIND, UNITS, COLUMNS>, sizes<KIND, UNITS, COLUMNS>::bytes \
    }
#define ENTRIES(KIND, COLUMNS)                                                                             \
    {                                                                                                      \
        ENTRY(KIND, 1, COLUMNS), ENTRY(KIND, 2, COLUMNS), ENTRY(KIND, 3, COLUMNS), ENTRY(KIND, 4, COLUMNS) \
    }
/* Wide slices halve the partial products. Gradients alone have none: narrow slices leave room for more
 * blocks, and fewer runs of rows, each of which ends in atomics. */
static const entry entries[DRY_SKINNY_KINDS][2][DRY_SKINNY_UNITS] = {
    {ENTRIES(DRY_SKINNY_XA, 256), ENTRIES(DRY_SKINNY_XA, 512)},
    {ENTRIES(DRY_SKINNY_DY, 256), ENTRIES(DRY_SKINNY_DY, 512)},
    {ENTRIES(DRY_SKINNY_DA, 256), ENTRIES(DRY_SKINNY_DA, 256)},
    {ENTRIES(DRY_SKINNY_NORMED_DA, 256), ENTRIES(DRY_SKINNY_NORMED_DA, 256)},
};

cudaError_t dry_cuda_skinny_setup(enum dry_skinny kind, int units, int *columns, int *resident)
{
    int device, most = 0;
    cudaError_t e = cudaGetDevice(&device);

    *columns = *resident = 0;
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (int wide = kind == DRY_SKINNY_XA || kind == DRY_SKINNY_DY; wide >= 0 && e == cudaSuccess; wide--) {
        const entry &k = entries[kind][wide][units - 1];
        if (k.bytes > most)
            continue;
        e = cudaFuncSetAttribute(k.run, cudaFuncAttributeMaxDynamicSharedMemorySize, k.bytes);
        if (e == cudaSuccess)
            e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(resident, k.run, THREADS, (size_t)k.bytes);
        *columns = wide ? 512 : 256;
        break;
    }
    return e;
}

cudaError_t dry_cuda_skinny_launch(enum dry_skinny kind, int units, int columns,
                                   const struct dry_skinny_job *j, cudaStream_t stream)
{
    const entry &k = entries[kind][columns > 256][units - 1];
    dim3 grid((unsigned)j->slices, (unsigned)((j->tokens + j->chunk - 1) / j->chunk));

    k.run<<<grid, THREADS, (size_t)k.bytes, stream>>>(*j);
    return cudaGetLastError();
}

enum { FINISH = 4 }; /* columns of a thread in finish */

/* Bytes: the partial products once, 2 (end - first) T written, twice when kept. A thread takes four columns
 * of a row, and one by one where a part ends among them. */
__global__ static void __launch_bounds__(THREADS) finish_kernel(const __grid_constant__ dry_skinny_finish f)
{
    int across = (f.end - f.first + FINISH - 1) / FINISH;
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, slice = (int64_t)f.tokens * f.width;
    int row = (int)(at / across), column = f.first + (int)(at % across) * FINISH;
    float sum[FINISH] = {};

    if (row >= f.tokens)
        return;
    for (int i = 0; i < f.parts && row < f.useful; i++) {
        const dry_skinny_part &p = f.part[i];
        const float *from = f.partial + p.slice_first * slice + (int64_t)row * f.width + column - p.pad_first;
        if (column >= p.first && column + FINISH <= p.end && (column - p.pad_first) % FINISH == 0) {
            float4 some = make_float4(0, 0, 0, 0);
#pragma unroll 8
            for (int s = 0; s < p.slices; s++) {
                float4 z = *(const float4 *)(from + s * slice);
                some.x += z.x;
                some.y += z.y;
                some.z += z.z;
                some.w += z.w;
            }
            sum[0] = some.x * p.scale;
            sum[1] = some.y * p.scale;
            sum[2] = some.z * p.scale;
            sum[3] = some.w * p.scale;
            break;
        }
#pragma unroll
        for (int k = 0; k < FINISH; k++)
            if (column + k >= p.first && column + k < p.end) {
                for (int s = 0; s < p.slices; s++)
                    sum[k] += from[s * slice + k];
                sum[k] *= p.scale;
            }
    }
#pragma unroll
    for (int k = 0; k < FINISH; k++)
        if (column + k < f.end) {
            __nv_bfloat16 value = __float2bfloat16_rn(sum[k]);
            ((__nv_bfloat16 *)f.pad)[row * f.pitch + column + k] = value;
            if (f.kept)
                ((__nv_bfloat16 *)f.kept)[row * f.kept_pitch + column + k] = value;
        }
}

cudaError_t dry_cuda_skinny_finish_launch(const struct dry_skinny_finish *f, cudaStream_t stream)
{
    int64_t elements = (int64_t)f->tokens * ((f->end - f->first + FINISH - 1) / FINISH);

    finish_kernel<<<(unsigned)((elements + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*f);
    return cudaGetLastError();
}

/* Bytes 4 T W (6 when adding), some 80 operations for four elements. One thread each, with one load and store
 * where rows allow it (VECTOR). */
template <bool ADD, bool VECTOR>
__global__ static void __launch_bounds__(THREADS)
    drop_kernel(const dry_skinny_mask m, const __nv_bfloat16 *x, int64_t x_pitch, float factor,
                __nv_bfloat16 *to, int64_t to_pitch)
{
    int across = (m.columns + 3) / 4;
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int row = (int)(at / across), four = (int)(at % across);
    __align__(16) uint32_t word[4] = {};

    if (row >= m.tokens || (ADD && row >= m.useful))
        return;
    bool useful = row < m.useful;
    if (useful)
        *(uint4 *)word =
            dry_cuda_random_words(m.seed, DRY_RANDOM_DROPOUT, m.row_key[row],
                                  dry_dropout_column(m.position[row], m.layer, m.proj, 4 * four));
    x += row * x_pitch;
    to += row * to_pitch;
    __align__(8) __nv_bfloat16 in[4] = {}, out[4] = {};
    int some = VECTOR ? 4 : min(4, m.columns - 4 * four);
    if (VECTOR) {
        *(uint2 *)in = *(const uint2 *)(x + 4 * four);
        if (ADD)
            *(uint2 *)out = *(const uint2 *)(to + 4 * four);
    } else {
        for (int i = 0; i < some; i++) {
            in[i] = x[4 * four + i];
            if (ADD)
                out[i] = to[4 * four + i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool kept = useful && word[i] >= m.threshold;
        if (ADD && kept)
            out[i] = __float2bfloat16_rn(__bfloat162float(out[i]) + factor * __bfloat162float(in[i]));
        if (!ADD)
            out[i] = kept ? in[i] : __float2bfloat16_rn(0.0f);
    }
    if (VECTOR)
        *(uint2 *)(to + 4 * four) = *(const uint2 *)out;
    else
        for (int i = 0; i < some; i++)
            to[4 * four + i] = out[i];
}

static bool drop_vectors(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                         const dry_bf16 *to, int64_t to_pitch)
{
    return m->columns % 4 == 0 && x_pitch % 4 == 0 && to_pitch % 4 == 0 && (uintptr_t)x % 8 == 0 &&
           (uintptr_t)to % 8 == 0;
}

static unsigned drop_blocks(const struct dry_skinny_mask *m)
{
    int64_t threads = (int64_t)m->tokens * ((m->columns + 3) / 4);

    return (unsigned)((threads + THREADS - 1) / THREADS);
}

template <bool ADD>
static cudaError_t drop_launch(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                               float factor, dry_bf16 *to, int64_t to_pitch, cudaStream_t stream)
{
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)x;
    __nv_bfloat16 *into = (__nv_bfloat16 *)to;

    if (drop_vectors(m, x, x_pitch, to, to_pitch))
        drop_kernel<ADD, true>
            <<<drop_blocks(m), THREADS, 0, stream>>>(*m, from, x_pitch, factor, into, to_pitch);
    else
        drop_kernel<ADD, false>
            <<<drop_blocks(m), THREADS, 0, stream>>>(*m, from, x_pitch, factor, into, to_pitch);
    return cudaGetLastError();
}

cudaError_t dry_cuda_drop_launch(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                                 dry_bf16 *to, int64_t to_pitch, cudaStream_t stream)
{
    return drop_launch<false>(m, x, x_pitch, 1, to, to_pitch, stream);
}

cudaError_t dry_cuda_drop_add_launch(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                                     float factor, dry_bf16 *to, int64_t to_pitch, cudaStream_t stream)
{
    return drop_launch<true>(m, x, x_pitch, factor, to, to_pitch, stream);
}

/* Bytes 20 n. */
__global__ static void __launch_bounds__(THREADS)
    gradient_kernel(const float *g, int64_t n, float factor, int64_t *sums, int64_t *words)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, flags = 0;

    if (i < n)
        dry_cuda_gradient_add(sums + i, g[i] * factor, &flags);
    dry_cuda_flag(words, flags);
}

cudaError_t dry_cuda_gradient_launch(const float *g, int64_t n, float factor, int64_t *sums, int64_t *words,
                                     cudaStream_t stream)
{
    gradient_kernel<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(g, n, factor, sums,
                                                                                     words);
    return cudaGetLastError();
}

/* Bytes 6 for each parameter. A row of blocks a part, its A and then its B. */
enum { COPY_BLOCKS = 64 };
__global__ static void __launch_bounds__(THREADS)
    copies_kernel(const dry_skinny_copy *copy, const float *masters)
{
    dry_skinny_copy c = copy[blockIdx.y];

    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < (unsigned)c.rank * (unsigned)c.in;
         i += COPY_BLOCKS * THREADS)
        ((__nv_bfloat16 *)c.to_a)[i / (unsigned)c.in * c.pitch + i % (unsigned)c.in] =
            __float2bfloat16_rn(masters[c.a + i]);
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < (unsigned)c.rank * (unsigned)c.out;
         i += COPY_BLOCKS * THREADS)
        ((__nv_bfloat16 *)c.to_b)[i / (unsigned)c.rank * c.pitch + i % (unsigned)c.rank] =
            __float2bfloat16_rn(masters[c.b + i]);
}

cudaError_t dry_cuda_copies_launch(const struct dry_skinny_copy *copy, int copies, const float *masters,
                                   cudaStream_t stream)
{
    copies_kernel<<<dim3(COPY_BLOCKS, (unsigned)copies), THREADS, 0, stream>>>(copy, masters);
    return cudaGetLastError();
}
