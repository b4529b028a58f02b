/*
 * Pieces of one block of memory: the same walk counts the bytes (base NULL) and gives out the pointers.
 * Owns nothing; the block is the backend's.  Must not know what the pieces are for.
 */
#ifndef DRY_COMPUTE_CARVE_H
#define DRY_COMPUTE_CARVE_H

#include "base/memory.h"

#include <stdint.h>

struct dry_carve {
    char *base;
    size_t alignment; /* of each piece's size, and so of its offset */
    size_t used;
    int overflow; /* a product left what a size can hold */
};

/* Local. The next piece, of rows x columns elements of `size` bytes; NULL while counting or after an
 * overflow. */
static inline void *dry_carve(struct dry_carve *c, int64_t rows, int64_t columns, size_t size)
{
    size_t count, bytes, next;
    char *p = c->base ? c->base + c->used : NULL;

    if (dry_mul_size((size_t)rows, (size_t)columns, &count) || dry_mul_size(count, size, &bytes) ||
        dry_add_size(bytes, c->alignment - 1, &bytes) ||
        dry_add_size(c->used, bytes - bytes % c->alignment, &next)) {
        c->overflow = 1;
        return NULL;
    }
    c->used = next;
    return p;
}

#endif
