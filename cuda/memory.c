/*
 * The CUDA backend's memory: one function lays out weights, state and workspace, for sizes and for pointers
 * alike. Owns nothing; the blocks belong to backend.c.  Must not know of operations beyond their buffers.
 */
#include "config.h"

#include "cuda/cuda.h"

#include "base/fault.h"
#include "base/log.h"
#include "compute/carve.h"

enum {
    ALIGNMENT = 256,
    LOGITS_BYTES = 352 << 20, /* of one chunk of the loss head */
    CHUNK_MULTIPLE = 128,     /* its rows: whole tiles of a product */
    CHUNK_ROWS = 4096,        /* and at most so many */
    GEMM_BYTES = 32 << 20     /* of cuBLASLt's workspace */
};

static dry_bf16 *halves(struct dry_carve *c, int64_t rows, int64_t columns)
{
    return dry_carve(c, rows, columns, sizeof(dry_bf16));
}

static float *floats(struct dry_carve *c, int64_t rows, int64_t columns)
{
    return dry_carve(c, rows, columns, sizeof(float));
}

static void weights_layout(struct dry_cuda *c, struct dry_carve *k)
{
    const struct dry_arch *a = c->arch;

    c->embed = dry_cuda_host_embed(c) ? NULL : halves(k, a->vocab, a->hidden);
    c->head = c->base->head == c->base->embed ? c->embed : halves(k, a->vocab, a->hidden);
    c->norm = halves(k, 1, a->hidden);
    for (int64_t l = 0; l < a->layers; l++) {
        const struct dry_base_layer *from = &c->base->layer[l];
        struct dry_cuda_layer to = {.q_norm = NULL};
        for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
            to.weight[g] = halves(k, dry_group_out(a, g) + c->pad, dry_group_in(a, g) + c->pad);
            to.bias[g] = dry_group_has_bias(from, g) ? halves(k, 1, dry_group_out(a, g)) : NULL;
        }
        to.norm[DRY_NORM_INPUT] = halves(k, 1, a->hidden);
        to.norm[DRY_NORM_POST] = halves(k, 1, a->hidden);
        if (a->qk_norm) {
            to.q_norm = halves(k, 1, a->head_dim);
            to.k_norm = halves(k, 1, a->head_dim);
        }
        if (c->layer)
            c->layer[l] = to;
    }
}

static void state_layout(struct dry_cuda *c, struct dry_carve *k)
{
    int64_t parameters = c->adapter ? c->adapter->parameters : 0;

    c->gradients = c->limits.training ? parameters : 0;
    c->values = floats(k, 1, parameters);
    c->m = floats(k, 1, c->gradients);
    c->v = floats(k, 1, c->gradients);
    c->sums = dry_carve(k, 1, c->gradients + DRY_SUMS, sizeof *c->sums);
}

/* How rows are cut, and with it the shapes of products and their bits, depends on the vocabulary alone: one
 * tile of rows where that holds them all, else whole chunks. */
static int64_t chunk_rows(const struct dry_cuda *c)
{
    int64_t rows = LOGITS_BYTES / ((int64_t)sizeof(dry_bf16) * c->arch->vocab);

    rows -= rows % CHUNK_MULTIPLE;
    if (rows < CHUNK_MULTIPLE || c->limits.rows <= CHUNK_MULTIPLE)
        rows = CHUNK_MULTIPLE;
    return rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
}

/* What a micro-batch is copied into, at once. */
static void batch_layout(struct dry_cuda *c, struct dry_carve *k)
{
    const struct dry_limits *l = &c->limits;
    size_t first = k->used;

    c->batch_block = k->base ? k->base + k->used : NULL;
    c->id = dry_carve(k, l->tokens, 1, sizeof *c->id);
    c->position = dry_carve(k, l->tokens, 1, sizeof *c->position);
    c->record_of = dry_carve(k, l->tokens, 1, sizeof *c->record_of);
    c->row_key = dry_carve(k, l->tokens, 1, sizeof *c->row_key);
    c->offset = dry_carve(k, l->records + 1, 1, sizeof *c->offset);
    c->record = dry_carve(k, l->records, 1, sizeof *c->record);
    c->row = dry_carve(k, l->rows, 1, sizeof *c->row);
    c->label = dry_carve(k, l->rows, 1, sizeof *c->label);
    c->sequences = dry_carve(k, dry_cuda_attention_words(c), 1, sizeof *c->sequences);
    c->batch_bytes = k->used - first;
    c->staged_bytes = c->batch_bytes;
    if (dry_cuda_host_embed(c))
        c->staged_bytes += (size_t)l->tokens * (size_t)c->arch->hidden * sizeof(dry_bf16);
}

static int64_t widest_input(const struct dry_arch *a)
{
    int64_t q = a->heads * a->head_dim, widest = a->hidden > a->ffn ? a->hidden : a->ffn;

    return q > widest ? q : widest;
}

static void workspace_layout(struct dry_cuda *c, struct dry_carve *k)
{
    const struct dry_arch *a = c->arch;
    const struct dry_limits *l = &c->limits;
    int64_t half = a->head_dim / 2;
    int drops = l->training && c->adapter && c->adapter->dropout > 0;

    batch_layout(c, k);
    c->cosine = floats(k, l->longest, half);
    c->sine = floats(k, l->longest, half);
    c->chunk = chunk_rows(c);
    c->partial = dry_carve(k, c->gradients / DRY_CUDA_NORM_BLOCK + 1, 1, sizeof *c->partial);
    c->kept = l->training && c->adapter
                  ? halves(k, (dry_cuda_kept_at(c, a->layers - 1, DRY_GROUP_DOWN) + 1) * l->tokens, c->pad)
                  : NULL;
    c->inverse = l->training && c->adapter ? floats(k, 2 * a->layers, l->tokens) : NULL;
    c->reduce_bytes = dry_cuda_reduce_bytes(c);
    c->reduce = dry_carve(k, 1, (int64_t)c->reduce_bytes, 1);
    c->hidden = (dry_bf16 *)(void *)c->reduce; /* no thin product runs while the loss head does */
    c->dhidden = c->hidden ? c->hidden + dry_cuda_loss_elements(c) : NULL;
    c->dropped = drops ? halves(k, l->tokens, widest_input(a) + c->pad) : NULL;
    c->gemm_bytes = GEMM_BYTES;
    c->gemm_workspace = dry_carve(k, 1, (int64_t)c->gemm_bytes, 1);
}

void dry_cuda_scratch(struct dry_cuda *c, struct dry_scratch *scratch)
{
    struct dry_carve k = {.alignment = ALIGNMENT};

    c->chunk = chunk_rows(c);
    (void)halves(&k, c->chunk, dry_cuda_logits_pitch(c));
    scratch->loss = k.used;
    scratch->attention = dry_cuda_attention_bytes(c);
}

enum dry_status dry_cuda_layout(struct dry_cuda *c, size_t *weights, size_t *state, size_t *workspace)
{
    struct dry_carve w = {.alignment = ALIGNMENT, .base = c->weights_block},
                     s = {.alignment = ALIGNMENT, .base = c->state_block},
                     k = {.alignment = ALIGNMENT, .base = c->workspace_block};

    weights_layout(c, &w);
    state_layout(c, &s);
    workspace_layout(c, &k);
    if (w.overflow || s.overflow || k.overflow) {
        dry_error("%s: the model and micro-batch need more memory than can be addressed; use a smaller "
                  "--micro-batch-tokens",
                  c->base->dir);
        return DRY_ERR_MEMORY;
    }
    *weights = w.used;
    *state = s.used;
    *workspace = k.used;
    return DRY_OK;
}

void *dry_cuda_alloc(struct dry_cuda *c, size_t bytes, const char *what)
{
    void *p = NULL;
    cudaError_t e = c->faults && dry_fault("cuda-memory") ? cudaErrorMemoryAllocation : cudaMalloc(&p, bytes);

    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;
        const double gib = 1 << 30;

        (void)cudaMemGetInfo(&left, &all);
        dry_error(
            "GPU %d: no room for %s: %.2f GiB are needed, %.2f of its %.2f are left, the rest is taken by "
            "what "
            "runs there (nvidia-smi lists it); wait for it, take another card by --devices, or use a smaller "
            "--micro-batch-tokens",
            c->device, what, (double)bytes / gib, (double)left / gib, (double)all / gib);
        (void)cudaGetLastError();
        return NULL;
    }
    if (dry_cuda_check(c, e, "cudaMalloc"))
        return NULL;
    if (dry_cuda_check(c, cudaMemsetAsync(p, 0, bytes, c->stream), "cudaMemsetAsync")) {
        (void)cudaFree(p);
        return NULL;
    }
    return p;
}
