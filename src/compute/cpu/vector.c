/*
 * Reductions and scalings of rows.
 * Owns nothing.  Must not know of threads or models.
 */
#include "config.h"

#include "compute/cpu/vector.h"

DRY_CPU_VECTOR float dry_cpu_largest(const float *x, int64_t n, float m)
{
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

DRY_CPU_VECTOR float dry_cpu_exponentials(float *x, int64_t n, float m)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        x[i] = dry_cpu_exp(x[i] - m);
        sum += x[i];
    }
    return sum;
}

DRY_CPU_VECTOR void dry_cpu_multiply(float *x, int64_t n, float by)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

DRY_CPU_VECTOR float dry_cpu_dot(const float *x, const float *y, int64_t n)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}
