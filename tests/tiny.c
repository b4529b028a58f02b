/*
 * A tiny base with random weights in a Hugging Face folder, for the tests of every layer that needs one.
 * Owns nothing.  Must not know what is tested; it uses no reader of drydock, only the writer.
 */
#include "config.h"

#include "tiny.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TENSORS_PER_LAYER = 18 };

struct tensor {
    char name[112];
    int64_t rows, columns; /* columns 0: a vector */
};

struct list {
    struct tensor *tensor;
    size_t count;
};

static struct tiny_spec complete(const struct tiny_spec *given)
{
    struct tiny_spec s = *given;

    s.family = s.family ? s.family : "llama";
    s.hidden = s.hidden ? s.hidden : 16;
    s.ffn = s.ffn ? s.ffn : 24;
    s.layers = s.layers ? s.layers : 2;
    s.heads = s.heads ? s.heads : 4;
    s.kv_heads = s.kv_heads ? s.kv_heads : 2;
    s.head_dim = s.head_dim ? s.head_dim : s.hidden / s.heads;
    s.vocab = s.vocab ? s.vocab : 32;
    s.shards = s.shards ? s.shards : 1;
    s.scale = s.scale != 0 ? s.scale : 1;
    if (strcmp(s.family, "qwen2") == 0)
        s.qkv_bias = 1;
    return s;
}

static const char *class_name(const char *family)
{
    static const char *const names[][2] = {{"llama", "LlamaForCausalLM"},
                                           {"mistral", "MistralForCausalLM"},
                                           {"qwen2", "Qwen2ForCausalLM"},
                                           {"qwen3", "Qwen3ForCausalLM"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], family) == 0)
            return names[i][1];
    return family;
}

static json_t *make_rope(const struct tiny_spec *s)
{
    json_t *rope = s->llama3 ? json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", 8.0,
                                         "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                                         "original_max_position_embeddings", 16)
                             : json_pack("{s:s}", "rope_type", "default");

    if (!s->old_keys)
        json_object_set_new(rope, "rope_theta", json_real(10000.0));
    return rope;
}

static enum dry_status write_config(const char *dir, const struct tiny_spec *s)
{
    static const char *const dtypes[] = {
        [DRY_F32] = "float32", [DRY_BF16] = "bfloat16", [DRY_F16] = "float16"};
    json_t *root =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:f, s:b, s:s}", "architectures",
                  class_name(s->family), "model_type", s->family, "hidden_size", (json_int_t)s->hidden,
                  "intermediate_size", (json_int_t)s->ffn, "num_hidden_layers", (json_int_t)s->layers,
                  "num_attention_heads", (json_int_t)s->heads, "num_key_value_heads", (json_int_t)s->kv_heads,
                  "head_dim", (json_int_t)s->head_dim, "vocab_size", (json_int_t)s->vocab, "hidden_act",
                  "silu", "max_position_embeddings", 128, "rms_norm_eps", 1e-5, "tie_word_embeddings",
                  s->tied, s->old_keys ? "torch_dtype" : "dtype", dtypes[s->dtype]);
    char *path = dry_path_join(dir, "config.json");
    enum dry_status status = DRY_ERR_MEMORY;

    if (!root || !path)
        goto out;
    if (s->old_keys)
        json_object_set_new(root, "rope_theta", json_real(10000.0));
    if (!s->old_keys || s->llama3)
        json_object_set_new(root, s->old_keys ? "rope_scaling" : "rope_parameters", make_rope(s));
    if (strcmp(s->family, "llama") == 0 || strcmp(s->family, "qwen3") == 0)
        json_object_set_new(root, "attention_bias", json_boolean(s->qkv_bias));
    if (strcmp(s->family, "llama") == 0)
        json_object_set_new(root, "mlp_bias", json_boolean(s->mlp_bias));
    if (strcmp(s->family, "mistral") == 0)
        json_object_set_new(root, "sliding_window", s->window ? json_integer(s->window) : json_null());
    status = dry_json_write(path, root);
out:
    dry_free(path);
    json_decref(root);
    return status;
}

static void add(struct list *l, int64_t layer, const char *name, int64_t rows, int64_t columns)
{
    struct tensor *t = &l->tensor[l->count++];

    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "model.layers.%lld.%s", (long long)layer, name);
    t->rows = rows;
    t->columns = columns;
}

static void add_linear(struct list *l, int64_t layer, const char *name, int64_t out, int64_t in, int bias)
{
    char full[64];

    snprintf(full, sizeof full, "%s.weight", name);
    add(l, layer, full, out, in);
    if (!bias)
        return;
    snprintf(full, sizeof full, "%s.bias", name);
    add(l, layer, full, out, 0);
}

static void add_layer(struct list *l, const struct tiny_spec *s, int64_t i)
{
    int64_t q = s->heads * s->head_dim, k = s->kv_heads * s->head_dim;
    int o_bias = s->qkv_bias && strcmp(s->family, "qwen2") != 0;

    add_linear(l, i, "self_attn.q_proj", q, s->hidden, s->qkv_bias);
    add_linear(l, i, "self_attn.k_proj", k, s->hidden, s->qkv_bias);
    add_linear(l, i, "self_attn.v_proj", k, s->hidden, s->qkv_bias);
    add_linear(l, i, "self_attn.o_proj", s->hidden, q, o_bias);
    add_linear(l, i, "mlp.gate_proj", s->ffn, s->hidden, s->mlp_bias);
    add_linear(l, i, "mlp.up_proj", s->ffn, s->hidden, s->mlp_bias);
    add_linear(l, i, "mlp.down_proj", s->hidden, s->ffn, s->mlp_bias);
    add(l, i, "input_layernorm.weight", s->hidden, 0);
    add(l, i, "post_attention_layernorm.weight", s->hidden, 0);
    if (strcmp(s->family, "qwen3") == 0) {
        add(l, i, "self_attn.q_norm.weight", s->head_dim, 0);
        add(l, i, "self_attn.k_norm.weight", s->head_dim, 0);
    }
}

/* splitmix64; weights are uniform in +-scale * sqrt(3 / in), norms are near 1. */
static float draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40) * 0x1p-23f - 1.0f;
}

static enum dry_status write_values(struct dry_tensor_writer *w, const struct tensor *t,
                                    const struct tiny_spec *s)
{
    size_t n = (size_t)(t->rows * (t->columns ? t->columns : 1)), size = dry_dtype_size(s->dtype);
    float *values = dry_alloc(n, sizeof *values, "tiny values"), spread, centre = 0;
    void *bytes = dry_alloc(n, size, "tiny bytes");
    uint64_t state = s->seed;
    enum dry_status status = DRY_ERR_MEMORY;

    if (!values || !bytes)
        goto out;
    for (const char *c = t->name; *c; c++)
        state = state * 1099511628211u + (unsigned char)*c;
    spread = (float)s->scale * sqrtf(3.0f / (float)(t->columns ? t->columns : s->hidden));
    if (strstr(t->name, "norm.weight")) {
        centre = 1;
        spread = 0.2f;
    }
    for (size_t i = 0; i < n; i++)
        values[i] = centre + spread * draw(&state);
    dry_from_f32(s->dtype, values, (int64_t)n, bytes);
    status = dry_tensor_writer_add(w, bytes, n * size);
out:
    dry_free(bytes);
    dry_free(values);
    return status;
}

static enum dry_status write_shard(const char *path, const struct tensor *t, size_t count,
                                   const struct tiny_spec *s)
{
    struct dry_tensor_out *out = dry_alloc(count, sizeof *out, "tiny header");
    struct dry_tensor_writer *w = NULL;
    enum dry_status status = DRY_ERR_MEMORY;

    if (!out)
        return status;
    for (size_t i = 0; i < count; i++) {
        out[i].name = t[i].name;
        out[i].dtype = s->dtype;
        out[i].dims = t[i].columns ? 2 : 1;
        out[i].shape[0] = t[i].rows;
        out[i].shape[1] = t[i].columns;
    }
    status = dry_tensor_writer_begin(path, out, count, &w);
    for (size_t i = 0; i < count && !status; i++)
        status = write_values(w, &t[i], s);
    if (!status)
        status = dry_tensor_writer_commit(w);
    else
        dry_tensor_writer_abandon(w);
    dry_free(out);
    return status;
}

static enum dry_status write_weights(const char *dir, const struct list *l, const struct tiny_spec *s)
{
    json_t *map = json_object(), *root = json_pack("{s:{}, s:O}", "metadata", "weight_map", map);
    enum dry_status status = DRY_OK;
    char name[64], *path;

    for (int i = 0; i < s->shards && !status; i++) {
        size_t from = l->count * (size_t)i / (size_t)s->shards,
               to = l->count * (size_t)(i + 1) / (size_t)s->shards;

        if (s->shards == 1)
            snprintf(name, sizeof name, "model.safetensors");
        else
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, s->shards);
        for (size_t k = from; k < to; k++)
            json_object_set_new(map, l->tensor[k].name, json_string(name));
        path = dry_path_join(dir, name);
        status = path ? write_shard(path, l->tensor + from, to - from, s) : DRY_ERR_MEMORY;
        dry_free(path);
    }
    if (!status && s->shards > 1) {
        path = dry_path_join(dir, "model.safetensors.index.json");
        status = path ? dry_json_write(path, root) : DRY_ERR_MEMORY;
        dry_free(path);
    }
    json_decref(root);
    json_decref(map);
    return status;
}

enum dry_status tiny_base_write(const char *dir, const struct tiny_spec *spec)
{
    struct tiny_spec s = complete(spec);
    struct list l = {0};
    enum dry_status status = dry_dir_make(dir);

    if (status)
        return status;
    l.tensor = dry_alloc((size_t)s.layers * TENSORS_PER_LAYER + 3, sizeof *l.tensor, "tiny tensors");
    if (!l.tensor)
        return DRY_ERR_MEMORY;
    add(&l, -1, "model.embed_tokens.weight", s.vocab, s.hidden);
    for (int64_t i = 0; i < s.layers; i++)
        add_layer(&l, &s, i);
    add(&l, -1, "model.norm.weight", s.hidden, 0);
    if (!s.tied)
        add(&l, -1, "lm_head.weight", s.vocab, s.hidden);
    status = write_config(dir, &s);
    if (!status)
        status = write_weights(dir, &l, &s);
    dry_free(l.tensor);
    return status;
}
