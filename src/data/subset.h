/*
 * A fixed subset of the data that is like the whole: for measuring on fewer records than there are.
 * Owns nothing that outlives a call.  Must not know what is measured.
 *
 * The records are sorted by length and parted into as many strata as records are wanted, as even as can be;
 * each stratum gives one, drawn by the seed.  So every percentile of the lengths is that of the whole but for
 * the width of a stratum.  The same offsets, number and seed give the same subset everywhere.
 */
#ifndef DRY_DATA_SUBSET_H
#define DRY_DATA_SUBSET_H

#include "base/hash.h"
#include "base/status.h"

#include <stdint.h>

/* Local. chosen [want] = indices of the subset's records, rising; 1 <= want <= records, offset [records + 1].
 * MEMORY. */
enum dry_status dry_subset_choose(const int64_t *offset, int64_t records, int64_t want, uint64_t seed,
                                  int64_t *chosen);
/* Local. Writes the lines of the chosen records, in the file's order and with the bytes that they have there:
 * line [records] is each record's line in `data`, rising. hash [want] = SHA-256 of each line's bytes, without
 * its end; may be NULL. INPUT: `data` is not the file that the lines were counted in. IO, MEMORY. */
enum dry_status dry_subset_write(const char *data, const int64_t *line, const int64_t *chosen, int64_t want,
                                 const char *path, char (*hash)[DRY_HASH_HEX]);

#endif
