/*
 * The lengths of a run's records, read from the cache that it used.
 * Owns the cache while it reads.
 * Must not know how lengths are shown.
 */
#include "config.h"

#include "measure/report_facts.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/lengths.h"

#include <math.h>
#include <stdio.h>

enum { BINS = 32 }; /* at most, about */

/* In the run's folder, or where --cache said; a folder that moved takes its cache along. */
static char *find_cache(const struct dry_report *r)
{
    const char *key = dry_report_text_at(r, "contract.data", ""),
               *given = dry_report_text_at(r, "options.cache.value", NULL);
    char name[64];
    char *own, *path = NULL;

    snprintf(name, sizeof name, "%.16s.h5", key);
    if (!*key || !(own = dry_path_join(r->h->folder, "cache")))
        return NULL;
    path = dry_path_join(own, name);
    dry_free(own);
    if (path && !dry_file_exists(path)) {
        dry_free(path);
        path = given ? dry_path_join(given, name) : NULL;
    }
    if (path && !dry_file_exists(path)) {
        dry_free(path);
        path = NULL;
    }
    return path;
}

/* A power of two, as lengths are thought of. */
static int64_t bin_width(int64_t most)
{
    static const int64_t widths[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    size_t i = 0;

    while (i + 1 < sizeof widths / sizeof *widths && widths[i] * BINS < most)
        i++;
    return widths[i] * BINS < most ? (most + BINS - 1) / BINS : widths[i];
}

static json_t *bins_of(const struct dry_cache_view *v, int64_t width, int64_t most)
{
    size_t count = (size_t)((most + width - 1) / width);
    int64_t *records = dry_alloc(count, sizeof *records, "lengths"),
            *tokens = dry_alloc(count, sizeof *tokens, "lengths");
    json_t *bins = records && tokens ? json_array() : NULL;

    for (int64_t i = 0; bins && i < v->records; i++) {
        int64_t length = v->offset[i + 1] - v->offset[i];
        size_t bin = length > 0 ? (size_t)((length - 1) / width) : 0;

        records[bin]++;
        tokens[bin] += length;
    }
    for (size_t i = 0; bins && i < count; i++)
        if (json_array_append_new(bins, json_pack("{s:I, s:I}", "records", (json_int_t)records[i], "tokens",
                                                  (json_int_t)tokens[i]))) {
            json_decref(bins);
            bins = NULL;
        }
    dry_free(records);
    dry_free(tokens);
    return bins;
}

static json_t *describe(const struct dry_cache_view *v)
{
    struct dry_lengths l;
    int64_t width;
    json_t *bins;

    if (v->records < 1 || dry_lengths_of(v, v->limit, &l) || l.most < 1)
        return NULL;
    width = bin_width(l.most);
    if (!(bins = bins_of(v, width, l.most)))
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "records",
                     (json_int_t)l.records, "tokens", (json_int_t)l.tokens, "supervised",
                     (json_int_t)l.supervised, "least", (json_int_t)l.least, "mean", l.mean, "p50",
                     (json_int_t)l.p50, "p90", (json_int_t)l.p90, "p95", (json_int_t)l.p95, "p99",
                     (json_int_t)l.p99, "most", (json_int_t)l.most, "limit", (json_int_t)l.limit,
                     "fixed_positions", (json_int_t)l.fixed_positions, "bucket_positions",
                     (json_int_t)l.bucket_positions, "width", (json_int_t)width, "bins", bins);
}

void dry_report_lengths(struct dry_report *r)
{
    const json_t *known = json_object_get(r->h->run, "lengths");
    char *path;
    struct dry_cache *c = NULL;

    if (json_is_object(known)) {
        r->lengths = json_incref((json_t *)(uintptr_t)known);
        return;
    }
    if (!(path = find_cache(r)))
        return;
    dry_log_defer(1);
    if (!dry_cache_open(path, NULL, &c))
        r->lengths = describe(dry_cache_view(c));
    dry_log_discard();
    dry_log_defer(0);
    dry_cache_close(c);
    dry_free(path);
}
