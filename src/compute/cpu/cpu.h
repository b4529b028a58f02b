/*
 * The CPU backend's inside: its struct, its memory, and what its files share.
 * Owns nothing by itself.  Only files of this folder and the registry may include it.
 *
 * Bits do not depend on the number of threads: work is cut into pieces that follow from shapes alone, a piece
 * is computed by one thread with single-threaded BLAS, and nothing but integers is summed across pieces.
 * Padding rows are neither read nor computed: outputs have zeros there.
 */
#ifndef DRY_COMPUTE_CPU_CPU_H
#define DRY_COMPUTE_CPU_CPU_H

#include "compute/backend.h"

extern const struct dry_backend_ops dry_cpu_ops;

enum {
    DRY_CPU_ROWS = 128,       /* rows of dropped inputs and of attention's backward blocks */
    DRY_CPU_COLUMNS = 512,    /* columns of dropped inputs; half of it: of a gradient tile */
    DRY_CPU_NORM_BLOCK = 4096 /* gradients whose squares make one partial sum of the norm */
};

struct dry_cpu_layer {
    float *weight[DRY_GROUPS]; /* [out, in], members' rows one after another */
    float *bias[DRY_GROUPS];   /* [out] or NULL */
    float *norm[2];            /* [H], by enum dry_norm */
    float *q_norm, *k_norm;    /* [D] or NULL */
};

/* A block of query rows of one record. */
struct dry_cpu_block {
    int32_t record, first;
};

struct dry_cpu {
    struct dry_backend backend; /* first */
    struct dry_backend_options options;
    char description[160];
    int threads;

    const struct dry_base *base;
    const struct dry_adapter *adapter; /* NULL: none */
    const struct dry_arch *arch;
    struct dry_limits limits;
    int enabled, dropout; /* the adapter is used; the batch has dropout */

    /* Three allocations and the arena. */
    void *weights_block, *state_block, *workspace_block, *arena;

    /* weights */
    struct dry_cpu_layer *layer;
    float *embed, *head, *norm; /* head = embed when tied */

    /* state; m, v and gradient sums only in training */
    float *values, *m, *v;
    int64_t *sums; /* [gradients + DRY_SUMS] */
    int64_t gradients;
    double *partial; /* [norm blocks] */

    /* workspace */
    struct dry_batch batch; /* its arrays are ours */
    int32_t *id, *position, *offset, *row, *label;
    int64_t *record;
    uint64_t *row_key;           /* [T] counter of dropout */
    struct dry_cpu_block *block; /* [blocks] */
    int64_t blocks;
    float *cosine, *sine;    /* [longest, D / 2] */
    float *xa, *u;           /* [T, ranks of a group] */
    float *dk, *dv;          /* [T, Q] */
    float *hidden, *dhidden; /* [chunk, H] */
    float *logits;           /* [chunk, V] */
    int64_t chunk;
    float *scratch; /* [threads, scratch_floats] */
    size_t scratch_floats;
};

static inline struct dry_cpu *dry_cpu_of(struct dry_backend *b)
{
    return (struct dry_cpu *)b;
}

static inline size_t dry_cpu_bytes(int64_t rows, int64_t columns)
{
    return (size_t)rows * (size_t)columns * sizeof(float);
}

/* memory.c. Local. Sizes all buffers for base, adapter and limits (all set in cpu); with the three blocks set
 * it also points every buffer into them. MEMORY on overflow. */
enum dry_status dry_cpu_layout(struct dry_cpu *cpu, size_t *weights, size_t *state, size_t *workspace);
/* memory.c. The base's tensors to float32. */
void dry_cpu_fill_weights(struct dry_cpu *cpu);
/* This thread's scratch, inside a parallel region. */
float *dry_cpu_scratch(struct dry_cpu *cpu);
/* Zeros in rows useful..T-1. */
void dry_cpu_zero_padding(const struct dry_cpu *cpu, float *y, int64_t columns);

/* gemm.c. BLAS on one thread from now on; text says what it is. */
void dry_cpu_blas_setup(char *text, size_t size);
/* C [M, N] = alpha op(A) op(B) + beta C, by the calling thread alone. */
void dry_cpu_gemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
                  const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                  int64_t ldc);
/* The tiles of an [M, N] result: a function of the shape only. */
struct dry_cpu_grid {
    int64_t m, n, rows, columns; /* result; tile */
    int64_t down, across, tiles;
};
struct dry_cpu_grid dry_cpu_grid_make(int64_t m, int64_t n);
struct dry_cpu_tile {
    int64_t row, rows, column, columns;
};
struct dry_cpu_tile dry_cpu_grid_tile(const struct dry_cpu_grid *grid, int64_t index);

/* rotary.c. q and k of all rows in place, forward; gradient of them, backward. */
enum dry_status dry_cpu_rotary_tables(struct dry_cpu *cpu);
void dry_cpu_rotary_forward(struct dry_cpu *cpu, const struct dry_cpu_layer *layer, float *qkv, float *raw);
void dry_cpu_rotary_backward(struct dry_cpu *cpu, const struct dry_cpu_layer *layer, const float *raw,
                             float *dqkv);

/* norm.c. One row of RMSNorm: y = x weight / sqrt(mean(x^2) + eps), and its gradient: dx = or (add) +=. */
void dry_cpu_rms_row(const float *x, const float *weight, int64_t n, double eps, float *y);
void dry_cpu_rms_row_backward(const float *x, const float *weight, const float *dy, int64_t n, double eps,
                              int add, float *dx);

/* swiglu.c. y [T, F] = silu(gate) up of gate_up [T, 2F]; and back: gate_up becomes its gradient, and y, the
 * gradient of the output, becomes the output again. */
void dry_cpu_swiglu_forward(const struct dry_cpu *cpu, const float *gate_up, float *y);
void dry_cpu_swiglu_backward(const struct dry_cpu *cpu, float *gate_up, float *y);

/* linear.c. linear_backward in two: dx, and the sums of dA and dB, which may follow later, before another
 * group's. */
void dry_cpu_linear_input(struct dry_cpu *cpu, int64_t layer, enum dry_group which, const float *dy,
                          float *dx);
void dry_cpu_linear_sums(struct dry_cpu *cpu, int64_t layer, enum dry_group which, const float *x,
                         const float *dy);

/* sums.c. The fixed-point value added to *sum; returns the flag raised, or 0. */
int64_t dry_cpu_sum_add(int64_t *sum, double value, double scale, int64_t limit);
/* Adds a gradient block [rows, columns] of leading dimension ld to sums at sum (dense rows of `stride`). */
int64_t dry_cpu_gradient_add(const float *g, int64_t rows, int64_t columns, int64_t ld, int64_t *sum,
                             int64_t stride);
int64_t *dry_cpu_words(struct dry_cpu *cpu);

/* The operations, as in compute/backend.h. */
enum dry_status dry_cpu_embed(struct dry_backend *b, void *y);
enum dry_status dry_cpu_norm_forward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                     void *y);
enum dry_status dry_cpu_norm_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                      const void *dy, void *dx);
enum dry_status dry_cpu_linear_forward(struct dry_backend *b, int64_t layer, enum dry_group g, const void *x,
                                       const void *residual, void *y);
enum dry_status dry_cpu_linear_backward(struct dry_backend *b, int64_t layer, enum dry_group g, const void *x,
                                        const void *dy, void *dx);
enum dry_status dry_cpu_attention_forward(struct dry_backend *b, int64_t layer, void *qkv, void *raw, void *o,
                                          float *lse, void *scratch);
enum dry_status dry_cpu_attention_backward(struct dry_backend *b, int64_t layer, const void *qkv,
                                           const void *raw, const void *o, const float *lse, const void *d_o,
                                           void *dqkv, void *scratch);
enum dry_status dry_cpu_normed_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                        void *normed, int again, const void *dy, void *dx);
enum dry_status dry_cpu_mlp_forward(struct dry_backend *b, int64_t layer, const void *gate_up,
                                    const void *residual, void *act, void *y);
enum dry_status dry_cpu_mlp_backward(struct dry_backend *b, int64_t layer, const struct dry_mlp *m);
enum dry_status dry_cpu_loss(struct dry_backend *b, const void *x, void *dx, void *scratch);
enum dry_status dry_cpu_sums_clear(struct dry_backend *b);
enum dry_status dry_cpu_sums_block(struct dry_backend *b, int64_t **block, size_t *count);
enum dry_status dry_cpu_sums_fetch(struct dry_backend *b, size_t first, int64_t **host, size_t *count);
enum dry_status dry_cpu_sums_store(struct dry_backend *b, size_t first, size_t count);
enum dry_status dry_cpu_sums_read(struct dry_backend *b, int64_t words[DRY_SUMS]);
enum dry_status dry_cpu_adamw(struct dry_backend *b, const struct dry_adamw *o, double *norm);
enum dry_status dry_cpu_gradient_get(struct dry_backend *b, float *gradient);

#endif
