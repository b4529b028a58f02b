/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011) and what
 * is drawn from it. Owns nothing: there is no state. Must not know of ranks, threads or time.
 */
#include "config.h"

#include "base/random.h"

enum { ROUNDS = 10, LANES = 16 };
static const uint32_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
static const uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};
/* Odd, so the purposes of one seed have keys of their own. */
static const uint64_t purpose_stride = 0x9E3779B97F4A7C15;

void dry_random_words(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, uint64_t b, uint32_t out[4])
{
    uint64_t key = seed + (uint64_t)purpose * purpose_stride;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)a, c1 = (uint32_t)(a >> 32), c2 = (uint32_t)b, c3 = (uint32_t)(b >> 32);

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)multiplier[0] * c0, p1 = (uint64_t)multiplier[1] * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += weyl[0];
        k1 += weyl[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* LANES counters at once, in loops that the compiler makes vectors of. */
static void series_block(uint32_t k0, uint32_t k1, uint64_t a, uint64_t b, uint32_t *out)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];

    for (int i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)a;
        c1[i] = (uint32_t)(a >> 32);
        c2[i] = (uint32_t)(b + (uint64_t)i);
        c3[i] = (uint32_t)((b + (uint64_t)i) >> 32);
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)multiplier[0] * c0[i], p1 = (uint64_t)multiplier[1] * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += weyl[0];
        k1 += weyl[1];
    }
    for (int i = 0; i < LANES; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

void dry_random_series(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, uint64_t b, int64_t n,
                       uint32_t *out)
{
    uint64_t key = seed + (uint64_t)purpose * purpose_stride;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        series_block((uint32_t)key, (uint32_t)(key >> 32), a, b + (uint64_t)i, out + 4 * i);
    for (; i < n; i++)
        dry_random_words(seed, purpose, a, b + (uint64_t)i, out + 4 * i);
}

float dry_random_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

void dry_random_permutation(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, int64_t n,
                            int64_t *order)
{
    uint64_t drawn = 0;
    uint32_t words[4];

    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t range = (uint64_t)i + 1, over = (UINT64_MAX % range + 1) % range, word;
        do { /* the last 2^64 mod range values would favour small results */
            if (drawn % 2 == 0)
                dry_random_words(seed, purpose, a, drawn / 2, words);
            word = (uint64_t)words[drawn % 2 * 2 + 1] << 32 | words[drawn % 2 * 2];
            drawn++;
        } while (over && word > UINT64_MAX - over);
        int64_t j = (int64_t)(word % range), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}
