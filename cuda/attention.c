/*
 * The attention operation on the GPU: norm and rotation of q and k, then causal attention inside each record
 * by cuDNN's plans or by drydock's own kernels; which of them is settled when the model is loaded. Owns the
 * workspace's split for the own kernels.  Must not know how either computes.
 */
#include "config.h"

#include "cuda/attention.h"
#include "cuda/rotary.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 256 };

/* Row sums, in front of the parts. */
static size_t delta_bytes(const struct dry_cuda *c)
{
    size_t bytes = (size_t)c->limits.tokens * (size_t)c->arch->heads * sizeof(float);

    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t own_bytes(const struct dry_cuda *c)
{
    const struct dry_arch *a = c->arch;
    size_t part = (size_t)c->limits.tokens * (size_t)(a->heads * a->head_dim) * sizeof(float);

    if (!c->limits.training)
        return 0;
    return delta_bytes(c) + (a->heads == a->kv_heads ? 0 : 2 * part);
}

size_t dry_cuda_attention_bytes(const struct dry_cuda *c)
{
    size_t own = own_bytes(c), fused = dry_cuda_fused_bytes(c);

    return own > fused ? own : fused;
}

int64_t dry_cuda_attention_words(const struct dry_cuda *c)
{
    return dry_cuda_fused_words(c);
}

enum dry_status dry_cuda_attention_create(struct dry_cuda *c)
{
    size_t used = strlen(c->description);
    enum dry_status status;

    if (c->arch->head_dim > DRY_CUDA_ATTENTION_DIM) {
        dry_error("%s: head_dim %" PRId64
                  ": the CUDA backend's attention takes up to %d; --backend cpu takes any",
                  c->base->dir, c->arch->head_dim, DRY_CUDA_ATTENTION_DIM);
        return DRY_ERR_INPUT;
    }
    status = dry_cuda_fused_create(c, &c->attention);
    if (!status)
        snprintf(c->description + used, sizeof c->description - used, ", attention by %s",
                 c->attention ? dry_cuda_fused_name(c->attention) : "own kernels");
    return status;
}

void dry_cuda_attention_destroy(struct dry_cuda *c)
{
    dry_cuda_fused_destroy(c->attention);
    c->attention = NULL;
}

enum dry_status dry_cuda_attention_batch(struct dry_cuda *c, const struct dry_batch *batch, int32_t *words)
{
    return c->attention ? dry_cuda_fused_batch(c, batch, words) : DRY_OK;
}

/* All records of the micro-batch. */
static struct dry_cuda_attention_call call_make(struct dry_cuda *c, const void *qkv, const void *o,
                                                const float *lse, void *scratch)
{
    const struct dry_arch *a = c->arch;

    c->attention_workspace = scratch;
    return (struct dry_cuda_attention_call){
        .first = c->offset,
        .last = c->offset + 1,
        .records = c->batch.records,
        .longest = c->batch.longest,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .dim = a->head_dim,
        .pitch = dry_cuda_pitch(c, (a->heads + 2 * a->kv_heads) * a->head_dim),
        .pitch_o = dry_cuda_pitch(c, a->heads * a->head_dim),
        .scale = (float)(1 / sqrt((double)a->head_dim)),
        .qkv = qkv,
        .o = (dry_bf16 *)o,
        .lse = (float *)lse,
        .delta = c->attention_workspace,
        .part = (float *)(void *)((char *)c->attention_workspace + delta_bytes(c)),
        .tokens = c->batch.tokens,
    };
}

static enum dry_status own_forward(struct dry_cuda *c, const struct dry_cuda_attention_call *k)
{
    return dry_cuda_check(c, dry_cuda_attention_forward_launch(k, c->stream), "attention, forward,");
}

static enum dry_status own_backward(struct dry_cuda *c, const struct dry_cuda_attention_call *k)
{
    cudaError_t e = dry_cuda_attention_delta_launch(k, c->stream);

    if (!e)
        e = dry_cuda_attention_query_launch(k, c->stream);
    if (!e)
        e = dry_cuda_attention_key_launch(k, c->stream);
    return dry_cuda_check(c, e, "attention, backward,");
}

/* The micro-batch by its groups, each by what it is for. */
static enum dry_status groups_run(struct dry_cuda *c, const struct dry_cuda_attention_call *k, int backward)
{
    const struct dry_cuda_attention_group *group;
    enum dry_status status = DRY_OK;
    int64_t groups;

    if (!c->attention)
        return backward ? own_backward(c, k) : own_forward(c, k);
    groups = dry_cuda_fused_groups(c, &group);
    for (int64_t i = 0; i < groups && !status; i++) {
        const struct dry_cuda_attention_group *g = &group[i];
        struct dry_cuda_attention_call some = *k;
        if (g->fused) {
            status = backward ? dry_cuda_fused_backward(c, g, k) : dry_cuda_fused_forward(c, g, k);
            continue;
        }
        some.first = c->sequences + g->words;
        some.last = some.first + g->records;
        some.records = g->records;
        some.longest = g->longest;
        status = backward ? own_backward(c, &some) : own_forward(c, &some);
    }
    return status;
}

/* Rows behind the records of a buffer [T, width]. */
static enum dry_status zero_padding(struct dry_cuda *c, dry_bf16 *x, int64_t width, int64_t pitch)
{
    size_t rows = (size_t)(c->batch.tokens - c->batch.useful);

    if (rows == 0)
        return DRY_OK;
    return dry_cuda_check(c,
                          cudaMemset2DAsync(x + c->batch.useful * pitch, (size_t)pitch * sizeof *x, 0,
                                            (size_t)width * sizeof *x, rows, c->stream),
                          "cudaMemset2DAsync");
}

enum dry_status dry_cuda_attention_forward(struct dry_backend *b, int64_t layer, void *qkv, void *raw,
                                           void *o, float *lse, void *scratch)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_attention_call k = call_make(c, qkv, o, lse, scratch);
    enum dry_status status =
        dry_cuda_check(c, dry_cuda_rotary_forward_launch(c, &c->layer[layer], qkv, raw), "rotary embedding");

    if (!status)
        status = groups_run(c, &k, 0);
    return status ? status : zero_padding(c, o, k.heads * k.dim, k.pitch_o);
}

enum dry_status dry_cuda_attention_backward(struct dry_backend *b, int64_t layer, const void *qkv,
                                            const void *raw, const void *o, const float *lse, const void *d_o,
                                            void *dqkv, void *scratch)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_attention_call k = call_make(c, qkv, o, lse, scratch);
    enum dry_status status;

    k.d_o = d_o;
    k.dqkv = dqkv;
    status = groups_run(c, &k, 1);
    if (!status)
        status = dry_cuda_check(c, dry_cuda_rotary_backward_launch(c, &c->layer[layer], raw, dqkv),
                                "rotary embedding, backward,");
    return status ? status : zero_padding(c, dqkv, (k.heads + 2 * k.kv_heads) * k.dim, k.pitch);
}
