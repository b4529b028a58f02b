/*
 * metrics.jsonl: a line of JSON per step and per validation.  Private to measure.  Owns the open file.
 */
#ifndef DRY_MEASURE_METRICS_H
#define DRY_MEASURE_METRICS_H

#include "base/json.h"

struct dry_metrics;
/* Local. Opens OUTPUT/metrics.jsonl to append after dropping (complete or absent) broken lines, steps after
 * `step`, and validations after `validated`; step 0 begins anew. IO. */
enum dry_status dry_metrics_open(const char *output, int64_t step, int64_t validated, struct dry_metrics **m);
/* Local. Writes one line with one call, so that a kill leaves whole lines. Takes line (NULL: no memory). IO,
 * MEMORY. */
enum dry_status dry_metrics_put(struct dry_metrics *m, json_t *line);
void dry_metrics_close(struct dry_metrics *m); /* NULL allowed */

#endif
