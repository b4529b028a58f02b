/*
 * PEFT adapters on disk: adapter_config.json and adapter_model.safetensors, read and written.
 * Owns nothing.  Must not know of training.
 */
#ifndef DRY_STATE_PEFT_H
#define DRY_STATE_PEFT_H

#include "model/adapter.h"

/* Local. Writes DIR/adapter_config.json and DIR/adapter_model.safetensors (float32), each complete or absent;
 * base_name goes into base_model_name_or_path. Ranks and alphas that differ from the request's are written as
 * patterns by module, so that their order does not matter. IO. */
enum dry_status dry_peft_save(const char *dir, const struct dry_adapter *a, const float *values,
                              const char *base_name);
/* Local. Reads the configuration and makes the adapter for this architecture: target_modules as list,
 * "all-linear" or regular expression, exclude_modules, layers_to_transform, rank_pattern and alpha_pattern,
 * rsLoRA. What LoRA here does not know (DoRA, modules_to_save, bias, other peft_type, fan_in_fan_out,
 * use_qalora ...) is refused by name when it is switched on. INPUT. */
enum dry_status dry_peft_open(const char *dir, const struct dry_arch *arch, struct dry_adapter **a);
/* Local. Values [parameters] of an adapter made by dry_peft_open: every tensor present, none unexpected, any
 * float type. INPUT. */
enum dry_status dry_peft_values(const char *dir, const struct dry_adapter *a, float *values);
/* Local. SHA-256 of DIR/adapter_model.safetensors. */
enum dry_status dry_peft_hash(const char *dir, char hex[DRY_HASH_HEX]);

#endif
