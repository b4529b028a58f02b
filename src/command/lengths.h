/*
 * The length report as a table for people and as JSON; for prepare and lengths.
 * Owns nothing.
 */
#ifndef DRY_COMMAND_LENGTHS_H
#define DRY_COMMAND_LENGTHS_H

#include "base/json.h"
#include "config/options.h"
#include "data/lengths.h"

/* Local. The report of a cache under a limit; packing as the options cut micro-batches (effective batch, cut,
 * seed). MEMORY, USAGE. */
enum dry_status dry_lengths_report(const struct dry_config *c, const struct dry_cache_view *v, int64_t limit,
                                   struct dry_lengths *l);
void dry_lengths_print(FILE *out, const struct dry_lengths *l);
/* Local. Caller decrefs; NULL: no memory. */
json_t *dry_lengths_json(const struct dry_lengths *l);
/* Local. Nothing printed is lost: flushes standard output. IO. */
enum dry_status dry_print_end(void);
/* Local. A JSON value and a newline on standard output; NULL value: MEMORY. Takes the reference. */
enum dry_status dry_print_json(json_t *value);

#endif
