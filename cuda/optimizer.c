/*
 * The update: exact sums to gradients, their norm, clipping, AdamW on the masters, and the refresh of the
 * copies. Owns the order of the launches.  Must not know of ranks.
 *
 * The host waits once, at the end: the kernels look at the flags by themselves and change nothing when one is
 * raised.
 */
#include "config.h"

#include "cuda/optimizer.h"

enum { BLOCKS_PER_MULTIPROCESSOR = 16 };

/* What the host learns of an update. */
struct outcome {
    int64_t words[DRY_SUMS];
    double norm;
};

static enum dry_status fetch(struct dry_cuda *c, struct outcome *o)
{
    struct outcome *pinned = (struct outcome *)(void *)c->piece;
    enum dry_status status =
        dry_cuda_check(c,
                       cudaMemcpyAsync(pinned->words, c->sums + c->gradients, sizeof pinned->words,
                                       cudaMemcpyDeviceToHost, c->stream),
                       "cudaMemcpyAsync");

    if (!status)
        status = dry_cuda_check(c,
                                cudaMemcpyAsync(&pinned->norm, c->partial, sizeof pinned->norm,
                                                cudaMemcpyDeviceToHost, c->stream),
                                "cudaMemcpyAsync");
    if (!status)
        status = dry_cuda_check(c, cudaStreamSynchronize(c->stream), "a kernel or copy before");
    if (!status)
        *o = *pinned;
    return status;
}

enum dry_status dry_cuda_adamw(struct dry_backend *b, const struct dry_adamw *o, double *norm)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_update u = {.sums = c->sums,
                                .gradients = c->gradients,
                                .norm = c->partial,
                                .max_norm = o->max_norm,
                                .terms = dry_update_terms(o),
                                .values = c->values,
                                .m = c->m,
                                .v = c->v};
    struct outcome outcome;
    enum dry_status status =
        dry_cuda_check(c, dry_cuda_norm_launch(c->sums, c->gradients, c->partial, c->partial, c->stream),
                       "the gradients' norm");

    if (!status)
        status = dry_cuda_check(c, dry_cuda_update_launch(&u, c->sms * BLOCKS_PER_MULTIPROCESSOR, c->stream),
                                "AdamW");
    if (!status)
        status = dry_cuda_adapter_refresh(c);
    if (!status)
        status = fetch(c, &outcome);
    if (!status)
        status = dry_update_check(outcome.words, o->step);
    if (!status)
        *norm = outcome.norm;
    return status;
}
