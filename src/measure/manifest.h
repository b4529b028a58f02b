/*
 * run.json's parts.  Private to measure.  Owns nothing; what it returns is the caller's to decref.
 */
#ifndef DRY_MEASURE_MANIFEST_H
#define DRY_MEASURE_MANIFEST_H

#include "measure/run.h"

/* Local. The whole manifest of a start; earlier: the run.json of the start before, or NULL. NULL: no memory
 * (logged). */
json_t *dry_manifest_json(const struct dry_manifest *m, const json_t *earlier);
/* Local. {"forward": seconds, ...} less those of `before` (NULL: nothing); stages of no time are left out. */
json_t *dry_manifest_stages(const struct dry_stages *stages, const double *before);

#endif
