/*
 * Marks in the stream: how long the GPU itself took for what the host asked it to do.
 * Owns a ring of timed events and the list of spans that have been read from it.
 * Must not know what a kind of mark means.
 *
 * A mark is one event and waits for nothing.  Spans are read when they are asked for; where the ring is full,
 * the oldest mark makes room, which the GPU passed long before: the host is at most two micro-batches ahead
 * of it (the halves of the staging).
 */
#include "config.h"

#include "cuda/cuda.h"

#include "base/memory.h"

enum {
    RING = 256, /* marks that are not read yet */
    SPANS = 1024
};

struct dry_cuda_marks {
    cudaEvent_t event[RING], end;
    int kind[RING];
    int first, count;       /* of the ring */
    int ended;              /* `end` lies behind the last mark */
    enum dry_status status; /* of the first call that failed */
    struct dry_mark span[SPANS];
    int spans;
};

enum dry_status dry_cuda_marks_create(struct dry_cuda *c)
{
    struct dry_cuda_marks *m = dry_alloc(1, sizeof *m, "the marks of a GPU's time");
    enum dry_status status = m ? DRY_OK : DRY_ERR_MEMORY;

    c->marks = m;
    for (int i = 0; i < RING && !status; i++)
        status = dry_cuda_check(c, cudaEventCreate(&m->event[i]), "cudaEventCreate");
    return status ? status : dry_cuda_check(c, cudaEventCreate(&m->end), "cudaEventCreate");
}

void dry_cuda_marks_destroy(struct dry_cuda *c)
{
    struct dry_cuda_marks *m = c->marks;

    if (!m)
        return;
    for (int i = 0; i < RING; i++)
        if (m->event[i])
            (void)cudaEventDestroy(m->event[i]);
    if (m->end)
        (void)cudaEventDestroy(m->end);
    dry_free(m);
    c->marks = NULL;
}

/* One span more; where the list is full, added to the last of its kind, so that the sum of each kind stays
 * true. */
static void add(struct dry_mark *span, int *spans, int room, int kind, double seconds)
{
    int i = *spans - 1;

    if (i < 0 || span[i].kind != kind) {
        if (*spans < room) {
            span[(*spans)++] = (struct dry_mark){kind, seconds};
            return;
        }
        while (i > 0 && span[i].kind != kind)
            i--;
        if (span[i].kind != kind)
            i = *spans - 1;
    }
    span[i].seconds += seconds;
}

/* Takes the oldest mark, whose span ends at `until`. */
static void take(struct dry_cuda *c, cudaEvent_t until)
{
    struct dry_cuda_marks *m = c->marks;
    float ms = 0;
    cudaError_t e = cudaEventElapsedTime(&ms, m->event[m->first], until);

    if (e == cudaErrorNotReady) {
        e = cudaEventSynchronize(until);
        if (!e)
            e = cudaEventElapsedTime(&ms, m->event[m->first], until);
    }
    if (!m->status)
        m->status = dry_cuda_check(c, e, "cudaEventElapsedTime");
    add(m->span, &m->spans, SPANS, m->kind[m->first], ms / 1e3);
    m->first = (m->first + 1) % RING;
    m->count--;
}

void dry_cuda_mark(struct dry_backend *b, int kind)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_marks *m = c->marks;
    int at;

    if (m->status)
        return;
    if (m->count == RING)
        take(c, m->event[(m->first + 1) % RING]);
    at = (m->first + m->count) % RING;
    m->status = dry_cuda_check(c, cudaEventRecord(m->event[at], c->stream), "cudaEventRecord");
    m->kind[at] = kind;
    m->count++;
    m->ended = 0;
}

enum dry_status dry_cuda_marks_end(struct dry_cuda *c)
{
    struct dry_cuda_marks *m = c->marks;

    if (m->count == 0 || m->status)
        return m->status;
    m->status = dry_cuda_check(c, cudaEventRecord(m->end, c->stream), "cudaEventRecord");
    m->ended = 1;
    return m->status;
}

enum dry_status dry_cuda_marks_read(struct dry_backend *b, struct dry_mark *mark, int room, int *count)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_marks *m = c->marks;
    enum dry_status status;
    int spans = 0;

    if (!m->ended)
        (void)dry_cuda_marks_end(c); /* marked after the sync: the GPU has nothing else to do */
    while (m->count > 0 && !m->status)
        take(c, m->count > 1 ? m->event[(m->first + 1) % RING] : m->end);
    for (int i = 0; i < m->spans && room > 0; i++)
        add(mark, &spans, room, m->span[i].kind, m->span[i].seconds);
    status = m->status;
    m->status = DRY_OK;
    m->count = m->spans = m->ended = 0;
    if (status)
        return status;
    *count = spans;
    return DRY_OK;
}
