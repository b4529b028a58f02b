/*
 * The CUDA backend's inside: its struct, its memory, and what its files share.
 * Owns nothing by itself.  Only files of this folder may include it (and the registry: only dry_cuda_ops).
 *
 * Host side in C (one file per concern), kernels in .cu behind extern "C" launchers.  One stream; nothing
 * inside a step waits for it.  Activations are bfloat16 rows of pitch width + pad, pad = the largest sum of
 * ranks of one group, rounded up to 64: the pad columns of a linear's input hold scale x A^T, those of its
 * output gradient scale dy B, so that one product does base and adapter (doc/design.md, section 6;
 * bench/RESULTS.md).  raw and lse are dense.
 *
 * Bits do not depend on time: no float atomics, fixed grids, algorithms chosen by a fixed rule from the shape
 * alone.
 */
#ifndef DRY_CUDA_CUDA_H
#define DRY_CUDA_CUDA_H

#include "compute/backend.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t dry_bf16; /* bits; kernels cast to __nv_bfloat16 */

enum { DRY_CUDA_NORM_BLOCK = 4096 }; /* gradients whose squares make one partial sum of the norm */

/* A group's weights: rows out + p, pitch in + p (p = pad): [W | B] over [A | .], B block-diagonal over
 * members. */
struct dry_cuda_layer {
    dry_bf16 *weight[DRY_GROUPS]; /* [out + pad, in + pad] */
    dry_bf16 *bias[DRY_GROUPS];   /* [out] or NULL */
    dry_bf16 *norm[2];            /* [H] */
    dry_bf16 *q_norm, *k_norm;    /* [D] or NULL */
};

/* A member of a group with an adapter, as kernels take it. */
struct dry_cuda_member {
    int out_first, out;   /* columns of the group's output */
    int rank_first, rank; /* columns of the pad; rank 0: not adapted */
    float scale;
    int64_t a, b; /* offsets in masters and sums, as struct dry_adapter_part */
    int proj;     /* enum dry_proj, key of dropout */
};

struct dry_cuda_gemm;      /* gemm.c: cuBLASLt handle, workspace, algorithms by shape */
struct dry_cuda_linear;    /* linear.c: kernels of the thin products by width, table of adapter copies; NULL
                              without adapter */
struct dry_cuda_marks;     /* marks.c */
struct dry_cuda_attention; /* attention_*.c: plans by shape; NULL where the own kernel is used */

struct dry_cuda {
    struct dry_backend backend; /* first */
    struct dry_backend_options options;
    char description[480];
    int device, sms;
    int faults; /* DRY_FAULT is set: checks ask whether they are to fail */
    cudaStream_t stream;

    const struct dry_base *base;
    const struct dry_adapter *adapter; /* NULL: none */
    const struct dry_arch *arch;
    struct dry_limits limits;
    int enabled, dropout;
    int pad; /* 0 without adapter, else a multiple of 64 */

    /* Three device allocations and the arena. */
    void *weights_block, *state_block, *workspace_block, *arena;

    /* weights */
    struct dry_cuda_layer *layer; /* host array; NULL while only sizes are asked for */
    dry_bf16 *embed, *head,
        *norm; /* [V, H] dense; head = embed when tied; embed NULL: its rows come from the host */

    /* state, all device: float32 masters and moments; sums [gradients + DRY_SUMS] */
    float *values, *m, *v;
    int64_t *sums;
    int64_t gradients;
    double *partial; /* [gradients / DRY_CUDA_NORM_BLOCK + 1] norm's partial sums */

    /* workspace */
    struct dry_batch batch; /* counts are valid on the host; its arrays point to device memory */
    void *batch_block;      /* the device arrays below, copied at once */
    size_t batch_bytes;
    size_t staged_bytes; /* of a half of staging: batch_bytes, and embedding rows that come from the host */
    int32_t *id, *position, *offset, *row, *label,
        *record_of; /* device; record_of [T]: row's record in the batch, -1: padding */
    int64_t *record;
    int32_t *sequences;    /* attention's tables of the micro-batch's groups */
    uint64_t *row_key;     /* [T] counter of dropout */
    void *staging;         /* pinned: two host copies of batch_block used in turn, then a piece of the sums */
    cudaEvent_t staged[2]; /* the half's copy is done */
    int half;
    int64_t *piece;       /* pinned, DRY_CUDA_PIECE words */
    float *cosine, *sine; /* [longest, D / 2] device */
    dry_bf16 *hidden;     /* [chunk, H] gathered, normalised supervised rows */
    dry_bf16 *logits;     /* [chunk, V], pitch dry_cuda_logits_pitch; in place their gradient */
    dry_bf16 *dhidden;    /* [chunk, H] */
    int64_t chunk;
    dry_bf16 *kept; /* [see dry_cuda_kept_at, T, pad] scale x A^T of forward, which backward needs; only in
                       training */
    float *inverse; /* [layers, 2, T] 1 / rms of each row of the norms of forward; only with kept */
    float *reduce;  /* scratch of two-stage reductions over rows (dA, dB) */
    size_t reduce_bytes;
    dry_bf16 *dropped;         /* [T, in] dropout(x), only with dropout */
    void *attention_workspace; /* lent for the time of an operation, as are logits */
    void *gemm_workspace;
    size_t gemm_bytes;

    struct dry_cuda_gemm *gemm;
    struct dry_cuda_linear *linear;
    struct dry_cuda_attention *attention;
    struct dry_cuda_marks *marks;
};

static inline struct dry_cuda *dry_cuda_of(struct dry_backend *b)
{
    return (struct dry_cuda *)b;
}
static inline int64_t dry_cuda_pitch(const struct dry_cuda *c, int64_t width)
{
    return width + c->pad;
}
/* Rows of logits start on 16 bytes, whatever the vocabulary: for vectors, and for the matrix units. */
static inline int64_t dry_cuda_logits_pitch(const struct dry_cuda *c)
{
    return (c->arch->vocab + 7) / 8 * 8;
}

/* Of hidden, and of dhidden behind it. */
static inline int64_t dry_cuda_loss_elements(const struct dry_cuda *c)
{
    return (c->chunk * c->arch->hidden + 127) / 128 * 128; /* 256 bytes */
}

/* Whether the embedding stays on the host, which sends each micro-batch's rows: where memory matters most,
 * and nothing else on the device reads the table. */
static inline int dry_cuda_host_embed(const struct dry_cuda *c)
{
    return c->limits.training && c->limits.recompute == DRY_RECOMPUTE_FULL && c->base->head != c->base->embed;
}

/* Which [T, pad] of kept is a group's. With full recomputation backward makes those of all groups but down
 * again, directly before it needs them: one set for all layers. */
static inline int64_t dry_cuda_kept_at(const struct dry_cuda *c, int64_t layer, enum dry_group g)
{
    if (c->limits.recompute != DRY_RECOMPUTE_FULL)
        return layer * DRY_GROUPS + g;
    return g == DRY_GROUP_DOWN ? DRY_GROUP_DOWN + layer : (int64_t)g;
}

/* Of a layer's norm; NULL: not in training. */
static inline float *dry_cuda_inverse(const struct dry_cuda *c, int64_t layer, enum dry_norm n)
{
    return c->inverse ? c->inverse + (2 * layer + n) * c->limits.tokens : NULL;
}

/* check.c. Local. OK for cudaSuccess; else one error line with the call's name and the device, DEVICE (MEMORY
 * when out of memory). The loop adds rank, stage and step. */
enum dry_status dry_cuda_check(const struct dry_cuda *c, cudaError_t e, const char *call);
enum dry_status dry_cuda_check_blas(const struct dry_cuda *c, cublasStatus_t e, const char *call);
/* check.c. Local. The error of an earlier kernel, which the libraries' errors hide; "nothing". */
const char *dry_cuda_pending(const struct dry_cuda *c);

/* marks.c. Local. Events and list, made before step 1. */
enum dry_status dry_cuda_marks_create(struct dry_cuda *c);
void dry_cuda_marks_destroy(struct dry_cuda *c);
/* marks.c. Local. Ends the last mark's span here in the stream: before a sync. */
enum dry_status dry_cuda_marks_end(struct dry_cuda *c);
/* marks.c. As mark and marks in compute/backend.h. */
void dry_cuda_mark(struct dry_backend *b, int kind);
enum dry_status dry_cuda_marks_read(struct dry_backend *b, struct dry_mark *mark, int room, int *count);

/* memory.c. Sizes all device buffers (base, adapter, limits, pad set in c); with the blocks set it also
 * points into them. */
enum dry_status dry_cuda_layout(struct dry_cuda *c, size_t *weights, size_t *state, size_t *workspace);
/* memory.c. What attention and the loss head are to be lent under the limits. */
void dry_cuda_scratch(struct dry_cuda *c, struct dry_scratch *scratch);
/* memory.c. Device memory that is zero; NULL: said what it was for. */
void *dry_cuda_alloc(struct dry_cuda *c, size_t bytes, const char *what);
/* weights.c. The base's tensors to bfloat16 in place on the device, through pinned staging, several host
 * threads. */
enum dry_status dry_cuda_fill_weights(struct dry_cuda *c);
/* groups.c. The pad of an adapter's buffers: elements behind every row. */
int64_t dry_cuda_row_pad(const struct dry_adapter *adapter);
/* groups.c. Members of a layer's group; returns how many; *ranks = columns of the pad in use. */
int dry_cuda_members(const struct dry_cuda *c, int64_t layer, enum dry_group g,
                     struct dry_cuda_member member[3], int *ranks);

/* gemm.c. Row-major bf16 with float32 sums: C [m, n] (pitch ldc) = A [m, k] (lda) op(B) + beta C0 (ldc0
 * pitch, may be C)
 * (+ bias [n] when not NULL); op(B) = B^T of B [n, k] (transpose_b) or B [k, n]. One algorithm per shape,
 * never split-K. */
enum dry_status dry_cuda_gemm_create(struct dry_cuda *c);
void dry_cuda_gemm_destroy(struct dry_cuda *c);
/* As ops->algorithms: one object for each algorithm of a product, with the fewest and most rows that it is
 * used for. */
char *dry_cuda_gemm_algorithms(const struct dry_cuda *c);
enum dry_status dry_cuda_gemm(struct dry_cuda *c, int transpose_b, int64_t m, int64_t n, int64_t k,
                              const dry_bf16 *a, int64_t lda, const dry_bf16 *b, int64_t ldb, float beta,
                              const dry_bf16 *c0, int64_t ldc0, const dry_bf16 *bias, dry_bf16 *out,
                              int64_t ldc);

enum { DRY_CUDA_PIECE = 1 << 21 }; /* words of the sums that go over the host at once */

/* The operations, as in compute/backend.h: elementwise.c, linear.c, mlp.c, attention.c, loss.c, optimizer.c
 */
enum dry_status dry_cuda_embed(struct dry_backend *b, void *y);
/* backend.c. The same from the rows that the host staged with the micro-batch. */
enum dry_status dry_cuda_embed_staged(struct dry_cuda *c, void *y);
enum dry_status dry_cuda_norm_forward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                      void *y);
enum dry_status dry_cuda_norm_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                       const void *dy, void *dx);
enum dry_status dry_cuda_linear_forward(struct dry_backend *b, int64_t layer, enum dry_group g, const void *x,
                                        const void *residual, void *y);
enum dry_status dry_cuda_linear_backward(struct dry_backend *b, int64_t layer, enum dry_group g,
                                         const void *x, const void *dy, void *dx);
enum dry_status dry_cuda_attention_forward(struct dry_backend *b, int64_t layer, void *qkv, void *raw,
                                           void *o, float *lse, void *scratch);
enum dry_status dry_cuda_attention_backward(struct dry_backend *b, int64_t layer, const void *qkv,
                                            const void *raw, const void *o, const float *lse, const void *d_o,
                                            void *dqkv, void *scratch);
enum dry_status dry_cuda_normed_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                         void *normed, int again, const void *dy, void *dx);
enum dry_status dry_cuda_mlp_forward(struct dry_backend *b, int64_t layer, const void *gate_up,
                                     const void *residual, void *act, void *y);
enum dry_status dry_cuda_mlp_backward(struct dry_backend *b, int64_t layer, const struct dry_mlp *m);
enum dry_status dry_cuda_loss(struct dry_backend *b, const void *x, void *dx, void *scratch);
enum dry_status dry_cuda_adamw(struct dry_backend *b, const struct dry_adamw *o, double *norm);
/* linear.c. bf16 copies of A and B inside the weights from the masters, all adapters in one launch. */
enum dry_status dry_cuda_adapter_refresh(struct dry_cuda *c);
/* linear.c. After the blocks are laid out. */
enum dry_status dry_cuda_linear_create(struct dry_cuda *c);
void dry_cuda_linear_destroy(struct dry_cuda *c);
/* attention.c. Bytes of workspace that the limits need; made before step 1. */
enum dry_status dry_cuda_attention_create(struct dry_cuda *c);
void dry_cuda_attention_destroy(struct dry_cuda *c);
size_t dry_cuda_attention_bytes(const struct dry_cuda *c);
/* attention.c. int32 words of c->sequences that the limits need, and what stands there for a micro-batch (its
 * arrays on the host): words is the staged copy. */
int64_t dry_cuda_attention_words(const struct dry_cuda *c);
enum dry_status dry_cuda_attention_batch(struct dry_cuda *c, const struct dry_batch *batch, int32_t *words);
size_t dry_cuda_reduce_bytes(const struct dry_cuda *c);

#ifdef __cplusplus
}
#endif
#endif
