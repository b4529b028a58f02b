/*
 * In place of attention_cudnn.c in a build without cuDNN: there are no plans, the own kernels do all.
 * Owns nothing.  Must not know how attention is computed.
 */
#include "config.h"

#include "cuda/attention.h"

#include <assert.h>

size_t dry_cuda_fused_bytes(const struct dry_cuda *c)
{
    (void)c;
    return 0;
}

int64_t dry_cuda_fused_words(const struct dry_cuda *c)
{
    (void)c;
    return 0;
}

enum dry_status dry_cuda_fused_create(struct dry_cuda *c, struct dry_cuda_attention **a)
{
    (void)c;
    *a = NULL;
    return DRY_OK;
}

void dry_cuda_fused_destroy(struct dry_cuda_attention *a)
{
    assert(!a);
    (void)a;
}

const char *dry_cuda_fused_name(const struct dry_cuda_attention *a)
{
    (void)a;
    return NULL;
}

enum dry_status dry_cuda_fused_batch(struct dry_cuda *c, const struct dry_batch *batch, int32_t *words)
{
    (void)c;
    (void)batch;
    (void)words;
    return DRY_OK;
}

int64_t dry_cuda_fused_groups(const struct dry_cuda *c, const struct dry_cuda_attention_group **group)
{
    (void)c;
    *group = NULL;
    return 0;
}

enum dry_status dry_cuda_fused_forward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                       const struct dry_cuda_attention_call *k)
{
    (void)c;
    (void)g;
    (void)k;
    return DRY_ERR_DEVICE;
}

enum dry_status dry_cuda_fused_backward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                        const struct dry_cuda_attention_call *k)
{
    (void)c;
    (void)g;
    (void)k;
    return DRY_ERR_DEVICE;
}
