/*
 * inspect's adapters: configuration, ranks, and how large the change is that they make.
 * Owns what it opens during a call.
 * Must not need the base: an adapter folder tells its shapes itself.
 */
#include "config.h"

#include "command/inspect.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/pattern.h"
#include "model/safetensors.h"
#include "state/peft.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 256 };

/* An adapter's folder, opened. */
struct folder {
    char *config_path, *values_path;
    json_t *config;
    struct dry_patterns *alphas;
    struct dry_tensors *tensors;
    double alpha;
    int rslora;
};

/* A module's pair of matrices. */
struct pair {
    char module[NAME]; /* without PEFT's prefix and the matrix's name */
    const struct dry_tensor *a, *b;
    int64_t rank;
    double alpha, a_norm, b_norm, change; /* change: norm of scale B A */
};

static void close_folder(struct folder *f)
{
    dry_tensors_close(f->tensors);
    dry_patterns_destroy(f->alphas);
    json_decref(f->config);
    dry_free(f->values_path);
    dry_free(f->config_path);
}

static enum dry_status open_folder(const char *dir, struct folder *f)
{
    enum dry_status s;

    f->config_path = dry_path_join(dir, "adapter_config.json");
    f->values_path = dry_path_join(dir, "adapter_model.safetensors");
    if (!f->config_path || !f->values_path)
        return DRY_ERR_MEMORY;
    if ((s = dry_json_read(f->config_path, &f->config)) ||
        (s = dry_json_real(f->config, "lora_alpha", 0, 8, f->config_path, &f->alpha)) ||
        (s = dry_json_bool(f->config, "use_rslora", 0, 0, f->config_path, &f->rslora)) ||
        (s = dry_patterns_from_json(json_object_get(f->config, "alpha_pattern"), f->config_path, &f->alphas)))
        return s;
    return dry_tensors_open_file(f->values_path, &f->tensors);
}

static enum dry_status to_floats(const struct dry_tensor *t, float **values)
{
    *values = dry_alloc((size_t)t->elements, sizeof **values, "adapter values");
    if (!*values)
        return DRY_ERR_MEMORY;
    dry_to_f32(t->dtype, t->data, t->elements, *values);
    return DRY_OK;
}

static double norm_of(const float *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    return sqrt(sum);
}

/* The norm of B A without making it: its square is the sum over i, j of (B'B)[i, j] (A A')[i, j]. */
static double product_norm(const float *a, const float *b, int64_t rank, int64_t in, int64_t out)
{
    double square = 0;

    for (int64_t i = 0; i < rank; i++) {
        for (int64_t j = 0; j < rank; j++) {
            double left = 0, right = 0;

            for (int64_t k = 0; k < out; k++)
                left += (double)b[k * rank + i] * b[k * rank + j];
            for (int64_t k = 0; k < in; k++)
                right += (double)a[i * in + k] * a[j * in + k];
            square += left * right;
        }
    }
    return sqrt(square > 0 ? square : 0);
}

static enum dry_status measure(const struct folder *f, struct pair *p)
{
    float *a = NULL, *b = NULL;
    double by;
    enum dry_status s = to_floats(p->a, &a);

    if (!s)
        s = to_floats(p->b, &b);
    p->rank = p->a->shape[0];
    p->alpha = f->alpha;
    if (!s)
        s = dry_patterns_find(f->alphas, p->module, &p->alpha);
    if (!s) {
        by = (double)p->rank;
        p->a_norm = norm_of(a, p->a->elements);
        p->b_norm = norm_of(b, p->b->elements);
        p->change = fabs(p->alpha / (f->rslora ? sqrt(by) : by)) *
                    product_norm(a, b, p->rank, p->a->shape[1], p->b->shape[0]);
    }
    dry_free(b);
    dry_free(a);
    return s;
}

/* Tensor i of the file when it is an A: fills the pair. 1: it is one; 0: it is none; -1: it has no fitting B.
 */
static int find_pair(const struct folder *f, size_t i, struct pair *p)
{
    static const char prefix[] = "base_model.model.", end[] = ".lora_A.weight";
    char name[NAME + sizeof prefix + sizeof end];
    const struct dry_tensor *a = dry_tensors_at(f->tensors, i);
    size_t n = strlen(a->name), k = strlen(end), skip = 0;

    if (n <= k || strcmp(a->name + n - k, end) != 0 || n >= sizeof name || n - k >= NAME)
        return 0;
    if (strncmp(a->name, prefix, strlen(prefix)) == 0)
        skip = strlen(prefix);
    memcpy(p->module, a->name + skip, n - k - skip);
    p->module[n - k - skip] = 0;
    snprintf(name, sizeof name, "%.*s.lora_B.weight", (int)(n - k), a->name);
    p->a = a;
    p->b = dry_tensors_find(f->tensors, name);
    if (!p->b || a->dims != 2 || p->b->dims != 2 || a->shape[0] < 1 || a->shape[0] != p->b->shape[1] ||
        a->dtype == DRY_OTHER || p->b->dtype == DRY_OTHER) {
        dry_error("%s: tensor \"%s\" and its lora_B are no pair of matrices; the adapter is damaged",
                  f->values_path, a->name);
        return -1;
    }
    return 1;
}

static json_t *row_of(const struct pair *p)
{
    return json_pack("{s:s, s:I, s:f, s:I, s:I, s:f, s:f, s:f}", "module", p->module, "rank",
                     (json_int_t)p->rank, "alpha", p->alpha, "in", (json_int_t)p->a->shape[1], "out",
                     (json_int_t)p->b->shape[0], "a_norm", p->a_norm, "b_norm", p->b_norm, "change_norm",
                     p->change);
}

/* Sums over the modules of one projection, by the last word of their names. */
static int add_to_targets(json_t *targets, const struct pair *p)
{
    const char *dot = strrchr(p->module, '.'), *name = dot ? dot + 1 : p->module;
    json_t *t = json_object_get(targets, name);
    json_int_t modules = 0, least = p->rank, most = p->rank;
    double a = 0, b = 0, change = 0;

    if (t)
        json_unpack(t, "{s:I, s:I, s:I, s:f, s:f, s:f}", "modules", &modules, "rank_least", &least,
                    "rank_most", &most, "a_norm", &a, "b_norm", &b, "change_norm", &change);
    least = p->rank < least ? p->rank : least;
    most = p->rank > most ? p->rank : most;
    return json_object_set_new(targets, name,
                               json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "target", name, "modules",
                                         modules + 1, "rank_least", least, "rank_most", most, "a_norm",
                                         hypot(a, p->a_norm), "b_norm", hypot(b, p->b_norm), "change_norm",
                                         hypot(change, p->change)));
}

/* Walks the pairs: sums by target, and with --verbose each. */
static enum dry_status tell_pairs(const struct dry_inspect *in, const struct folder *f, json_t *made)
{
    json_t *targets = json_object(), *modules = json_array(), *rows = json_array(), *row;
    json_int_t parameters = 0, pairs = 0;
    const char *name;
    struct pair p;
    int found, bad = !targets || !modules || !rows;
    enum dry_status s = DRY_OK;

    for (size_t i = 0; i < dry_tensors_count(f->tensors) && !bad && !s; i++) {
        found = find_pair(f, i, &p);
        parameters += (json_int_t)dry_tensors_at(f->tensors, i)->elements;
        if (found > 0)
            s = measure(f, &p);
        else if (found < 0)
            s = DRY_ERR_INPUT;
        if (s || !found)
            continue;
        pairs++;
        bad = add_to_targets(targets, &p) ||
              (in->config->verbose && json_array_append_new(modules, row_of(&p)));
    }
    json_object_foreach(targets, name, row)
    {
        bad = bad || json_array_append(rows, row);
    }
    if (!s)
        bad = bad || dry_inspect_put(made, "parameters", json_integer(parameters)) ||
              dry_inspect_put(made, "modules_adapted", json_integer(pairs)) ||
              json_object_set(made, "targets", rows) ||
              (in->config->verbose && json_object_set(made, "modules", modules));
    json_decref(rows);
    json_decref(modules);
    json_decref(targets);
    return s ? s : bad ? dry_inspect_no_memory(NULL) : DRY_OK;
}

/* With --base, whether the adapter fits it: every check of evaluate and merge. */
static enum dry_status check_base(const struct dry_inspect *in, const char *dir, json_t *made)
{
    struct dry_adapter *a = NULL;
    struct dry_arch arch;
    float *values = NULL;
    enum dry_status s;

    if (!in->base)
        return DRY_OK;
    if ((s = dry_arch_read(in->base, &arch)) || (s = dry_peft_open(dir, &arch, &a)))
        return s;
    values = dry_alloc((size_t)a->parameters, sizeof *values, "adapter values");
    s = values ? dry_peft_values(dir, a, values) : DRY_ERR_MEMORY;
    if (!s && dry_inspect_put(made, "fits_base", json_string(in->base)))
        s = dry_inspect_no_memory(NULL);
    dry_free(values);
    dry_adapter_destroy(a);
    return s;
}

enum dry_status dry_inspect_adapter(const struct dry_inspect *in, const char *dir, json_t **content)
{
    static const char *const shown[] = {"peft_type",
                                        "base_model_name_or_path",
                                        "r",
                                        "lora_alpha",
                                        "use_rslora",
                                        "lora_dropout",
                                        "target_modules",
                                        "rank_pattern",
                                        "alpha_pattern"};
    struct folder f = {0};
    json_t *made = json_pack("{s:s}", "kind", "adapter folder (PEFT)"), *value;
    char hash[DRY_HASH_HEX];
    enum dry_status s = open_folder(dir, &f);

    for (size_t i = 0; i < sizeof shown / sizeof *shown && !s; i++) {
        value = json_object_get(f.config, shown[i]);
        if (value && json_object_set(made, shown[i], value))
            s = dry_inspect_no_memory(NULL);
    }
    if (!s)
        s = dry_peft_hash(dir, hash);
    if (!s && dry_inspect_put(made, "sha256", json_string(hash)))
        s = dry_inspect_no_memory(NULL);
    if (!s)
        s = tell_pairs(in, &f, made);
    if (!s)
        s = check_base(in, dir, made);
    close_folder(&f);
    if (s) {
        json_decref(made);
        return s;
    }
    *content = made;
    return DRY_OK;
}
