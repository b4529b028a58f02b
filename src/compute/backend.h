/*
 * Backends: where the arithmetic is done.  One table of operations, as coarse as fusion needs; cpu/ is the
 * oracle, cuda/ the fast one.  The backend owns the base weights in its own layout, the adapter and its
 * moments, the gradient sums, and one arena.  train/ lays out the arena and calls the operations in order.  A
 * backend must not know of records' origin, ranks, files or schedules.
 *
 * Shapes: T tokens of a micro-batch (padding included), H hidden, D head_dim, Hq heads, Hk kv heads, Q = Hq
 * D, K = Hk D, F ffn, V vocabulary, R supervised rows.  `act` is the activation type: float32 on cpu,
 * bfloat16 on cuda; buffers are row-major, a row of `width` elements every width + row_pad elements (what is
 * behind the width is the backend's; raw and lse are dense).  "=" overwrites, "+=" accumulates.  Padding rows
 * (useful..T-1) hold finite values that reach no other row and no sum.
 *
 * Sums (doc/design.md, "Exact sums"): gradients of the adapter, of the sum (not the mean) of -log p, go to
 * int64 accumulators as llrint(g * 2^DRY_GRAD_BITS); losses as llrint(loss * 2^DRY_LOSS_BITS).  A value that
 * is not finite or leaves the range raises the flag word.
 */
#ifndef DRY_COMPUTE_BACKEND_H
#define DRY_COMPUTE_BACKEND_H

#include "compute/batch.h"
#include "model/adapter.h"
#include "model/base.h"

enum { DRY_GRAD_BITS = 36, DRY_LOSS_BITS = 32, DRY_GRAD_LIMIT_BITS = 57, DRY_LOSS_LIMIT_BITS = 61 };
/* Bounds of one rank's sums: 2^21 for a gradient, 2^29 for a loss. No wrap-around goes unseen on up to 64
 * ranks for gradients and 4 for losses. */
#define DRY_GRAD_LIMIT (INT64_C(1) << DRY_GRAD_LIMIT_BITS)
#define DRY_LOSS_LIMIT (INT64_C(1) << DRY_LOSS_LIMIT_BITS)

/* Linears that share an input, each with the adapters of its members. Output columns are the members' side by
 * side: QKV gives [T, Q + K + K], GATE_UP gives [T, 2F]. */
enum dry_group { DRY_GROUP_QKV, DRY_GROUP_O, DRY_GROUP_GATE_UP, DRY_GROUP_DOWN, DRY_GROUPS };
int64_t dry_group_in(const struct dry_arch *a, enum dry_group g);
int64_t dry_group_out(const struct dry_arch *a, enum dry_group g);
/* Members in order; returns how many. */
int dry_group_members(enum dry_group g, enum dry_proj member[3]);
/* Non-zero when a member of the layer's group has a bias. */
int dry_group_has_bias(const struct dry_base_layer *layer, enum dry_group g);
/* The largest sum of ranks over the groups of all layers; 0 without an adapter. */
int64_t dry_group_most_ranks(const struct dry_adapter *adapter);

enum dry_norm { DRY_NORM_INPUT, DRY_NORM_POST };

/* Words after the `parameters` gradient sums in the accumulator block. */
enum dry_sum { DRY_SUM_LOSS, DRY_SUM_TOKENS, DRY_SUM_FLAGS, DRY_SUMS };
/* Flags; a rank raises each once, so that added up over ranks they stay apart. */
#define DRY_FLAG_NOT_FINITE INT64_C(1)
#define DRY_FLAG_RANGE (INT64_C(1) << 32)

/* What backward computes again instead of having it kept: norm and SwiGLU outputs; SwiGLU's; each layer from
 * its input. The order of operations is train/'s. A backend may keep less by it: with DRY_RECOMPUTE_FULL the
 * forward operations of each layer but the last, up to gate and up, run again directly before its backward
 * ones. */
enum dry_recompute { DRY_RECOMPUTE_NORMS, DRY_RECOMPUTE_NONE, DRY_RECOMPUTE_FULL };

/* Bounds that buffers and workspaces are laid out for. */
struct dry_limits {
    int64_t tokens, records, rows, longest; /* of one micro-batch */
    int training;                 /* 0: forward and loss only: no moments, no gradient sums, no dropout */
    enum dry_recompute recompute; /* only in training */
};

/* Local. Every backend's first look at a micro-batch: beyond the limits is INTERNAL; an id or label that the
 * base lacks (a cache of another tokenizer) is INPUT. */
enum dry_status dry_batch_check(const struct dry_base *base, const struct dry_limits *limits,
                                const struct dry_batch *batch);

struct dry_backend_options {
    int device;    /* index on this host; cpu: ignored */
    uint64_t seed; /* key of dropout */
};

struct dry_adamw {
    double rate, beta1, beta2, epsilon, decay, max_norm; /* max_norm 0: no clipping */
    int64_t step;                                        /* 1-based, for bias correction */
};

/* What the backward pass of a layer's MLP works on: from the gradient of its output to that of its norm's
 * output, with the sums of dA, dB of down, gate and up. */
struct dry_mlp {
    const void *x; /* [T, H] the norm's input */
    void *normed;  /* [T, H] its output; with `again` it is not kept, and this is room for it */
    int again;
    void *gate_up;  /* [T, 2F] as forward left it; becomes its gradient */
    void *act;      /* [T, F] room */
    const void *dy; /* [T, H] stays as it is: the residual path needs it again */
    int down_only;  /* nothing below down is adapted: its sums alone are wanted; gate_up may stay, dx is NULL
                     */
    void *dx;       /* [T, H] =; NULL: nothing below gate and up is adapted */
};

/* Bytes that an operation works in while it runs and that hold nothing before and after: the caller lends
 * them, 256-byte aligned, from buffers that are not in use. */
struct dry_scratch {
    size_t attention; /* either way */
    size_t loss;
};

struct dry_backend;

/* Time that a device spent from one mark to the next. */
struct dry_mark {
    int kind; /* the caller's */
    double seconds;
};

enum { DRY_DEVICE_ID = 16 };

struct dry_backend_ops {
    const char *name; /* "cpu" */
    size_t act_bytes; /* bytes of one activation element */
    /* Bytes of a device that its libraries take beside all that is asked for here (context, code); 0: none to
     * speak of.
     */
    size_t library_bytes;
    /* How many devices this host has for the backend; NULL where there is nothing to choose (cpu). */
    int (*devices)(void);
    /* What tells a device from every other one of any host, and the bytes of its memory that can still be
     * taken. DEVICE when it is not there or cannot be used, with a sentence. NULL with devices. */
    enum dry_status (*device)(int index, unsigned char id[DRY_DEVICE_ID], size_t *room);
    /* Elements behind every row of an activation buffer. `adapter` may be NULL. */
    int64_t (*row_pad)(const struct dry_adapter *adapter);
    enum dry_status (*create)(const struct dry_backend_options *o, struct dry_backend **b);
    void (*destroy)(struct dry_backend *b);
    /* What runs: "cpu: OpenBLAS 0.3.21 Haswell, 2 threads"; borrowed. */
    const char *(*describe)(struct dry_backend *b);
    /* The algorithms that products have been given so far, as a JSON array, for run.json; dry_free. NULL: no
     * memory. NULL where there is no choice (cpu). */
    char *(*algorithms)(struct dry_backend *b);

    /* Bytes that the backend keeps for weights, adapter state (masters, moments, sums) and its own workspace
     * under these limits: exact, for the plan; and what operations are to be lent. `adapter` may be NULL (no
     * adapter). */
    enum dry_status (*footprint)(const struct dry_base *base, const struct dry_adapter *adapter,
                                 const struct dry_limits *limits, size_t *weights, size_t *state,
                                 size_t *workspace, struct dry_scratch *scratch);
    /* Puts the base in place and allocates state and workspace. base and adapter are borrowed until destroy.
     */
    enum dry_status (*load)(struct dry_backend *b, const struct dry_base *base,
                            const struct dry_adapter *adapter, const struct dry_limits *limits);
    /* The arena of `bytes` bytes for activations; once. Offsets into it are 256-byte aligned. */
    enum dry_status (*arena)(struct dry_backend *b, size_t bytes, void **arena);

    /* Adapter values and moments, float32 host arrays [parameters], both ways; any may be NULL. set also
     * refreshes whatever copies the operations use. */
    enum dry_status (*state_set)(struct dry_backend *b, const float *values, const float *m, const float *v);
    enum dry_status (*state_get)(struct dry_backend *b, float *values, float *m, float *v);
    /* 1 (default): operations use the adapter; 0: the base alone. */
    void (*adapter_enable)(struct dry_backend *b, int on);

    /* The micro-batch that the operations below work on; copied in. dropout 0 switches dropout off
     * (evaluation). */
    enum dry_status (*batch)(struct dry_backend *b, const struct dry_batch *batch, int dropout);

    /* y [T, H] = embedding rows. */
    enum dry_status (*embed)(struct dry_backend *b, void *y);
    /* y [T, H] = RMSNorm(x [T, H]) of the layer's norm; y may not alias x. */
    enum dry_status (*norm_forward)(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                    void *y);
    /* dx [T, H] += gradient of RMSNorm at x for dy. */
    enum dry_status (*norm_backward)(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                     const void *dy, void *dx);
    /* y [T, out] = x W^T + bias + scale dropout(x) A^T B^T, member by member; with residual != NULL: +
     * residual [T, out]. */
    enum dry_status (*linear_forward)(struct dry_backend *b, int64_t layer, enum dry_group g, const void *x,
                                      const void *residual, void *y);
    /* After linear_forward of the same layer, group and x (it may have been done once more since). dx [T, in]
     * = dy W + scale mask (dy B) A (not touched when dx is NULL; may alias neither x nor dy); sums of dA, dB
     * += (fixed point). dy stays as it is: the residual path needs it again. */
    enum dry_status (*linear_backward)(struct dry_backend *b, int64_t layer, enum dry_group g, const void *x,
                                       const void *dy, void *dx);
    /* qkv [T, Q + 2K]: q and k are normalised per head (qk_norm) and rotated in place; with qk_norm the
     * values before go to raw [T, Q + K] when raw is not NULL. Then causal attention inside each record,
     * scale 1/sqrt(D): o [T, Q] =, lse [T, Hq] float32 = log-sum-exp. */
    enum dry_status (*attention_forward)(struct dry_backend *b, int64_t layer, void *qkv, void *raw, void *o,
                                         float *lse, void *scratch);
    /* dqkv [T, Q + 2K] = gradient with respect to the linear's output (before norm and rotation), from the
     * rotated qkv, raw (NULL without qk_norm), o, lse and d_o [T, Q]. */
    enum dry_status (*attention_backward)(struct dry_backend *b, int64_t layer, const void *qkv,
                                          const void *raw, const void *o, const float *lse, const void *d_o,
                                          void *dqkv, void *scratch);
    /* linear_backward of the group whose input is the layer's norm n of x [T, H] (QKV; gate and up). normed
     * [T, H] holds the norm's output, or with again != 0 it is not kept, and normed is room for it. */
    enum dry_status (*normed_backward)(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                       void *normed, int again, const void *dy, void *dx);
    /* act [T, F] = silu(gate) * up, gate_up [T, 2F]; y [T, H] = residual [T, H] + down of act. */
    enum dry_status (*mlp_forward)(struct dry_backend *b, int64_t layer, const void *gate_up,
                                   const void *residual, void *act, void *y);
    /* After linear_forward of gate and up, and mlp_forward. */
    enum dry_status (*mlp_backward)(struct dry_backend *b, int64_t layer, const struct dry_mlp *m);
    /* Final norm, head and -log p on the supervised rows of x [T, H], in chunks: sums of loss and tokens += ;
     * dx [T, H] = gradient of the sum (zero on other rows) unless NULL. */
    enum dry_status (*loss)(struct dry_backend *b, const void *x, void *dx, void *scratch);

    /* Sums: cleared; the block [parameters + DRY_SUMS] int64 that a communicator may add up in place (memory
     * of the backend's kind, all that was asked for done); read back into host memory (the three words only).
     */
    enum dry_status (*sums_clear)(struct dry_backend *b);
    enum dry_status (*sums_block)(struct dry_backend *b, int64_t **block, size_t *count);
    /* The same block piece by piece in host memory, for a communicator that adds up there: fetch gives the
     * words from `first` on, *count of them (0: none are left); store takes the piece back before the next.
     */
    enum dry_status (*sums_fetch)(struct dry_backend *b, size_t first, int64_t **host, size_t *count);
    enum dry_status (*sums_store)(struct dry_backend *b, size_t first, size_t count);
    enum dry_status (*sums_read)(struct dry_backend *b, int64_t words[DRY_SUMS]);
    /* g = sums / (2^DRY_GRAD_BITS tokens), norm in fixed order, clip, AdamW on the masters, copies refreshed.
     * *norm: before clipping. NUMERIC when flags are raised or tokens are 0. */
    enum dry_status (*adamw)(struct dry_backend *b, const struct dry_adamw *o, double *norm);
    /* Gradient sums as float32 (not divided by tokens) into host [parameters]: tests. */
    enum dry_status (*gradient_get)(struct dry_backend *b, float *gradient);
    /* Activations [rows, width] from and to dense float32 host arrays, rounded to the backend's type: tests.
     */
    enum dry_status (*put)(struct dry_backend *b, const float *host, int64_t rows, int64_t width, void *to);
    enum dry_status (*get)(struct dry_backend *b, const void *from, int64_t rows, int64_t width, float *host);
    /* Waits until all that was asked for is done; CPU: nothing. */
    enum dry_status (*sync)(struct dry_backend *b);
    /* Notes, in the order of work on the device, that work of another kind begins here; waits for nothing.
     * Both are NULL where a call returns when its work is done (cpu). */
    void (*mark)(struct dry_backend *b, int kind);
    /* After sync: the kinds since the marks were last read and the device's time from each to the next mark,
     * of the last to the sync; at most `room`: what is over is added to the last ones of its kind. *count:
     * how many. DEVICE when an event could not be noted. */
    enum dry_status (*marks)(struct dry_backend *b, struct dry_mark *mark, int room, int *count);
};

/* First member of every backend's own struct. */
struct dry_backend {
    const struct dry_backend_ops *ops;
};

/* Local. By name: "cpu", "cuda", or "auto" (cuda where a GPU is found). USAGE names what this build has. */
enum dry_status dry_backend_find(const char *name, const struct dry_backend_ops **ops);
/* Local. Names in this build, ended by NULL. */
const char *const *dry_backend_names(void);

#endif
