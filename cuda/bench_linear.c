/*
 * Times the linears of one layer on a GPU, product by product, beside what memory and matrix units allow.
 * Owns its own tiny backend: one layer of random weights, no base.  Not installed; make cuda/bench_linear.
 *
 * usage: cuda/bench_linear [TOKENS [RANK [HIDDEN KV_WIDTH FFN]]]    default: 6144 16 3584 512 18944
 *
 * Thin products: ms and the share of the memory's rate when each large tensor is read once. Products: TFLOP/s
 * of the base alone, so that the adapter's columns count as time only; "plain" is the same product without
 * them.
 */
#include "config.h"

#include "cuda/linear.c" /* its functions one by one */

#include <stdio.h>
#include <stdlib.h>

enum { SETS = 3, REPEATS = 10, ROUNDS = 5, LAYERS = 28 };
static const double memory_rate = 4.2e12; /* bytes a second that a copy on an H200 reads and writes */

enum op { OP_FORWARD, OP_FORWARD_PLAIN, OP_BACKWARD, OP_BACKWARD_PLAIN, OP_XA, OP_DY, OP_DA, OPS };
static const char *const op_names[] = {
    [OP_FORWARD] = "y = [x | xA] [W | B]",
    [OP_FORWARD_PLAIN] = "y = x W, plain",
    [OP_BACKWARD] = "dx = [dy | u] [W ; A]",
    [OP_BACKWARD_PLAIN] = "dx = dy W, plain",
    [OP_XA] = "x A",
    [OP_DY] = "dy B and dB",
    [OP_DA] = "dA",
};
static const char *const group_names[] = {"q k v", "o", "gate up", "down"};

/* Inputs in turns, so that none is found in the cache. */
struct buffers {
    dry_bf16 *x[SETS], *dy[SETS], *y, *dx;
};

static void must(int failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* Random values of +-[0.5, 1). */
static dry_bf16 *device_random(size_t n)
{
    enum { CHUNK = 1 << 20 };
    static dry_bf16 host[CHUNK];
    static uint64_t state = 88172645463325252u;
    dry_bf16 *p = NULL;

    must(cudaMalloc((void **)&p, n * sizeof *p), "cudaMalloc");
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t count = n - i < CHUNK ? n - i : CHUNK;
        for (size_t k = 0; k < count; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            host[k] = (dry_bf16)(0x3f00 | (state >> 40 & 0x807f));
        }
        must(cudaMemcpy(p + i, host, count * sizeof *p, cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    return p;
}

static enum dry_status op_run(const struct dry_cuda_group *g, enum op op, const struct buffers *b, int set)
{
    struct dry_cuda *c = g->c;
    dry_bf16 *x = b->x[set], *dy = b->dy[set];

    switch (op) {
    case OP_FORWARD:
    case OP_FORWARD_PLAIN:
        return dry_cuda_gemm(c, 1, g->tokens, g->out, g->in + (op == OP_FORWARD ? g->columns : 0), x,
                             g->x_pitch, g->weight, g->w_pitch, 1, dy, g->y_pitch, g->bias, b->y, g->y_pitch);
    case OP_BACKWARD:
    case OP_BACKWARD_PLAIN:
        return dry_cuda_gemm(c, 0, g->tokens, g->in, g->out + (op == OP_BACKWARD ? g->columns : 0), dy,
                             g->y_pitch, g->weight, g->w_pitch, 0, NULL, 0, NULL, b->dx, g->x_pitch);
    case OP_XA:
        return dry_cuda_group_xa(g, x);
    case OP_DY:
        return dry_cuda_group_dy(g, dy);
    default:
        return dry_cuda_group_da(g, x, dy);
    }
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Milliseconds of one, the median of some rounds. */
static double op_time(const struct dry_cuda_group *g, enum op op, const struct buffers *b)
{
    cudaStream_t stream = g->c->stream;
    float ms[ROUNDS];
    cudaEvent_t begin, end;

    must(cudaEventCreate(&begin) || cudaEventCreate(&end), "cudaEventCreate");
    for (int i = 0; i < SETS; i++)
        must((int)op_run(g, op, b, i), op_names[op]);
    for (int r = 0; r < ROUNDS; r++) {
        must(cudaEventRecord(begin, stream), "cudaEventRecord");
        for (int i = 0; i < REPEATS; i++)
            must((int)op_run(g, op, b, i % SETS), op_names[op]);
        must(cudaEventRecord(end, stream) || cudaEventSynchronize(end), op_names[op]);
        must(cudaEventElapsedTime(&ms[r], begin, end), "cudaEventElapsedTime");
    }
    qsort(ms, ROUNDS, sizeof *ms, ascending);
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return (double)ms[ROUNDS / 2] / REPEATS;
}

static void group_time(struct dry_cuda *c, enum dry_group which, double sum[OPS])
{
    struct buffers b = {.y = NULL};
    struct dry_cuda_group g;

    dry_cuda_group_make(c, 0, which, &g);
    for (int i = 0; i < SETS; i++) {
        b.x[i] = device_random((size_t)(g.tokens * g.x_pitch));
        b.dy[i] = device_random((size_t)(g.tokens * g.y_pitch));
    }
    b.y = device_random((size_t)(g.tokens * g.y_pitch));
    b.dx = device_random((size_t)(g.tokens * g.x_pitch));
    for (enum op op = 0; op < OPS; op++) {
        double ms = op_time(&g, op, &b), flops = 2.0 * g.tokens * g.in * g.out;
        double bytes = 2.0 * g.tokens * (op == OP_DY ? g.out : g.in), floor = bytes / memory_rate * 1e3;
        sum[op] += ms;
        if (op < OP_XA)
            printf("%-8s %-24s %8.3f ms  %6.0f TFLOP/s\n", group_names[which], op_names[op], ms,
                   flops / ms / 1e9);
        else
            printf("%-8s %-24s %8.4f ms  floor %7.4f ms  %5.1f %% of the memory's rate\n", group_names[which],
                   op_names[op], ms, floor, 100 * floor / ms);
    }
    for (int i = 0; i < SETS; i++) {
        (void)cudaFree(b.x[i]);
        (void)cudaFree(b.dy[i]);
    }
    (void)cudaFree(b.y);
    (void)cudaFree(b.dx);
}

static void device_make(struct dry_cuda *c)
{
    struct cudaDeviceProp p;
    int64_t n = c->adapter->parameters;
    size_t bytes;

    must(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    c->sms = p.multiProcessorCount;
    must(cudaStreamCreate(&c->stream), "cudaStreamCreate");
    c->layer = calloc(1, sizeof *c->layer);
    for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
        int64_t in = dry_group_in(c->arch, g), out = dry_group_out(c->arch, g);
        c->layer[0].weight[g] = device_random((size_t)((out + c->pad) * (in + c->pad)));
        c->layer[0].bias[g] = g == DRY_GROUP_QKV ? device_random((size_t)out) : NULL;
    }
    c->values = (float *)(void *)device_random((size_t)n * 2);
    c->gradients = n;
    bytes = ((size_t)n + DRY_SUMS) * sizeof *c->sums;
    must(cudaMalloc((void **)&c->sums, bytes) || cudaMemset(c->sums, 0, bytes), "cudaMalloc");
    c->kept = device_random((size_t)(DRY_GROUPS * c->limits.tokens * c->pad));
    c->reduce_bytes = dry_cuda_reduce_bytes(c);
    must(cudaMalloc((void **)&c->reduce, c->reduce_bytes), "cudaMalloc");
    c->gemm_bytes = (size_t)64 << 20;
    must(cudaMalloc(&c->gemm_workspace, c->gemm_bytes), "cudaMalloc");
    must((int)dry_cuda_gemm_create(c) || (int)dry_cuda_linear_create(c), "setting up");
    printf("%s, %d multiprocessors\n", p.name, p.multiProcessorCount);
}

int main(int argc, char **argv)
{
    int64_t tokens = argc > 1 ? atoll(argv[1]) : 6144, rank = argc > 2 ? atoll(argv[2]) : 16;
    int64_t hidden = argc > 5 ? atoll(argv[3]) : 3584, kv = argc > 5 ? atoll(argv[4]) : 512;
    struct dry_arch arch = {
        .hidden = hidden, .layers = 1, .ffn = argc > 5 ? atoll(argv[5]) : 18944, .vocab = 1000};
    struct dry_adapter_request request = {.rank = rank, .alpha = 2 * (double)rank};
    struct dry_cuda c = {.enabled = 1};
    struct dry_adapter *adapter = NULL;
    double sum[OPS] = {0}, thin = 0;

    arch.head_dim = 64;
    arch.heads = hidden / arch.head_dim;
    arch.kv_heads = kv / arch.head_dim;
    must((int)dry_adapter_targets("all", &request.targets) ||
             (int)dry_adapter_create(&arch, &request, &adapter),
         "the adapter");
    c.arch = &arch;
    c.adapter = adapter;
    c.pad = (int)dry_cuda_row_pad(adapter);
    c.limits =
        (struct dry_limits){.tokens = tokens, .records = 1, .rows = tokens, .longest = tokens, .training = 1};
    c.batch = (struct dry_batch){.tokens = tokens, .useful = tokens};
    device_make(&c);
    printf("%lld tokens, rank %lld, hidden %lld, ffn %lld\n", (long long)tokens, (long long)rank,
           (long long)hidden, (long long)arch.ffn);
    for (enum dry_group g = 0; g < DRY_GROUPS; g++)
        group_time(&c, g, sum);
    for (enum op op = 0; op < OPS; op++)
        printf("%d layers %-24s %8.2f ms\n", LAYERS, op_names[op], LAYERS * sum[op]);
    thin = sum[OP_XA] + sum[OP_DY] + sum[OP_DA];
    printf("%d layers: adapters cost %.2f ms in thin products, %.2f ms in wider products, beside %.2f ms of "
           "the base\n",
           LAYERS, LAYERS * thin,
           LAYERS * (sum[OP_FORWARD] - sum[OP_FORWARD_PLAIN] + sum[OP_BACKWARD] - sum[OP_BACKWARD_PLAIN]),
           LAYERS * (sum[OP_FORWARD_PLAIN] + sum[OP_BACKWARD_PLAIN]));
    must(cudaDeviceSynchronize(), "the last kernel");
    return 0;
}
