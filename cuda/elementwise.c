/*
 * The row-wise operations of the CUDA backend: embedding, RMSNorm.
 * Owns nothing.  Must not know of records or how a kernel computes.
 */
#include "config.h"

#include "cuda/elementwise.h"

static struct dry_cuda_rows rows_of(const struct dry_cuda *c, int64_t width, int64_t x_pitch)
{
    return (struct dry_cuda_rows){.rows = c->batch.tokens,
                                  .useful = c->batch.useful,
                                  .width = width,
                                  .x_pitch = x_pitch,
                                  .y_pitch = dry_cuda_pitch(c, width)};
}

enum dry_status dry_cuda_embed(struct dry_backend *b, void *y)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_rows r = rows_of(c, c->arch->hidden, c->arch->hidden);

    if (!c->embed)
        return dry_cuda_embed_staged(c, y);
    return dry_cuda_check(c, dry_cuda_embed_launch(&r, c->id, c->embed, y, c->stream), "embed");
}

enum dry_status dry_cuda_norm_forward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                      void *y)
{
    struct dry_cuda *c = dry_cuda_of(b);
    int64_t hidden = c->arch->hidden;
    struct dry_cuda_rows r = rows_of(c, hidden, dry_cuda_pitch(c, hidden));

    return dry_cuda_check(c,
                          dry_cuda_norm_forward_launch(&r, x, c->layer[layer].norm[n], c->arch->norm_eps, y,
                                                       dry_cuda_inverse(c, layer, n), c->stream),
                          "norm_forward");
}

enum dry_status dry_cuda_norm_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                       const void *dy, void *dx)
{
    struct dry_cuda *c = dry_cuda_of(b);
    int64_t hidden = c->arch->hidden;
    struct dry_cuda_rows r = rows_of(c, hidden, dry_cuda_pitch(c, hidden));

    return dry_cuda_check(c,
                          dry_cuda_norm_backward_launch(&r, x, c->layer[layer].norm[n], dy, c->arch->norm_eps,
                                                        1, dx, c->stream),
                          "norm_backward");
}
