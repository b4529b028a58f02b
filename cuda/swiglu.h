/*
 * SwiGLU together with the thin products of the linears beside it, as launchers: each large tensor moves
 * once. Owns nothing.  For ranks that fit into one unit (16 columns of the pad) and rows of whole vectors;
 * what else there is goes through elementwise.h and skinny.h.
 */
#ifndef DRY_CUDA_SWIGLU_H
#define DRY_CUDA_SWIGLU_H

#include "cuda/skinny.h"

#ifdef __cplusplus
extern "C" {
#endif

/* act [T, F] = silu(gate) up of gate_up [T, 2F], padding rows zero, and partial [slices, T, 16] = act A^T
 * with down's A [16, F]: the rows of a unit. The slices cut F evenly. */
struct dry_cuda_swiglu_job {
    const dry_bf16 *gate_up, *a;
    dry_bf16 *act;
    float *partial;
    int64_t x_pitch, y_pitch, a_pitch;
    int tokens, useful, width, slices;
};
/* 6 F bytes a row, and A once for 16 rows, which the cache holds. */
cudaError_t dry_cuda_swiglu_launch(const struct dry_cuda_swiglu_job *j, cudaStream_t stream);

/* Where the gradient of one of the three matrices goes: columns first .. first + rank - 1 of its unit. rank
 * 0: nowhere. */
struct dry_cuda_thin_target {
    int first, rank;
    int64_t at; /* in sums */
};
/* From gate_up and d_act [T, F]: d_gate_up in gate_up's place, and with it
 *   sums of down's A += u^T act,  of gate's B += d_gate^T v_gate,  of up's B += d_up^T v_up;
 *   partial [2, slices, T, 16] = d_gate B_gate, then d_up B_up, slice by slice of `columns` columns.
 * u, v: a unit's columns of the pads; b: of the weights' rows. Padding rows become zero and reach nothing. */
struct dry_cuda_swiglu_back {
    dry_bf16 *gate_up;
    const dry_bf16 *d_act, *u, *v_gate, *v_up, *b_gate, *b_up;
    float *partial;
    int64_t x_pitch, y_pitch, u_pitch, v_pitch, b_pitch;
    int tokens, useful, width, chunk, slices; /* chunk: rows of a block, a multiple of DRY_SWIGLU_ROWS */
    struct dry_cuda_thin_target down, gate, up;
    int64_t *sums, *words;
};
enum { DRY_SWIGLU_ROWS = 16 };
/* What fits on this device: stages of the ring in shared memory, columns of a slice (0: its shared memory is
 * too small), blocks at work on a multiprocessor. Once per device, before the first launch. */
struct dry_cuda_swiglu_plan {
    int stages, columns, resident;
};
cudaError_t dry_cuda_swiglu_setup(struct dry_cuda_swiglu_plan *p);
/* 10 F bytes a row; partial products 128 F / columns a row, written and read; gradients 8 (3 F 16) a chunk.
 */
cudaError_t dry_cuda_swiglu_fused_launch(const struct dry_cuda_swiglu_back *j,
                                         const struct dry_cuda_swiglu_plan *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
