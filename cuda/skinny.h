/*
 * The tall and thin products of a linear's adapters: activations against some 16 to 64 columns.
 * Owns nothing.  Launchers; what they compute is said here, how in skinny.cu.
 *
 * Z is an activation [T, pitch], x or dy, read in column slices of DRY_SKINNY_* columns that no segment
 * crosses.
 *
 *   XA         partial[slice] [T, width] = Z A^T; A [width, in], k contiguous
 *
 *   DY         partial[slice] [T, width] = Z B; B [out, width]; and in the same pass sums of B += Z^T V; V
 * [T, width], columns of the other side's pad
 *
 *   DA         sums of A += V^T Z
 *
 *   NORMED_DA  the same for Z = RMSNorm of z, each element made as the norm's own kernel makes it
 *
 * The partial products of the slices are added up by dry_cuda_skinny_finish_launch, in order, and go to the
 * pad.
 */
#ifndef DRY_CUDA_SKINNY_H
#define DRY_CUDA_SKINNY_H

#include "cuda/cuda.h"
#include "model/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dry_skinny { DRY_SKINNY_XA, DRY_SKINNY_DY, DRY_SKINNY_DA, DRY_SKINNY_NORMED_DA, DRY_SKINNY_KINDS };
enum {
    DRY_SKINNY_UNIT = 16,  /* columns of a thin side come in so many */
    DRY_SKINNY_UNITS = 4,  /* at most */
    DRY_SKINNY_ROWS = 32,  /* rows of a step */
    DRY_SKINNY_SLICE = 256 /* columns of the narrowest slice */
};

/* Columns first .. first + columns - 1 of Z: a member's, or all. */
struct dry_skinny_segment {
    int first, columns, slice_first;
    int pad_first; /* column of the pad that is column 0 of the thin side; a multiple of 16 */
    int target;    /* DY: whose B */
};
/* Columns rank_first .. + rank - 1 of the pad, and where their gradients go. */
struct dry_skinny_target {
    int rank_first, rank;
    int64_t at; /* in sums */
};
struct dry_skinny_job {
    const dry_bf16 *z, *m, *v; /* m: A's row or B's column 0, v: column 0 of the pad */
    int64_t z_pitch, m_pitch, v_pitch;
    int tokens, useful, chunk; /* T; rows that count; rows of one block, a multiple of DRY_SKINNY_ROWS */
    int segments, targets, slices;
    struct dry_skinny_segment segment[3];
    struct dry_skinny_target target[3];
    float *partial;
    int64_t *sums, *words;
    float factor;         /* of the gradients */
    const float *inverse; /* [useful], NORMED_DA: 1 / rms of z's rows, and the norm's weight */
    const dry_bf16 *weight;
};
/* One member's part of the pad: columns first .. end - 1 from its slices' columns first - pad_first ... */
struct dry_skinny_part {
    int first, end, pad_first, slice_first, slices;
    float scale;
};
/* Columns first .. end - 1 of the pad [T, pitch] =: those of a part its sum, all others and padding rows
 * zero. */
struct dry_skinny_finish {
    const float *partial;
    int width, tokens, useful, first, end, parts;
    struct dry_skinny_part part[3];
    dry_bf16 *pad, *kept; /* kept: the same once more, or NULL */
    int64_t pitch, kept_pitch;
};
/* An adapter's two bfloat16 copies inside its group's weights. */
struct dry_skinny_copy {
    int64_t a, b, pitch; /* in the masters; row pitch of both copies */
    int in, out, rank;
    dry_bf16 *to_a, *to_b;
};
/* LoRA's dropout of one module on its input [T, columns] (compute/dropout.h). */
struct dry_skinny_mask {
    uint64_t seed;
    int64_t layer;
    enum dry_proj proj;
    const uint64_t *row_key;
    const int32_t *position;
    uint32_t threshold;
    int tokens, useful, columns;
};

/* Widest slice of a kind and width (in units) that the device has shared memory for, and how many blocks of
 * it are at work at once on a multiprocessor; 0 columns: none fits. Once per device, before the first launch.
 */
cudaError_t dry_cuda_skinny_setup(enum dry_skinny kind, int units, int *columns, int *resident);
cudaError_t dry_cuda_skinny_launch(enum dry_skinny kind, int units, int columns,
                                   const struct dry_skinny_job *j, cudaStream_t stream);
cudaError_t dry_cuda_skinny_finish_launch(const struct dry_skinny_finish *f, cudaStream_t stream);

/* to [T, columns] = kept elements of x, others and padding rows zero; not scaled. */
cudaError_t dry_cuda_drop_launch(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                                 dry_bf16 *to, int64_t to_pitch, cudaStream_t stream);
/* to [T, columns] += factor * kept elements of x. */
cudaError_t dry_cuda_drop_add_launch(const struct dry_skinny_mask *m, const dry_bf16 *x, int64_t x_pitch,
                                     float factor, dry_bf16 *to, int64_t to_pitch, cudaStream_t stream);
/* sums [n] += factor * g [n] in fixed point. */
cudaError_t dry_cuda_gradient_launch(const float *g, int64_t n, float factor, int64_t *sums, int64_t *words,
                                     cudaStream_t stream);
/* All copies from the masters. */
cudaError_t dry_cuda_copies_launch(const struct dry_skinny_copy *copy, int copies, const float *masters,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
