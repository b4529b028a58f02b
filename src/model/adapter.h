/*
 * The adapter's shape: which projections have A and B, of what rank and scale, and where they lie in one flat
 * block. Owns the table.  The values themselves are a float32 array of `parameters` that others own.
 */
#ifndef DRY_MODEL_ADAPTER_H
#define DRY_MODEL_ADAPTER_H

#include "base/hash.h"
#include "base/json.h"
#include "model/arch.h"

/* What is asked for, for all modules alike but for the patterns. */
struct dry_adapter_request {
    int64_t rank;
    double alpha, dropout;
    int rslora;
    unsigned targets;                         /* bit per dry_proj */
    const char *rank_pattern, *alpha_pattern; /* "layers.0.self_attn.q_proj=8,down_proj=4" or NULL; keys are
                                                 matched as PEFT does (pattern.h) */
};

/* What is asked for one module; rank 0: no adapter. */
struct dry_adapter_choice {
    int64_t rank;
    double alpha;
};

/* One adapted projection. A [rank, in] at a, B [out, rank] at b, offsets in floats. */
struct dry_adapter_part {
    int64_t layer;
    enum dry_proj proj;
    int64_t in, out, rank;
    double alpha;
    float scale; /* alpha / rank, or alpha / sqrt(rank) */
    int64_t a, b;
};

/* Parts in order of layer, then projection; A before B. */
struct dry_adapter {
    struct dry_adapter_part *part;
    int64_t parts;
    int64_t *index; /* [layers * DRY_PROJS]: part, or -1 */
    int64_t layers;
    int64_t parameters; /* floats of the whole block */
    int64_t max_rank;
    double dropout;
    struct dry_adapter_request request; /* rank, alpha, rslora as asked; targets: each projection that has a
                                           part in some layer; no patterns: the parts tell */
};

/* Local. "all" or names joined by commas ("q_proj,v_proj"; "q,v" too) to bits. USAGE names the unknown one.
 */
enum dry_status dry_adapter_targets(const char *text, unsigned *targets);
/* Local. USAGE for no target, a pattern that matches nothing, or a rank < 1. */
enum dry_status dry_adapter_create(const struct dry_arch *arch, const struct dry_adapter_request *request,
                                   struct dry_adapter **a);
/* Local. The same from one choice per layer and projection, choice[layers * DRY_PROJS], whatever made it;
 * rank, alpha, dropout and rslora of the request are kept, its targets and patterns are not read. INPUT for a
 * choice without any part. */
enum dry_status dry_adapter_create_chosen(const struct dry_arch *arch,
                                          const struct dry_adapter_request *request,
                                          const struct dry_adapter_choice *choice, struct dry_adapter **a);
void dry_adapter_destroy(struct dry_adapter *a);
/* Local. The part of a layer's projection, or NULL. */
const struct dry_adapter_part *dry_adapter_at(const struct dry_adapter *a, int64_t layer, enum dry_proj p);
/* Local. values[parameters] =: A uniform in +-1/sqrt(in) keyed by seed, layer, projection and element, so
 * that a module's values do not depend on which others have an adapter; B = 0. */
void dry_adapter_init(const struct dry_adapter *a, uint64_t seed, float *values);
/* Local. PEFT's tensor name in new memory: base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight */
char *dry_adapter_tensor_name(const struct dry_adapter_part *part, int is_b);
/* Local. PEFT's module name without prefix: model.layers.0.self_attn.q_proj */
char *dry_adapter_module_name(const struct dry_adapter_part *part);
enum { DRY_MODULE_NAME = 64 };
void dry_module_name(int64_t layer, enum dry_proj p,
                     char name[DRY_MODULE_NAME]); /* the same, in given memory */
/* Local. Adds everything that shapes it to a hash. */
void dry_adapter_hash(const struct dry_adapter *a, struct dry_hash *h);

#endif
