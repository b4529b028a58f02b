/*
 * Attention inside the CUDA backend: drydock's own kernels, and the library's plans where there is one.
 * Owns the form of a call.  attention.c chooses; attention.cu has the own kernels; attention_cudnn.c the
 * library's plans, attention_plain.c stands in for it in a build without.
 *
 * Both kinds share all layouts: q, k, v are slices of qkv rows, lse is [T, Hq] float32 natural logarithms, so
 * that either's backward can follow either's forward.
 */
#ifndef DRY_CUDA_ATTENTION_H
#define DRY_CUDA_ATTENTION_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DRY_CUDA_ATTENTION_DIM = 256 }; /* most elements of a head; any even number up to it */

/* Some records of a micro-batch. Pointers are device memory; those that a launcher does not name may be NULL.
 */
struct dry_cuda_attention_call {
    const int32_t *first, *last; /* [records]: record i has rows first[i]..last[i]-1 */
    int64_t records, longest;    /* of these */
    int64_t heads, kv_heads, dim;
    int64_t pitch, pitch_o; /* elements between rows of qkv and dqkv, of o and d_o */
    float scale;
    const dry_bf16 *qkv; /* [T, Q + 2K] rotated */
    dry_bf16 *o;         /* [T, Q] */
    float *lse;          /* [T, Hq] dense */
    const dry_bf16 *d_o; /* [T, Q] */
    dry_bf16 *dqkv;      /* [T, Q + 2K] */
    float *delta;        /* [T, Hq] rowsum(dO O) */
    float
        *part; /* [2, T, Hq, D] dK and dV of each query head; not used when every head has its own key head */
    int64_t tokens; /* T, rows of part's halves */
};

/* attention.cu. o, lse =. A block of 64 rows of one head: reads q once and k, v of all rows before; 4 D L^2 /
 * 2 operations a head and record of L rows. */
cudaError_t dry_cuda_attention_forward_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream);
/* attention.cu. delta = from o, d_o. Reads 4 D bytes a row and head. */
cudaError_t dry_cuda_attention_delta_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream);
/* attention.cu. dqkv's q slice = from qkv, lse, d_o, delta; 6 D L^2 / 2 operations. */
cudaError_t dry_cuda_attention_query_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream);
/* attention.cu. dqkv's k and v slices = (part is scratch); 8 D L^2 / 2 operations, and for heads that share a
 * key head 16 D bytes a row and head for adding up in order. */
cudaError_t dry_cuda_attention_key_launch(const struct dry_cuda_attention_call *k, cudaStream_t stream);

/* Some records and a plan for them; made by dry_cuda_fused_batch. */
struct dry_cuda_attention_group {
    int fused;       /* 0: for the own kernels */
    int dense;       /* all records have the tier's length and lie one behind the other */
    int tier;        /* of plans */
    int64_t records; /* filled; the plan's other places are empty */
    int64_t longest; /* of these records */
    int64_t first;   /* row of the first record */
    int64_t words;   /* where its tables begin in c->sequences */
};

/* The library's side: attention_cudnn.c, or attention_plain.c which has none. */
/* Upper bounds under c's limits, without a device: bytes of workspace; int32 words of tables for a
 * micro-batch. */
size_t dry_cuda_fused_bytes(const struct dry_cuda *c);
int64_t dry_cuda_fused_words(const struct dry_cuda *c);
/* *a = NULL where device, library or shape have no plans. Begins to build plans in the background. */
enum dry_status dry_cuda_fused_create(struct dry_cuda *c, struct dry_cuda_attention **a);
void dry_cuda_fused_destroy(struct dry_cuda_attention *a);
/* Name and version, for the description; NULL without a. */
const char *dry_cuda_fused_name(const struct dry_cuda_attention *a);
/* Splits the micro-batch (its arrays on the host) into groups and writes their tables into words
 * [dry_cuda_fused_words], which the caller copies to c->sequences. Waits for the plans. */
enum dry_status dry_cuda_fused_batch(struct dry_cuda *c, const struct dry_batch *batch, int32_t *words);
/* The groups of the present micro-batch, borrowed; returns how many. */
int64_t dry_cuda_fused_groups(const struct dry_cuda *c, const struct dry_cuda_attention_group **group);
/* call has all but first, last and delta. o, lse =; dqkv =, from c->attention_workspace. */
enum dry_status dry_cuda_fused_forward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                       const struct dry_cuda_attention_call *k);
enum dry_status dry_cuda_fused_backward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                        const struct dry_cuda_attention_call *k);

#ifdef __cplusplus
}
#endif
#endif
