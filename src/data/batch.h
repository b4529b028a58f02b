/*
 * A micro-batch as arrays, flat: the tokens of its records one after another.
 * Owns its arrays, allocated once for the plan's bounds.  Must not know of devices.
 */
#ifndef DRY_DATA_BATCH_H
#define DRY_DATA_BATCH_H

#include "compute/batch.h"
#include "data/cache.h"
#include "data/plan.h"

/* Local. Arrays for the bounds; view() gives what compute takes. */
struct dry_loader;
enum dry_status dry_loader_create(struct dry_cache *cache, const struct dry_plan_bounds *bounds,
                                  struct dry_loader **l);
void dry_loader_destroy(struct dry_loader *l);
/* Local. Reads micro-batch m of a step; *batch is borrowed until the next call. INPUT, IO. */
enum dry_status dry_loader_load(struct dry_loader *l, const struct dry_plan_step *s, int64_t m,
                                const struct dry_batch **batch);

#endif
