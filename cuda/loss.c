/*
 * The loss head: final norm, logits and -log p on supervised rows only, in chunks, with the gradient at once.
 * Owns the chunks.  Must not know what made the hidden rows.
 *
 * Products of a chunk have whole tiles of rows: zeros fill the last one up, so that few shapes occur.
 */
#include "config.h"

#include "cuda/loss.h"

#include "cuda/elementwise.h"

enum { ROWS_MULTIPLE = 128 };

/* Rows of the chunk's products. */
static int64_t product_rows(const struct dry_cuda *c, int64_t rows)
{
    int64_t whole = (rows + ROWS_MULTIPLE - 1) / ROWS_MULTIPLE * ROWS_MULTIPLE;

    return whole < c->chunk ? whole : c->chunk;
}

/* dx's rows of the chunk from the gradient of its logits. The product takes a whole chunk: its time is that
 * of one tile's walk over the vocabulary, however many tiles there are, and the rows of one chunk fill the
 * chip once.  What the rows behind the last one hold reaches no other row. */
static enum dry_status chunk_backward(struct dry_cuda *c, const struct dry_cuda_rows *r, const dry_bf16 *x,
                                      dry_bf16 *dx)
{
    int64_t hidden = c->arch->hidden;
    enum dry_status status = dry_cuda_gemm(c, 0, r->rows <= ROWS_MULTIPLE ? ROWS_MULTIPLE : c->chunk, hidden,
                                           c->arch->vocab, c->logits, dry_cuda_logits_pitch(c), c->head,
                                           hidden, 0, NULL, 0, NULL, c->dhidden, hidden);

    return status ? status
                  : dry_cuda_check(c,
                                   dry_cuda_norm_backward_launch(r, x, c->norm, c->dhidden, c->arch->norm_eps,
                                                                 0, dx, c->stream),
                                   "the final norm's backward");
}

/* Rows first .. first + rows - 1 of the supervised ones. */
static enum dry_status chunk_loss(struct dry_cuda *c, int64_t first, int64_t rows, const dry_bf16 *x,
                                  dry_bf16 *dx)
{
    int64_t hidden = c->arch->hidden, vocab = c->arch->vocab, pitch = dry_cuda_logits_pitch(c);
    struct dry_cuda_rows r = {.rows = product_rows(c, rows),
                              .useful = rows,
                              .width = hidden,
                              .x_pitch = dry_cuda_pitch(c, hidden),
                              .y_pitch = hidden,
                              .index = c->row + first};
    enum dry_status status = dry_cuda_check(
        c, dry_cuda_norm_forward_launch(&r, x, c->norm, c->arch->norm_eps, c->hidden, NULL, c->stream),
        "the final norm");

    if (!status)
        status = dry_cuda_gemm(c, 1, r.rows, vocab, hidden, c->hidden, hidden, c->head, hidden, 0, NULL, 0,
                               NULL, c->logits, pitch);
    if (!status)
        status = dry_cuda_check(c,
                                dry_cuda_loss_rows_launch(c->logits, rows, vocab, pitch, c->label + first,
                                                          dx != NULL, c->sums + c->gradients, c->stream),
                                "loss_rows");
    return status || !dx ? status : chunk_backward(c, &r, x, dx);
}

enum dry_status dry_cuda_loss(struct dry_backend *b, const void *x, void *dx, void *scratch)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t bytes = (size_t)c->batch.tokens * (size_t)dry_cuda_pitch(c, c->arch->hidden) * sizeof(dry_bf16);
    enum dry_status status = DRY_OK;

    c->logits = scratch;
    if (dx)
        status = dry_cuda_check(c, cudaMemsetAsync(dx, 0, bytes, c->stream), "cudaMemsetAsync");
    for (int64_t first = 0; first < c->batch.rows && !status; first += c->chunk) {
        int64_t left = c->batch.rows - first;
        status = chunk_loss(c, first, left < c->chunk ? left : c->chunk, x, dx);
    }
    return status;
}
