/*
 * Arithmetic that the compiler turns into vector code, with the same bits in vector body and tail.
 * Owns nothing.  Must not know of threads or models.
 */
#ifndef DRY_COMPUTE_CPU_VECTOR_H
#define DRY_COMPUTE_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

/* Functions so marked are compiled twice on x86-64, for AVX2 and for the baseline, and chosen at load.
 * Neither has fused multiply-add, so element-wise results are the same on both. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DRY_CPU_VECTOR __attribute__((noinline, target_clones("avx2", "default")))
#else
#define DRY_CPU_VECTOR __attribute__((noinline))
#endif

/* The largest of m and x[n]; not-a-number is passed over. */
float dry_cpu_largest(const float *x, int64_t n, float m);
/* x = exp(x - m); returns the sum, in float32: keep n below some hundreds where its error matters. */
float dry_cpu_exponentials(float *x, int64_t n, float m);
void dry_cpu_multiply(float *x, int64_t n, float by);
float dry_cpu_dot(const float *x, const float *y, int64_t n);

/* exp(x) within 2 units in the last place: n = round(x / ln 2), a polynomial of degree 7 on the rest (Cephes
 * expf), then 2^n by exponent bits. Below -87.3 it gives 0; above 88.3 it stays at exp(88.3); not-a-number
 * stays. */
static inline float dry_cpu_exp(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    float bounded = x > 88.3f ? 88.3f : x;
    float t = bounded * 1.44269504088896341f + shift;
    float n = t - shift;
    float r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    uint32_t bits;
    float power;

    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 127u) << 23;
    memcpy(&power, &bits, sizeof power);
    return bounded < -87.3f ? 0.0f : p * power;
}

#endif
