/*
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).  A number is a function of seed,
 * purpose and counters, never of rank, thread or time; there is no state.
 */
#ifndef DRY_BASE_RANDOM_H
#define DRY_BASE_RANDOM_H

#include <stdint.h>

enum dry_random_purpose {
    DRY_RANDOM_PERMUTATION = 1,
    DRY_RANDOM_DROPOUT,
    DRY_RANDOM_ADAPTER,
    DRY_RANDOM_SUBSET
};

/* Key: seed and purpose; counter: (a, b).  Four 32-bit words. */
void dry_random_words(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, uint64_t b,
                      uint32_t out[4]);
/* The words of n counters in a row, (a, b), (a, b + 1) ...: out[4 n], the same as n calls, faster. */
void dry_random_series(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, uint64_t b, int64_t n,
                       uint32_t *out);
/* Uniform in [0, 1) with 24 bits. */
float dry_random_unit(uint32_t word);
/* A permutation of 0..n-1 (Fisher-Yates, unbiased by rejection) keyed by seed, purpose and a. */
void dry_random_permutation(uint64_t seed, enum dry_random_purpose purpose, uint64_t a, int64_t n,
                            int64_t *order);

#endif
