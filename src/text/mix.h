/*
 * Hashing of short byte strings and pairs for the tokenizer's tables.  Not for anything that is written to a
 * file.
 */
#ifndef DRY_TEXT_MIX_H
#define DRY_TEXT_MIX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t dry_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

static inline uint64_t dry_mix_bytes(const char *text, size_t size)
{
    uint64_t h = size * UINT64_C(0x9e3779b97f4a7c15), word;

    for (; size >= sizeof word; text += sizeof word, size -= sizeof word) {
        memcpy(&word, text, sizeof word);
        h = dry_mix(h ^ word);
    }
    if (size > 0) {
        word = 0;
        memcpy(&word, text, size);
        h = dry_mix(h ^ word);
    }
    return h;
}

#endif
