/*
 * Exact sums: fixed-point int64 accumulators of gradients, loss and tokens, and the update that reads them.
 * Owns the rounding, the range and the order in which the norm is added up.  Must not know of ranks.
 */
#include "config.h"

#include "compute/cpu/cpu.h"

#include "compute/update.h"

#include <math.h>
#include <string.h>

int64_t *dry_cpu_words(struct dry_cpu *cpu)
{
    return cpu->sums + cpu->gradients;
}

int64_t dry_cpu_sum_add(int64_t *sum, double value, double scale, int64_t limit)
{
    double v = value * scale;

    if (!isfinite(v))
        return DRY_FLAG_NOT_FINITE;
    if (!(fabs(v) < (double)limit))
        return DRY_FLAG_RANGE;
    int64_t total = *sum + llrint(v); /* |sum| and |v| are below 2^61 */
    if (total >= limit || total <= -limit)
        return DRY_FLAG_RANGE;
    *sum = total;
    return 0;
}

int64_t dry_cpu_gradient_add(const float *g, int64_t rows, int64_t columns, int64_t ld, int64_t *sum,
                             int64_t stride)
{
    const double scale = ldexp(1, DRY_GRAD_BITS);
    int64_t flags = 0;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            flags |= dry_cpu_sum_add(&sum[i * stride + j], (double)g[i * ld + j], scale, DRY_GRAD_LIMIT);
    return flags;
}

enum dry_status dry_cpu_sums_clear(struct dry_backend *b)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    memset(cpu->sums, 0, ((size_t)cpu->gradients + DRY_SUMS) * sizeof *cpu->sums);
    return DRY_OK;
}

enum dry_status dry_cpu_sums_block(struct dry_backend *b, int64_t **block, size_t *count)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    *block = cpu->sums;
    *count = (size_t)cpu->gradients + DRY_SUMS;
    return DRY_OK;
}

enum dry_status dry_cpu_sums_fetch(struct dry_backend *b, size_t first, int64_t **host, size_t *count)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    *host = cpu->sums + first;
    *count = (size_t)cpu->gradients + DRY_SUMS - first;
    return DRY_OK;
}

enum dry_status dry_cpu_sums_store(struct dry_backend *b, size_t first, size_t count)
{
    (void)b;
    (void)first;
    (void)count;
    return DRY_OK;
}

enum dry_status dry_cpu_sums_read(struct dry_backend *b, int64_t words[DRY_SUMS])
{
    memcpy(words, dry_cpu_words(dry_cpu_of(b)), DRY_SUMS * sizeof *words);
    return DRY_OK;
}

enum dry_status dry_cpu_gradient_get(struct dry_backend *b, float *gradient)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    for (int64_t i = 0; i < cpu->gradients; i++)
        gradient[i] = (float)ldexp((double)cpu->sums[i], -DRY_GRAD_BITS);
    return DRY_OK;
}

static double gradient_norm(struct dry_cpu *cpu, double scale)
{
    int64_t blocks = (cpu->gradients + DRY_CPU_NORM_BLOCK - 1) / DRY_CPU_NORM_BLOCK;
    double total = 0;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t k = 0; k < blocks; k++) {
        int64_t end =
            (k + 1) * DRY_CPU_NORM_BLOCK < cpu->gradients ? (k + 1) * DRY_CPU_NORM_BLOCK : cpu->gradients;
        double sum = 0;
        for (int64_t i = k * DRY_CPU_NORM_BLOCK; i < end; i++) {
            double g = (double)cpu->sums[i] * scale;
            sum += g * g;
        }
        cpu->partial[k] = sum;
    }
    for (int64_t k = 0; k < blocks; k++)
        total += cpu->partial[k];
    return sqrt(total);
}

enum dry_status dry_cpu_adamw(struct dry_backend *b, const struct dry_adamw *o, double *norm)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    const int64_t *words = dry_cpu_words(cpu);
    enum dry_status status = dry_update_check(words, o->step);

    if (status)
        return status;
    double scale = ldexp(1, -DRY_GRAD_BITS) / (double)words[DRY_SUM_TOKENS];
    double before = gradient_norm(cpu, scale);
    double clip = o->max_norm > 0 && o->max_norm / (before + 1e-6) < 1 ? o->max_norm / (before + 1e-6) : 1;
    struct dry_adamw_terms t = dry_update_terms(o);

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t i = 0; i < cpu->gradients; i++) {
        float g = (float)((double)cpu->sums[i] * scale * clip);
        float m = cpu->m[i] + t.weight1 * (g - cpu->m[i]);
        float v = cpu->v[i] * t.beta2 + t.weight2 * g * g;
        cpu->m[i] = m;
        cpu->v[i] = v;
        cpu->values[i] = cpu->values[i] * t.decay - t.step * (m / (sqrtf(v) / t.root + t.epsilon));
    }
    *norm = before;
    return DRY_OK;
}
