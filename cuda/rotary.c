/*
 * The tables of rotary embedding: cosine and sine of every position and frequency, on the GPU.
 * Owns their content.  Must not know how they are used.
 *
 * The host computes them, once: angles are float32 products of float32 factors as in Transformers, their
 * cosine and sine are double's, so that they are the CPU backend's to the bit.
 */
#include "config.h"

#include "cuda/rotary.h"

#include "base/memory.h"

#include <math.h>

enum dry_status dry_cuda_rotary_tables(struct dry_cuda *c)
{
    int64_t half = c->arch->head_dim / 2, n = c->limits.longest * half;
    double *inverse = dry_alloc((size_t)half, sizeof *inverse, "rotary frequencies");
    float *table = dry_alloc((size_t)n, 2 * sizeof *table, "rotary tables");
    enum dry_status status = inverse && table ? DRY_OK : DRY_ERR_MEMORY;
    size_t bytes = (size_t)n * sizeof *table;

    if (status)
        goto out;
    dry_arch_inv_freq(c->arch, inverse);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < c->limits.longest; p++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)p * (float)inverse[i];
            table[p * half + i] = (float)cos((double)angle);
            table[n + p * half + i] = (float)sin((double)angle);
        }
    status = dry_cuda_check(c, cudaMemcpyAsync(c->cosine, table, bytes, cudaMemcpyHostToDevice, c->stream),
                            "cudaMemcpyAsync");
    if (!status)
        status =
            dry_cuda_check(c, cudaMemcpyAsync(c->sine, table + n, bytes, cudaMemcpyHostToDevice, c->stream),
                           "cudaMemcpyAsync");
    if (!status)
        status = dry_cuda_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
out:
    dry_free(table);
    dry_free(inverse);
    return status;
}
