/*
 * What each rank does in parallel.test: the collectives with answers known beforehand, and ways to end.
 * Owns the world.
 * Must be started by the launcher; rank 0 prints TAP, other ranks only take part.
 */
#include "config.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/comm.h"
#include "tap.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A test point that holds on all ranks. */
static void all_ok(struct dry_comm *c, int condition, const char *name)
{
    int64_t failures = !condition;

    (void)dry_comm_sum_i64(c, &failures, 1);
    if (dry_comm_rank(c) == 0)
        tap_ok(failures == 0, "%s", name);
}

static void sums(struct dry_comm *c)
{
    enum { N = 1000 };
    int rank = dry_comm_rank(c), size = dry_comm_size(c), good = 1;
    int64_t values[N], all = (int64_t)size * (size - 1) / 2, huge = rank == 0 ? INT64_MAX - 1000 : 1;

    for (int i = 0; i < N; i++)
        values[i] = (int64_t)i * 1000000007 + rank;
    all_ok(c, dry_comm_sum_i64(c, values, N) == DRY_OK, "sum");
    for (int i = 0; i < N; i++)
        good = good && values[i] == (int64_t)i * 1000000007 * size + all;
    all_ok(c, good, "sums are exact");
    (void)dry_comm_sum_i64(c, &huge, 1);
    all_ok(c, huge == INT64_MAX - 1000 + size - 1, "sums near the end of the range are exact");
    values[0] = rank == size - 1 ? -5 : -7 - rank;
    (void)dry_comm_max_i64(c, values, 1);
    all_ok(c, values[0] == -5, "maximum");
    all_ok(c, dry_comm_sum_i64(c, NULL, 0) == DRY_OK, "a sum of nothing");
}

static void moves(struct dry_comm *c)
{
    int rank = dry_comm_rank(c), size = dry_comm_size(c), root = size - 1;
    size_t mine = (size_t)rank * 100000, *sizes = NULL, total = 0;
    char text[32] = "", *bytes = dry_alloc(mine, 1, "a test");
    void *all = NULL;

    if (rank == root)
        strcpy(text, "from the last rank");
    (void)dry_comm_bcast(c, text, sizeof text, root);
    all_ok(c, strcmp(text, "from the last rank") == 0, "broadcast from the last rank");
    if (bytes)
        memset(bytes, 'a' + rank, mine);
    if (rank == root)
        sizes = dry_alloc((size_t)size, sizeof *sizes, "a test");
    enum dry_status status = dry_comm_gather(c, bytes, mine, root, &all, sizes);
    int good = status == DRY_OK && (rank == root) == (all != NULL);
    for (int r = 0; good && rank == root && r < size; r++) {
        good = sizes[r] == (size_t)r * 100000;
        for (size_t i = 0; good && i < sizes[r]; i++)
            good = ((char *)all)[total + i] == 'a' + r;
        total += sizes[r];
    }
    all_ok(c, good, "gather of different sizes, in order");
    all_ok(c, dry_comm_barrier(c) == DRY_OK, "barrier");
    dry_free(all);
    dry_free(sizes);
    dry_free(bytes);
}

static void parts(struct dry_comm *c)
{
    int rank = dry_comm_rank(c), size = dry_comm_size(c), odd = rank % 2;
    struct dry_comm *part = NULL;
    int64_t sum = rank, want = 0;

    for (int r = odd; r < size; r += 2)
        want += r;
    all_ok(c, dry_comm_split(c, odd, &part) == DRY_OK && part, "split in even and odd");
    (void)dry_comm_sum_i64(part, &sum, 1);
    all_ok(c, sum == want && dry_comm_rank(part) == rank / 2, "a part sums on its own, ordered by rank");
    all_ok(c, dry_comm_seat(c) == rank && dry_comm_seat(part) == rank, "a rank keeps its seat in a part");
    dry_comm_destroy(part);
    all_ok(c, dry_comm_split(c, rank == 0 ? 0 : -1, &part) == DRY_OK && (rank == 0) == (part != NULL),
           "a negative color is in no part");
    dry_comm_destroy(part);
    int64_t threads = 0, processors = sysconf(_SC_NPROCESSORS_CONF);
    int mine = 0;

    all_ok(c, dry_comm_processors(c, &mine) == DRY_OK && mine >= 1, "each rank has a processor");
    threads = mine;
    (void)dry_comm_sum_i64(c, &threads, 1);
    all_ok(c, threads <= (processors > size ? processors : size), "ranks of a host part its processors");
    all_ok(c, dry_comm_local_size(c) == size && dry_comm_local_rank(c) == rank, "all ranks are on this host");
}

/* Seconds of processor that this process has used. */
static double used(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Ranks without work must leave their processors to those that have some. */
static void rests(struct dry_comm *c)
{
    const struct timespec work = {.tv_nsec = 400000000};
    double began = dry_clock_now(), before = used();
    enum dry_status status;

    if (dry_comm_rank(c) == 0)
        nanosleep(&work, NULL);
    status = dry_comm_rest(c);
    all_ok(c, status == DRY_OK && dry_clock_now() - began > 0.39, "ranks rest until the last is there");
    all_ok(c, used() - before < 0.2, "and take no processor for it");
}

static void agreements(struct dry_comm *c)
{
    int rank = dry_comm_rank(c), size = dry_comm_size(c);
    char text[64];

    all_ok(c, dry_comm_agree(c, DRY_OK) == DRY_OK, "all is well");
    all_ok(c, dry_comm_agree(c, rank == size - 1 ? DRY_ERR_IO : DRY_OK) == DRY_ERR_IO,
           "the worst status is everyone's");
    dry_log_defer(1);
    dry_error("kept on rank %d", rank);
    all_ok(c, dry_comm_agree(c, rank == 0 && size > 1 ? DRY_ERR_USAGE : DRY_ERR_INPUT) == DRY_ERR_INPUT,
           "of different statuses the worse");
    all_ok(c, dry_comm_same(c, "a text", "equal\non all") == DRY_OK, "equal texts");
    snprintf(text, sizeof text, "first = 1\nrank = %d\nlast = 2", rank == 0 ? 0 : 7);
    enum dry_status status = dry_comm_same(c, "configuration", text);
    all_ok(c, status == (size > 1 ? DRY_ERR_USAGE : DRY_OK), "different texts");
    (void)dry_comm_agree(c, status);
    dry_log_defer(0);
}

int main(int argc, char **argv)
{
    struct dry_comm *c;
    const char *end = argc > 1 ? argv[1] : "";

    if (dry_comm_start(&argc, &argv, &c) != DRY_OK)
        return 1;
    int last = dry_comm_rank(c) == dry_comm_size(c) - 1, result = 0;
    if (strcmp(end, "abort") == 0 && last) {
        dry_error("the last rank met an error");
        dry_comm_abort(c);
    }
    if (strcmp(end, "exit") == 0 && last)
        exit(3);
    if (strcmp(end, "kill") == 0 && last)
        abort();
    if (*end) { /* the others wait where the last never comes */
        (void)dry_comm_barrier(c);
        sleep(60);
    } else {
        sums(c);
        moves(c);
        parts(c);
        rests(c);
        agreements(c);
        if (dry_comm_rank(c) == 0)
            result = tap_done();
    }
    dry_comm_finish(c);
    return result;
}
