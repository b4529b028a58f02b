/*
 * Counts a run's operations and times a product of its own shapes before it starts.
 * Owns the inputs of that product for the time of the call.
 * Must not know what the rate is compared with.
 */
#include "config.h"

#include "train/rate.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { ROW_UNIT = 64, ALIGNMENT = 256, MOST_CALLS = 64, BESIDE_MOST = 3 };

#define LONG_ENOUGH                                                                                   \
    0.03            /* seconds of one call: the timer and what a call costs beside its work are small \
                     */
#define SHORT 0.002 /* seconds of one piece of which the shortest counts */
#define IN_ALL 0.1  /* seconds of the calls that are timed */

struct trial {
    struct dry_backend *backend;
    const struct dry_limits *limits;
    enum dry_group group;
    int64_t in, out, pitch; /* elements of a row; of an input's row with what is behind it */
    double work;            /* operations of one row */
    void *x, *y;
    float *host;                            /* [ROW_UNIT, in] */
    int32_t *id, *position, *offset, *none; /* of a batch that is there for its number of rows only */
    int64_t *record;
};

double dry_rate_flops(const struct dry_arch *a, const struct dry_adapter *adapter, double tokens,
                      double square)
{
    return tokens * (4.0 * (double)dry_arch_matrix_parameters(a) + 6.0 * (double)adapter->parameters) +
           6.0 * square * (double)(a->layers * a->heads * a->head_dim);
}

static void choose(struct trial *t, const struct dry_arch *a, const struct dry_adapter *adapter)
{
    enum dry_proj member[3];
    double most = 0;
    int n;

    for (int g = 0; g < DRY_GROUPS; g++) {
        double size =
            (double)dry_group_in(a, (enum dry_group)g) * (double)dry_group_out(a, (enum dry_group)g);

        if (size > most) {
            most = size;
            t->group = (enum dry_group)g;
        }
    }
    t->in = dry_group_in(a, t->group);
    t->out = dry_group_out(a, t->group);
    t->pitch = t->in + t->backend->ops->row_pad(adapter);
    t->work = 2 * most;
    n = dry_group_members(t->group, member);
    for (int i = 0; i < n; i++) {
        const struct dry_adapter_part *part = dry_adapter_at(adapter, 0, member[i]);

        if (part)
            t->work += 2 * (double)part->rank * (double)(part->in + part->out);
    }
}

/* The most rows that the arena has room for and that a micro-batch can have; 0: too few. */
static int64_t most_rows(struct trial *t, struct dry_engine *e, const struct dry_adapter *adapter)
{
    size_t bytes, element = t->backend->ops->act_bytes;
    unsigned char *arena = dry_engine_arena(e, &bytes);
    int64_t row = (t->pitch + t->out + t->backend->ops->row_pad(adapter)) * (int64_t)element;
    int64_t rows = dry_smaller(t->limits->tokens, ((int64_t)bytes - ALIGNMENT) / row);

    if (rows > t->limits->records * t->limits->longest)
        rows = t->limits->records * t->limits->longest;
    rows -= rows % 16;
    t->x = arena;
    t->y = arena + ((size_t)(rows * t->pitch) * element + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rows > 0 ? rows : 0;
}

static enum dry_status make_inputs(struct trial *t, int64_t rows)
{
    size_t n = (size_t)rows, records = (size_t)t->limits->records;
    uint32_t word[4];

    t->id = dry_alloc(n, sizeof *t->id, "token ids of a trial");
    t->position = dry_alloc(n, sizeof *t->position, "positions of a trial");
    t->offset = dry_alloc(records + 1, sizeof *t->offset, "records of a trial");
    t->record = dry_alloc(records, sizeof *t->record, "records of a trial");
    t->none = dry_alloc(1, sizeof *t->none, "labels of a trial");
    t->host = dry_alloc((size_t)ROW_UNIT, (size_t)t->in * sizeof *t->host, "inputs of a trial");
    if (!t->id || !t->position || !t->offset || !t->record || !t->none || !t->host)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < ROW_UNIT * t->in; i++) {
        if (i % 4 == 0)
            dry_random_words(0, DRY_RANDOM_SUBSET, 0, (uint64_t)i, word);
        t->host[i] = 2 * dry_random_unit(word[i % 4]) - 1;
    }
    for (int64_t first = 0; first < rows; first += ROW_UNIT) {
        unsigned char *to = (unsigned char *)t->x + (size_t)(first * t->pitch) * t->backend->ops->act_bytes;
        enum dry_status status =
            t->backend->ops->put(t->backend, t->host, dry_smaller(ROW_UNIT, rows - first), t->in, to);

        if (status)
            return status;
    }
    return DRY_OK;
}

/* A micro-batch of that many rows. */
static enum dry_status set_rows(struct trial *t, int64_t rows)
{
    struct dry_batch batch = {.step = 1,
                              .tokens = rows,
                              .useful = rows,
                              .longest = dry_smaller(rows, t->limits->longest),
                              .id = t->id,
                              .position = t->position,
                              .offset = t->offset,
                              .row = t->none,
                              .label = t->none,
                              .record = t->record};

    for (int64_t r = 0; r < rows; r++)
        t->position[r] = (int32_t)(r % batch.longest);
    for (int64_t r = 0; r < rows; r += batch.longest)
        t->offset[++batch.records] = (int32_t)dry_smaller(r + batch.longest, rows);
    return t->backend->ops->batch(t->backend, &batch, 0);
}

static enum dry_status run(struct trial *t, int64_t calls, double *seconds)
{
    double began = dry_clock_now();
    enum dry_status status = DRY_OK;

    for (int64_t i = 0; i < calls && !status; i++)
        status = t->backend->ops->linear_forward(t->backend, 0, t->group, t->x, NULL, t->y);
    if (!status)
        status = t->backend->ops->sync(t->backend);
    *seconds = dry_clock_now() - began;
    return status;
}

/* The shortest of several: others may use the device at the same time. */
static enum dry_status shortest(struct trial *t, int64_t rows, double *seconds)
{
    double once = 0, all = 0;
    enum dry_status status = set_rows(t, rows);

    for (int again = 0; again < 2 && !status; again++)
        status = run(t, 1, &once);
    *seconds = once;
    for (int i = 0; i < 8 && !status && (i < 2 || all < IN_ALL); i++) {
        int64_t calls = once > SHORT ? 1 : (int64_t)(SHORT / once) + 1;
        double took = 0;

        status = run(t, calls, &took);
        *seconds = fmin(*seconds, took / (double)calls);
        all += took;
    }
    return status;
}

/* Seconds as a line in the rows, through that many and a quarter of them. Of devices only: on cores that
 * others share two such timings differ more than what is looked for, and there products of few rows are quick
 * too. */
static enum dry_status measure_beside(struct trial *t, int64_t rows, double *beside)
{
    int64_t few = t->backend->ops->devices ? rows / 4 - rows / 4 % 16 : 0;
    double longer = 0, shorter = 0, each;
    enum dry_status status = few > 0 ? shortest(t, rows, &longer) : DRY_OK;

    if (few == 0 || status)
        return status;
    status = shortest(t, few, &shorter);
    each = (longer - shorter) / (double)(rows - few);
    *beside = BESIDE_MOST * (double)rows;
    if (each > 0)
        *beside = fmin(*beside, fmax(0, longer / each - (double)rows));
    return status;
}

/* From few rows to more, until one call is long enough or there are no more. */
static enum dry_status measure(struct trial *t, int64_t most, double *rate, double *beside)
{
    int64_t rows = dry_smaller(ROW_UNIT, most), calls;
    double seconds = 0;
    enum dry_status status;

    for (;;) {
        status = set_rows(t, rows);
        for (int again = 0; again < 2 && !status && seconds < IN_ALL; again++)
            status = run(t, 1, &seconds); /* the second time: what the first prepares is there */
        if (status || rows == most || seconds >= LONG_ENOUGH)
            break;
        rows = dry_smaller(most, seconds > 0 && seconds < LONG_ENOUGH / 8 ? 8 * rows : 2 * rows);
    }
    if (status)
        return status;
    calls = seconds > IN_ALL / MOST_CALLS ? (int64_t)(IN_ALL / seconds) + 1 : MOST_CALLS;
    status = run(t, calls, &seconds);
    if (!status)
        *rate = t->work * (double)rows * (double)calls / seconds;
    return status ? status : measure_beside(t, rows, beside);
}

enum dry_status dry_rate_matrix(struct dry_engine *e, const struct dry_base *base,
                                const struct dry_adapter *adapter, const struct dry_limits *limits,
                                double *rate, double *beside)
{
    struct trial t = {.backend = dry_engine_backend(e), .limits = limits};
    int64_t most;
    enum dry_status status = DRY_OK;

    *rate = *beside = 0;
    choose(&t, &base->arch, adapter);
    most = most_rows(&t, e, adapter);
    if (most == 0)
        return DRY_OK;
    status = make_inputs(&t, most);
    if (!status)
        status = measure(&t, most, rate, beside);
    dry_free(t.id);
    dry_free(t.position);
    dry_free(t.offset);
    dry_free(t.record);
    dry_free(t.none);
    dry_free(t.host);
    return status;
}
