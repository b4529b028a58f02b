/*
 * Times one micro-batch, forward and backward, of a real base on a backend, operation by operation, against
 * the rate of the matrix product alone. Owns a table of operations that wraps the backend's and adds up their
 * time.  Must not know how they compute.
 *
 *   make bench/cpu_step && bench/cpu_step BASE [TOKENS [RECORD_LENGTH [RANK [DROPOUT [REPEATS [BACKEND]]]]]]
 *
 * Of all repeats the fastest counts: other work on the machine only makes it slower.
 */
#include "config.h"

#include "base/clock.h"
#include "train/engine.h"

#include <cblas.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum op {
    OP_EMBED,
    OP_NORM_FORWARD,
    OP_NORM_BACKWARD,
    OP_LINEAR_FORWARD,
    OP_LINEAR_BACKWARD = OP_LINEAR_FORWARD + DRY_GROUPS,
    OP_ATTENTION_FORWARD = OP_LINEAR_BACKWARD + DRY_GROUPS,
    OP_ATTENTION_BACKWARD,
    OP_MLP_FORWARD,
    OP_MLP_BACKWARD,
    OP_LOSS,
    OPS
};
static const char *const names[OPS] = {
    "embed",
    "norm forward",
    "norm backward",
    "q k v forward",
    "o forward",
    "gate up forward",
    "down forward",
    "q k v backward",
    "o backward",
    "gate up backward",
    "down backward",
    "attention forward",
    "attention backward",
    "swiglu, down forward",
    "down, swiglu, gate up backward",
    "loss",
};

/* A program of its own: the wrapped table and the clocks may stand at file scope. */
static const struct dry_backend_ops *inner;
static double spent[OPS];

#define TIMED(op, call)                        \
    do {                                       \
        double begin_ = dry_clock_now();       \
        enum dry_status status_ = (call);      \
        if (!status_)                          \
            status_ = inner->sync(b);          \
        spent[op] += dry_clock_now() - begin_; \
        return status_;                        \
    } while (0)

static enum dry_status timed_embed(struct dry_backend *b, void *y)
{
    TIMED(OP_EMBED, inner->embed(b, y));
}
static enum dry_status timed_norm_forward(struct dry_backend *b, int64_t l, enum dry_norm n, const void *x,
                                          void *y)
{
    TIMED(OP_NORM_FORWARD, inner->norm_forward(b, l, n, x, y));
}
static enum dry_status timed_norm_backward(struct dry_backend *b, int64_t l, enum dry_norm n, const void *x,
                                           const void *dy, void *dx)
{
    TIMED(OP_NORM_BACKWARD, inner->norm_backward(b, l, n, x, dy, dx));
}
static enum dry_status timed_linear_forward(struct dry_backend *b, int64_t l, enum dry_group g, const void *x,
                                            const void *residual, void *y)
{
    TIMED(OP_LINEAR_FORWARD + (int)g, inner->linear_forward(b, l, g, x, residual, y));
}
static enum dry_status timed_linear_backward(struct dry_backend *b, int64_t l, enum dry_group g,
                                             const void *x, const void *dy, void *dx)
{
    TIMED(OP_LINEAR_BACKWARD + (int)g, inner->linear_backward(b, l, g, x, dy, dx));
}
static enum dry_status timed_attention_forward(struct dry_backend *b, int64_t l, void *qkv, void *raw,
                                               void *o, float *lse, void *scratch)
{
    TIMED(OP_ATTENTION_FORWARD, inner->attention_forward(b, l, qkv, raw, o, lse, scratch));
}
static enum dry_status timed_attention_backward(struct dry_backend *b, int64_t l, const void *qkv,
                                                const void *raw, const void *o, const float *lse,
                                                const void *d_o, void *dqkv, void *scratch)
{
    TIMED(OP_ATTENTION_BACKWARD, inner->attention_backward(b, l, qkv, raw, o, lse, d_o, dqkv, scratch));
}
static enum dry_status timed_normed_backward(struct dry_backend *b, int64_t l, enum dry_norm n, const void *x,
                                             void *normed, int again, const void *dy, void *dx)
{
    TIMED(OP_LINEAR_BACKWARD + (int)DRY_GROUP_QKV, inner->normed_backward(b, l, n, x, normed, again, dy, dx));
}
static enum dry_status timed_mlp_forward(struct dry_backend *b, int64_t l, const void *gate_up,
                                         const void *residual, void *act, void *y)
{
    TIMED(OP_MLP_FORWARD, inner->mlp_forward(b, l, gate_up, residual, act, y));
}
static enum dry_status timed_mlp_backward(struct dry_backend *b, int64_t l, const struct dry_mlp *m)
{
    TIMED(OP_MLP_BACKWARD, inner->mlp_backward(b, l, m));
}
static enum dry_status timed_loss(struct dry_backend *b, const void *x, void *dx, void *scratch)
{
    TIMED(OP_LOSS, inner->loss(b, x, dx, scratch));
}

static struct dry_backend_ops wrap(const struct dry_backend_ops *ops)
{
    struct dry_backend_ops t = *ops;

    inner = ops;
    t.embed = timed_embed;
    t.norm_forward = timed_norm_forward;
    t.norm_backward = timed_norm_backward;
    t.linear_forward = timed_linear_forward;
    t.linear_backward = timed_linear_backward;
    t.attention_forward = timed_attention_forward;
    t.attention_backward = timed_attention_backward;
    t.normed_backward = timed_normed_backward;
    t.mlp_forward = timed_mlp_forward;
    t.mlp_backward = timed_mlp_backward;
    t.loss = timed_loss;
    return t;
}

/* Records of one length, all tokens but the last of each supervised. */
static int make_batch(struct dry_batch *b, int64_t tokens, int64_t length, int64_t vocab)
{
    int64_t records = (tokens + length - 1) / length;
    int32_t *id = calloc((size_t)tokens, sizeof *id), *position = calloc((size_t)tokens, sizeof *position);
    int32_t *offset = calloc((size_t)records + 1, sizeof *offset), *row = calloc((size_t)tokens, sizeof *row);
    int32_t *label = calloc((size_t)tokens, sizeof *label);
    int64_t *record = calloc((size_t)records, sizeof *record);

    if (!id || !position || !offset || !row || !label || !record)
        return -1;
    memset(b, 0, sizeof *b);
    b->step = 1;
    b->tokens = b->useful = tokens;
    b->records = records;
    b->longest = length < tokens ? length : tokens;
    for (int64_t t = 0; t < tokens; t++) {
        id[t] = (int32_t)((uint64_t)t * 2654435761u % (uint64_t)vocab);
        position[t] = (int32_t)(t % length);
    }
    for (int64_t t = 0; t + 1 < tokens; t++)
        if (position[t + 1]) {
            row[b->rows] = (int32_t)t;
            label[b->rows++] = id[t + 1];
        }
    for (int64_t r = 0; r < records; r++) {
        record[r] = r;
        offset[r + 1] = (int32_t)((r + 1) * length < tokens ? (r + 1) * length : tokens);
    }
    b->id = id;
    b->position = position;
    b->offset = offset;
    b->row = row;
    b->label = label;
    b->record = record;
    return 0;
}

/* Operations of the matrix products of one micro-batch: base forward and input gradient, adapters, attention.
 */
static double flops(const struct dry_base *base, const struct dry_adapter *adapter, const struct dry_batch *b)
{
    const struct dry_arch *a = &base->arch;
    double head = (double)(a->hidden * a->vocab), layers = (double)dry_arch_matrix_parameters(a) - head;
    double keys = 0;

    for (int64_t r = 0; r < b->records; r++) {
        double n = (double)(b->offset[r + 1] - b->offset[r]);
        keys += n * (n + 1) / 2;
    }
    return 4 * layers * (double)b->tokens + 4 * head * (double)b->rows +
           6 * (double)adapter->parameters * (double)b->tokens +
           14 * keys * (double)(a->heads * a->head_dim * a->layers);
}

/* The rate of one large product in 10^9 operations a second, with as many callers as there are threads. */
static double product_rate(void)
{
    enum { N = 768 };
    float *a = calloc(3 * N * N, sizeof *a);
    double best = 0;

    for (int i = 0; a && i < 2 * N * N; i++)
        a[i] = (float)(i % 7) - 3;
    for (int k = 0; a && k < 5; k++) {
        double begin = dry_clock_now();
#pragma omp parallel for schedule(static)
        for (int t = 0; t < 16; t++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N / 16, N, 1, a, N,
                        a + N * N + t * N / 16 * N, N, 0, a + 2 * N * N + t * N / 16, N);
        double rate = 2e-9 * N * N * N / (dry_clock_now() - begin);
        best = rate > best ? rate : best;
    }
    free(a);
    return best;
}

static void report(const struct dry_base *base, const struct dry_adapter *adapter, const struct dry_batch *b,
                   double best, const double parts[OPS])
{
    for (int i = 0; i < OPS; i++)
        if (parts[i] > 0) /* some linears run only inside larger operations */
            printf("%-30s %8.2f ms %5.1f %%\n", names[i], 1e3 * parts[i], 100 * parts[i] / best);
    printf("%" PRId64 " tokens in %.4f s: %.1f tokens/s, %.1f GFLOP/s, waiting for each operation\n",
           b->tokens, best, (double)b->tokens / best, 1e-9 * flops(base, adapter, b) / best);
}

/* The same as a run does it: operations are only asked for, and one wait is at the end. */
static void report_whole(const struct dry_base *base, const struct dry_adapter *adapter,
                         const struct dry_batch *b, double best, double update, int cpu)
{
    double work = flops(base, adapter, b), rate = cpu ? product_rate() : 0;
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    printf("%" PRId64
           " tokens in %.4f s: %.1f tokens/s, %.1f GFLOP/s; update %.2f ms; peak host memory %.0f MiB\n",
           b->tokens, best, (double)b->tokens / best, 1e-9 * work / best, 1e3 * update,
           (double)usage.ru_maxrss / 1024);
    if (cpu)
        printf("a matrix product alone: %.1f GFLOP/s, of that %.0f %%\n", rate, 1e-7 * work / best / rate);
}

static enum dry_status measure(struct dry_engine *e, const struct dry_batch *b, int repeats, double *best,
                               double parts[OPS])
{
    enum dry_status status = dry_engine_batch(e, b, 1);

    *best = 1e30;
    for (int i = 0; i < repeats && !status; i++) {
        memset(spent, 0, sizeof spent);
        double begin = dry_clock_now();
        status = inner->sums_clear(dry_engine_backend(e));
        if (!status)
            status = dry_engine_forward(e);
        if (!status)
            status = dry_engine_backward(e);
        if (!status)
            status = inner->sync(dry_engine_backend(e));
        double seconds = dry_clock_now() - begin;
        if (seconds < *best) {
            *best = seconds;
            memcpy(parts, spent, sizeof spent);
        }
    }
    return status;
}

/* Seconds of an update, the fastest of some. */
static enum dry_status measure_update(struct dry_backend *b, int repeats, double *best)
{
    struct dry_adamw o = {.rate = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .max_norm = 1};
    enum dry_status status = DRY_OK;
    double norm;

    *best = 1e30;
    for (int i = 0; i < repeats && !status; i++) {
        double begin = dry_clock_now(), seconds;
        o.step = i + 1;
        status = inner->adamw(b, &o, &norm);
        if (!status)
            status = inner->sync(b);
        seconds = dry_clock_now() - begin;
        *best = seconds < *best ? seconds : *best;
    }
    return status;
}

static double argument(int argc, char **argv, int i, double otherwise)
{
    return i < argc ? atof(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    struct dry_adapter_request request = {.alpha = 32, .targets = (1u << DRY_PROJS) - 1};
    struct dry_backend_options options = {.seed = 1};
    const struct dry_backend_ops *ops;
    struct dry_adapter *adapter = NULL;
    struct dry_backend *backend = NULL;
    struct dry_engine *engine = NULL;
    struct dry_base *base = NULL;
    struct dry_batch batch;
    double best, whole, update, parts[OPS];
    int repeats = (int)argument(argc, argv, 6, 3);
    float *values = NULL;
    int status = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: %s BASE [TOKENS [RECORD_LENGTH [RANK [DROPOUT [REPEATS [BACKEND]]]]]]\n",
                argv[0]);
        return 2;
    }
    request.rank = (int64_t)argument(argc, argv, 4, 16);
    request.dropout = argument(argc, argv, 5, 0);
    if (dry_backend_find(argc > 7 ? argv[7] : "cpu", &ops) || dry_base_open(argv[1], &base) ||
        dry_adapter_create(&base->arch, &request, &adapter) || ops->create(&options, &backend) ||
        make_batch(&batch, (int64_t)argument(argc, argv, 2, 1024), (int64_t)argument(argc, argv, 3, 256),
                   base->arch.vocab))
        goto out;
    struct dry_backend_ops timed = wrap(ops);
    struct dry_limits limits = {.tokens = batch.tokens,
                                .records = batch.records,
                                .rows = batch.rows,
                                .longest = batch.longest,
                                .training = 1};
    backend->ops = &timed;
    values = calloc((size_t)adapter->parameters, sizeof *values);
    if (!values || dry_engine_create(backend, base, adapter, &limits, &engine))
        goto out;
    dry_adapter_init(adapter, 1, values);
    if (ops->state_set(backend, values, NULL, NULL) || measure(engine, &batch, repeats, &best, parts))
        goto out;
    printf("%s\n", ops->describe(backend));
    report(base, adapter, &batch, best, parts);
    backend->ops = ops;
    if (measure(engine, &batch, repeats, &whole, parts) || measure_update(backend, repeats, &update))
        goto out;
    report_whole(base, adapter, &batch, whole, update, strcmp(ops->name, "cpu") == 0);
    status = 0;
out:
    free(values);
    dry_engine_destroy(engine);
    if (backend)
        ops->destroy(backend);
    dry_adapter_destroy(adapter);
    dry_base_close(base);
    return status;
}
