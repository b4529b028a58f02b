/*
 * Draws a subset by length and copies its lines.
 * Owns nothing that outlives a call.
 * Must not know tokens, or what the subset is for.
 */
#include "config.h"

#include "data/subset.h"

#include "text/record.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
    int64_t length, index;
};

/* Rising length, then rising index: a total order, so that any sort gives one result. */
static int shorter(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Where stratum j of `want` begins: floor(j * records / want), without leaving 64 bits. */
static int64_t begin_of(int64_t j, int64_t records, int64_t want)
{
    return records / want * j + records % want * j / want;
}

enum dry_status dry_subset_choose(const int64_t *offset, int64_t records, int64_t want, uint64_t seed,
                                  int64_t *chosen)
{
    struct entry *sorted = dry_alloc((size_t)records, sizeof *sorted, "the records' lengths");

    assert(want >= 1 && want <= records);
    if (!sorted)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < records; i++)
        sorted[i] = (struct entry){.length = offset[i + 1] - offset[i], .index = i};
    qsort(sorted, (size_t)records, sizeof *sorted, shorter);
    for (int64_t j = 0; j < want; j++) {
        int64_t from = begin_of(j, records, want), width = begin_of(j + 1, records, want) - from;
        uint32_t words[4];

        dry_random_words(seed, DRY_RANDOM_SUBSET, 0, (uint64_t)j, words);
        chosen[j] = sorted[from + (int64_t)(((uint64_t)words[0] * (uint64_t)width) >> 32)].index;
    }
    dry_sort_counts(chosen, (size_t)want);
    dry_free(sorted);
    return DRY_OK;
}

enum dry_status dry_subset_write(const char *data, const int64_t *line, const int64_t *chosen, int64_t want,
                                 const char *path, char (*hash)[DRY_HASH_HEX])
{
    struct dry_lines *lines = NULL;
    struct dry_writer *w = NULL;
    int64_t done = 0, there;
    enum dry_status status = dry_lines_open(data, &lines);

    if (status)
        return status;
    there = dry_lines_count(lines);
    status = dry_writer_begin(path, &w);
    for (int64_t n = 0; n < there && done < want && !status; n++) {
        const char *text;
        size_t size;
        int64_t number;

        dry_lines_get(lines, n, &text, &size, &number);
        if (number != line[chosen[done]])
            continue;
        if (hash)
            status = dry_hash_bytes(text, size, hash[done]);
        if (!status)
            status = dry_writer_write(w, text, size);
        if (!status)
            status = dry_writer_write(w, "\n", 1);
        done++;
    }
    if (!status && done < want) {
        dry_error("%s: has no record in line %lld, where there was one when it was tokenised; has the file "
                  "changed since?",
                  data, (long long)line[chosen[done]]);
        status = DRY_ERR_INPUT;
    }
    if (status)
        dry_writer_abandon(w);
    else
        status = dry_writer_commit(w);
    dry_lines_close(lines);
    return status;
}
