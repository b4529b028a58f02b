/*
 * Embedding rows, RMSNorm and its gradient.
 * Owns nothing.  Must not know of records.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/vector.h"

#include <math.h>
#include <string.h>

void dry_cpu_zero_padding(const struct dry_cpu *cpu, float *y, int64_t columns)
{
    int64_t useful = cpu->batch.useful;

    memset(y + useful * columns, 0, dry_cpu_bytes(cpu->batch.tokens - useful, columns));
}

enum dry_status dry_cpu_embed(struct dry_backend *b, void *y)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t hidden = cpu->arch->hidden;
    float *out = y;

    for (int64_t t = 0; t < cpu->batch.useful; t++)
        memcpy(out + t * hidden, cpu->embed + (int64_t)cpu->id[t] * hidden, dry_cpu_bytes(1, hidden));
    dry_cpu_zero_padding(cpu, out, hidden);
    return DRY_OK;
}

DRY_CPU_VECTOR static double sum_squares(const float *x, int64_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

DRY_CPU_VECTOR static double sum_products(const float *x, const float *y, const float *w, int64_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)(y[i] * w[i]);
    return sum;
}

static float inverse_rms(const float *x, int64_t n, double eps)
{
    return (float)(1 / sqrt(sum_squares(x, n) / (double)n + eps));
}

DRY_CPU_VECTOR static void scale_row(const float *x, const float *weight, float r, int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = weight[i] * (x[i] * r);
}

void dry_cpu_rms_row(const float *x, const float *weight, int64_t n, double eps, float *y)
{
    scale_row(x, weight, inverse_rms(x, n, eps), n, y);
}

DRY_CPU_VECTOR static void backward_row(const float *x, const float *weight, const float *dy, float r,
                                        float c, int add, int64_t n, float *dx)
{
    float keep = add ? 1.0f : 0.0f;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = r * (dy[i] * weight[i]) - c * x[i];
        dx[i] = keep != 0.0f ? dx[i] + g : g;
    }
}

void dry_cpu_rms_row_backward(const float *x, const float *weight, const float *dy, int64_t n, double eps,
                              int add, float *dx)
{
    double r = (double)inverse_rms(x, n, eps);
    double c = r * r * r * sum_products(x, dy, weight, n) / (double)n;

    backward_row(x, weight, dy, (float)r, (float)c, add, n, dx);
}

enum dry_status dry_cpu_norm_forward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                     void *y)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t hidden = cpu->arch->hidden;
    const float *in = x, *weight = cpu->layer[layer].norm[n];
    float *out = y;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++)
        dry_cpu_rms_row(in + t * hidden, weight, hidden, cpu->arch->norm_eps, out + t * hidden);
    dry_cpu_zero_padding(cpu, out, hidden);
    return DRY_OK;
}

enum dry_status dry_cpu_norm_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                      const void *dy, void *dx)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t hidden = cpu->arch->hidden;
    const float *in = x, *gradient = dy, *weight = cpu->layer[layer].norm[n];
    float *out = dx;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++)
        dry_cpu_rms_row_backward(in + t * hidden, weight, gradient + t * hidden, hidden, cpu->arch->norm_eps,
                                 1, out + t * hidden);
    return DRY_OK;
}
