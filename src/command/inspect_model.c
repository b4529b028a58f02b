/*
 * inspect's models: folders, safetensors files and their index.
 * Owns what it opens during a call.
 * Must not know how it is printed.
 */
#include "config.h"

#include "command/inspect.h"

#include "base/log.h"
#include "base/memory.h"
#include "model/base.h"

#include <string.h>

/* Tensors, elements and bytes by type of element. */
static int put_types(json_t *content, const struct dry_tensors *t)
{
    json_t *types = json_object(), *rows = json_array(), *count;
    const char *name;
    int bad = !types || !rows;

    for (size_t i = 0; i < dry_tensors_count(t) && !bad; i++) {
        const struct dry_tensor *at = dry_tensors_at(t, i);
        json_int_t tensors = 0, elements = 0, bytes = 0;

        count = json_object_get(types, at->dtype_text);
        if (count)
            json_unpack(count, "[I, I, I]", &tensors, &elements, &bytes);
        bad = json_object_set_new(
            types, at->dtype_text,
            json_pack("[I, I, I]", tensors + 1, elements + at->elements, bytes + (json_int_t)at->bytes));
    }
    json_object_foreach(types, name, count)
    {
        bad = bad ||
              json_array_append_new(
                  rows, json_pack("{s:s, s:O, s:O, s:O}", "type", name, "tensors", json_array_get(count, 0),
                                  "elements", json_array_get(count, 1), "bytes", json_array_get(count, 2)));
    }
    json_decref(types);
    if (bad) {
        json_decref(rows);
        return -1;
    }
    return dry_inspect_put(content, "types", rows);
}

static int put_files(json_t *content, const struct dry_tensors *t)
{
    json_t *rows = json_array();
    int bad = !rows;

    for (int f = 0; f < dry_tensors_files(t) && !bad; f++) {
        json_int_t tensors = 0, bytes = 0;

        for (size_t i = 0; i < dry_tensors_count(t); i++) {
            if (dry_tensors_at(t, i)->file == f) {
                tensors++;
                bytes += (json_int_t)dry_tensors_at(t, i)->bytes;
            }
        }
        bad = json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "file", dry_tensors_file(t, f),
                                                    "tensors", tensors, "bytes", bytes));
    }
    if (bad) {
        json_decref(rows);
        return -1;
    }
    return dry_inspect_put(content, "files", rows);
}

static json_t *shape_of(const struct dry_tensor *t)
{
    json_t *shape = json_array();

    for (int d = 0; d < t->dims; d++) {
        if (json_array_append_new(shape, json_integer(t->shape[d]))) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape;
}

/* Each tensor; only when asked for. */
static int put_tensors(const struct dry_inspect *in, json_t *content, const struct dry_tensors *t)
{
    json_t *rows;
    int bad;

    if (!in->config->verbose || dry_tensors_count(t) == 0)
        return 0;
    rows = json_array();
    bad = !rows;
    for (size_t i = 0; i < dry_tensors_count(t) && !bad; i++) {
        const struct dry_tensor *at = dry_tensors_at(t, i);

        bad = json_array_append_new(rows, json_pack("{s:s, s:s, s:o, s:I, s:i}", "tensor", at->name, "type",
                                                    at->dtype_text, "shape", shape_of(at), "bytes",
                                                    (json_int_t)at->bytes, "file", at->file));
    }
    if (bad) {
        json_decref(rows);
        return -1;
    }
    return dry_inspect_put(content, "tensors", rows);
}

static json_t *rope_of(const struct dry_arch *a)
{
    switch (a->rope) {
    case DRY_ROPE_LINEAR:
        return json_pack("{s:s, s:f, s:f}", "type", "linear", "theta", a->rope_theta, "factor",
                         a->rope_factor);
    case DRY_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:f, s:I}", "type", "llama3", "theta", a->rope_theta, "factor",
                         a->rope_factor, "low_freq_factor", a->rope_low, "high_freq_factor", a->rope_high,
                         "original_positions", (json_int_t)a->rope_original);
    case DRY_ROPE_DEFAULT:
        break;
    }
    return json_pack("{s:s, s:f}", "type", "default", "theta", a->rope_theta);
}

static json_t *architecture(const struct dry_arch *a)
{
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:b, s:b, s:b}", "family", a->family,
        "layers", (json_int_t)a->layers, "hidden", (json_int_t)a->hidden, "heads", (json_int_t)a->heads,
        "kv_heads", (json_int_t)a->kv_heads, "head_dim", (json_int_t)a->head_dim, "ffn", (json_int_t)a->ffn,
        "vocabulary", (json_int_t)a->vocab, "positions", (json_int_t)a->max_positions, "norm_epsilon",
        a->norm_eps, "tied_head", a->tied, "qkv_bias", a->qkv_bias, "o_bias", a->o_bias, "mlp_bias",
        a->mlp_bias, "qk_norm", a->qk_norm);

    if (object && (dry_inspect_put(object, "window", a->window ? json_integer(a->window) : json_null()) ||
                   dry_inspect_put(object, "rope", rope_of(a)))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

enum dry_status dry_inspect_model(const struct dry_inspect *in, const char *dir, json_t **content)
{
    struct dry_base *b = NULL;
    enum dry_status s = dry_base_open(dir, &b);
    json_t *made;

    if (s)
        return s;
    made = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "kind", "model folder", "hash", b->hash, "parameters",
                     (json_int_t)dry_arch_parameters(&b->arch), "matrix_parameters",
                     (json_int_t)dry_arch_matrix_parameters(&b->arch), "tensor_count",
                     (json_int_t)dry_tensors_count(b->tensors), "architecture", architecture(&b->arch));
    if (!made || put_types(made, b->tensors) || put_files(made, b->tensors) ||
        put_tensors(in, made, b->tensors))
        s = dry_inspect_no_memory(made);
    else
        *content = made;
    dry_base_close(b);
    return s;
}

static enum dry_status tell_tensors(const struct dry_inspect *in, const struct dry_tensors *t,
                                    const char *kind, json_t **content)
{
    const json_t *metadata = dry_tensors_files(t) == 1 ? dry_tensors_metadata(t, 0) : NULL;
    json_t *made = json_pack("{s:s, s:I}", "kind", kind, "tensor_count", (json_int_t)dry_tensors_count(t));

    if (!made || (metadata && dry_inspect_put(made, "metadata", json_deep_copy(metadata))) ||
        put_types(made, t) || put_files(made, t) || put_tensors(in, made, t))
        return dry_inspect_no_memory(made);
    *content = made;
    return DRY_OK;
}

enum dry_status dry_inspect_safetensors(const struct dry_inspect *in, const char *path, json_t **content)
{
    struct dry_tensors *t = NULL;
    enum dry_status s = dry_tensors_open_file(path, &t);

    if (!s)
        s = tell_tensors(in, t, "safetensors file", content);
    dry_tensors_close(t);
    return s;
}

enum dry_status dry_inspect_index(const struct dry_inspect *in, const char *path, json_t **content)
{
    struct dry_tensors *t = NULL;
    enum dry_status s = dry_tensors_open_index(path, &t);

    if (!s)
        s = tell_tensors(in, t, "index of safetensors shards", content);
    dry_tensors_close(t);
    return s;
}
