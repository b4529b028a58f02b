/*
 * The base: a Hugging Face folder's architecture and weights, found, named and checked, not yet anywhere but
 * in the file. Owns the safetensors maps.  Must not know of backends.
 */
#ifndef DRY_MODEL_BASE_H
#define DRY_MODEL_BASE_H

#include "base/hash.h"
#include "model/arch.h"
#include "model/safetensors.h"

/* Borrowed tensors; a bias or norm that the architecture lacks is NULL. Linear weights are [out, in]. */
struct dry_base_layer {
    const struct dry_tensor *weight[DRY_PROJS], *bias[DRY_PROJS];
    const struct dry_tensor *input_norm, *post_norm; /* [H] */
    const struct dry_tensor *q_norm, *k_norm;        /* [head_dim] or NULL */
};
struct dry_base {
    char *dir;
    struct dry_arch arch;
    struct dry_tensors *tensors;
    const struct dry_tensor *embed; /* [V, H] */
    const struct dry_tensor *norm;  /* [H] */
    const struct dry_tensor *head;  /* [V, H]; = embed when tied */
    struct dry_base_layer *layer;   /* [layers] */
    char hash[DRY_HASH_HEX];        /* config.json's bytes, and every safetensors header and size */
};

/* Local. A folder, or a hub name ("Qwen/Qwen2.5-7B-Instruct") looked up in $HF_HUB_CACHE, $HF_HOME/hub or
 * ~/.cache/huggingface/hub (refs/main, then snapshots/): the folder in new memory. A miss prints the download
 * command. INPUT. */
enum dry_status dry_base_locate(const char *name, char **dir);
/* Local. Opens the folder and checks every tensor's presence, shape and type; unknown extra weights are
 * refused by name (inv_freq buffers are known and ignored; a head beside a tied embedding must equal it).
 * INPUT, IO. */
enum dry_status dry_base_open(const char *dir, struct dry_base **b);
void dry_base_close(struct dry_base *b);

#endif
