/*
 * cuDNN plans for causal attention over records of a flat token layout, by its backend API.
 * Owns the form of the graphs.  Must not know of micro-batches: it is told places, lengths and pitches.
 */
#ifndef DRY_CUDA_CUDNN_GRAPH_H
#define DRY_CUDA_CUDNN_GRAPH_H

#include "base/status.h"

#include <cudnn.h>

#include <stddef.h>
#include <stdint.h>

/* What a plan is made for. */
struct dry_cudnn_shape {
    int64_t places, longest;      /* records at most, and rows of each */
    int dense;                    /* every place is full, one behind the other: no tables */
    int64_t heads, kv_heads, dim; /* of one call */
    int64_t pitch;                /* elements between rows of q, k, v and their gradients */
    int64_t pitch_o, pitch_lse;   /* of o and dO, of lse */
};

/* Tensors of the graphs, as indices of an array of pointers. Device memory, but for the three numbers. A
 * dense plan takes no tables. */
enum dry_cudnn_tensor {
    DRY_CUDNN_Q,
    DRY_CUDNN_K,
    DRY_CUDNN_V,
    DRY_CUDNN_O,
    DRY_CUDNN_LSE,     /* float32, [rows, pitch_lse] */
    DRY_CUDNN_LENGTH,  /* int32 [places]; 0: the place is empty */
    DRY_CUDNN_AT,      /* int32 [places + 1]: a record's first element in q, k, v and their gradients */
    DRY_CUDNN_AT_O,    /* the same in o and dO */
    DRY_CUDNN_AT_LSE,  /* and in lse */
    DRY_CUDNN_SCALE,   /* host: float */
    DRY_CUDNN_NOTHING, /* host: float, minus infinity */
    DRY_CUDNN_FORWARD, /* count of those above: what forward has */
    DRY_CUDNN_D_O = DRY_CUDNN_FORWARD,
    DRY_CUDNN_DQ,
    DRY_CUDNN_DK,
    DRY_CUDNN_DV,
    DRY_CUDNN_DELTA,    /* float32 [places, heads, longest], scratch */
    DRY_CUDNN_ONE,      /* host: float, 1 */
    DRY_CUDNN_BACKWARD, /* count: what backward has */
};

struct dry_cudnn_plan;

/* Local. A plan on the handle's device, or on the one that `device` describes (tests; then handle is NULL).
 * Backward is the deterministic kind. On failure *plan is NULL and `why` has cuDNN's words. Takes some half a
 * second. */
enum dry_status dry_cudnn_plan_create(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                                      const struct dry_cudnn_shape *shape, int backward,
                                      struct dry_cudnn_plan **plan, char *why, size_t why_bytes);
void dry_cudnn_plan_destroy(struct dry_cudnn_plan *plan);
/* Bytes of workspace that a run needs. */
size_t dry_cudnn_plan_bytes(const struct dry_cudnn_plan *plan);
/* Asks for a run on the handle's stream. */
cudnnStatus_t dry_cudnn_plan_run(cudnnHandle_t handle, const struct dry_cudnn_plan *plan,
                                 void *const tensor[DRY_CUDNN_BACKWARD], void *workspace);

#endif
