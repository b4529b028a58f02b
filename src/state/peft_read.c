/*
 * Reading PEFT adapters: the configuration as PEFT understands it, and the values.
 * Owns nothing that outlives a call.  Must not know of training.
 */
#include "config.h"

#include "state/peft.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/regex.h"
#include "model/pattern.h"
#include "model/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

static const double most_rank = 65536;

/* Keys that are read, and keys that only say where the adapter comes from or how it was started. */
static const char *const known_keys[] = {
    "alpha_pattern",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "task_type",
    "use_rslora",
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
};

/* Starts that also change the base's weights, so that the adapter does not fit the base as it lies on disk.
 */
static const char *const base_changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga", "mica"};

static int is_blank(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static enum dry_status check_keys(const json_t *root, const char *path)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)root, key, value)
    {
        size_t i = 0;

        while (i < sizeof known_keys / sizeof *known_keys && strcmp(key, known_keys[i]) != 0)
            i++;
        if (i < sizeof known_keys / sizeof *known_keys || is_blank(value))
            continue;
        dry_error("%s: key \"%s\" is switched on, but only plain LoRA is read; merge this adapter into its "
                  "base with PEFT, "
                  "or train one without it",
                  path, key);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status check_kind(const json_t *root, const char *path)
{
    const char *type, *task, *bias, *init = json_string_value(json_object_get(root, "init_lora_weights"));
    enum dry_status s;

    if ((s = dry_json_text(root, "peft_type", 1, NULL, path, &type)) ||
        (s = dry_json_text(root, "task_type", 0, "CAUSAL_LM", path, &task)) ||
        (s = dry_json_text(root, "bias", 0, "none", path, &bias)))
        return s;
    if (strcmp(type, "LORA") != 0 || strcmp(task, "CAUSAL_LM") != 0) {
        dry_error("%s: a %s adapter for %s; only LORA for CAUSAL_LM is read", path, type, task);
        return DRY_ERR_INPUT;
    }
    if (strcmp(bias, "none") != 0) {
        dry_error("%s: key \"bias\": \"%s\": trained biases are not read, only \"none\" is", path, bias);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; init && i < sizeof base_changing / sizeof *base_changing; i++) {
        if (strncmp(init, base_changing[i], strlen(base_changing[i])) != 0)
            continue;
        dry_error("%s: key \"init_lora_weights\": \"%s\" changes the base too, so the adapter does not fit "
                  "the base as it "
                  "is; convert it to plain LoRA with PEFT (save_pretrained's "
                  "path_initial_model_for_weight_conversion)",
                  path, init);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* PEFT's rule for an entry of a list: the module's whole name, or its end after a dot. */
static int ends_in(const char *module, const char *target)
{
    size_t n = strlen(module), k = strlen(target);

    return n >= k && strcmp(module + n - k, target) == 0 && (n == k || module[n - k - 1] == '.');
}

/* 1: the whole name matches; 0: not; -1: the engine gave up. */
static int matches(struct dry_regex *re, const char *name)
{
    size_t begin, end;

    return dry_regex_find(re, name, strlen(name), 0, &begin, &end);
}

/* An expression that must match whole names. */
static enum dry_status whole_regex(const char *pattern, const char *path, const char *key,
                                   struct dry_regex **re)
{
    char *whole = dry_format("\\A(?:%s)\\z", pattern), *where = dry_format("%s: %s", path, key);
    enum dry_status s = whole && where ? dry_regex_create(whole, where, re) : DRY_ERR_MEMORY;

    dry_free(where);
    dry_free(whole);
    return s;
}

/* exclude_modules: ends of names, or an expression; neither when blank. */
struct exclusion {
    const json_t *list;
    struct dry_regex *re;
};

static enum dry_status read_exclusion(const json_t *root, const char *path, struct exclusion *e)
{
    const json_t *given = json_object_get(root, "exclude_modules");

    if (!given || is_blank(given))
        return DRY_OK;
    if (json_is_string(given))
        return whole_regex(json_string_value(given), path, "exclude_modules", &e->re);
    for (size_t k = 0; k < json_array_size(given); k++)
        if (!json_is_string(json_array_get(given, k)))
            given = NULL;
    if (!json_is_array(given)) {
        dry_error("%s: key \"exclude_modules\" is neither a list of names nor a text", path);
        return DRY_ERR_INPUT;
    }
    e->list = given;
    return DRY_OK;
}

/* 1: excluded; 0: not; -1: the engine gave up. */
static int is_excluded(const struct exclusion *e, const char *module)
{
    if (e->re)
        return matches(e->re, module);
    for (size_t k = 0; k < json_array_size(e->list); k++)
        if (ends_in(module, json_string_value(json_array_get(e->list, k))))
            return 1;
    return 0;
}

static enum dry_status select_list(const json_t *list, const char *path, int64_t layers,
                                   unsigned char *chosen)
{
    char module[DRY_MODULE_NAME];
    const char *target;
    int hit;

    for (size_t k = 0; k < json_array_size(list); k++) {
        target = json_string_value(json_array_get(list, k));
        hit = 0;
        for (int64_t i = 0; target && i < layers * DRY_PROJS; i++) {
            dry_module_name(i / DRY_PROJS, (enum dry_proj)(i % DRY_PROJS), module);
            if (ends_in(module, target))
                hit = chosen[i] = 1;
        }
        if (!hit) {
            dry_error("%s: key \"target_modules\": \"%s\" is none of the base's seven projections; adapters "
                      "on other "
                      "modules are not read",
                      path, target ? target : "an entry that is no text");
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

static enum dry_status select_regex(const char *pattern, const char *path, int64_t layers,
                                    const struct exclusion *excluded, unsigned char *chosen)
{
    static const char *const others[] = {"lm_head", "model.embed_tokens"};
    struct dry_regex *re = NULL;
    char module[DRY_MODULE_NAME];
    enum dry_status s = whole_regex(pattern, path, "target_modules", &re);
    int found;

    for (int64_t i = 0; i < layers * DRY_PROJS && !s; i++) {
        dry_module_name(i / DRY_PROJS, (enum dry_proj)(i % DRY_PROJS), module);
        found = matches(re, module);
        chosen[i] = found > 0;
        s = found < 0 ? DRY_ERR_INPUT : DRY_OK;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others && !s; i++) {
        found = is_excluded(excluded, others[i]);
        found = found ? found < 0 : matches(re, others[i]);
        if (found > 0)
            dry_error(
                "%s: key \"target_modules\": \"%s\" matches %s too; adapters on other modules than the seven "
                "projections are not read",
                path, pattern, others[i]);
        s = found ? DRY_ERR_INPUT : DRY_OK;
    }
    dry_regex_destroy(re);
    return s;
}

/* layers_pattern: nothing, or the name of the only list of layers. */
static int is_layers_pattern(const json_t *value)
{
    const char *text = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value);

    return !value || is_blank(value) ||
           (text && strcmp(text, "layers") == 0 && (!json_is_array(value) || json_array_size(value) == 1));
}

/* layers_to_transform: a list of targets is taken in these layers only. */
static enum dry_status keep_layers(const json_t *root, const char *path, int64_t layers,
                                   unsigned char *chosen)
{
    const json_t *given = json_object_get(root, "layers_to_transform");
    unsigned char *kept;
    size_t count = json_is_array(given) ? json_array_size(given) : 1;
    enum dry_status s = DRY_OK;

    if (!given || json_is_null(given) || count == 0)
        return DRY_OK;
    if (!json_is_array(json_object_get(root, "target_modules"))) {
        dry_error("%s: key \"layers_to_transform\" goes with a list of target_modules only", path);
        return DRY_ERR_INPUT;
    }
    if (!is_layers_pattern(json_object_get(root, "layers_pattern"))) {
        dry_error("%s: key \"layers_pattern\" is not \"layers\", where these bases have their layers", path);
        return DRY_ERR_INPUT;
    }
    kept = dry_alloc((size_t)layers, 1, "adapter layers");
    if (!kept)
        return DRY_ERR_MEMORY;
    for (size_t k = 0; k < count && !s; k++) {
        const json_t *layer = json_is_array(given) ? json_array_get(given, k) : given;

        if (!json_is_integer(layer) || json_integer_value(layer) < 0 || json_integer_value(layer) >= layers) {
            dry_error("%s: key \"layers_to_transform\": an entry is none of the base's %" PRId64 " layers",
                      path, layers);
            s = DRY_ERR_INPUT;
        } else
            kept[json_integer_value(layer)] = 1;
    }
    for (int64_t i = 0; i < layers * DRY_PROJS && !s; i++)
        chosen[i] = chosen[i] && kept[i / DRY_PROJS];
    dry_free(kept);
    return s;
}

/* Takes the excluded modules out. */
static enum dry_status drop_excluded(const struct exclusion *excluded, int64_t layers, unsigned char *chosen)
{
    char module[DRY_MODULE_NAME];
    int found;

    for (int64_t i = 0; i < layers * DRY_PROJS; i++) {
        dry_module_name(i / DRY_PROJS, (enum dry_proj)(i % DRY_PROJS), module);
        found = is_excluded(excluded, module);
        if (found < 0)
            return DRY_ERR_INPUT;
        chosen[i] = chosen[i] && !found;
    }
    return DRY_OK;
}

static enum dry_status select_targets(const json_t *root, const char *path, int64_t layers,
                                      const struct exclusion *excluded, unsigned char *chosen)
{
    const json_t *targets = json_object_get(root, "target_modules");
    const char *text = json_string_value(targets);

    if (text && strcasecmp(text, "all-linear") == 0) {
        memset(chosen, 1, (size_t)(layers * DRY_PROJS));
        return DRY_OK;
    }
    if (!text && !json_is_array(targets)) {
        dry_error("%s: key \"target_modules\" is neither a list nor a text", path);
        return DRY_ERR_INPUT;
    }
    return text ? select_regex(text, path, layers, excluded, chosen)
                : select_list(targets, path, layers, chosen);
}

static enum dry_status select_modules(const json_t *root, const char *path, int64_t layers,
                                      unsigned char *chosen)
{
    struct exclusion excluded = {0};
    enum dry_status s;

    if ((s = read_exclusion(root, path, &excluded)) ||
        (s = select_targets(root, path, layers, &excluded, chosen)) ||
        (s = keep_layers(root, path, layers, chosen)) || (s = drop_excluded(&excluded, layers, chosen)))
        goto out;
    if (!memchr(chosen, 1, (size_t)(layers * DRY_PROJS))) {
        dry_error("%s: key \"target_modules\" matches no module of the base", path);
        s = DRY_ERR_INPUT;
    }
out:
    dry_regex_destroy(excluded.re);
    return s;
}

/* Ranks and alphas of the chosen modules. */
static enum dry_status choose(const json_t *root, const char *path, int64_t layers,
                              const unsigned char *chosen, const struct dry_adapter_request *r,
                              struct dry_adapter_choice *choice)
{
    char *where[2] = {dry_format("%s: rank_pattern", path), dry_format("%s: alpha_pattern", path)};
    struct dry_patterns *ranks = NULL, *alphas = NULL;
    char module[DRY_MODULE_NAME];
    enum dry_status s = DRY_ERR_MEMORY;

    if (!where[0] || !where[1] ||
        (s = dry_patterns_from_json(json_object_get(root, "rank_pattern"), where[0], &ranks)) ||
        (s = dry_patterns_from_json(json_object_get(root, "alpha_pattern"), where[1], &alphas)))
        goto out;
    for (int64_t i = 0; i < layers * DRY_PROJS && !s; i++) {
        double rank = (double)r->rank, alpha = r->alpha;

        if (!chosen[i])
            continue;
        dry_module_name(i / DRY_PROJS, (enum dry_proj)(i % DRY_PROJS), module);
        if ((s = dry_patterns_find(ranks, module, &rank)) || (s = dry_patterns_find(alphas, module, &alpha)))
            break;
        if (!(rank >= 1) || !(rank <= most_rank) || rank != floor(rank) || !isfinite(alpha)) {
            dry_error("%s: rank %g and alpha %g of %s: a rank is a whole number from 1 to %g", path, rank,
                      alpha, module, most_rank);
            s = DRY_ERR_INPUT;
        }
        choice[i].rank = s ? 0 : (int64_t)rank;
        choice[i].alpha = alpha;
    }
out:
    dry_patterns_destroy(alphas);
    dry_patterns_destroy(ranks);
    dry_free(where[0]);
    dry_free(where[1]);
    return s;
}

static enum dry_status read_request(const json_t *root, const char *path, struct dry_adapter_request *r)
{
    enum dry_status s;

    /* Defaults are those of PEFT's LoraConfig. */
    if ((s = dry_json_int(root, "r", 0, 8, path, &r->rank)) ||
        (s = dry_json_real(root, "lora_alpha", 0, 8, path, &r->alpha)) ||
        (s = dry_json_real(root, "lora_dropout", 0, 0, path, &r->dropout)) ||
        (s = dry_json_bool(root, "use_rslora", 0, 0, path, &r->rslora)))
        return s;
    if (r->rank < 1 || !(r->dropout >= 0) || !(r->dropout < 1)) {
        dry_error("%s: r %" PRId64 " must be at least 1, lora_dropout %g from 0 to below 1", path, r->rank,
                  r->dropout);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status make_adapter(const json_t *root, const char *path, const struct dry_arch *arch,
                                    struct dry_adapter **a)
{
    size_t modules = (size_t)(arch->layers * DRY_PROJS);
    struct dry_adapter_choice *choice = dry_alloc(modules, sizeof *choice, "adapter choice");
    unsigned char *chosen = dry_alloc(modules, 1, "adapter targets");
    struct dry_adapter_request request = {0};
    enum dry_status s = DRY_ERR_MEMORY;

    if (!choice || !chosen)
        goto out;
    if ((s = check_keys(root, path)) || (s = check_kind(root, path)) ||
        (s = read_request(root, path, &request)) || (s = select_modules(root, path, arch->layers, chosen)) ||
        (s = choose(root, path, arch->layers, chosen, &request, choice)))
        goto out;
    s = dry_adapter_create_chosen(arch, &request, choice, a);
out:
    dry_free(chosen);
    dry_free(choice);
    return s;
}

/* Says that the folder is no adapter; a run's folder has one inside. */
static void no_adapter(const char *dir, const char *path)
{
    char *inside = dry_format("%s/adapter/adapter_config.json", dir);

    if (inside && dry_file_exists(inside))
        dry_error("%s: no such file; %s is a run's folder, its adapter is %s/adapter", path, dir, dir);
    else
        dry_error(
            "%s: no such file; an adapter is a folder with adapter_config.json and adapter_model.safetensors",
            path);
    dry_free(inside);
}

enum dry_status dry_peft_open(const char *dir, const struct dry_arch *arch, struct dry_adapter **a)
{
    char *path = dry_path_join(dir, "adapter_config.json");
    json_t *root = NULL;
    enum dry_status s = DRY_ERR_MEMORY;

    if (!path)
        return s;
    s = DRY_ERR_INPUT;
    if (!dry_file_exists(path))
        no_adapter(dir, path);
    else
        s = dry_json_read(path, &root);
    if (!s && !json_is_object(root)) {
        dry_error("%s: not a JSON object", path);
        s = DRY_ERR_INPUT;
    }
    if (!s)
        s = make_adapter(root, path, arch, a);
    json_decref(root);
    dry_free(path);
    return s;
}

/* One tensor's values, checked. */
static enum dry_status read_tensor(const struct dry_tensors *tensors, const struct dry_adapter_part *part,
                                   int is_b, float *values)
{
    const char *file = dry_tensors_file(tensors, 0);
    char *name = dry_adapter_tensor_name(part, is_b);
    const struct dry_tensor *t = name ? dry_tensors_find(tensors, name) : NULL;
    int64_t rows = is_b ? part->out : part->rank, columns = is_b ? part->rank : part->in;
    enum dry_status s = name ? DRY_ERR_INPUT : DRY_ERR_MEMORY;

    if (name && !t)
        dry_error("%s: tensor \"%s\" is missing: adapter_config.json asks for it", file, name);
    else if (name && t->dtype == DRY_OTHER)
        dry_error("%s: tensor \"%s\" is of type %s; only float32, bfloat16 and float16 are read", file, name,
                  t->dtype_text);
    else if (name && (t->dims != 2 || t->shape[0] != rows || t->shape[1] != columns))
        dry_error("%s: tensor \"%s\" does not have the shape [%" PRId64 ", %" PRId64
                  "] that base and rank %" PRId64 " ask for; the adapter is of another base or rank",
                  file, name, rows, columns, part->rank);
    else if (name) {
        dry_to_f32(t->dtype, t->data, t->elements, values + (is_b ? part->b : part->a));
        s = DRY_OK;
    }
    dry_free(name);
    return s;
}

/* Called when a tensor is left over: names the first that no part asks for. */
static enum dry_status name_unexpected(const struct dry_tensors *tensors, const struct dry_adapter *a)
{
    for (size_t i = 0; i < dry_tensors_count(tensors); i++) {
        const char *name = dry_tensors_at(tensors, i)->name;
        int known = 0;

        for (int64_t k = 0; k < 2 * a->parts && !known; k++) {
            char *want = dry_adapter_tensor_name(&a->part[k / 2], k % 2 != 0);

            if (!want)
                return DRY_ERR_MEMORY;
            known = strcmp(name, want) == 0;
            dry_free(want);
        }
        if (!known) {
            dry_error("%s: tensor \"%s\" is unexpected: adapter_config.json has no module for it",
                      dry_tensors_file(tensors, 0), name);
            break;
        }
    }
    return DRY_ERR_INPUT;
}

static enum dry_status check_finite(const struct dry_adapter *a, const char *file, const float *values)
{
    for (int64_t i = 0; i < a->parameters; i++) {
        if (!isfinite(values[i])) {
            dry_error("%s: a value is not finite; the adapter's training went wrong", file);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

enum dry_status dry_peft_values(const char *dir, const struct dry_adapter *a, float *values)
{
    char *path = dry_path_join(dir, "adapter_model.safetensors");
    struct dry_tensors *tensors = NULL;
    enum dry_status s = DRY_ERR_MEMORY;

    if (!path)
        return s;
    s = DRY_ERR_INPUT;
    if (!dry_file_exists(path))
        dry_error("%s: no such file; an adapter is read from safetensors only (PEFT writes it by default)",
                  path);
    else
        s = dry_tensors_open_file(path, &tensors);
    for (int64_t i = 0; i < 2 * a->parts && !s; i++)
        s = read_tensor(tensors, &a->part[i / 2], i % 2 != 0, values);
    if (!s && dry_tensors_count(tensors) != (size_t)(2 * a->parts))
        s = name_unexpected(tensors, a);
    if (!s)
        s = check_finite(a, path, values);
    dry_tensors_close(tensors);
    dry_free(path);
    return s;
}
