/*
 * A group of linears with its adapters, piece by piece: what linear.c puts together as operations of their
 * own and mlp.c mixes with SwiGLU.  Owns nothing.  Only files of this folder may include it.
 */
#ifndef DRY_CUDA_LINEAR_H
#define DRY_CUDA_LINEAR_H

#include "cuda/swiglu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of thin product at a width on this device. */
struct dry_cuda_thin_plan {
    int columns, resident; /* of a slice, 0: does not fit; blocks at work on a multiprocessor */
};

struct dry_cuda_linear {
    struct dry_cuda_thin_plan plan[DRY_SKINNY_KINDS][DRY_SKINNY_UNITS];
    struct dry_cuda_swiglu_plan swiglu; /* of its backward with the thin products; 0 columns: does not fit */
    struct dry_skinny_copy *copy;       /* device, behind the partial products */
    int copies;
};

struct dry_cuda_group {
    struct dry_cuda *c;
    int64_t layer;
    int in, out, tokens, useful;
    int64_t x_pitch, y_pitch, w_pitch;
    const dry_bf16 *weight, *bias;
    dry_bf16 *kept;     /* [T, c->pad] what forward put into x's pad, for backward; NULL: not in training */
    int drops, aligned; /* aligned: rows can be moved in pieces of 16 bytes */
    int members, ranks;
    int columns; /* of the pad in use: ranks, rounded up */
    struct dry_cuda_member member[3];
};

void dry_cuda_group_make(struct dry_cuda *c, int64_t layer, enum dry_group which, struct dry_cuda_group *g);
/* Units that each member's B fits in; more than DRY_SKINNY_UNITS: not at all. */
int dry_cuda_group_units(const struct dry_cuda_group *g);
/* The first column of the unit or units that a member's ranks are in. */
int dry_cuda_group_unit_first(const struct dry_cuda_group *g, const struct dry_cuda_member *m, int units);
/* Rows of A: those of the pad's columns. */
static inline const dry_bf16 *dry_cuda_group_a(const struct dry_cuda_group *g)
{
    return g->weight + g->out * g->w_pitch;
}
/* How rows are dealt to blocks of `slices` columns each: the grid that ends first when `room` blocks are at
 * work at once and each costs its steps of `rows` rows and `extra` for start and end. Rows of a block. A rule
 * of shape and device alone. */
int dry_cuda_thin_chunk(int64_t tokens, int rows, int slices, int64_t room, int64_t extra);

/* Forward: x's pad = scale dropout(x) A^T, zero in its unused columns and in padding rows. */
enum dry_status dry_cuda_group_xa(const struct dry_cuda_group *g, dry_bf16 *x);
/* Then y = [x | pad] [W | B]^T (+ bias) (+ residual). */
enum dry_status dry_cuda_group_output(const struct dry_cuda_group *g, const dry_bf16 *x, const void *residual,
                                      dry_bf16 *y);
/* Backward, with ranks: dy's pad = u = scale dy B; sums of B += dy^T (x's pad of forward). */
enum dry_status dry_cuda_group_dy(const struct dry_cuda_group *g, dry_bf16 *dy);
/* Then sums of A += u^T dropout(x). */
enum dry_status dry_cuda_group_da(const struct dry_cuda_group *g, const dry_bf16 *x, const dry_bf16 *dy);
/* The same for x = a norm's output, which is made from its input; `normed` is room for it, or has it already.
 */
enum dry_status dry_cuda_group_normed_da(const struct dry_cuda_group *g, enum dry_norm n, const dry_bf16 *x,
                                         dry_bf16 *normed, int again, const dry_bf16 *dy);
/* And dx = [dy | u] [W ; A]. */
enum dry_status dry_cuda_group_input(const struct dry_cuda_group *g, const dry_bf16 *dy, dry_bf16 *dx);

#ifdef __cplusplus
}
#endif
#endif
