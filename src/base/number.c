/*
 * Sorts plain numbers.
 * Owns nothing.
 * Must not know what is counted.
 */
#include "config.h"

#include "base/number.h"

#include <stdlib.h>

static int rising_count(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static int rising_real(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

void dry_sort_counts(int64_t *value, size_t n)
{
    qsort(value, n, sizeof *value, rising_count);
}

void dry_sort_reals(double *value, size_t n)
{
    qsort(value, n, sizeof *value, rising_real);
}
