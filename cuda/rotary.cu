/*
 * Kernels for q and k between the linear and attention: RMSNorm per head (Qwen3), rotary embedding, and their
 * gradient. Owns nothing.  Must not know of the attention itself.
 *
 * Rotary as Transformers has it ("rotate half"): y[i] = x[i] cos - x[i + D/2] sin; y[i + D/2] = x[i + D/2]
 * cos + x[i] sin. Norm and rotation are float32 throughout and are rounded to bfloat16 once.  A head is in a
 * few neighbouring lanes of one warp, eight elements of either half in each; where D / 2 is no multiple of 8,
 * a warp takes it element by element.
 */
#include "cuda/rotary.h"

#include "cuda/fixed.cuh"

enum { ROTARY_BLOCK = 256 };

/* As kernels take it. There are fewer than 2^32 heads: their elements would not fit into any memory. */
struct heads {
    unsigned rows, q_heads, heads; /* useful rows; q's heads, then k's */
    int half, lanes;               /* D / 2; lanes per head, a power of two */
    int64_t pitch;
    const int32_t *position;
    const float *cosine, *sine;
    const dry_bf16 *q_norm, *k_norm;
    float eps;
};

/* A head's place. */
struct place {
    int64_t at, raw;        /* its first element in qkv, and in raw */
    int64_t angle;          /* of its position's angles in the tables */
    const dry_bf16 *weight; /* of its norm, or NULL */
};

static __device__ __forceinline__ struct place place_of(const struct heads &h, unsigned unit)
{
    unsigned row = unit / h.heads, head = unit % h.heads;

    return {row * h.pitch + (int64_t)head * 2 * h.half, (int64_t)unit * 2 * h.half,
            h.position[row] * (int64_t)h.half, head < h.q_heads ? h.q_norm : h.k_norm};
}

static __device__ __forceinline__ uint4 load(const dry_bf16 *at)
{
    return *reinterpret_cast<const uint4 *>(at);
}

static __device__ __forceinline__ void store(dry_bf16 *at, uint4 w)
{
    *reinterpret_cast<uint4 *>(at) = w;
}

static __device__ __forceinline__ dry_cuda_eight load_floats(const float *at)
{
    float4 a = reinterpret_cast<const float4 *>(at)[0], b = reinterpret_cast<const float4 *>(at)[1];

    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

/* The sum over a head's lanes, the same bits in all of them. All lanes of the warp take part. */
static __device__ __forceinline__ float head_sum(float x, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

static __device__ __forceinline__ float inverse_rms(float squares, const struct heads &h)
{
    return rsqrtf(squares / (float)(2 * h.half) + h.eps);
}

static __device__ __forceinline__ void rotate(float *a, float *b, float cosine, float sine)
{
    float x = *a, y = *b;

    *a = x * cosine - y * sine;
    *b = y * cosine + x * sine;
}

/* q and k are read and written once: 4 (Q + K) bytes a row, with raw 6 (Q + K). */
template <bool NORM>
__global__ static void __launch_bounds__(ROTARY_BLOCK)
    rotary_forward(struct heads h, dry_bf16 *qkv, dry_bf16 *raw)
{
    unsigned thread = blockIdx.x * ROTARY_BLOCK + threadIdx.x, unit = thread / (unsigned)h.lanes;
    int i = (int)(thread % (unsigned)h.lanes) * 8;
    bool active = unit < h.rows * h.heads && i < h.half;
    struct place p = place_of(h, active ? unit : 0);
    dry_bf16 *at = qkv + p.at + i;
    dry_cuda_eight a = {{0}}, b = {{0}};

    if (active) {
        uint4 first = load(at), second = load(at + h.half);
        a = dry_cuda_unpack(first);
        b = dry_cuda_unpack(second);
        if (NORM && raw) {
            store(raw + p.raw + i, first);
            store(raw + p.raw + i + h.half, second);
        }
    }
    if (NORM) {
        float squares = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            squares += a.v[k] * a.v[k] + b.v[k] * b.v[k];
        float r = inverse_rms(head_sum(squares, h.lanes), h);
        if (active) {
            dry_cuda_eight u = dry_cuda_unpack(load(p.weight + i)),
                           v = dry_cuda_unpack(load(p.weight + i + h.half));
#pragma unroll
            for (int k = 0; k < 8; k++) {
                a.v[k] = u.v[k] * (a.v[k] * r);
                b.v[k] = v.v[k] * (b.v[k] * r);
            }
        }
    }
    if (!active)
        return;
    dry_cuda_eight cosine = load_floats(h.cosine + p.angle + i), sine = load_floats(h.sine + p.angle + i);
#pragma unroll
    for (int k = 0; k < 8; k++)
        rotate(&a.v[k], &b.v[k], cosine.v[k], sine.v[k]);
    store(at, dry_cuda_pack(a));
    store(at + h.half, dry_cuda_pack(b));
}

/* With g = d weight and r = 1 / rms of x (raw): dx = r g - r^3 sum(x g) / D x. 4 (Q + K) bytes a row, with
 * norm 6. */
template <bool NORM>
__global__ static void __launch_bounds__(ROTARY_BLOCK)
    rotary_backward(struct heads h, const dry_bf16 *__restrict__ raw, dry_bf16 *dqkv)
{
    unsigned thread = blockIdx.x * ROTARY_BLOCK + threadIdx.x, unit = thread / (unsigned)h.lanes;
    int i = (int)(thread % (unsigned)h.lanes) * 8;
    bool active = unit < h.rows * h.heads && i < h.half;
    struct place p = place_of(h, active ? unit : 0);
    dry_bf16 *at = dqkv + p.at + i;
    dry_cuda_eight a = {{0}}, b = {{0}}, x = {{0}}, y = {{0}};

    if (active) {
        a = dry_cuda_unpack(load(at));
        b = dry_cuda_unpack(load(at + h.half));
        dry_cuda_eight cosine = load_floats(h.cosine + p.angle + i), sine = load_floats(h.sine + p.angle + i);
#pragma unroll
        for (int k = 0; k < 8; k++)
            rotate(&a.v[k], &b.v[k], cosine.v[k], -sine.v[k]);
    }
    if (NORM) {
        float squares = 0, products = 0;
        if (active) {
            x = dry_cuda_unpack(load(raw + p.raw + i));
            y = dry_cuda_unpack(load(raw + p.raw + i + h.half));
            dry_cuda_eight u = dry_cuda_unpack(load(p.weight + i)),
                           v = dry_cuda_unpack(load(p.weight + i + h.half));
#pragma unroll
            for (int k = 0; k < 8; k++) {
                a.v[k] *= u.v[k];
                b.v[k] *= v.v[k];
                squares += x.v[k] * x.v[k] + y.v[k] * y.v[k];
                products += x.v[k] * a.v[k] + y.v[k] * b.v[k];
            }
        }
        float r = inverse_rms(head_sum(squares, h.lanes), h);
        float c = r * r * r * (head_sum(products, h.lanes) / (float)(2 * h.half));
#pragma unroll
        for (int k = 0; k < 8; k++) {
            a.v[k] = r * a.v[k] - c * x.v[k];
            b.v[k] = r * b.v[k] - c * y.v[k];
        }
    }
    if (!active)
        return;
    store(at, dry_cuda_pack(a));
    store(at + h.half, dry_cuda_pack(b));
}

/* Any even D: a warp per head; lanes take every 32nd pair. */
__global__ static void __launch_bounds__(ROTARY_BLOCK)
    rotary_forward_plain(struct heads h, dry_bf16 *qkv, dry_bf16 *raw)
{
    unsigned unit = blockIdx.x * (ROTARY_BLOCK / 32) + threadIdx.x / 32;
    int lane = (int)(threadIdx.x % 32);
    float r = 1;

    if (unit >= h.rows * h.heads)
        return;
    struct place p = place_of(h, unit);
    dry_bf16 *at = qkv + p.at;
    if (p.weight) {
        float squares = 0;
        for (int i = lane; i < 2 * h.half; i += 32) {
            float v = dry_cuda_float(at[i]);
            squares += v * v;
            if (raw)
                raw[p.raw + i] = at[i];
        }
        r = inverse_rms(head_sum(squares, 32), h);
    }
    for (int i = lane; i < h.half; i += 32) {
        float a = dry_cuda_float(at[i]), b = dry_cuda_float(at[i + h.half]);
        if (p.weight) {
            a = dry_cuda_float(p.weight[i]) * (a * r);
            b = dry_cuda_float(p.weight[i + h.half]) * (b * r);
        }
        rotate(&a, &b, h.cosine[p.angle + i], h.sine[p.angle + i]);
        at[i] = dry_cuda_bits(a);
        at[i + h.half] = dry_cuda_bits(b);
    }
}

/* The gradient of a pair before rotation, times the norm's weight. */
static __device__ __forceinline__ void pair_backward(const struct heads &h, const struct place &p,
                                                     const dry_bf16 *at, int i, float *a, float *b)
{
    *a = dry_cuda_float(at[i]);
    *b = dry_cuda_float(at[i + h.half]);
    rotate(a, b, h.cosine[p.angle + i], -h.sine[p.angle + i]);
    if (p.weight) {
        *a *= dry_cuda_float(p.weight[i]);
        *b *= dry_cuda_float(p.weight[i + h.half]);
    }
}

__global__ static void __launch_bounds__(ROTARY_BLOCK)
    rotary_backward_plain(struct heads h, const dry_bf16 *raw, dry_bf16 *dqkv)
{
    unsigned unit = blockIdx.x * (ROTARY_BLOCK / 32) + threadIdx.x / 32;
    int lane = (int)(threadIdx.x % 32);
    float r = 1, c = 0, a, b;

    if (unit >= h.rows * h.heads)
        return;
    struct place p = place_of(h, unit);
    dry_bf16 *at = dqkv + p.at;
    if (p.weight) {
        float squares = 0, products = 0;
        for (int i = lane; i < h.half; i += 32) {
            float x = dry_cuda_float(raw[p.raw + i]), y = dry_cuda_float(raw[p.raw + i + h.half]);
            pair_backward(h, p, at, i, &a, &b);
            squares += x * x + y * y;
            products += x * a + y * b;
        }
        r = inverse_rms(head_sum(squares, 32), h);
        c = r * r * r * (head_sum(products, 32) / (float)(2 * h.half));
    }
    for (int i = lane; i < h.half; i += 32) {
        pair_backward(h, p, at, i, &a, &b);
        if (p.weight) {
            a = r * a - c * dry_cuda_float(raw[p.raw + i]);
            b = r * b - c * dry_cuda_float(raw[p.raw + i + h.half]);
        }
        at[i] = dry_cuda_bits(a);
        at[i + h.half] = dry_cuda_bits(b);
    }
}

/* lanes 0: no vectors; the plain kernels take it. */
static struct heads heads_of(const struct dry_cuda *c, const struct dry_cuda_layer *w)
{
    const struct dry_arch *a = c->arch;
    struct heads h = {};

    h.rows = (unsigned)c->batch.useful;
    h.q_heads = (unsigned)a->heads;
    h.heads = (unsigned)(a->heads + a->kv_heads);
    h.half = (int)(a->head_dim / 2);
    h.pitch = dry_cuda_pitch(c, (a->heads + 2 * a->kv_heads) * a->head_dim);
    h.position = c->position;
    h.cosine = c->cosine;
    h.sine = c->sine;
    h.q_norm = w->q_norm;
    h.k_norm = w->k_norm;
    h.eps = (float)a->norm_eps;
    if (h.half % 8 == 0 && h.half <= 32 * 8 && h.pitch % 8 == 0)
        for (h.lanes = 1; h.lanes * 8 < h.half;)
            h.lanes *= 2;
    return h;
}

static unsigned grid_of(const struct heads &h)
{
    int64_t threads = (int64_t)h.rows * h.heads * (h.lanes ? h.lanes : 32);

    return (unsigned)((threads + ROTARY_BLOCK - 1) / ROTARY_BLOCK);
}

cudaError_t dry_cuda_rotary_forward_launch(const struct dry_cuda *c, const struct dry_cuda_layer *w,
                                           dry_bf16 *qkv, dry_bf16 *raw)
{
    struct heads h = heads_of(c, w);

    if (h.rows == 0)
        return cudaSuccess;
    if (!h.lanes)
        rotary_forward_plain<<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, qkv, raw);
    else if (c->arch->qk_norm)
        rotary_forward<true><<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, qkv, raw);
    else
        rotary_forward<false><<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, qkv, raw);
    return cudaGetLastError();
}

cudaError_t dry_cuda_rotary_backward_launch(const struct dry_cuda *c, const struct dry_cuda_layer *w,
                                            const dry_bf16 *raw, dry_bf16 *dqkv)
{
    struct heads h = heads_of(c, w);

    if (h.rows == 0)
        return cudaSuccess;
    if (!h.lanes)
        rotary_backward_plain<<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, raw, dqkv);
    else if (c->arch->qk_norm)
        rotary_backward<true><<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, raw, dqkv);
    else
        rotary_backward<false><<<grid_of(h), ROTARY_BLOCK, 0, c->stream>>>(h, raw, dqkv);
    return cudaGetLastError();
}
