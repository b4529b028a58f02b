/*
 * Causal attention inside each record by drydock's own kernels, forward and backward, for any even head size
 * up to 256. Owns the tiles and the order of sums.  Must not know how records were chosen, of rotation, or of
 * the library's plans.
 *
 * Forward follows FlashAttention-2 (Dao 2023): a block keeps 64 rows of q and streams keys and values,
 * softmax online in float32.  Backward computes the probabilities again from lse in two kernels, one that
 * owns rows of keys (dK, dV) and one that owns rows of queries (dQ): seven products instead of five, but
 * every sum has one owner and one order, so that there are no atomics and bits are equal on every run.
 * Products are mma.sync m16n8k16 on bfloat16 with float32 sums; a warp owns 16 rows.
 */
#include "cuda/attention.h"

#include <cuda_bf16.h>
#include <math.h>

enum {
    WARPS = 4,
    THREADS = 32 * WARPS,
    ROWS = 16 * WARPS, /* of a block */
    SKEW = 8,          /* elements behind a row in shared memory: ldmatrix without bank conflicts */
    ROW_THREADS = 256, /* of the kernels that go by rows */
    ROW_WARPS = ROW_THREADS / 32,
    PART_ROWS = 8 /* of a block that adds up parts */
};

#define LOG2E 1.4426950408889634f

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ static uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Copies to shared memory in the background; zeros where `inside` is false. */
__device__ __forceinline__ static void copy16(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(inside ? 16 : 0));
}

__device__ __forceinline__ static void copy4(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(inside ? 4 : 0));
}

__device__ __forceinline__ static void copy_commit()
{
    asm volatile("cp.async.commit_group;\n" ::);
}

template <int PENDING> __device__ __forceinline__ static void copy_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING));
}

__device__ __forceinline__ static void load_matrices(uint32_t r[4], const bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

__device__ __forceinline__ static void load_transposed(uint32_t r[4], const bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

/* c [16, 8] += a [16, 16] b [16, 8] */
__device__ __forceinline__ static void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ static float power2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ static uint32_t pack(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);

    return *(const uint32_t *)&pair;
}

__device__ __forceinline__ static int lane()
{
    return (int)threadIdx.x % 32;
}

/* Shared tiles are [rows][PITCH]. Where a thread's rows of ldmatrix lie: of A [16 rows, 16 depth] ... */
template <int PITCH>
__device__ __forceinline__ static const bf16 *left_at(const bf16 *tile, int row, int depth)
{
    return tile + (row + lane() % 16) * PITCH + depth + lane() / 16 * 8;
}

/* ... of B, two times 8 columns, from a tile [columns][depth] ... */
template <int PITCH>
__device__ __forceinline__ static const bf16 *right_at(const bf16 *tile, int column, int depth)
{
    return tile + (column + lane() % 8 + lane() / 16 * 8) * PITCH + depth + lane() / 8 % 2 * 8;
}

/* ... and from a tile [depth][columns], transposed. */
template <int PITCH>
__device__ __forceinline__ static const bf16 *right_turned_at(const bf16 *tile, int depth, int column)
{
    return tile + (depth + lane() % 16) * PITCH + column + lane() / 16 * 8;
}

/* `count` rows of a head into a tile of TILE rows, zeros behind them and behind dim. wide: 16 bytes at once.
 */
template <int DIM, int TILE>
__device__ __forceinline__ static void tile_load(bf16 *tile, const bf16 *from, int64_t pitch, int count,
                                                 int dim, bool wide)
{
    constexpr int PITCH = DIM + SKEW;

    if (wide)
        for (int i = threadIdx.x; i < TILE * (DIM / 8); i += THREADS) {
            int row = i / (DIM / 8), column = i % (DIM / 8) * 8;
            bool inside = row < count && column < dim;
            copy16(tile + row * PITCH + column, inside ? from + row * pitch + column : from, inside);
        }
    else
        for (int i = threadIdx.x; i < TILE * (DIM / 2); i += THREADS) {
            int row = i / (DIM / 2), column = i % (DIM / 2) * 2;
            bool inside = row < count && column < dim;
            copy4(tile + row * PITCH + column, inside ? from + row * pitch + column : from, inside);
        }
}

/* s [16, COLUMNS] = rows `row` to row + 15 of `left` times all rows of `right`, over DIM. */
template <int DIM, int COLUMNS>
__device__ __forceinline__ static void scores(float (*s)[4], const bf16 *left, int row, const bf16 *right)
{
    constexpr int PITCH = DIM + SKEW;

#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < DIM; k += 16) {
        uint32_t a[4];
        load_matrices(a, left_at<PITCH>(left, row, k));
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 16) {
            uint32_t b[4];
            load_matrices(b, right_at<PITCH>(right, n, k));
            multiply(s[n / 8], a, b[0], b[1]);
            multiply(s[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/* sum [16, DIM] += p [16, DEPTH] times `right` [DEPTH][DIM]; p as the scores' registers, rounded. */
template <int DIM, int DEPTH>
__device__ __forceinline__ static void accumulate(float (*sum)[4], const float (*p)[4], const bf16 *right)
{
    constexpr int PITCH = DIM + SKEW;

#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        const float *x = p[k / 8], *y = p[k / 8 + 1];
        uint32_t a[4] = {pack(x[0], x[1]), pack(x[2], x[3]), pack(y[0], y[1]), pack(y[2], y[3])};
#pragma unroll
        for (int n = 0; n < DIM; n += 16) {
            uint32_t b[4];
            load_transposed(b, right_turned_at<PITCH>(right, k, n));
            multiply(sum[n / 8], a, b[0], b[1]);
            multiply(sum[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/* What a block works on. Blocks of the rows with most to do come first. */
struct place {
    int64_t row; /* of the record's first token */
    int length;  /* of the record */
    int head, shared;
    int first; /* of the block's rows in the record; not under length: nothing to do */
};

__device__ __forceinline__ static struct place place_of(const struct dry_cuda_attention_call &k,
                                                        bool last_first)
{
    int64_t each = k.records * k.heads, tile = blockIdx.x / each, at = blockIdx.x % each;
    int64_t tiles = gridDim.x / each, record = at / k.heads;
    struct place p;

    p.row = k.first[record];
    p.length = k.last[record] - k.first[record];
    p.head = (int)(at % k.heads);
    p.shared = p.head / (int)(k.heads / k.kv_heads);
    p.first = (int)(last_first ? tiles - 1 - tile : tile) * ROWS;
    return p;
}

__device__ __forceinline__ static bool is_wide(const struct dry_cuda_attention_call &k)
{
    return k.dim % 8 == 0 && k.pitch % 8 == 0 && k.pitch_o % 8 == 0;
}

/* A head's slices: q, k, v of qkv or dqkv. */
__device__ __forceinline__ static int64_t query_at(const struct dry_cuda_attention_call &k,
                                                   const struct place &p, int row)
{
    return (p.row + row) * k.pitch + p.head * k.dim;
}

__device__ __forceinline__ static int64_t key_at(const struct dry_cuda_attention_call &k,
                                                 const struct place &p, int row)
{
    return (p.row + row) * k.pitch + (k.heads + p.shared) * k.dim;
}

__device__ __forceinline__ static int64_t output_at(const struct dry_cuda_attention_call &k,
                                                    const struct place &p, int row)
{
    return (p.row + row) * k.pitch_o + p.head * k.dim;
}

/* Rows `row` and row + 8 of a warp's sums as bfloat16. */
template <int DIM>
__device__ __forceinline__ static void rows_store(bf16 *to, int64_t pitch, int dim, int row, int count,
                                                  const float (*sum)[4], const float factor[2])
{
    int column = lane() % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++)
        if (row + half * 8 < count)
#pragma unroll
            for (int n = 0; n < DIM; n += 8)
                if (n + column < dim)
                    *(uint32_t *)(to + (row + half * 8) * pitch + n + column) =
                        pack(sum[n / 8][half * 2] * factor[half], sum[n / 8][half * 2 + 1] * factor[half]);
}

/* Online softmax of one block of scores in units of log2: s becomes probabilities against the new maximum. */
template <int DIM, int KEYS>
__device__ __forceinline__ static void soften(float (*s)[4], float (*o)[4], float most[2], float sum[2],
                                              float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float m = most[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            m = fmaxf(m, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
        float shrink = power2((most[half] - m) * scale), total = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[n][i] = power2((s[n][i] - m) * scale);
                total += s[n][i];
            }
        most[half] = m;
        sum[half] = sum[half] * shrink + total;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            o[n][half * 2] *= shrink;
            o[n][half * 2 + 1] *= shrink;
        }
    }
}

/* s = -inf where the key is behind the query. row: of the thread's first row, key: of the block's first key.
 */
template <int KEYS> __device__ __forceinline__ static void hide_keys(float (*s)[4], int row, int key)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + n * 8 + lane() % 4 * 2 + i % 2 > row + i / 2 * 8)
                s[n][i] = -INFINITY;
}

template <int DIM, int KEYS>
__global__ static void __launch_bounds__(THREADS) forward_kernel(const struct dry_cuda_attention_call k)
{
    constexpr int PITCH = DIM + SKEW;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *q = (bf16 *)memory, *key = q + ROWS * PITCH, *value = key + KEYS * PITCH;
    const struct place p = place_of(k, true);
    const bf16 *qkv = (const bf16 *)k.qkv;
    const int dim = (int)k.dim, warp_row = (int)threadIdx.x / 32 * 16, row = p.first + warp_row + lane() / 4;
    const int count = min(ROWS, p.length - p.first), keys = p.first + count;
    const bool wide = is_wide(k);
    const int64_t values = k.kv_heads * k.dim;
    const float scale = k.scale * LOG2E;
    float o[DIM / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    if (count <= 0)
        return;
    tile_load<DIM, ROWS>(q, qkv + query_at(k, p, p.first), k.pitch, count, dim, wide);
    tile_load<DIM, KEYS>(key, qkv + key_at(k, p, 0), k.pitch, keys, dim, wide);
    copy_commit();
    for (int at = 0; at < keys; at += KEYS) {
        float s[KEYS / 8][4];
        copy_wait<0>();
        __syncthreads(); /* these keys are there, and nobody reads the values before any more */
        tile_load<DIM, KEYS>(value, qkv + key_at(k, p, at) + values, k.pitch, keys - at, dim, wide);
        copy_commit();
        scores<DIM, KEYS>(s, q, warp_row, key);
        if (at + KEYS > p.first + warp_row)
            hide_keys<KEYS>(s, row, at);
        soften<DIM, KEYS>(s, o, most, sum, scale);
        copy_wait<0>();
        __syncthreads();
        if (at + KEYS < keys) {
            tile_load<DIM, KEYS>(key, qkv + key_at(k, p, at + KEYS), k.pitch, keys - at - KEYS, dim, wide);
            copy_commit();
        }
        accumulate<DIM, KEYS>(o, s, value);
    }
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(0xffffffff, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffff, sum[half], 2);
        if (lane() % 4 == 0 && row + half * 8 < p.length)
            k.lse[(p.row + row + half * 8) * k.heads + p.head] = most[half] * k.scale + logf(sum[half]);
        sum[half] = 1.0f / sum[half];
    }
    rows_store<DIM>((bf16 *)k.o + output_at(k, p, p.first), k.pitch_o, dim, row - p.first, count, o, sum);
}

/* One warp a row and head, blocks of ROW_WARPS of them. */
__global__ static void __launch_bounds__(ROW_THREADS) delta_kernel(const struct dry_cuda_attention_call k)
{
    int64_t tiles = gridDim.x / k.records, record = blockIdx.x / tiles;
    int64_t at = blockIdx.x % tiles * ROW_WARPS + threadIdx.x / 32;
    int64_t row = k.first[record] + at / k.heads, head = at % k.heads;
    float sum = 0;

    if (row >= k.last[record])
        return;
    const bf16 *o = (const bf16 *)k.o + row * k.pitch_o + head * k.dim;
    const bf16 *d_o = (const bf16 *)k.d_o + row * k.pitch_o + head * k.dim;
    for (int64_t i = lane() * 2; i < k.dim; i += 64) {
        float2 x = __bfloat1622float2(*(const __nv_bfloat162 *)(o + i));
        float2 y = __bfloat1622float2(*(const __nv_bfloat162 *)(d_o + i));
        sum += x.x * y.x + x.y * y.y;
    }
    for (int i = 16; i; i /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, i);
    if (lane() == 0)
        k.delta[row * k.heads + head] = sum;
}

template <int DIM, int KEYS>
__global__ static void __launch_bounds__(THREADS) query_kernel(const struct dry_cuda_attention_call k)
{
    constexpr int PITCH = DIM + SKEW, STAGE = 2 * KEYS * PITCH;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *q = (bf16 *)memory, *d_o = q + ROWS * PITCH, *moving = d_o + ROWS * PITCH;
    const struct place p = place_of(k, true);
    const bf16 *qkv = (const bf16 *)k.qkv;
    const int dim = (int)k.dim, warp_row = (int)threadIdx.x / 32 * 16, row = p.first + warp_row + lane() / 4;
    const int count = min(ROWS, p.length - p.first), keys = p.first + count;
    const bool wide = is_wide(k);
    const int64_t values = k.kv_heads * k.dim;
    const float scale = k.scale * LOG2E;
    float dq[DIM / 8][4] = {}, lse[2] = {}, delta[2] = {}, unit[2] = {1, 1};

    if (count <= 0)
        return;
    tile_load<DIM, ROWS>(q, qkv + query_at(k, p, p.first), k.pitch, count, dim, wide);
    tile_load<DIM, ROWS>(d_o, (const bf16 *)k.d_o + output_at(k, p, p.first), k.pitch_o, count, dim, wide);
    tile_load<DIM, KEYS>(moving, qkv + key_at(k, p, 0), k.pitch, keys, dim, wide);
    tile_load<DIM, KEYS>(moving + KEYS * PITCH, qkv + key_at(k, p, 0) + values, k.pitch, keys, dim, wide);
    copy_commit();
    for (int half = 0; half < 2; half++)
        if (row + half * 8 < p.length) {
            int64_t at = (p.row + row + half * 8) * k.heads + p.head;
            lse[half] = k.lse[at] * LOG2E;
            delta[half] = k.delta[at];
        }
    for (int at = 0, stage = 0; at < keys; at += KEYS, stage = !stage) {
        const bf16 *key = moving + stage * STAGE, *value = key + KEYS * PITCH;
        float s[KEYS / 8][4], ds[KEYS / 8][4];
        if (at + KEYS < keys) {
            bf16 *next = moving + !stage * STAGE;
            const bf16 *from = qkv + key_at(k, p, at + KEYS);
            tile_load<DIM, KEYS>(next, from, k.pitch, keys - at - KEYS, dim, wide);
            tile_load<DIM, KEYS>(next + KEYS * PITCH, from + values, k.pitch, keys - at - KEYS, dim, wide);
            copy_commit();
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        scores<DIM, KEYS>(s, q, warp_row, key);
        if (at + KEYS > p.first + warp_row)
            hide_keys<KEYS>(s, row, at);
        scores<DIM, KEYS>(ds, d_o, warp_row, value);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] = power2(s[n][i] * scale - lse[i / 2]) * (ds[n][i] - delta[i / 2]) * k.scale;
        accumulate<DIM, KEYS>(dq, ds, key);
        __syncthreads();
    }
    rows_store<DIM>((bf16 *)k.dqkv + query_at(k, p, p.first), k.pitch, dim, row - p.first, count, dq, unit);
}

/* Rows of q and dO into a stage; lse and delta of a row go where its skew is. */
template <int DIM, int QUERIES>
__device__ __forceinline__ static void queries_load(bf16 *stage, const struct dry_cuda_attention_call &k,
                                                    const struct place &p, int at, bool wide)
{
    constexpr int PITCH = DIM + SKEW;
    int count = p.length - at, dim = (int)k.dim;

    tile_load<DIM, QUERIES>(stage, (const bf16 *)k.qkv + query_at(k, p, at), k.pitch, count, dim, wide);
    tile_load<DIM, QUERIES>(stage + QUERIES * PITCH, (const bf16 *)k.d_o + output_at(k, p, at), k.pitch_o,
                            count, dim, wide);
    for (int i = threadIdx.x; i < 2 * QUERIES; i += THREADS) {
        const float *from = i < QUERIES ? k.lse : k.delta;
        int row = i % QUERIES;
        bool inside = row < count;
        copy4(stage + i * PITCH + DIM, inside ? from + (p.row + at + row) * k.heads + p.head : from, inside);
    }
}

/* p = probabilities of keys (rows) against queries (columns), zero where there is none. */
template <int DIM, int QUERIES>
__device__ __forceinline__ static void turned_probabilities(float (*s)[4], const bf16 *q, int key, int at,
                                                            int length, float scale)
{
    constexpr int PITCH = DIM + SKEW;

#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = n * 8 + lane() % 4 * 2 + i % 2, query = at + column;
            float lse = *(const float *)(q + column * PITCH + DIM) * LOG2E;
            bool seen = query >= key + i / 2 * 8 && query < length;
            s[n][i] = seen ? power2(s[n][i] * scale - lse) : 0;
        }
}

/* Sums of a query head's share: to dqkv where the key head is its own, else to part, in float32. */
template <int DIM>
__device__ __forceinline__ static void share_store(const struct dry_cuda_attention_call &k,
                                                   const struct place &p, int which, int row, int count,
                                                   const float (*sum)[4])
{
    const float unit[2] = {1, 1};
    const int column = lane() % 4 * 2;

    if (k.heads == k.kv_heads) {
        bf16 *to = (bf16 *)k.dqkv + key_at(k, p, p.first) + which * k.kv_heads * k.dim;
        rows_store<DIM>(to, k.pitch, (int)k.dim, row, count, sum, unit);
        return;
    }
    for (int half = 0; half < 2; half++)
        if (row + half * 8 < count) {
            int64_t at = which * k.tokens + p.row + p.first + row + half * 8;
            float *to = k.part + (at * k.heads + p.head) * k.dim;
#pragma unroll
            for (int n = 0; n < DIM; n += 8)
                if (n + column < k.dim)
                    *(float2 *)(to + n + column) =
                        make_float2(sum[n / 8][half * 2], sum[n / 8][half * 2 + 1]);
        }
}

/* KEY: dK; VALUE: dV; both where registers hold both. */
template <int DIM, int QUERIES, bool KEY, bool VALUE>
__global__ static void __launch_bounds__(THREADS) key_kernel(const struct dry_cuda_attention_call k)
{
    constexpr int PITCH = DIM + SKEW, STAGE = 2 * QUERIES * PITCH;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *key = (bf16 *)memory, *value = key + ROWS * PITCH, *moving = value + ROWS * PITCH;
    const struct place p = place_of(k, false);
    const bf16 *from = (const bf16 *)k.qkv + key_at(k, p, p.first);
    const int dim = (int)k.dim, warp_row = (int)threadIdx.x / 32 * 16, row = p.first + warp_row + lane() / 4;
    const int count = min(ROWS, p.length - p.first);
    const bool wide = is_wide(k);
    const float scale = k.scale * LOG2E;
    float dk[KEY ? DIM / 8 : 1][4] = {}, dv[VALUE ? DIM / 8 : 1][4] = {};

    if (count <= 0)
        return;
    tile_load<DIM, ROWS>(key, from, k.pitch, count, dim, wide);
    if (KEY)
        tile_load<DIM, ROWS>(value, from + k.kv_heads * k.dim, k.pitch, count, dim, wide);
    queries_load<DIM, QUERIES>(moving, k, p, p.first, wide);
    copy_commit();
    for (int at = p.first, stage = 0; at < p.length; at += QUERIES, stage = !stage) {
        const bf16 *q = moving + stage * STAGE, *d_o = q + QUERIES * PITCH;
        float s[QUERIES / 8][4];
        if (at + QUERIES < p.length) {
            queries_load<DIM, QUERIES>(moving + !stage * STAGE, k, p, at + QUERIES, wide);
            copy_commit();
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        if (at + QUERIES > p.first + warp_row) { /* else all of its queries are before the warp's keys */
            scores<DIM, QUERIES>(s, key, warp_row, q);
            turned_probabilities<DIM, QUERIES>(s, q, row, at, p.length, scale);
            if (VALUE)
                accumulate<DIM, QUERIES>(dv, s, d_o);
            if (KEY) {
                float ds[QUERIES / 8][4];
                scores<DIM, QUERIES>(ds, value, warp_row, d_o);
#pragma unroll
                for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int column = n * 8 + lane() % 4 * 2 + i % 2;
                        float delta = *(const float *)(d_o + column * PITCH + DIM);
                        ds[n][i] = s[n][i] * (ds[n][i] - delta) * k.scale;
                    }
                accumulate<DIM, QUERIES>(dk, ds, q);
            }
        }
        __syncthreads();
    }
    if (KEY)
        share_store<DIM>(k, p, 0, row - p.first, count, dk);
    if (VALUE)
        share_store<DIM>(k, p, 1, row - p.first, count, dv);
}

/* k and v slices of dqkv = parts of the query heads that share the key head, added up in their order. */
__global__ static void __launch_bounds__(ROW_THREADS) part_kernel(const struct dry_cuda_attention_call k)
{
    int64_t tiles = gridDim.x / k.records, record = blockIdx.x / tiles;
    int64_t first = k.first[record] + blockIdx.x % tiles * PART_ROWS, end = k.last[record];
    int64_t pairs = k.kv_heads * k.dim / 2, sharing = k.heads / k.kv_heads;

    for (int64_t i = threadIdx.x; i < PART_ROWS * 2 * pairs; i += ROW_THREADS) {
        int64_t row = first + i / (2 * pairs), which = i / pairs % 2, element = i % pairs * 2;
        int64_t head = element / k.dim * sharing, at = element % k.dim;
        if (row >= end)
            return;
        const float *from = k.part + ((which * k.tokens + row) * k.heads + head) * k.dim + at;
        float2 sum = *(const float2 *)from;
        for (int64_t h = 1; h < sharing; h++) {
            float2 more = *(const float2 *)(from + h * k.dim);
            sum.x += more.x;
            sum.y += more.y;
        }
        bf16 *to = (bf16 *)k.dqkv + row * k.pitch + (k.heads + which * k.kv_heads) * k.dim + element;
        *(uint32_t *)to = pack(sum.x, sum.y);
    }
}

static cudaError_t tiles_launch(void (*kernel)(struct dry_cuda_attention_call), int dim, int rows,
                                const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    int64_t blocks = (k->longest + ROWS - 1) / ROWS * k->records * k->heads;
    size_t bytes = (size_t)rows * (size_t)(dim + SKEW) * sizeof(bf16);
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (e)
        return e;
    if (blocks == 0)
        return cudaSuccess;
    kernel<<<(unsigned)blocks, THREADS, bytes, stream>>>(*k);
    return cudaGetLastError();
}

template <int DIM, int KEYS>
static cudaError_t forward(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    return tiles_launch(forward_kernel<DIM, KEYS>, DIM, ROWS + 2 * KEYS, k, stream);
}

template <int DIM, int KEYS>
static cudaError_t query(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    return tiles_launch(query_kernel<DIM, KEYS>, DIM, 2 * ROWS + 4 * KEYS, k, stream);
}

template <int DIM, int QUERIES, bool BOTH>
static cudaError_t key(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    constexpr int rows = 2 * ROWS + 4 * QUERIES;
    cudaError_t e = tiles_launch(key_kernel<DIM, QUERIES, true, BOTH>, DIM, rows, k, stream);

    if (!e && !BOTH)
        e = tiles_launch(key_kernel<DIM, QUERIES, false, true>, DIM, rows, k, stream);
    return e;
}

cudaError_t dry_cuda_attention_forward_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    return k->dim <= 64    ? forward<64, 64>(k, stream)
           : k->dim <= 96  ? forward<96, 64>(k, stream)
           : k->dim <= 128 ? forward<128, 64>(k, stream)
                           : forward<256, 32>(k, stream);
}

cudaError_t dry_cuda_attention_delta_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    int64_t tiles = (k->longest * k->heads + ROW_WARPS - 1) / ROW_WARPS;

    if (tiles * k->records == 0)
        return cudaSuccess;
    delta_kernel<<<(unsigned)(tiles * k->records), ROW_THREADS, 0, stream>>>(*k);
    return cudaGetLastError();
}

cudaError_t dry_cuda_attention_query_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    return k->dim <= 64    ? query<64, 64>(k, stream)
           : k->dim <= 96  ? query<96, 32>(k, stream)
           : k->dim <= 128 ? query<128, 32>(k, stream)
                           : query<256, 16>(k, stream);
}

cudaError_t dry_cuda_attention_key_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream)
{
    int64_t tiles = (k->longest + PART_ROWS - 1) / PART_ROWS;
    cudaError_t e = k->dim <= 64    ? key<64, 32, true>(k, stream)
                    : k->dim <= 96  ? key<96, 32, true>(k, stream)
                    : k->dim <= 128 ? key<128, 32, true>(k, stream)
                                    : key<256, 16, false>(k, stream);

    if (e || k->heads == k->kv_heads || tiles * k->records == 0)
        return e;
    part_kernel<<<(unsigned)(tiles * k->records), ROW_THREADS, 0, stream>>>(*k);
    return cudaGetLastError();
}
