/*
 * Float formats of tensors: float32 from and to bfloat16 and float16, exact one way and rounded to nearest
 * even the other. Owns nothing.  Must not know of files.
 */
#include "config.h"

#include "model/safetensors.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [DRY_F32] = {"F32", 4},
    [DRY_BF16] = {"BF16", 2},
    [DRY_F16] = {"F16", 2},
    [DRY_OTHER] = {"other", 0},
};
_Static_assert(sizeof dtypes / sizeof *dtypes == DRY_OTHER + 1, "a row for each type");

size_t dry_dtype_size(enum dry_dtype t)
{
    return dtypes[t].size;
}

const char *dry_dtype_name(enum dry_dtype t)
{
    return dtypes[t].name;
}

static float from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Subnormals are scaled by the exact product of an integer and a power of two. */
static float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t f32_to_bf16(float f)
{
    uint32_t bits = to_bits(f);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* quiet, so that the cut cannot make it infinite */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static uint16_t f32_to_f16(float f)
{
    uint32_t bits = to_bits(f), magnitude = bits & 0x7fffffffu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520: half way from the largest, 65504, to the next */
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the unit is 2^-24: let one addition round to it, since 0.5 has exactly that unit in
         * float32. */
        float shifted = from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (to_bits(shifted) - to_bits(0.5f)));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((magnitude >> 13) - (112u << 10)));
}

void dry_to_f32(enum dry_dtype from, const void *src, int64_t n, float *dst)
{
    const unsigned char *s = src;
    uint16_t half;

    assert(from != DRY_OTHER && n >= 0);
    switch (from) {
    case DRY_F32:
        if (n)
            memcpy(dst, s, (size_t)n * sizeof *dst);
        break;
    case DRY_BF16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, s + 2 * i, 2);
            dst[i] = from_bits((uint32_t)half << 16);
        }
        break;
    case DRY_F16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, s + 2 * i, 2);
            dst[i] = f16_to_f32(half);
        }
        break;
    case DRY_OTHER:
        break;
    }
}

void dry_from_f32(enum dry_dtype to, const float *src, int64_t n, void *dst)
{
    unsigned char *d = dst;
    uint16_t half;

    assert(to != DRY_OTHER && n >= 0);
    switch (to) {
    case DRY_F32:
        if (n)
            memcpy(d, src, (size_t)n * sizeof *src);
        break;
    case DRY_BF16:
        for (int64_t i = 0; i < n; i++) {
            half = f32_to_bf16(src[i]);
            memcpy(d + 2 * i, &half, 2);
        }
        break;
    case DRY_F16:
        for (int64_t i = 0; i < n; i++) {
            half = f32_to_f16(src[i]);
            memcpy(d + 2 * i, &half, 2);
        }
        break;
    case DRY_OTHER:
        break;
    }
}
