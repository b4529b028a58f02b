/*
 * The base's tensors from the maps of their files into their places on the GPU.
 * Owns the pinned memory that they pass through, for the time of the call.  Must not know what a tensor is
 * for.
 *
 * Several threads read and convert, each with two buffers: one is filled while the other is on its way.  A
 * tensor of bfloat16 is copied as it is; each byte is read from its file's map once.
 */
#include "config.h"

#include "cuda/cuda.h"

#include "base/log.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

enum {
    BUFFER = 4 << 20, /* bytes of one buffer; at least one row */
    THREADS = 8,      /* at most; more than a memory's channels need are no gain */
    CONVERT = 1 << 12 /* elements converted at once */
};

/* Rows of a tensor that fit into a buffer. */
struct part {
    const struct dry_tensor *from;
    int64_t first, rows, columns; /* in the tensor */
    dry_bf16 *to;
    int64_t pitch;
};

struct parts {
    struct part *part;
    size_t count;
    size_t buffer; /* bytes that the largest part needs */
};

/* Adds a tensor's parts; with part NULL only counts them. */
static void add(struct parts *p, const struct dry_tensor *from, dry_bf16 *to, int64_t pitch)
{
    int64_t columns = from->dims > 1 ? from->shape[from->dims - 1] : from->elements;
    int64_t rows = columns > 0 ? from->elements / columns : 0;
    int64_t step = BUFFER / ((int64_t)sizeof(dry_bf16) * (columns > 0 ? columns : 1));

    step = step > 0 ? step : 1;
    for (int64_t first = 0; first < rows; first += step) {
        int64_t n = rows - first < step ? rows - first : step;
        size_t bytes = (size_t)(n * columns) * sizeof(dry_bf16);
        if (p->part)
            p->part[p->count] = (struct part){from, first, n, columns, to + first * pitch, pitch};
        p->buffer = bytes > p->buffer ? bytes : p->buffer;
        p->count++;
    }
}

static void add_vector(struct parts *p, const struct dry_tensor *from, dry_bf16 *to)
{
    if (from)
        add(p, from, to, from->elements);
}

static void add_layer(struct parts *p, const struct dry_cuda *c, int64_t l)
{
    const struct dry_base_layer *from = &c->base->layer[l];
    const struct dry_cuda_layer *to = &c->layer[l];

    for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
        enum dry_proj member[3];
        int members = dry_group_members(g, member);
        int64_t row = 0, pitch = dry_cuda_pitch(c, dry_group_in(c->arch, g));
        for (int i = 0; i < members; i++) {
            add(p, from->weight[member[i]], to->weight[g] + row * pitch, pitch);
            if (from->bias[member[i]])
                add_vector(p, from->bias[member[i]], to->bias[g] + row);
            row += dry_proj_out(c->arch, member[i]);
        }
    }
    add_vector(p, from->input_norm, to->norm[DRY_NORM_INPUT]);
    add_vector(p, from->post_norm, to->norm[DRY_NORM_POST]);
    add_vector(p, from->q_norm, to->q_norm);
    add_vector(p, from->k_norm, to->k_norm);
}

static void add_all(struct parts *p, const struct dry_cuda *c)
{
    p->count = 0;
    if (c->embed)
        add(p, c->base->embed, c->embed, c->arch->hidden);
    if (c->head != c->embed)
        add(p, c->base->head, c->head, c->arch->hidden);
    add_vector(p, c->base->norm, c->norm);
    for (int64_t l = 0; l < c->arch->layers; l++)
        add_layer(p, c, l);
}

static void convert(const struct part *part, dry_bf16 *to)
{
    size_t size = dry_dtype_size(part->from->dtype);
    const char *from = (const char *)part->from->data + (size_t)(part->first * part->columns) * size;
    int64_t n = part->rows * part->columns;
    float wide[CONVERT];

    if (part->from->dtype == DRY_BF16) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i += CONVERT) {
        int64_t some = n - i < CONVERT ? n - i : CONVERT;
        dry_to_f32(part->from->dtype, from + (size_t)i * size, some, wide);
        dry_from_f32(DRY_BF16, wide, some, to + i);
    }
}

/* A thread's two buffers. */
struct lane {
    dry_bf16 *buffer[2];
    cudaEvent_t free[2];
    int turn;
};

static cudaError_t send(struct dry_cuda *c, struct lane *lane, const struct part *part)
{
    int turn = lane->turn;
    size_t width = (size_t)part->columns * sizeof(dry_bf16);
    cudaError_t e = cudaEventSynchronize(lane->free[turn]);

    if (e)
        return e;
    convert(part, lane->buffer[turn]);
    e = cudaMemcpy2DAsync(part->to, (size_t)part->pitch * sizeof(dry_bf16), lane->buffer[turn], width, width,
                          (size_t)part->rows, cudaMemcpyHostToDevice, c->stream);
    if (!e)
        e = cudaEventRecord(lane->free[turn], c->stream);
    lane->turn = !turn;
    return e;
}

static cudaError_t send_all(struct dry_cuda *c, const struct parts *p, struct lane *lane, int threads)
{
    cudaError_t worst = cudaSuccess;

#pragma omp parallel num_threads(threads)
    {
        struct lane *mine = &lane[omp_get_thread_num()];
        cudaError_t e = cudaSetDevice(c->device);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < p->count; i++)
            if (!e)
                e = send(c, mine, &p->part[i]);
        if (e) {
#pragma omp critical
            worst = e;
        }
    }
    return worst ? worst : cudaStreamSynchronize(c->stream);
}

enum dry_status dry_cuda_fill_weights(struct dry_cuda *c)
{
    int threads = omp_get_num_procs() < THREADS ? omp_get_num_procs() : THREADS;
    struct lane lane[THREADS] = {{.turn = 0}};
    struct parts p = {.part = NULL};
    enum dry_status status = DRY_OK;
    char *pinned = NULL;

    add_all(&p, c);
    p.part = dry_alloc(p.count, sizeof *p.part, "the list of the base's tensors");
    if (!p.part)
        return DRY_ERR_MEMORY;
    add_all(&p, c);
    status = dry_cuda_check(
        c, cudaHostAlloc((void **)&pinned, 2 * (size_t)threads * p.buffer, cudaHostAllocDefault),
        "cudaHostAlloc");
    for (int i = 0; i < 2 * threads && !status; i++) {
        lane[i / 2].buffer[i % 2] = (dry_bf16 *)(void *)(pinned + (size_t)i * p.buffer);
        status = dry_cuda_check(c, cudaEventCreateWithFlags(&lane[i / 2].free[i % 2], cudaEventDisableTiming),
                                "cudaEventCreate");
    }
    if (!status)
        status = dry_cuda_check(c, send_all(c, &p, lane, threads), "copying the base's weights");
    for (int i = 0; i < 2 * threads; i++)
        if (lane[i / 2].free[i % 2])
            (void)cudaEventDestroy(lane[i / 2].free[i % 2]);
    if (pinned)
        (void)cudaFreeHost(pinned);
    dry_free(p.part);
    return status;
}
