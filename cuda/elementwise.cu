/*
 * Kernels of the row-wise operations: embedding, RMSNorm and its gradient, SwiGLU and its gradient.
 * Owns nothing.  Must not know of layers or records.
 *
 * All are bound by memory: each byte is read and written once, 16 at a time where widths and pitches are
 * multiples of 8 elements; other widths take the plain kernels, element by element.  Arithmetic is float32
 * from the first operation to the last and is rounded to bfloat16 once.  (Transformers' RMSNorm rounds x /
 * rms before it multiplies the weight; one rounding is nearer to the exact value.)  A row is added up in an
 * order that follows from its width alone.
 */
#include "cuda/elementwise.h"

#include "cuda/fixed.cuh"
#include "cuda/swiglu.cuh"

enum {
    COPY_BLOCK = 128,
    NORM_BLOCK = 128, /* threads of a block, unless one row takes more */
    NORM_EACH = 4,    /* vectors of a row that a thread holds in registers */
    PLAIN_BLOCK = 256,
    SWIGLU_BLOCK = 256,
    SWIGLU_EACH = 2 /* vectors of gate and of up that a thread has under way at once */
};

/* As kernels take it. */
struct shape {
    int rows, useful, width;
    int64_t x_pitch, y_pitch;
    const int32_t *index;
};

static struct shape shape_of(const struct dry_cuda_rows *r)
{
    return {(int)r->rows, (int)r->useful, (int)r->width, r->x_pitch, r->y_pitch, r->index};
}

/* Whether all rows start on 16 bytes and end on whole vectors. */
static bool aligned(const struct dry_cuda_rows *r)
{
    return r->width % 8 == 0 && r->x_pitch % 8 == 0 && r->y_pitch % 8 == 0;
}

static __device__ const uint4 *vectors_of(const dry_bf16 *row)
{
    return reinterpret_cast<const uint4 *>(row);
}

static __device__ uint4 *vectors_of(dry_bf16 *row)
{
    return reinterpret_cast<uint4 *>(row);
}

static __device__ const dry_bf16 *x_row(const shape &s, const dry_bf16 *x, int row)
{
    return x + (s.index ? s.index[row] : row) * s.x_pitch;
}

/* The sum of a value over WARPS neighbouring warps, the same bits in all of them: lanes first, then warps in
 * order. */
template <int WARPS> static __device__ __forceinline__ float row_sum(float x)
{
    x = dry_cuda_warp_sum(x);
    if (WARPS == 1)
        return x;
    __shared__ float part[WARPS];
    __syncthreads(); /* the sum before has been read */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++)
        x += part[i];
    return x;
}

/* A block per row. */
__global__ static void __launch_bounds__(COPY_BLOCK)
    embed_rows(shape s, const int32_t *id, const dry_bf16 *table, dry_bf16 *y)
{
    int row = blockIdx.x;
    const uint4 *from = vectors_of(table + id[row] * s.x_pitch);
    uint4 *to = vectors_of(y + row * s.y_pitch);

    for (int i = threadIdx.x; i < s.width / 8; i += COPY_BLOCK)
        to[i] = row < s.useful ? from[i] : make_uint4(0, 0, 0, 0);
}

__global__ static void __launch_bounds__(COPY_BLOCK)
    embed_rows_plain(shape s, const int32_t *id, const dry_bf16 *table, dry_bf16 *y)
{
    int row = blockIdx.x;
    const dry_bf16 *from = table + id[row] * s.x_pitch;

    for (int i = threadIdx.x; i < s.width; i += COPY_BLOCK)
        y[row * s.y_pitch + i] = row < s.useful ? from[i] : (dry_bf16)0;
}

/* WARPS warps per row, which they hold in registers. */
template <int WARPS>
__global__ static void __launch_bounds__(WARPS * 32 > NORM_BLOCK ? WARPS * 32 : NORM_BLOCK)
    norm_forward(shape s, const dry_bf16 *__restrict__ x, const dry_bf16 *__restrict__ weight, float eps,
                 dry_bf16 *__restrict__ y, float *__restrict__ inverse)
{
    const int threads = WARPS * 32, count = s.width / 8;
    int lane = threadIdx.x % threads, row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / threads);
    uint4 held[NORM_EACH];
    float sum = 0;

    if (row >= s.rows)
        return;
    uint4 *to = vectors_of(y + row * s.y_pitch);
    if (row >= s.useful) {
        for (int i = lane; i < count; i += threads)
            to[i] = make_uint4(0, 0, 0, 0);
        return;
    }
    const uint4 *from = vectors_of(x_row(s, x, row));
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        int i = lane + j * threads;
        held[j] = i < count ? from[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        dry_cuda_eight e = dry_cuda_unpack(held[j]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += e.v[k] * e.v[k];
    }
    float r = rsqrtf(row_sum<WARPS>(sum) / (float)s.width + eps);
    if (inverse && lane == 0)
        inverse[row] = r;
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        int i = lane + j * threads;
        if (i >= count)
            break;
        dry_cuda_eight e = dry_cuda_unpack(held[j]), w = dry_cuda_unpack(vectors_of(weight)[i]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            e.v[k] = dry_cuda_normed(e.v[k], r, w.v[k]);
        to[i] = dry_cuda_pack(e);
    }
}

/* A block per row of any width; the row is read twice. */
__global__ static void __launch_bounds__(PLAIN_BLOCK)
    norm_forward_plain(shape s, const dry_bf16 *x, const dry_bf16 *weight, float eps, dry_bf16 *y,
                       float *inverse)
{
    int row = blockIdx.x;
    const dry_bf16 *from = x;
    dry_bf16 *to = y + row * s.y_pitch;
    float sum = 0;

    if (row >= s.useful) {
        for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK)
            to[i] = 0;
        return;
    }
    from = x_row(s, x, row);
    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK)
        sum += dry_cuda_float(from[i]) * dry_cuda_float(from[i]);
    float r = rsqrtf(row_sum<PLAIN_BLOCK / 32>(sum) / (float)s.width + eps);
    if (inverse && threadIdx.x == 0)
        inverse[row] = r;
    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK)
        to[i] = dry_cuda_bits(dry_cuda_normed(dry_cuda_float(from[i]), r, dry_cuda_float(weight[i])));
}

/* With g = dy * weight and r = 1 / rms: dx = r g - r^3 sum(x g) / width x. */
template <int WARPS, bool ADD>
__global__ static void __launch_bounds__(WARPS * 32 > NORM_BLOCK ? WARPS * 32 : NORM_BLOCK)
    norm_backward(shape s, const dry_bf16 *__restrict__ x, const dry_bf16 *__restrict__ weight,
                  const dry_bf16 *__restrict__ dy, float eps, dry_bf16 *__restrict__ dx)
{
    const int threads = WARPS * 32, count = s.width / 8;
    int lane = threadIdx.x % threads, row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / threads);
    uint4 held_x[NORM_EACH], held_dy[NORM_EACH], held_dx[NORM_EACH];
    float squares = 0, products = 0;

    if (row >= s.useful)
        return;
    const uint4 *from = vectors_of(x_row(s, x, row)), *gradient = vectors_of(dy + row * s.y_pitch);
    uint4 *to = vectors_of(dx + (s.index ? s.index[row] : row) * s.x_pitch);
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        int i = lane + j * threads;
        held_x[j] = i < count ? from[i] : make_uint4(0, 0, 0, 0);
        held_dy[j] = i < count ? gradient[i] : make_uint4(0, 0, 0, 0);
        if (ADD)
            held_dx[j] = i < count ? to[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        int i = lane + j * threads;
        if (i >= count)
            break;
        dry_cuda_eight e = dry_cuda_unpack(held_x[j]), g = dry_cuda_unpack(held_dy[j]);
        dry_cuda_eight w = dry_cuda_unpack(vectors_of(weight)[i]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            squares += e.v[k] * e.v[k];
            products += e.v[k] * (g.v[k] * w.v[k]);
        }
    }
    float r = rsqrtf(row_sum<WARPS>(squares) / (float)s.width + eps);
    float c = r * r * r * (row_sum<WARPS>(products) / (float)s.width);
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        int i = lane + j * threads;
        if (i >= count)
            break;
        dry_cuda_eight e = dry_cuda_unpack(held_x[j]), g = dry_cuda_unpack(held_dy[j]);
        dry_cuda_eight w = dry_cuda_unpack(vectors_of(weight)[i]), d = {{0}};
        if (ADD)
            d = dry_cuda_unpack(held_dx[j]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            d.v[k] += r * (g.v[k] * w.v[k]) - c * e.v[k];
        to[i] = dry_cuda_pack(d);
    }
}

__global__ static void __launch_bounds__(PLAIN_BLOCK)
    norm_backward_plain(shape s, const dry_bf16 *x, const dry_bf16 *weight, const dry_bf16 *dy, float eps,
                        int add, dry_bf16 *dx)
{
    int row = blockIdx.x;
    const dry_bf16 *from = x_row(s, x, row), *gradient = dy + row * s.y_pitch;
    dry_bf16 *to = dx + (s.index ? s.index[row] : row) * s.x_pitch;
    float squares = 0, products = 0;

    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK) {
        float v = dry_cuda_float(from[i]);
        squares += v * v;
        products += v * (dry_cuda_float(gradient[i]) * dry_cuda_float(weight[i]));
    }
    float r = rsqrtf(row_sum<PLAIN_BLOCK / 32>(squares) / (float)s.width + eps);
    float c = r * r * r * (row_sum<PLAIN_BLOCK / 32>(products) / (float)s.width);
    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK) {
        float g = dry_cuda_float(gradient[i]) * dry_cuda_float(weight[i]);
        float d = add ? dry_cuda_float(to[i]) : 0.0f;
        to[i] = dry_cuda_bits(d + (r * g - c * dry_cuda_float(from[i])));
    }
}

/* `pieces` blocks a row. Its SWIGLU_EACH vectors are loaded before any is used. */
__global__ static void __launch_bounds__(SWIGLU_BLOCK)
    swiglu_forward(shape s, unsigned pieces, const dry_bf16 *__restrict__ x, dry_bf16 *__restrict__ y)
{
    int row = (int)(blockIdx.x / pieces), count = s.width / 8;
    int first = (int)(blockIdx.x % pieces) * SWIGLU_BLOCK * SWIGLU_EACH + (int)threadIdx.x;
    const uint4 *gate = vectors_of(x + row * s.x_pitch), *up = gate + count;
    uint4 *to = vectors_of(y + row * s.y_pitch);
    uint4 held[SWIGLU_EACH][2];

    if (row >= s.useful) {
        for (int j = 0, i = first; j < SWIGLU_EACH && i < count; j++, i += SWIGLU_BLOCK)
            to[i] = make_uint4(0, 0, 0, 0);
        return;
    }
#pragma unroll
    for (int j = 0; j < SWIGLU_EACH; j++) {
        int i = first + j * SWIGLU_BLOCK;
        if (i < count) {
            held[j][0] = gate[i];
            held[j][1] = up[i];
        }
    }
#pragma unroll
    for (int j = 0; j < SWIGLU_EACH; j++) {
        int i = first + j * SWIGLU_BLOCK;
        if (i >= count)
            break;
        dry_cuda_eight g = dry_cuda_unpack(held[j][0]), u = dry_cuda_unpack(held[j][1]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            g.v[k] = dry_cuda_swiglu(g.v[k], u.v[k]);
        to[i] = dry_cuda_pack(g);
    }
}

__global__ static void __launch_bounds__(PLAIN_BLOCK)
    swiglu_forward_plain(shape s, const dry_bf16 *x, dry_bf16 *y)
{
    int row = blockIdx.x;
    const dry_bf16 *gate = x + row * s.x_pitch, *up = gate + s.width;

    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK)
        y[row * s.y_pitch + i] =
            row < s.useful ? dry_cuda_bits(dry_cuda_swiglu(dry_cuda_float(gate[i]), dry_cuda_float(up[i])))
                           : (dry_bf16)0;
}

/* A thread reads its elements before it writes them, and no other thread reads them. */
__global__ static void __launch_bounds__(SWIGLU_BLOCK)
    swiglu_backward(shape s, unsigned pieces, dry_bf16 *x, dry_bf16 *y)
{
    int row = (int)(blockIdx.x / pieces), count = s.width / 8;
    int first = (int)(blockIdx.x % pieces) * SWIGLU_BLOCK * SWIGLU_EACH + (int)threadIdx.x;
    uint4 *gate = vectors_of(x + row * s.x_pitch), *up = gate + count, *act = vectors_of(y + row * s.y_pitch);
    uint4 held[SWIGLU_EACH][3];

    if (row >= s.useful) {
        for (int j = 0, i = first; j < SWIGLU_EACH && i < count; j++, i += SWIGLU_BLOCK)
            gate[i] = up[i] = act[i] = make_uint4(0, 0, 0, 0);
        return;
    }
#pragma unroll
    for (int j = 0; j < SWIGLU_EACH; j++) {
        int i = first + j * SWIGLU_BLOCK;
        if (i < count) {
            held[j][0] = gate[i];
            held[j][1] = up[i];
            held[j][2] = act[i];
        }
    }
#pragma unroll
    for (int j = 0; j < SWIGLU_EACH; j++) {
        int i = first + j * SWIGLU_BLOCK;
        if (i >= count)
            break;
        dry_cuda_eight g = dry_cuda_unpack(held[j][0]), u = dry_cuda_unpack(held[j][1]);
        dry_cuda_eight d = dry_cuda_unpack(held[j][2]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            d.v[k] = dry_cuda_swiglu_gradient(g.v[k], u.v[k], d.v[k], &g.v[k], &u.v[k]);
        gate[i] = dry_cuda_pack(g);
        up[i] = dry_cuda_pack(u);
        act[i] = dry_cuda_pack(d);
    }
}

__global__ static void __launch_bounds__(PLAIN_BLOCK) swiglu_backward_plain(shape s, dry_bf16 *x, dry_bf16 *y)
{
    int row = blockIdx.x;
    dry_bf16 *gate = x + row * s.x_pitch, *up = gate + s.width, *act = y + row * s.y_pitch;

    for (int i = threadIdx.x; i < s.width; i += PLAIN_BLOCK) {
        float g = 0, u = 0, a = 0;
        if (row < s.useful)
            a = dry_cuda_swiglu_gradient(dry_cuda_float(gate[i]), dry_cuda_float(up[i]),
                                         dry_cuda_float(act[i]), &g, &u);
        gate[i] = dry_cuda_bits(g);
        up[i] = dry_cuda_bits(u);
        act[i] = dry_cuda_bits(a);
    }
}

/* Warps that hold a row of so many elements in registers; 0: none does. */
static int norm_warps(const struct dry_cuda_rows *r)
{
    if (!aligned(r))
        return 0;
    for (int warps = 1; warps <= 16; warps *= 4)
        if (r->width <= (int64_t)warps * 32 * 8 * NORM_EACH)
            return warps;
    return 0;
}

static unsigned norm_grid(int64_t rows, int warps)
{
    int64_t per_block = warps == 1 ? NORM_BLOCK / 32 : 1;

    return (unsigned)((rows + per_block - 1) / per_block);
}

cudaError_t dry_cuda_embed_launch(const struct dry_cuda_rows *r, const int32_t *id, const dry_bf16 *table,
                                  dry_bf16 *y, cudaStream_t stream)
{
    if (aligned(r))
        embed_rows<<<(unsigned)r->rows, COPY_BLOCK, 0, stream>>>(shape_of(r), id, table, y);
    else
        embed_rows_plain<<<(unsigned)r->rows, COPY_BLOCK, 0, stream>>>(shape_of(r), id, table, y);
    return cudaGetLastError();
}

cudaError_t dry_cuda_norm_forward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x,
                                         const dry_bf16 *weight, double eps, dry_bf16 *y, float *inverse,
                                         cudaStream_t stream)
{
    struct shape s = shape_of(r);
    int warps = norm_warps(r);
    unsigned grid = norm_grid(r->rows, warps);

    if (warps == 1)
        norm_forward<1><<<grid, NORM_BLOCK, 0, stream>>>(s, x, weight, (float)eps, y, inverse);
    else if (warps == 4)
        norm_forward<4><<<grid, NORM_BLOCK, 0, stream>>>(s, x, weight, (float)eps, y, inverse);
    else if (warps == 16)
        norm_forward<16><<<grid, 16 * 32, 0, stream>>>(s, x, weight, (float)eps, y, inverse);
    else
        norm_forward_plain<<<(unsigned)r->rows, PLAIN_BLOCK, 0, stream>>>(s, x, weight, (float)eps, y,
                                                                          inverse);
    return cudaGetLastError();
}

template <bool ADD>
static void norm_backward_any(const struct dry_cuda_rows *r, const dry_bf16 *x, const dry_bf16 *weight,
                              const dry_bf16 *dy, float eps, dry_bf16 *dx, cudaStream_t stream)
{
    struct shape s = shape_of(r);
    int warps = norm_warps(r);
    unsigned grid = norm_grid(r->useful, warps);

    if (warps == 1)
        norm_backward<1, ADD><<<grid, NORM_BLOCK, 0, stream>>>(s, x, weight, dy, eps, dx);
    else if (warps == 4)
        norm_backward<4, ADD><<<grid, NORM_BLOCK, 0, stream>>>(s, x, weight, dy, eps, dx);
    else if (warps == 16)
        norm_backward<16, ADD><<<grid, 16 * 32, 0, stream>>>(s, x, weight, dy, eps, dx);
    else
        norm_backward_plain<<<(unsigned)r->useful, PLAIN_BLOCK, 0, stream>>>(s, x, weight, dy, eps, ADD, dx);
}

cudaError_t dry_cuda_norm_backward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x,
                                          const dry_bf16 *weight, const dry_bf16 *dy, double eps, int add,
                                          dry_bf16 *dx, cudaStream_t stream)
{
    if (r->useful == 0)
        return cudaSuccess;
    if (add)
        norm_backward_any<true>(r, x, weight, dy, (float)eps, dx, stream);
    else
        norm_backward_any<false>(r, x, weight, dy, (float)eps, dx, stream);
    return cudaGetLastError();
}

static unsigned swiglu_pieces(const struct dry_cuda_rows *r)
{
    int64_t each = 8 * SWIGLU_BLOCK * SWIGLU_EACH;

    return (unsigned)((r->width + each - 1) / each);
}

cudaError_t dry_cuda_swiglu_forward_launch(const struct dry_cuda_rows *r, const dry_bf16 *x, dry_bf16 *y,
                                           cudaStream_t stream)
{
    unsigned pieces = swiglu_pieces(r);

    if (aligned(r))
        swiglu_forward<<<(unsigned)r->rows * pieces, SWIGLU_BLOCK, 0, stream>>>(shape_of(r), pieces, x, y);
    else
        swiglu_forward_plain<<<(unsigned)r->rows, PLAIN_BLOCK, 0, stream>>>(shape_of(r), x, y);
    return cudaGetLastError();
}

cudaError_t dry_cuda_swiglu_backward_launch(const struct dry_cuda_rows *r, dry_bf16 *x, dry_bf16 *y,
                                            cudaStream_t stream)
{
    unsigned pieces = swiglu_pieces(r);

    if (aligned(r))
        swiglu_backward<<<(unsigned)r->rows * pieces, SWIGLU_BLOCK, 0, stream>>>(shape_of(r), pieces, x, y);
    else
        swiglu_backward_plain<<<(unsigned)r->rows, PLAIN_BLOCK, 0, stream>>>(shape_of(r), x, y);
    return cudaGetLastError();
}
