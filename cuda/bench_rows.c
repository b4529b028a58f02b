/*
 * Times the row-wise kernels of one layer, the loss rows and the update on a GPU, beside the memory's rate.
 * Owns its own buffers: random activations, no base.  Not installed; make cuda/bench_rows.
 *
 * usage: cuda/bench_rows [TOKENS [HIDDEN FFN HEADS KV_HEADS DIM VOCAB]]  default: 6144 3584 18944 28 4 128
 * 152064
 */
#include "config.h"

#include "cuda/elementwise.h"
#include "cuda/loss.h"
#include "cuda/optimizer.h"
#include "cuda/rotary.h"

#include <stdio.h>
#include <stdlib.h>

enum { SETS = 3, REPEATS = 9, ROUNDS = 5, PAD = 64, PARAMETERS = 40370176, LOSS_ROWS = 1024 };
static const double memory_rate = 4.2e12; /* bytes a second that a copy on an H200 reads and writes */

enum op {
    OP_EMBED,
    OP_NORM,
    OP_NORM_BACKWARD,
    OP_SWIGLU,
    OP_SWIGLU_BACKWARD,
    OP_ROTARY,
    OP_ROTARY_NORM,
    OP_ROTARY_BACKWARD,
    OP_ROTARY_NORM_BACKWARD,
    OP_LOSS,
    OP_LOSS_GRADIENT,
    OP_NORM_OF_SUMS,
    OP_UPDATE,
    OPS
};
static const char *const op_names[] = {
    [OP_EMBED] = "embedding",
    [OP_NORM] = "RMSNorm",
    [OP_NORM_BACKWARD] = "RMSNorm, backward",
    [OP_SWIGLU] = "SwiGLU",
    [OP_SWIGLU_BACKWARD] = "SwiGLU, backward, in place",
    [OP_ROTARY] = "rotary",
    [OP_ROTARY_NORM] = "rotary, q and k norm",
    [OP_ROTARY_BACKWARD] = "rotary, backward",
    [OP_ROTARY_NORM_BACKWARD] = "rotary, q and k norm, backward",
    [OP_LOSS] = "loss rows",
    [OP_LOSS_GRADIENT] = "loss rows, gradient",
    [OP_NORM_OF_SUMS] = "norm of the gradients",
    [OP_UPDATE] = "AdamW",
};
_Static_assert(sizeof op_names / sizeof *op_names == OPS, "each has a name");

/* Inputs in turns, so that none is found in the cache. */
struct bench {
    struct dry_cuda c;
    struct dry_arch arch;
    struct dry_cuda_layer layer;
    dry_bf16 *narrow[SETS], *gradient[SETS], *hidden[SETS]; /* [T, H] */
    dry_bf16 *wide[SETS], *up[SETS];                        /* [T, 2F], [T, F] */
    dry_bf16 *qkv[SETS], *raw[SETS];
    dry_bf16 *table, *logits;
    int32_t *id, *label;
    double *norm;
};

static void must(int failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* Random bfloat16 of +-[0.5, 1). */
static void *device_random(size_t bytes)
{
    enum { CHUNK = 1 << 20 };
    static uint16_t host[CHUNK];
    static uint64_t state = 88172645463325252u;
    char *p = NULL;

    must(cudaMalloc((void **)&p, bytes), "cudaMalloc");
    for (size_t k = 0; k < CHUNK; k++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        host[k] = (uint16_t)(0x3f00 | (state >> 40 & 0x807f));
    }
    for (size_t i = 0; i < bytes; i += sizeof host)
        must(cudaMemcpy(p + i, host, bytes - i < sizeof host ? bytes - i : sizeof host,
                        cudaMemcpyHostToDevice),
             "cudaMemcpy");
    return p;
}

/* 0 .. limit - 1, mixed. */
static int32_t *device_numbers(int64_t n, int64_t limit)
{
    int32_t *host = malloc((size_t)n * sizeof *host), *p = NULL;

    must(!host, "malloc");
    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)(i * 7919 % limit);
    must(cudaMalloc((void **)&p, (size_t)n * sizeof *p), "cudaMalloc");
    must(cudaMemcpy(p, host, (size_t)n * sizeof *p, cudaMemcpyHostToDevice), "cudaMemcpy");
    free(host);
    return p;
}

static struct dry_cuda_rows rows_of(const struct bench *b, int64_t width, int64_t x_width)
{
    return (struct dry_cuda_rows){.rows = b->c.batch.tokens,
                                  .useful = b->c.batch.tokens,
                                  .width = width,
                                  .x_pitch = x_width + PAD,
                                  .y_pitch = width + PAD};
}

static cudaError_t op_run(struct bench *b, enum op op, int set)
{
    struct dry_cuda *c = &b->c;
    struct dry_cuda_rows h = rows_of(b, b->arch.hidden, b->arch.hidden),
                         f = rows_of(b, b->arch.ffn, 2 * b->arch.ffn);
    struct dry_adamw o = {
        .rate = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = 0.01, .step = 1};
    struct dry_cuda_update u = {.sums = c->sums,
                                .gradients = c->gradients,
                                .norm = b->norm,
                                .max_norm = 1,
                                .terms = dry_update_terms(&o),
                                .values = c->values,
                                .m = c->m,
                                .v = c->v};

    b->arch.qk_norm = op == OP_ROTARY_NORM || op == OP_ROTARY_NORM_BACKWARD;
    switch (op) {
    case OP_EMBED:
        h.x_pitch = b->arch.hidden;
        return dry_cuda_embed_launch(&h, b->id, b->table, b->narrow[set], c->stream);
    case OP_NORM:
        return dry_cuda_norm_forward_launch(&h, b->narrow[set], b->table, 1e-6, b->hidden[set], NULL,
                                            c->stream);
    case OP_NORM_BACKWARD:
        return dry_cuda_norm_backward_launch(&h, b->narrow[set], b->table, b->gradient[set], 1e-6, 1,
                                             b->hidden[set], c->stream);
    case OP_SWIGLU:
        return dry_cuda_swiglu_forward_launch(&f, b->wide[set], b->up[set], c->stream);
    case OP_SWIGLU_BACKWARD:
        return dry_cuda_swiglu_backward_launch(&f, b->wide[set], b->up[set], c->stream);
    case OP_ROTARY:
    case OP_ROTARY_NORM:
        return dry_cuda_rotary_forward_launch(c, &b->layer, b->qkv[set], b->raw[set]);
    case OP_ROTARY_BACKWARD:
    case OP_ROTARY_NORM_BACKWARD:
        return dry_cuda_rotary_backward_launch(c, &b->layer, b->raw[set], b->qkv[set]);
    case OP_LOSS:
    case OP_LOSS_GRADIENT:
        return dry_cuda_loss_rows_launch(b->logits, LOSS_ROWS, b->arch.vocab, dry_cuda_logits_pitch(c),
                                         b->label, op == OP_LOSS_GRADIENT, c->sums + c->gradients, c->stream);
    case OP_NORM_OF_SUMS:
        return dry_cuda_norm_launch(c->sums, c->gradients, c->partial, b->norm, c->stream);
    default:
        return dry_cuda_update_launch(&u, 16 * c->sms, c->stream);
    }
}

/* What one reads and writes at least. */
static double op_bytes(const struct bench *b, enum op op)
{
    double t = (double)b->c.batch.tokens, h = (double)b->arch.hidden * t, f = (double)b->arch.ffn * t;
    double qk = (double)((b->arch.heads + b->arch.kv_heads) * b->arch.head_dim) * t;
    double v = (double)b->arch.vocab * LOSS_ROWS, n = (double)b->c.gradients;

    return (const double[]){
        [OP_EMBED] = 4 * h,
        [OP_NORM] = 4 * h,
        [OP_NORM_BACKWARD] = 8 * h,
        [OP_SWIGLU] = 6 * f,
        [OP_SWIGLU_BACKWARD] = 12 * f,
        [OP_ROTARY] = 4 * qk,
        [OP_ROTARY_NORM] = 6 * qk,
        [OP_ROTARY_BACKWARD] = 4 * qk,
        [OP_ROTARY_NORM_BACKWARD] = 6 * qk,
        [OP_LOSS] = 2 * v,
        [OP_LOSS_GRADIENT] = 6 * v,
        [OP_NORM_OF_SUMS] = 8 * n,
        [OP_UPDATE] = 32 * n,
    }[op];
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Milliseconds of one, the median of some rounds. */
static double op_time(struct bench *b, enum op op)
{
    float ms[ROUNDS];
    cudaEvent_t begin, end;

    must(cudaEventCreate(&begin) || cudaEventCreate(&end), "cudaEventCreate");
    for (int i = 0; i < SETS; i++)
        must(op_run(b, op, i), op_names[op]);
    for (int r = 0; r < ROUNDS; r++) {
        must(cudaEventRecord(begin, b->c.stream), "cudaEventRecord");
        for (int i = 0; i < REPEATS; i++)
            must(op_run(b, op, i % SETS), op_names[op]);
        must(cudaEventRecord(end, b->c.stream) || cudaEventSynchronize(end), op_names[op]);
        must(cudaEventElapsedTime(&ms[r], begin, end), "cudaEventElapsedTime");
    }
    qsort(ms, ROUNDS, sizeof *ms, ascending);
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return (double)ms[ROUNDS / 2] / REPEATS;
}

static void device_make(struct bench *b)
{
    struct dry_cuda *c = &b->c;
    const struct dry_arch *a = &b->arch;
    size_t t = (size_t)c->batch.tokens, narrow = t * (size_t)(a->hidden + PAD) * 2;
    size_t qk = (size_t)((a->heads + a->kv_heads) * a->head_dim), n = PARAMETERS;
    size_t table = (size_t)(a->vocab * a->hidden) * 2, half = (size_t)a->head_dim / 2;

    must(cudaStreamCreate(&c->stream), "cudaStreamCreate");
    for (int i = 0; i < SETS; i++) {
        b->narrow[i] = device_random(narrow);
        b->gradient[i] = device_random(narrow);
        b->hidden[i] = device_random(narrow);
        b->wide[i] = device_random(t * (size_t)(2 * a->ffn + PAD) * 2);
        b->up[i] = device_random(t * (size_t)(a->ffn + PAD) * 2);
        b->qkv[i] = device_random(t * (qk + (size_t)(a->kv_heads * a->head_dim) + PAD) * 2);
        b->raw[i] = device_random(t * qk * 2);
    }
    b->table = device_random(table);
    b->logits = device_random((size_t)(LOSS_ROWS * dry_cuda_logits_pitch(c)) * 2);
    b->layer.q_norm = b->layer.k_norm = b->table;
    b->id = device_numbers((int64_t)t, a->vocab);
    b->label = device_numbers(LOSS_ROWS, a->vocab);
    c->position = device_numbers((int64_t)t, 1024);
    c->cosine = device_random(1024 * half * sizeof(float));
    c->sine = device_random(1024 * half * sizeof(float));
    c->gradients = PARAMETERS;
    c->values = device_random(n * sizeof(float));
    c->m = device_random(n * sizeof(float));
    c->v = device_random(n * sizeof(float));
    c->sums = device_random((n + DRY_SUMS) * sizeof(int64_t));
    must(cudaMemset(c->sums, 0, (n + DRY_SUMS) * sizeof(int64_t)), "cudaMemset");
    must(cudaMemset(c->sums + n + DRY_SUM_TOKENS, 1, sizeof(int64_t)),
         "cudaMemset"); /* some: the update is done */
    must(cudaMalloc((void **)&c->partial, (n / DRY_CUDA_NORM_BLOCK + 1) * sizeof(double)), "cudaMalloc");
    must(cudaMalloc((void **)&b->norm, sizeof(double)), "cudaMalloc");
}

int main(int argc, char **argv)
{
    static const int64_t usual[] = {6144, 3584, 18944, 28, 4, 128, 152064};
    int64_t size[sizeof usual / sizeof *usual];
    struct bench b = {.c = {.pad = PAD}};
    struct cudaDeviceProp p;

    for (int i = 0; i < (int)(sizeof usual / sizeof *usual); i++)
        size[i] = argc > i + 1 ? atoll(argv[i + 1]) : usual[i];
    b.arch = (struct dry_arch){.hidden = size[1],
                               .ffn = size[2],
                               .heads = size[3],
                               .kv_heads = size[4],
                               .head_dim = size[5],
                               .vocab = size[6],
                               .norm_eps = 1e-6};
    b.c.arch = &b.arch;
    b.c.batch = (struct dry_batch){.tokens = size[0], .useful = size[0]};
    must(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    b.c.sms = p.multiProcessorCount;
    printf("%s, %d multiprocessors; %lld tokens\n", p.name, p.multiProcessorCount, (long long)size[0]);
    device_make(&b);
    for (enum op op = 0; op < OPS; op++) {
        double ms = op_time(&b, op), bytes = op_bytes(&b, op);
        printf("%-32s %8.4f ms  %6.0f GB/s  floor %7.4f ms  %5.1f %% of the memory's rate\n", op_names[op],
               ms, bytes / ms / 1e6, bytes / memory_rate * 1e3, 100 * bytes / memory_rate * 1e3 / ms);
    }
    must(cudaDeviceSynchronize(), "the last kernel");
    return 0;
}
