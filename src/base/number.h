/*
 * Arithmetic on counts that C has no word for, and sorting of plain numbers.
 * Owns nothing.  Must not know what is counted.
 */
#ifndef DRY_BASE_NUMBER_H
#define DRY_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t dry_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t dry_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* How many pieces of `size` hold n; n >= 0, size > 0. */
static inline int64_t dry_pieces(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Local. In place, rising. */
void dry_sort_counts(int64_t *value, size_t n);
void dry_sort_reals(double *value, size_t n); /* none is NAN */

#endif
