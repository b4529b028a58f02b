/*
 * Causal attention inside each record, streamed over blocks of keys: no matrix of a whole record is ever
 * stored. Owns the block sizes and the order of sums.  Must not know of layers' weights but through rotary.c.
 *
 * Forward follows Milakov and Gimelshein 2018 (online softmax); backward recomputes the probabilities from
 * lse and uses dS = P (dP - rowsum(dO O)) as FlashAttention-2 does (Dao 2023). A task is one head of one
 * record, or a block of its rows; the heads that share a key head add up their dk and dv afterwards, in the
 * heads' order.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/vector.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

enum { KEYS_FORWARD = 256 };

_Static_assert((int)KEYS_FORWARD <= (int)DRY_CPU_COLUMNS, "scores fit the scratch");

/* One head's view of a record. */
struct head {
    const float *q, *k, *v;
    int64_t pitch; /* floats between rows of qkv */
    int64_t dim, length;
    float scale;
};

static struct head head_make(const struct dry_cpu *cpu, const float *qkv, int64_t record, int64_t h)
{
    const struct dry_arch *a = cpu->arch;
    int64_t shared = h / (a->heads / a->kv_heads), first = cpu->offset[record];
    struct head v = {.pitch = dry_group_out(a, DRY_GROUP_QKV), .dim = a->head_dim};
    const float *row = qkv + first * v.pitch;

    v.q = row + h * v.dim;
    v.k = row + (a->heads + shared) * v.dim;
    v.v = row + (a->heads + a->kv_heads + shared) * v.dim;
    v.length = cpu->offset[record + 1] - first;
    v.scale = (float)(1 / sqrt((double)v.dim));
    return v;
}

/* ds = p (ds - delta) scale, where ds holds dP. */
DRY_CPU_VECTOR static void score_gradient(const float *p, float delta, float scale, int64_t n, float *ds)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        ds[i] = p[i] * (ds[i] - delta) * scale;
}

/* Rows of one block: o [rows, D] with pitch Q, lse with pitch Hq. */
static void forward_block(struct dry_cpu *cpu, const struct head *h, int64_t first, float *o, float *lse)
{
    float most[DRY_CPU_ROWS], sum[DRY_CPU_ROWS], *s = dry_cpu_scratch(cpu);
    int64_t rows = dry_smaller(DRY_CPU_ROWS, h->length - first), width = cpu->arch->heads * h->dim;

    for (int64_t i = 0; i < rows; i++) {
        most[i] = -INFINITY;
        sum[i] = 0;
    }
    for (int64_t key = 0; key < first + rows; key += KEYS_FORWARD) {
        int64_t keys = dry_smaller(KEYS_FORWARD, first + rows - key);
        dry_cpu_gemm(0, 1, rows, keys, h->dim, h->scale, h->q + first * h->pitch, h->pitch,
                     h->k + key * h->pitch, h->pitch, 0, s, keys);
        for (int64_t i = 0; i < rows; i++) {
            int64_t seen = dry_smaller(keys, first + i + 1 - key); /* keys that the row may look at */
            float *row = s + i * keys;
            if (seen > 0) {
                float m = dry_cpu_largest(row, seen, most[i]), shrink = dry_cpu_exp(most[i] - m);
                sum[i] = sum[i] * shrink + dry_cpu_exponentials(row, seen, m);
                if (key && shrink != 1.0f)
                    dry_cpu_multiply(o + i * width, h->dim, shrink);
                most[i] = m;
            } else {
                seen = 0;
            }
            memset(row + seen, 0, dry_cpu_bytes(1, keys - seen));
        }
        dry_cpu_gemm(0, 0, rows, h->dim, keys, 1, s, keys, h->v + key * h->pitch, h->pitch, key ? 1 : 0, o,
                     width);
    }
    for (int64_t i = 0; i < rows; i++) {
        dry_cpu_multiply(o + i * width, h->dim, 1.0f / sum[i]);
        lse[i * cpu->arch->heads] = most[i] + logf(sum[i]);
    }
}

enum dry_status dry_cpu_attention_forward(struct dry_backend *b, int64_t layer, void *qkv, void *raw, void *o,
                                          float *lse, void *scratch)
{
    (void)scratch;
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t heads = cpu->arch->heads, dim = cpu->arch->head_dim, tasks = cpu->blocks * heads;
    float *out = o;

    dry_cpu_rotary_forward(cpu, &cpu->layer[layer], qkv, raw);
    /* Last blocks of records, which see most keys, first. */
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (int64_t k = 0; k < tasks; k++) {
        struct dry_cpu_block block = cpu->block[cpu->blocks - 1 - k / heads];
        struct head h = head_make(cpu, qkv, block.record, k % heads);
        int64_t row = cpu->offset[block.record] + block.first;
        forward_block(cpu, &h, block.first, out + (row * heads + k % heads) * dim,
                      lse + row * heads + k % heads);
    }
    dry_cpu_zero_padding(cpu, out, heads * dim);
    dry_cpu_zero_padding(cpu, lse, heads);
    return DRY_OK;
}

/* Where a head of a record puts its gradients. */
struct head_gradient {
    const float *o, *d_o, *lse;
    float *dq;      /* pitch as qkv */
    float *dk, *dv; /* pitch Q */
};

/* Probabilities of rows against keys into p, and dS into ds. */
static void backward_scores(const struct head *h, const struct head_gradient *g, int64_t first, int64_t rows,
                            int64_t key, int64_t keys, const float *delta, int64_t heads, float *p, float *ds)
{
    int64_t width = heads * h->dim;

    dry_cpu_gemm(0, 1, rows, keys, h->dim, h->scale, h->q + first * h->pitch, h->pitch, h->k + key * h->pitch,
                 h->pitch, 0, p, keys);
    dry_cpu_gemm(0, 1, rows, keys, h->dim, 1, g->d_o + first * width, width, h->v + key * h->pitch, h->pitch,
                 0, ds, keys);
    for (int64_t i = 0; i < rows; i++) {
        int64_t seen = dry_smaller(keys, first + i + 1 - key);
        dry_cpu_exponentials(p + i * keys, seen, g->lse[(first + i) * heads]);
        score_gradient(p + i * keys, delta[i], h->scale, seen, ds + i * keys);
        memset(p + i * keys + seen, 0, dry_cpu_bytes(1, keys - seen));
        memset(ds + i * keys + seen, 0, dry_cpu_bytes(1, keys - seen));
    }
}

/* dq, dk and dv of one head of one record. Blocks of rows and keys are alike, so the first rows that reach a
 * block of keys are its own, and every row of a block sees its first key. */
static void backward_head(struct dry_cpu *cpu, const struct head *h, const struct head_gradient *g)
{
    float delta[DRY_CPU_ROWS], *p = dry_cpu_scratch(cpu), *ds = p + DRY_CPU_ROWS * DRY_CPU_ROWS;
    int64_t heads = cpu->arch->heads, width = heads * h->dim;

    for (int64_t first = 0; first < h->length; first += DRY_CPU_ROWS) {
        int64_t rows = dry_smaller(DRY_CPU_ROWS, h->length - first);
        for (int64_t i = 0; i < rows; i++)
            delta[i] = dry_cpu_dot(g->o + (first + i) * width, g->d_o + (first + i) * width, h->dim);
        for (int64_t key = 0; key <= first; key += DRY_CPU_ROWS) {
            int64_t keys = dry_smaller(DRY_CPU_ROWS, h->length - key);
            float more = key < first ? 1 : 0;
            backward_scores(h, g, first, rows, key, keys, delta, heads, p, ds);
            dry_cpu_gemm(1, 0, keys, h->dim, rows, 1, p, keys, g->d_o + first * width, width, more,
                         g->dv + key * width, width);
            dry_cpu_gemm(1, 0, keys, h->dim, rows, 1, ds, keys, h->q + first * h->pitch, h->pitch, more,
                         g->dk + key * width, width);
            dry_cpu_gemm(0, 0, rows, h->dim, keys, 1, ds, keys, h->k + key * h->pitch, h->pitch, key ? 1 : 0,
                         g->dq + first * h->pitch, h->pitch);
        }
    }
}

/* dk and dv of the heads that share a key head, added up in order. */
static void gather_keys(struct dry_cpu *cpu, float *dqkv)
{
    const struct dry_arch *a = cpu->arch;
    int64_t dim = a->head_dim, pitch = dry_group_out(a, DRY_GROUP_QKV), sharing = a->heads / a->kv_heads;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++)
        for (int64_t k = 0; k < a->kv_heads; k++) {
            float *dk = dqkv + t * pitch + (a->heads + k) * dim, *dv = dk + a->kv_heads * dim;
            const float *from_k = cpu->dk + (t * a->heads + k * sharing) * dim;
            const float *from_v = cpu->dv + (t * a->heads + k * sharing) * dim;
            memcpy(dk, from_k, dry_cpu_bytes(1, dim));
            memcpy(dv, from_v, dry_cpu_bytes(1, dim));
            for (int64_t i = dim; i < sharing * dim; i++) {
                dk[i % dim] += from_k[i];
                dv[i % dim] += from_v[i];
            }
        }
}

enum dry_status dry_cpu_attention_backward(struct dry_backend *b, int64_t layer, const void *qkv,
                                           const void *raw, const void *o, const float *lse, const void *d_o,
                                           void *dqkv, void *scratch)
{
    (void)scratch;
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t heads = cpu->arch->heads, dim = cpu->arch->head_dim, tasks = cpu->batch.records * heads;
    int64_t pitch = dry_group_out(cpu->arch, DRY_GROUP_QKV);
    const float *out = o, *d_out = d_o;
    float *to = dqkv;

#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (int64_t k = 0; k < tasks; k++) {
        int64_t record = k / heads, head = k % heads, row = cpu->offset[record];
        struct head h = head_make(cpu, qkv, record, head);
        int64_t at = (row * heads + head) * dim;
        struct head_gradient g = {
            out + at,     d_out + at,  lse + row * heads + head, to + row * pitch + head * dim,
            cpu->dk + at, cpu->dv + at};
        backward_head(cpu, &h, &g);
    }
    gather_keys(cpu, to);
    dry_cpu_rotary_backward(cpu, &cpu->layer[layer], raw, to);
    dry_cpu_zero_padding(cpu, to, pitch);
    return DRY_OK;
}
