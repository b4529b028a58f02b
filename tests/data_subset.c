/*
 * The subset: like the whole in length, the same for the same seed, and its lines are the file's own.
 * Owns made-up lengths and a small file of records.
 * Must not know what a subset is for.
 */
#include "config.h"

#include "data/subset.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

#include "scratch.h"
#include "tap.h"

#include <stdlib.h>

static int rising(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* Lengths 2..most, skewed to short ones. */
static int64_t *offsets(int64_t n, int64_t most)
{
    int64_t *offset = dry_alloc((size_t)n + 1, sizeof *offset, "offsets");
    uint32_t w[4];

    for (int64_t i = 0; i < n; i++) {
        dry_random_words(7, DRY_RANDOM_PERMUTATION, (uint64_t)i, 0, w);
        double u = dry_random_unit(w[0]);
        offset[i + 1] = offset[i] + 2 + (int64_t)(u * u * u * (double)(most - 1));
    }
    return offset;
}

/* The largest distance between the whole's and the subset's share of records that are no longer than a
 * length. */
static double distance(const int64_t *offset, int64_t n, const int64_t *chosen, int64_t want)
{
    int64_t *whole = dry_alloc((size_t)n, sizeof *whole, "lengths");
    int64_t *part = dry_alloc((size_t)want, sizeof *part, "lengths");
    int64_t below = 0;
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        whole[i] = offset[i + 1] - offset[i];
    for (int64_t i = 0; i < want; i++)
        part[i] = whole[chosen[i]];
    qsort(whole, (size_t)n, sizeof *whole, rising);
    qsort(part, (size_t)want, sizeof *part, rising);
    for (int64_t i = 0; i < n; i++) {
        if (i + 1 < n && whole[i + 1] == whole[i])
            continue;
        while (below < want && part[below] <= whole[i])
            below++;
        most = fmax(most, fabs((double)(i + 1) / (double)n - (double)below / (double)want));
    }
    dry_free(whole);
    dry_free(part);
    return most;
}

static void test_distribution(void)
{
    static const struct {
        int64_t records, want;
    } cases[] = {{1000, 100}, {1000, 999}, {997, 31}, {5000, 1}, {7473, 1600}, {1, 1}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t n = cases[c].records, want = cases[c].want, *offset = offsets(n, 900);
        int64_t *chosen = dry_alloc((size_t)want, sizeof *chosen, "the subset");
        int good = dry_subset_choose(offset, n, want, 42, chosen) == DRY_OK;

        for (int64_t i = 0; i < want && good; i++)
            good = chosen[i] >= 0 && chosen[i] < n && (i == 0 || chosen[i] > chosen[i - 1]);
        tap_ok(good, "%lld of %lld: each record once, in order", (long long)want, (long long)n);
        tap_ok(distance(offset, n, chosen, want) <= 1.0 / (double)want,
               "%lld of %lld: no share of lengths is off by more than one record", (long long)want,
               (long long)n);
        dry_free(chosen);
        dry_free(offset);
    }
}

static void test_seed(void)
{
    enum { N = 2000, WANT = 200 };
    int64_t *offset = offsets(N, 500), a[WANT], b[WANT], other[WANT], all[N];
    int same = 0, good = 1;

    dry_subset_choose(offset, N, WANT, 1, a);
    dry_subset_choose(offset, N, WANT, 1, b);
    dry_subset_choose(offset, N, WANT, 2, other);
    tap_ok(memcmp(a, b, sizeof a) == 0, "the same seed gives the same subset");
    for (int i = 0; i < WANT; i++)
        for (int j = 0; j < WANT; j++)
            same += a[i] == other[j];
    tap_ok(same < WANT / 2, "another seed gives another: %d of %d records in both", same, (int)WANT);
    dry_subset_choose(offset, N, N, 3, all);
    for (int i = 0; i < N; i++)
        good = good && all[i] == i;
    tap_ok(good, "as many as there are: all of them");
    dry_free(offset);
}

static void test_lines(void)
{
    static const char text[] = "{\"a\": 1}\n\n{\"a\": 2}  \n{\"a\": 3}\r\n{\"a\": \"\xc3\xa4\"}";
    static const int64_t line[] = {1, 3, 4, 5}, chosen[] = {1, 3}, wrong[] = {1, 2, 4, 5};
    const char *from = scratch_path("whole.jsonl"), *to = scratch_path("part.jsonl");
    char hash[2][DRY_HASH_HEX], want[DRY_HASH_HEX], *got = NULL;
    size_t size = 0;

    scratch_write(from, text, sizeof text - 1);
    tap_ok(dry_subset_write(from, line, chosen, 2, to, hash) == DRY_OK, "writes a subset");
    tap_ok(dry_file_read(to, &got, &size) == DRY_OK &&
               strcmp(got, "{\"a\": 2}  \n{\"a\": \"\xc3\xa4\"}\n") == 0,
           "with the lines as they stand in the data");
    dry_free(got);
    dry_hash_bytes("{\"a\": 2}  ", 10, want);
    tap_text(hash[0], want, "and their SHA-256");
    tap_ok(dry_subset_write(from, line, chosen, 2, to, NULL) == DRY_OK, "hashes may be left out");
    dry_log_defer(1);
    tap_ok(dry_subset_write(from, wrong, chosen, 2, to, NULL) == DRY_ERR_INPUT,
           "a line that is no record any more is refused");
    dry_log_discard();
    dry_log_defer(0);
}

int main(void)
{
    scratch_begin();
    test_distribution();
    test_seed();
    test_lines();
    return tap_done();
}
