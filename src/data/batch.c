/*
 * Fills the flat arrays of one micro-batch from the cache.
 * Owns these arrays, allocated once for the plan's bounds.
 * Must not know of devices, ranks or steps to come.
 */
#include "config.h"

#include "data/batch.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

struct dry_loader {
    struct dry_cache *cache; /* borrowed */
    struct dry_plan_bounds bounds;
    int32_t *id, *position; /* [tokens] */
    int32_t *offset;        /* [records + 1] */
    int32_t *row, *label;   /* [supervised] */
    struct dry_span *span;  /* [longest]: a record has no more spans than tokens */
    struct dry_batch batch;
};

enum dry_status dry_loader_create(struct dry_cache *cache, const struct dry_plan_bounds *bounds,
                                  struct dry_loader **out)
{
    struct dry_loader *l = dry_alloc(1, sizeof *l, "a loader");

    if (!l)
        return DRY_ERR_MEMORY;
    if (bounds->tokens > INT32_MAX) {
        dry_error("a micro-batch of %lld tokens is more than can be addressed; choose a smaller micro-batch",
                  (long long)bounds->tokens);
        dry_free(l);
        return DRY_ERR_USAGE;
    }
    l->cache = cache;
    l->bounds = *bounds;
    l->id = dry_alloc((size_t)bounds->tokens, sizeof *l->id, "a micro-batch's ids");
    l->position = dry_alloc((size_t)bounds->tokens, sizeof *l->position, "a micro-batch's positions");
    l->offset = dry_alloc((size_t)bounds->records + 1, sizeof *l->offset, "a micro-batch's record offsets");
    l->row = dry_alloc((size_t)bounds->supervised, sizeof *l->row, "a micro-batch's supervised rows");
    l->label = dry_alloc((size_t)bounds->supervised, sizeof *l->label, "a micro-batch's labels");
    l->span = dry_alloc((size_t)bounds->longest, sizeof *l->span, "a record's spans");
    if (!l->id || !l->position || !l->offset || !l->row || !l->label || !l->span) {
        dry_loader_destroy(l);
        return DRY_ERR_MEMORY;
    }
    *out = l;
    return DRY_OK;
}

void dry_loader_destroy(struct dry_loader *l)
{
    if (!l)
        return;
    dry_free(l->id);
    dry_free(l->position);
    dry_free(l->offset);
    dry_free(l->row);
    dry_free(l->label);
    dry_free(l->span);
    dry_free(l);
}

/* Row t of a record is to predict token t + 1 where that one is supervised. */
static int64_t add_rows(struct dry_loader *l, int64_t first, int64_t spans, int64_t rows)
{
    for (int64_t i = 0; i < spans; i++)
        for (int64_t t = l->span[i].begin > 0 ? l->span[i].begin : 1; t < l->span[i].end; t++) {
            l->row[rows] = (int32_t)(first + t - 1);
            l->label[rows] = l->id[first + t];
            rows++;
        }
    return rows;
}

enum dry_status dry_loader_load(struct dry_loader *l, const struct dry_plan_step *s, int64_t m,
                                const struct dry_batch **batch)
{
    const struct dry_micro_batch *mb = &s->micro[m];
    const struct dry_cache_view *v = dry_cache_view(l->cache);
    int64_t at = 0, rows = 0;
    double began = dry_clock_now();

    assert(mb->tokens <= l->bounds.tokens && mb->count <= l->bounds.records &&
           mb->longest <= l->bounds.longest && mb->supervised <= l->bounds.supervised);
    for (int64_t i = 0; i < mb->count; i++) {
        int64_t r = s->record[mb->first + i], length = v->offset[r + 1] - v->offset[r], spans = 0;
        enum dry_status st = dry_cache_read(l->cache, r, l->id + at, l->span, &spans);
        if (st)
            return st;
        for (int64_t t = 0; t < length; t++)
            l->position[at + t] = (int32_t)t;
        l->offset[i] = (int32_t)at;
        rows = add_rows(l, at, spans, rows);
        at += length;
    }
    l->offset[mb->count] = (int32_t)at;
    assert(at == mb->useful && rows == mb->supervised);
    memset(l->id + at, 0, (size_t)(mb->tokens - at) * sizeof *l->id);
    memset(l->position + at, 0, (size_t)(mb->tokens - at) * sizeof *l->position);
    l->batch = (struct dry_batch){
        .step = s->step,
        .tokens = mb->tokens,
        .useful = mb->useful,
        .records = mb->count,
        .longest = mb->longest,
        .rows = rows,
        .id = l->id,
        .position = l->position,
        .offset = l->offset,
        .row = l->row,
        .label = l->label,
        .record = s->record + mb->first,
    };
    *batch = &l->batch;
    dry_delay("data", began);
    return DRY_OK;
}
