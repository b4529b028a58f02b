/*
 * config.json: what kind of model a base is.  Llama, Mistral, Qwen2 and Qwen3; what is not known is refused
 * by name. Owns nothing but plain values.  Must not know of weights.
 */
#ifndef DRY_MODEL_ARCH_H
#define DRY_MODEL_ARCH_H

#include "base/json.h"

#include <stdint.h>

enum dry_rope { DRY_ROPE_DEFAULT, DRY_ROPE_LINEAR, DRY_ROPE_LLAMA3 };

/* Plain values, read once. */
struct dry_arch {
    char family[16]; /* llama | mistral | qwen2 | qwen3 */
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double norm_eps, rope_theta;
    enum dry_rope rope;
    double rope_factor, rope_low, rope_high; /* llama3: low_freq_factor, high_freq_factor */
    int64_t rope_original;                   /* llama3: original_max_position_embeddings */
    int qkv_bias, o_bias, mlp_bias;
    int qk_norm;    /* RMSNorm over each head of q and k before rotary (Qwen3) */
    int tied;       /* head is the embedding */
    int64_t window; /* sliding window in tokens, 0: none; records longer than it are refused by finetune */
    char dtype[16]; /* as the file says: bfloat16 ... ("" when absent) */
};

/* Local. DIR/config.json, old and new style keys (rope_scaling or rope_parameters, torch_dtype or dtype).
 * INPUT. */
enum dry_status dry_arch_read(const char *dir, struct dry_arch *a);
/* Local. The rotary inverse frequencies [head_dim / 2] in double (Su et al. 2021; Llama 3 scaling as in
 * Transformers' modeling_rope_utils). */
void dry_arch_inv_freq(const struct dry_arch *a, double *inv_freq);
/* Local. Parameters of the base; matrix parameters with the head and without the embedding (N of the LoRA
 * count). */
int64_t dry_arch_parameters(const struct dry_arch *a);
int64_t dry_arch_matrix_parameters(const struct dry_arch *a);

/* The seven projections, in PEFT's usual order; tied to their names by a table in arch.c. */
enum dry_proj {
    DRY_PROJ_Q,
    DRY_PROJ_K,
    DRY_PROJ_V,
    DRY_PROJ_O,
    DRY_PROJ_GATE,
    DRY_PROJ_UP,
    DRY_PROJ_DOWN,
    DRY_PROJS
};
const char *dry_proj_name(enum dry_proj p);   /* "q_proj" */
const char *dry_proj_module(enum dry_proj p); /* "self_attn.q_proj" */
int64_t dry_proj_in(const struct dry_arch *a, enum dry_proj p);
int64_t dry_proj_out(const struct dry_arch *a, enum dry_proj p);
int dry_proj_has_bias(const struct dry_arch *a, enum dry_proj p);

#endif
