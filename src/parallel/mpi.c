/*
 * The communicator over MPI.
 * Owns its MPI communicator; the world also owns MPI's start and end, and what ends all ranks when one leaves
 * early. Must not know what is sent.
 */
#include "config.h"

#include "parallel/comm.h"
#include "base/log.h"
#include "base/memory.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = 1 << 27, /* bytes or values in one call, whose counts are ints */
    TAG = 1,
    NAMED_RANKS = 8, /* so many differing ranks are named, the others counted */
    EXCERPT = 120,   /* bytes of a differing line that are shown */
};
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes are sent as 64 bits");

struct dry_comm {
    MPI_Comm comm;
    int rank, size;
    int local_rank, local_size;
    int seat; /* local rank in the world */
};

/* The abort communicator is the world, and MPI itself knows whether it stands. A rank that exits without
 * having finished would leave the others waiting for it. */
static void leave(void)
{
    int started = 0, finished = 0;

    MPI_Initialized(&started);
    MPI_Finalized(&finished);
    if (started && !finished)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void end_all(void) __attribute__((noreturn));
static void end_all(void)
{
    dry_log_flush();
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _Exit(1);
}

/* After a failed call ranks disagree about what comes next; only ending all of them is safe. */
static void must(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    dry_error("%s failed: %s; all ranks are stopped", call, text);
    end_all();
}

/* Fills in c, whose comm is set. */
static void describe(struct dry_comm *c)
{
    MPI_Comm host;

    must(MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    must(MPI_Comm_rank(c->comm, &c->rank), "MPI_Comm_rank");
    must(MPI_Comm_size(c->comm, &c->size), "MPI_Comm_size");
    must(MPI_Comm_split_type(c->comm, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &host),
         "MPI_Comm_split_type");
    must(MPI_Comm_rank(host, &c->local_rank), "MPI_Comm_rank");
    must(MPI_Comm_size(host, &c->local_size), "MPI_Comm_size");
    must(MPI_Comm_free(&host), "MPI_Comm_free");
}

/* Local. A launcher that this MPI does not understand starts N programs that each believe to be alone; they
 * would write over each other. */
static enum dry_status check_launcher(const struct dry_comm *c)
{
    static const struct {
        const char *variable, *launcher, *remedy;
    } launchers[] = {
        {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
         "start it by the mpirun of the MPI that drydock was built with"},
        {"SLURM_STEP_NUM_TASKS", "srun",
         "srun --mpi=list shows what Slurm has: give --mpi=pmix (or pmi2, for an MPI built for that), or "
         "start by "
         "mpirun inside the job"},
        {"PMI_SIZE", "a launcher of the PMI kind, such as MPICH's mpiexec",
         "start it by the mpirun of the MPI that drydock was built with"},
    };

    /* the innermost launcher decides: mpirun inside of srun's step sets its own */
    for (size_t i = 0; c->size == 1 && i < sizeof launchers / sizeof *launchers; i++) {
        const char *told = getenv(launchers[i].variable);

        if (!told)
            continue;
        if (atoi(told) <= 1)
            return DRY_OK;
        dry_error("%s started %s ranks, but MPI sees this one only; %s", launchers[i].launcher, told,
                  launchers[i].remedy);
        return DRY_ERR_COMM;
    }
    return DRY_OK;
}

enum dry_status dry_comm_start(int *argc, char ***argv, struct dry_comm **world)
{
    int started, level;
    struct dry_comm *c;

    if (MPI_Initialized(&started) != MPI_SUCCESS ||
        (!started && MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)) {
        dry_error(
            "MPI did not start; is this program run by the launcher of the MPI that it was built with?");
        return DRY_ERR_COMM;
    }
    atexit(leave);
    must(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_FUNNELED) {
        dry_error("this MPI was built without support for threads (MPI_THREAD_FUNNELED)");
        return DRY_ERR_COMM;
    }
    c = dry_alloc(1, sizeof *c, "the communicator");
    if (!c)
        end_all();
    c->comm = MPI_COMM_WORLD;
    describe(c);
    c->seat = c->local_rank;
    dry_log_set_rank(c->rank, c->size);
    *world = c;
    return check_launcher(c);
}

void dry_comm_finish(struct dry_comm *world)
{
    if (!world)
        return;
    must(MPI_Finalize(), "MPI_Finalize");
    dry_free(world);
}

enum dry_status dry_comm_split(struct dry_comm *c, int color, struct dry_comm **part)
{
    struct dry_comm *fresh = NULL;
    MPI_Comm comm;
    enum dry_status status = DRY_OK;

    if (color >= 0) {
        fresh = dry_alloc(1, sizeof *fresh, "a communicator");
        if (!fresh)
            status = DRY_ERR_MEMORY;
    }
    status = dry_comm_agree(c, status);
    if (status) {
        dry_free(fresh);
        return status;
    }
    must(MPI_Comm_split(c->comm, color < 0 ? MPI_UNDEFINED : color, c->rank, &comm), "MPI_Comm_split");
    if (fresh) {
        fresh->comm = comm;
        describe(fresh);
        fresh->seat = c->seat;
    }
    *part = fresh;
    return DRY_OK;
}

void dry_comm_destroy(struct dry_comm *part)
{
    if (!part)
        return;
    must(MPI_Comm_free(&part->comm), "MPI_Comm_free");
    dry_free(part);
}

void dry_comm_library(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    must(MPI_Get_library_version(version, &length), "MPI_Get_library_version");
    version[strcspn(version, ",\n")] = 0; /* what follows tells of its build */
    snprintf(text, size, "%s", version);
}

int dry_comm_rank(const struct dry_comm *c)
{
    return c->rank;
}

int dry_comm_size(const struct dry_comm *c)
{
    return c->size;
}

int dry_comm_local_rank(const struct dry_comm *c)
{
    return c->local_rank;
}

int dry_comm_local_size(const struct dry_comm *c)
{
    return c->local_size;
}

int dry_comm_seat(const struct dry_comm *c)
{
    return c->seat;
}

enum { PROCESSORS = 1 << 13 }; /* the most that a Linux kernel is built for */

/* Marks the processors that this process may use with 1; no mask to be had leaves all of them marked 0. */
static void mark_processors(int64_t *may, size_t room)
{
    cpu_set_t *set = CPU_ALLOC(room);
    size_t bytes = CPU_ALLOC_SIZE(room);

    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (size_t i = 0; i < room; i++)
            may[i] = CPU_ISSET_S(i, bytes, set) != 0;
    if (set)
        CPU_FREE(set);
}

enum dry_status dry_comm_processors(struct dry_comm *c, int *threads)
{
    int64_t *mine = dry_alloc(2 * (size_t)PROCESSORS, sizeof *mine, "a list of processors"), *all;
    double share = 0.001; /* what rounding takes from sums of fractions */
    MPI_Comm host;
    enum dry_status status = dry_comm_agree(c, mine ? DRY_OK : DRY_ERR_MEMORY);

    if (status) {
        dry_free(mine);
        return status;
    }
    all = mine + PROCESSORS;
    mark_processors(mine, PROCESSORS);
    must(MPI_Comm_split_type(c->comm, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &host),
         "MPI_Comm_split_type");
    must(MPI_Allreduce(mine, all, PROCESSORS, MPI_INT64_T, MPI_SUM, host), "MPI_Allreduce");
    must(MPI_Comm_free(&host), "MPI_Comm_free");
    for (size_t i = 0; i < PROCESSORS; i++)
        if (mine[i])
            share += 1.0 / (double)all[i];
    *threads = share < 1 ? 1 : (int)share;
    dry_free(mine);
    return DRY_OK;
}

enum dry_status dry_comm_agree(struct dry_comm *c, enum dry_status mine)
{
    struct {
        int status, rank;
    } own = {(int)mine, c->rank}, worst;

    /* MAXLOC: the largest status, and of the ranks that have it the lowest */
    must(MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MAXLOC, c->comm), "MPI_Allreduce");
    if (c->rank == worst.rank)
        dry_log_flush();
    else
        dry_log_discard();
    return (enum dry_status)worst.status;
}

/* Copies into out the line that holds the first difference of mine from other, cut to EXCERPT bytes. */
static void excerpt(const char *mine, const char *other, char out[EXCERPT + 1])
{
    size_t line = 0, length;

    for (size_t i = 0; mine[i] && mine[i] == other[i]; i++)
        if (mine[i] == '\n')
            line = i + 1;
    length = strcspn(mine + line, "\n");
    if (length > EXCERPT)
        length = EXCERPT;
    memset(out, 0, EXCERPT + 1);
    memcpy(out, mine + line, length);
}

/* Rank 0 says which ranks differ and shows the first difference. */
static void name_ranks(const struct dry_comm *c, const char *what, const int *differs, const char *own,
                       const char *theirs)
{
    struct dry_buffer ranks = {0};
    int named = 0, others = 0;

    for (int r = 0; r < c->size; r++) {
        if (!differs[r])
            continue;
        if (named == NAMED_RANKS)
            others++;
        else if (dry_buffer_printf(&ranks, "%s%d", named++ ? ", " : "", r) != 0)
            break;
    }
    if (others)
        (void)dry_buffer_printf(&ranks, " and %d more", others);
    dry_error(
        "%s: not the same on all ranks: rank 0 has \"%s\", rank%s %s \"%s\"; start all ranks with the same "
        "program, options and files",
        what, own, named + others > 1 ? "s" : "", ranks.data ? ranks.data : "", theirs);
    dry_buffer_reset(&ranks);
}

enum dry_status dry_comm_same(struct dry_comm *c, const char *what, const char *text)
{
    size_t size = strlen(text) + 1;
    char *first = NULL, own[EXCERPT + 1] = "", theirs[EXCERPT + 1] = "";
    int *differs = NULL, mine = 0, lowest = 0;
    enum dry_status status = DRY_OK;

    must(MPI_Bcast(&size, 1, MPI_UINT64_T, 0, c->comm), "MPI_Bcast");
    first = dry_alloc(size, 1, "a text to compare over ranks");
    differs = dry_alloc((size_t)c->size, sizeof *differs, "a list of ranks");
    status = dry_comm_agree(c, first && differs ? DRY_OK : DRY_ERR_MEMORY);
    if (status)
        goto out;
    if (c->rank == 0)
        memcpy(first, text, size);
    status = dry_comm_bcast(c, first, size, 0);
    if (status)
        goto out;
    mine = strcmp(first, text) != 0;
    must(MPI_Allgather(&mine, 1, MPI_INT, differs, 1, MPI_INT, c->comm), "MPI_Allgather");
    while (lowest < c->size && !differs[lowest])
        lowest++;
    if (lowest == c->size)
        goto out;
    status = DRY_ERR_USAGE;
    if (c->rank == lowest) {
        excerpt(first, text, own);
        excerpt(text, first, theirs);
    }
    must(MPI_Bcast(own, sizeof own, MPI_CHAR, lowest, c->comm), "MPI_Bcast");
    must(MPI_Bcast(theirs, sizeof theirs, MPI_CHAR, lowest, c->comm), "MPI_Bcast");
    if (c->rank == 0)
        name_ranks(c, what, differs, own, theirs);
out:
    dry_free(first);
    dry_free(differs);
    return status;
}

static enum dry_status reduce(struct dry_comm *c, int64_t *values, size_t count, MPI_Op op)
{
    for (size_t done = 0; done < count; done += PIECE) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        must(MPI_Allreduce(MPI_IN_PLACE, values + done, (int)piece, MPI_INT64_T, op, c->comm),
             "MPI_Allreduce");
    }
    return DRY_OK;
}

enum dry_status dry_comm_sum_i64(struct dry_comm *c, int64_t *values, size_t count)
{
    return reduce(c, values, count, MPI_SUM);
}

enum dry_status dry_comm_max_i64(struct dry_comm *c, int64_t *values, size_t count)
{
    return reduce(c, values, count, MPI_MAX);
}

enum dry_status dry_comm_bcast(struct dry_comm *c, void *bytes, size_t size, int root)
{
    for (size_t done = 0; done < size; done += PIECE) {
        size_t piece = size - done < PIECE ? size - done : PIECE;
        must(MPI_Bcast((char *)bytes + done, (int)piece, MPI_BYTE, root, c->comm), "MPI_Bcast");
    }
    return DRY_OK;
}

enum dry_status dry_comm_barrier(struct dry_comm *c)
{
    must(MPI_Barrier(c->comm), "MPI_Barrier");
    return DRY_OK;
}

enum dry_status dry_comm_rest(struct dry_comm *c)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    MPI_Request request;
    int done = 0;

    must(MPI_Ibarrier(c->comm, &request), "MPI_Ibarrier");
    for (;;) {
        must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done)
            return DRY_OK;
        nanosleep(&nap, NULL);
    }
}

/* Root's memory for everything, NULL when it is too much (logged). */
static char *room_for(const size_t *sizes, int ranks)
{
    size_t total = 0;

    for (int r = 0; r < ranks; r++)
        if (dry_add_size(total, sizes[r], &total) != 0) {
            dry_error("out of memory: what %d ranks send is more than a machine can address", ranks);
            return NULL;
        }
    return dry_alloc(total, 1, "what all ranks send");
}

enum dry_status dry_comm_gather(struct dry_comm *c, const void *bytes, size_t size, int root, void **all,
                                size_t *sizes)
{
    char *room = NULL;
    int good = 1;

    must(MPI_Gather(&size, 1, MPI_UINT64_T, sizes, 1, MPI_UINT64_T, root, c->comm), "MPI_Gather");
    if (c->rank == root) {
        room = room_for(sizes, c->size);
        good = room != NULL;
    }
    must(MPI_Bcast(&good, 1, MPI_INT, root, c->comm), "MPI_Bcast");
    if (!good)
        return DRY_ERR_MEMORY;
    if (c->rank != root) {
        for (size_t done = 0; done < size; done += PIECE) {
            size_t piece = size - done < PIECE ? size - done : PIECE;
            must(MPI_Send((const char *)bytes + done, (int)piece, MPI_BYTE, root, TAG, c->comm), "MPI_Send");
        }
        *all = NULL;
        return DRY_OK;
    }
    char *at = room;
    for (int r = 0; r < c->size; at += sizes[r++]) {
        if (r == root) {
            if (size)
                memcpy(at, bytes, size);
            continue;
        }
        for (size_t done = 0; done < sizes[r]; done += PIECE) {
            size_t piece = sizes[r] - done < PIECE ? sizes[r] - done : PIECE;
            must(MPI_Recv(at + done, (int)piece, MPI_BYTE, r, TAG, c->comm, MPI_STATUS_IGNORE), "MPI_Recv");
        }
    }
    *all = room;
    return DRY_OK;
}

void dry_comm_abort(struct dry_comm *c)
{
    (void)c;
    end_all();
}
