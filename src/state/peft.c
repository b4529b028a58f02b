/*
 * Writing PEFT adapters: adapter_config.json and adapter_model.safetensors as PEFT itself would.
 * Owns nothing that outlives a call.  Must not know of training (peft_read.c reads them back).
 */
#include "config.h"

#include "state/peft.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/safetensors.h"

#include <math.h>
#include <string.h>

enum pattern { RANKS, ALPHAS };

/* The projections in the order of their names, so that a folder's bytes depend on the adapter alone. */
static const enum dry_proj by_name[] = {DRY_PROJ_DOWN, DRY_PROJ_GATE, DRY_PROJ_K, DRY_PROJ_O,
                                        DRY_PROJ_Q,    DRY_PROJ_UP,   DRY_PROJ_V};
_Static_assert(sizeof by_name / sizeof *by_name == DRY_PROJS, "each projection once");

/* Non-zero when every layer adapts the same projections. */
static int is_uniform(const struct dry_adapter *a)
{
    for (int64_t i = 0; i < a->layers * DRY_PROJS; i++)
        if ((a->index[i] < 0) != (a->index[i % DRY_PROJS] < 0))
            return 0;
    return 1;
}

/* The projections' own names, or each module's when layers differ. NULL: no memory. */
static json_t *make_targets(const struct dry_adapter *a)
{
    json_t *list = json_array();
    char module[DRY_MODULE_NAME];
    int uniform = is_uniform(a), failed = !list;

    for (int64_t layer = 0; layer < (uniform ? 1 : a->layers) && !failed; layer++) {
        for (int i = 0; i < DRY_PROJS && !failed; i++) {
            if (!dry_adapter_at(a, layer, by_name[i]))
                continue;
            dry_module_name(layer, by_name[i], module);
            failed = json_array_append_new(list, json_string(uniform ? dry_proj_name(by_name[i]) : module));
        }
    }
    if (failed) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Whole numbers stay whole, since PEFT's own type for alpha is int. */
static json_t *number(double value)
{
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : json_real(value);
}

static double value_of(const struct dry_adapter_part *part, enum pattern which)
{
    return which == RANKS ? (double)part->rank : part->alpha;
}

/* Adds one projection's differences from the common value: under its own name when all its modules agree. */
static int add_pattern(json_t *object, const struct dry_adapter *a, enum dry_proj p, enum pattern which,
                       double common)
{
    const struct dry_adapter_part *part, *first = NULL;
    char module[DRY_MODULE_NAME];
    int agree = 1;

    for (int64_t i = 0; i < a->layers; i++) {
        part = dry_adapter_at(a, i, p);
        first = first ? first : part;
        agree &= !part || value_of(part, which) == value_of(first, which);
    }
    if (!first || (agree && value_of(first, which) == common))
        return 0;
    if (agree)
        return json_object_set_new(object, dry_proj_name(p), number(value_of(first, which)));
    for (int64_t i = 0; i < a->layers; i++) {
        part = dry_adapter_at(a, i, p);
        if (!part || value_of(part, which) == common)
            continue;
        dry_module_name(i, p, module);
        if (json_object_set_new(object, module, number(value_of(part, which))))
            return -1;
    }
    return 0;
}

static json_t *make_pattern(const struct dry_adapter *a, enum pattern which, double common)
{
    json_t *object = json_object();

    for (int i = 0; i < DRY_PROJS && object; i++) {
        if (add_pattern(object, a, by_name[i], which, common)) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static enum dry_status write_config(const char *dir, const struct dry_adapter *a, const char *base_name)
{
    char *path = dry_path_join(dir, "adapter_config.json");
    json_t *targets = make_targets(a), *root = NULL;
    json_t *ranks = make_pattern(a, RANKS, (double)a->request.rank);
    json_t *alphas = make_pattern(a, ALPHAS, a->request.alpha);
    enum dry_status s = DRY_ERR_MEMORY;

    root = json_pack(
        "{s:O?, s:n, s:s, s:s, s:b, s:n, s:b, s:b, s:n, s:n, s:o, s:f, s:n, s:s, s:I, s:O?, s:n, s:O?, s:s, "
        "s:b, s:b}",
        "alpha_pattern", alphas, "auto_mapping", "base_model_name_or_path", base_name, "bias", "none",
        "fan_in_fan_out", 0, "exclude_modules", "inference_mode", 1, "init_lora_weights", 1, "layers_pattern",
        "layers_to_transform", "lora_alpha", number(a->request.alpha), "lora_dropout", a->dropout,
        "modules_to_save", "peft_type", "LORA", "r", (json_int_t)a->request.rank, "rank_pattern", ranks,
        "revision", "target_modules", targets, "task_type", "CAUSAL_LM", "use_dora", 0, "use_rslora",
        a->request.rslora != 0);
    if (!path || !targets || !ranks || !alphas || !root)
        dry_error("out of memory for %s/adapter_config.json", dir);
    else
        s = dry_json_write(path, root);
    json_decref(root);
    json_decref(alphas);
    json_decref(ranks);
    json_decref(targets);
    dry_free(path);
    return s;
}

/* Names and shapes in the block's order: A then B of each part. */
static enum dry_status describe(const struct dry_adapter *a, struct dry_tensor_out *out)
{
    for (int64_t i = 0; i < 2 * a->parts; i++) {
        const struct dry_adapter_part *part = &a->part[i / 2];
        int is_b = i % 2 != 0;

        out[i].name = dry_adapter_tensor_name(part, is_b);
        if (!out[i].name)
            return DRY_ERR_MEMORY;
        out[i].dtype = DRY_F32;
        out[i].dims = 2;
        out[i].shape[0] = is_b ? part->out : part->rank;
        out[i].shape[1] = is_b ? part->rank : part->in;
    }
    return DRY_OK;
}

static enum dry_status write_values(const char *dir, const struct dry_adapter *a, const float *values)
{
    char *path = dry_path_join(dir, "adapter_model.safetensors");
    struct dry_tensor_out *out = dry_alloc((size_t)a->parts * 2, sizeof *out, "adapter header");
    struct dry_tensor_writer *w = NULL;
    enum dry_status s = path && out ? describe(a, out) : DRY_ERR_MEMORY;

    if (!s)
        s = dry_tensor_writer_begin(path, out, (size_t)a->parts * 2, &w);
    /* The block has the tensors one after another in just this order. */
    if (!s)
        s = dry_tensor_writer_add(w, values, (size_t)a->parameters * sizeof *values);
    if (!s)
        s = dry_tensor_writer_commit(w);
    else
        dry_tensor_writer_abandon(w);
    for (int64_t i = 0; out && i < 2 * a->parts; i++)
        dry_free((char *)out[i].name);
    dry_free(out);
    dry_free(path);
    return s;
}

enum dry_status dry_peft_save(const char *dir, const struct dry_adapter *a, const float *values,
                              const char *base_name)
{
    enum dry_status s = dry_dir_make(dir);

    if (!s)
        s = write_values(dir, a, values);
    return s ? s : write_config(dir, a, base_name);
}

enum dry_status dry_peft_hash(const char *dir, char hex[DRY_HASH_HEX])
{
    char *path = dry_path_join(dir, "adapter_model.safetensors");
    enum dry_status s = path ? dry_hash_file(path, hex) : DRY_ERR_MEMORY;

    dry_free(path);
    return s;
}
