/*
 * config.json: what kind of model a base is.  Every key is read, known to change nothing, or refused by name.
 * Owns the parsed file during a call.  Must not know of weights.
 */
#include "config.h"

#include "model/arch.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any model, and low enough that no count of parameters overflows. */
enum { MOST_WIDTH = 1 << 20, MOST_VOCAB = 1 << 28, MOST_LAYERS = 1 << 14 };

enum { LLAMA = 1, MISTRAL = 2, QWEN2 = 4, QWEN3 = 8, ALL = 15 };

/* Defaults are those of Transformers' configuration classes for a key that the file lacks; 0: the file must
 * have it. */
static const struct family {
    const char *name, *architecture;
    unsigned bit;
    int64_t kv_heads, head_dim, max_positions,
        window; /* kv_heads 0: as many as heads; head_dim 0: hidden / heads */
} families[] = {
    {"llama", "LlamaForCausalLM", LLAMA, 0, 0, 2048, 0},
    {"mistral", "MistralForCausalLM", MISTRAL, 8, 0, 131072, 4096},
    {"qwen2", "Qwen2ForCausalLM", QWEN2, 32, 0, 32768, 4096},
    {"qwen3", "Qwen3ForCausalLM", QWEN3, 32, 128, 32768, 4096},
};

/* Keys that this file reads. */
static const struct {
    const char *key;
    unsigned families;
} read_keys[] = {
    {"architectures", ALL},
    {"attention_bias", LLAMA | QWEN3},
    {"dtype", ALL},
    {"head_dim", ALL},
    {"hidden_act", ALL},
    {"hidden_size", ALL},
    {"intermediate_size", ALL},
    {"layer_types", ALL},
    {"max_position_embeddings", ALL},
    {"max_window_layers", QWEN2 | QWEN3},
    {"mlp_bias", LLAMA},
    {"model_type", ALL},
    {"num_attention_heads", ALL},
    {"num_hidden_layers", ALL},
    {"num_key_value_heads", ALL},
    {"rms_norm_eps", ALL},
    {"rope_parameters", ALL},
    {"rope_scaling", ALL},
    {"rope_theta", ALL},
    {"sliding_window", MISTRAL | QWEN2 | QWEN3},
    {"tie_word_embeddings", ALL},
    {"torch_dtype", ALL},
    {"use_sliding_window", QWEN2 | QWEN3},
    {"vocab_size", ALL},
};

/* Keys that change nothing in what is computed here: provenance, token ids, generation, and how Transformers
 * runs. */
static const char *const ignored_keys[] = {
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
};

/* Keys that must have one value (a number, or false), because only that is computed. */
static const struct {
    const char *key;
    double value;
    const char *remedy;
} fixed_keys[] = {
    {"attention_dropout", 0, "set it to 0: dropout of attention is not computed"},
    {"hidden_dropout", 0, "set it to 0: only the adapter has dropout (--lora-dropout)"},
    {"is_decoder", 1, "a decoder is needed"},
    {"is_encoder_decoder", 0, "only decoders are trained"},
    {"partial_rotary_factor", 1,
     "rotary embeddings of a part of the head are not computed; use another base"},
    {"pretraining_tp", 1,
     "set it to 1: it only imitates the rounding of the pretraining's tensor parallelism"},
    {"rope_interleaved", 0, "interleaved rotary embeddings are not computed; use another base"},
};

/* Keys that are refused with a reason of their own; any other one is refused as unknown. */
static const struct {
    const char *key, *reason;
} refused_keys[] = {
    {"auto_map", "the model runs code of its own, which drydock cannot; use a base of a plain architecture"},
    {"num_experts", "mixtures of experts are not trained; use a dense base"},
    {"num_experts_per_tok", "mixtures of experts are not trained; use a dense base"},
    {"num_local_experts", "mixtures of experts are not trained; use a dense base"},
    {"quantization_config", "the weights are quantised; give the base in bfloat16, float16 or float32"},
};

/* What the reader works on: the file and its name for messages. */
struct reading {
    const char *path;
    const json_t *root;
    const struct family *family;
};

static int equals(const json_t *value, double want)
{
    if (json_is_boolean(value))
        return want == (json_is_true(value) ? 1 : 0);
    return json_is_number(value) && json_number_value(value) == want;
}

/* null, false, and empty texts, lists and objects switch nothing on. */
static int is_blank(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* A value as text for a message, cut short. */
static void show(const json_t *value, char *text, size_t size)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

    snprintf(text, size, "%s", dump ? dump : "?");
    if (dump && strlen(dump) >= size)
        strcpy(text + size - 4, "...");
    free(dump);
}

static int is_read(const struct reading *r, const char *key)
{
    for (size_t i = 0; i < sizeof read_keys / sizeof *read_keys; i++)
        if (strcmp(key, read_keys[i].key) == 0)
            return (read_keys[i].families & r->family->bit) != 0;
    return 0;
}

static int is_ignored(const char *key)
{
    for (size_t i = 0; i < sizeof ignored_keys / sizeof *ignored_keys; i++)
        if (strcmp(key, ignored_keys[i]) == 0)
            return 1;
    return 0;
}

static enum dry_status check_key(const struct reading *r, const char *key, const json_t *value)
{
    char text[60];

    if (is_read(r, key) || is_ignored(key) || is_blank(value))
        return DRY_OK;
    show(value, text, sizeof text);
    for (size_t i = 0; i < sizeof fixed_keys / sizeof *fixed_keys; i++) {
        if (strcmp(key, fixed_keys[i].key) != 0)
            continue;
        if (equals(value, fixed_keys[i].value))
            return DRY_OK;
        dry_error("%s: key \"%s\": %s is not supported; %s", r->path, key, text, fixed_keys[i].remedy);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < sizeof refused_keys / sizeof *refused_keys; i++) {
        if (strcmp(key, refused_keys[i].key) == 0) {
            dry_error("%s: key \"%s\": %s", r->path, key, refused_keys[i].reason);
            return DRY_ERR_INPUT;
        }
    }
    dry_error("%s: key \"%s\" (%s) is not known for model_type %s, and may change what the model computes; "
              "if it does "
              "not, remove it",
              r->path, key, text, r->family->name);
    return DRY_ERR_INPUT;
}

static enum dry_status check_keys(const struct reading *r)
{
    enum dry_status s;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)r->root, key, value)
    {
        s = check_key(r, key, value);
        if (s)
            return s;
    }
    return DRY_OK;
}

static enum dry_status find_family(struct reading *r)
{
    const json_t *architectures = json_object_get(r->root, "architectures");
    const char *type, *name;
    char text[80];
    enum dry_status s = dry_json_text(r->root, "model_type", 1, NULL, r->path, &type);

    if (s)
        return s;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].name) == 0)
            r->family = &families[i];
    if (!r->family) {
        dry_error(
            "%s: model_type \"%s\" is not known; drydock trains llama, mistral, qwen2 (and 2.5) and qwen3",
            r->path, type);
        return DRY_ERR_INPUT;
    }
    if (!architectures || json_is_null(architectures))
        return DRY_OK;
    name = json_string_value(json_array_get(architectures, 0));
    if (json_array_size(architectures) != 1 || !name || strcmp(name, r->family->architecture) != 0) {
        show(architectures, text, sizeof text);
        dry_error("%s: key \"architectures\" is %s, but only [\"%s\"] is trained for model_type %s", r->path,
                  text, r->family->architecture, type);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* A size between 1 and most; otherwise 0 makes the key required. */
static enum dry_status read_size(const struct reading *r, const char *key, int64_t otherwise, int64_t most,
                                 int64_t *value)
{
    enum dry_status s = dry_json_int(r->root, key, otherwise == 0, otherwise, r->path, value);

    if (s)
        return s;
    if (*value < 1 || *value > most) {
        dry_error("%s: key \"%s\": %" PRId64 " is not between 1 and %" PRId64, r->path, key, *value, most);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status read_sizes(const struct reading *r, struct dry_arch *a)
{
    const json_t *kv = json_object_get(r->root, "num_key_value_heads");
    int64_t kv_heads;
    enum dry_status s;

    if ((s = read_size(r, "hidden_size", 0, MOST_WIDTH, &a->hidden)) ||
        (s = read_size(r, "intermediate_size", 0, MOST_WIDTH, &a->ffn)) ||
        (s = read_size(r, "num_hidden_layers", 0, MOST_LAYERS, &a->layers)) ||
        (s = read_size(r, "num_attention_heads", 0, MOST_WIDTH, &a->heads)) ||
        (s = read_size(r, "vocab_size", 0, MOST_VOCAB, &a->vocab)) ||
        (s = read_size(r, "max_position_embeddings", r->family->max_positions, INT32_MAX, &a->max_positions)))
        return s;
    /* Absent is the class's default, null is as many as heads. */
    kv_heads = !kv && r->family->kv_heads ? r->family->kv_heads : a->heads;
    if ((s = read_size(r, "num_key_value_heads", kv_heads, MOST_WIDTH, &a->kv_heads)))
        return s;
    if (!r->family->head_dim && !json_is_integer(json_object_get(r->root, "head_dim")) &&
        a->hidden % a->heads) {
        dry_error("%s: hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64
                  ", and head_dim is not "
                  "given",
                  r->path, a->hidden, a->heads);
        return DRY_ERR_INPUT;
    }
    if ((s = read_size(r, "head_dim", r->family->head_dim ? r->family->head_dim : a->hidden / a->heads,
                       MOST_WIDTH, &a->head_dim)))
        return s;
    if (a->heads % a->kv_heads) {
        dry_error("%s: num_attention_heads %" PRId64 " is no multiple of num_key_value_heads %" PRId64,
                  r->path, a->heads, a->kv_heads);
        return DRY_ERR_INPUT;
    }
    if (a->head_dim % 2 || a->heads * a->head_dim > MOST_WIDTH) {
        dry_error("%s: head_dim %" PRId64 " with %" PRId64
                  " heads: it must be even, and all heads together at most %d",
                  r->path, a->head_dim, a->heads, MOST_WIDTH);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* The rope object, whichever key it has (it may be absent: NULL). */
static enum dry_status find_rope(const struct reading *r, const json_t **rope)
{
    const json_t *old = json_object_get(r->root, "rope_scaling"),
                 *now = json_object_get(r->root, "rope_parameters");

    old = json_is_null(old) ? NULL : old;
    now = json_is_null(now) ? NULL : now;
    if ((old && !json_is_object(old)) || (now && !json_is_object(now))) {
        dry_error("%s: key \"%s\" is not an object", r->path,
                  old && !json_is_object(old) ? "rope_scaling" : "rope_parameters");
        return DRY_ERR_INPUT;
    }
    if (old && now && !json_equal(old, now)) {
        dry_error("%s: rope_scaling and rope_parameters differ; keep the one that is right", r->path);
        return DRY_ERR_INPUT;
    }
    *rope = now ? now : old;
    return DRY_OK;
}

static enum dry_status find_rope_type(const json_t *rope, const char *where, struct dry_arch *a)
{
    static const char *const names[] = {
        [DRY_ROPE_DEFAULT] = "default", [DRY_ROPE_LINEAR] = "linear", [DRY_ROPE_LLAMA3] = "llama3"};
    const char *type, *old;
    enum dry_status s;

    if ((s = dry_json_text(rope, "type", 0, NULL, where, &old)) ||
        (s = dry_json_text(rope, "rope_type", 0, old ? old : "default", where, &type)))
        return s;
    if (old && strcmp(old, type) != 0) {
        dry_error("%s: type \"%s\" and rope_type \"%s\" differ; keep the one that is right", where, old,
                  type);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(type, names[i]) == 0) {
            a->rope = (enum dry_rope)i;
            return DRY_OK;
        }
    }
    dry_error(
        "%s: rope type \"%s\" is not known, only default, linear and llama3 are; to train within the base's "
        "original context, set it to null",
        where, type);
    return DRY_ERR_INPUT;
}

/* Keys of the rope object: known for the type, or blank. */
static enum dry_status check_rope_keys(const json_t *rope, const char *where, enum dry_rope type)
{
    static const struct {
        const char *key;
        unsigned types;
    } known[] = {
        {"type", 7},
        {"rope_type", 7},
        {"rope_theta", 7},
        {"partial_rotary_factor", 7},
        {"factor", 1 << DRY_ROPE_LINEAR | 1 << DRY_ROPE_LLAMA3},
        {"low_freq_factor", 1 << DRY_ROPE_LLAMA3},
        {"high_freq_factor", 1 << DRY_ROPE_LLAMA3},
        {"original_max_position_embeddings", 1 << DRY_ROPE_LLAMA3},
    };
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)rope, key, value)
    {
        size_t i = 0;

        while (i < sizeof known / sizeof *known &&
               (strcmp(key, known[i].key) != 0 || !(known[i].types >> type & 1)))
            i++;
        if (i == sizeof known / sizeof *known && !is_blank(value)) {
            dry_error("%s: key \"%s\" is not known for this rope type; if it changes nothing, remove it",
                      where, key);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

static enum dry_status read_scaling(const json_t *rope, const char *where, struct dry_arch *a)
{
    enum dry_status s;

    if (a->rope == DRY_ROPE_DEFAULT)
        return DRY_OK;
    if ((s = dry_json_real(rope, "factor", 1, 0, where, &a->rope_factor)))
        return s;
    if (a->rope == DRY_ROPE_LLAMA3 &&
        ((s = dry_json_real(rope, "low_freq_factor", 1, 0, where, &a->rope_low)) ||
         (s = dry_json_real(rope, "high_freq_factor", 1, 0, where, &a->rope_high)) ||
         (s = dry_json_int(rope, "original_max_position_embeddings", 0, a->max_positions, where,
                           &a->rope_original))))
        return s;
    if (!(a->rope_factor >= 1) || !isfinite(a->rope_factor)) {
        dry_error("%s: factor %g is not 1 or more", where, a->rope_factor);
        return DRY_ERR_INPUT;
    }
    if (a->rope == DRY_ROPE_LLAMA3 && (!(a->rope_low > 0) || !(a->rope_high > a->rope_low) ||
                                       !isfinite(a->rope_high) || a->rope_original < 1)) {
        dry_error("%s: low_freq_factor %g must be over 0, high_freq_factor %g over that, and "
                  "original_max_position_embeddings %" PRId64 " at least 1",
                  where, a->rope_low, a->rope_high, a->rope_original);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status read_rope(const struct reading *r, struct dry_arch *a)
{
    const json_t *rope = NULL;
    double theta, part;
    char where[512];
    enum dry_status s = find_rope(r, &rope);

    if (s)
        return s;
    snprintf(where, sizeof where, "%s: rope_%s", r->path,
             json_object_get(r->root, "rope_parameters") == rope ? "parameters" : "scaling");
    if ((s = dry_json_real(r->root, "rope_theta", 0, 10000.0, r->path, &theta)))
        return s;
    a->rope_theta = theta;
    if (rope) {
        if ((s = find_rope_type(rope, where, a)) || (s = check_rope_keys(rope, where, a->rope)) ||
            (s = dry_json_real(rope, "rope_theta", 0, theta, where, &a->rope_theta)) ||
            (s = dry_json_real(rope, "partial_rotary_factor", 0, 1, where, &part)) ||
            (s = read_scaling(rope, where, a)))
            return s;
        if (part != 1) {
            dry_error(
                "%s: partial_rotary_factor %g: rotary embeddings of a part of the head are not computed; use "
                "another base",
                where, part);
            return DRY_ERR_INPUT;
        }
    }
    if (!(a->rope_theta > 1) || !isfinite(a->rope_theta)) {
        dry_error("%s: rope_theta %g is not over 1", r->path, a->rope_theta);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* Whether some layer looks back over a window only, by layer_types or by the family's rule. */
static enum dry_status has_window(const struct reading *r, int64_t window, int64_t layers, int *slides)
{
    const json_t *types = json_object_get(r->root, "layer_types");
    int64_t full_layers = 0;
    const char *type;
    enum dry_status s;

    *slides = 0;
    if (!types || json_is_null(types)) {
        if ((r->family->bit & (QWEN2 | QWEN3)) &&
            (s = dry_json_int(r->root, "max_window_layers", 0, 28, r->path, &full_layers)))
            return s;
        *slides = window > 0 && full_layers < layers;
        return DRY_OK;
    }
    if (json_array_size(types) != (size_t)layers) {
        dry_error("%s: layer_types does not have an entry for each of the %" PRId64 " layers", r->path,
                  layers);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, "full_attention") == 0)
            continue;
        if (!type || strcmp(type, "sliding_attention") != 0 || window == 0) {
            dry_error("%s: layer_types: layer %zu is \"%s\"%s; only full_attention is computed", r->path, i,
                      type ? type : "no text", type && window == 0 ? " without a sliding_window in use" : "");
            return DRY_ERR_INPUT;
        }
        *slides = 1;
    }
    return DRY_OK;
}

/* A record within the window is computed alike with and without it, so the window is only kept, as a limit.
 */
static enum dry_status read_window(const struct reading *r, struct dry_arch *a)
{
    const json_t *given = json_object_get(r->root, "sliding_window");
    int64_t window = 0;
    int used = r->family->bit == MISTRAL, slides;
    enum dry_status s;

    if ((r->family->bit & (QWEN2 | QWEN3)) &&
        (s = dry_json_bool(r->root, "use_sliding_window", 0, 0, r->path, &used)))
        return s;
    if (used && !json_is_null(given) &&
        (s = read_size(r, "sliding_window", r->family->window, INT32_MAX, &window)))
        return s;
    if ((s = has_window(r, window, a->layers, &slides)))
        return s;
    a->window = slides ? window : 0;
    return DRY_OK;
}

static enum dry_status read_dtype(const struct reading *r, struct dry_arch *a)
{
    const char *dtype, *old;
    enum dry_status s;

    if ((s = dry_json_text(r->root, "torch_dtype", 0, "", r->path, &old)) ||
        (s = dry_json_text(r->root, "dtype", 0, old, r->path, &dtype)))
        return s;
    if (strlen(dtype) >= sizeof a->dtype) {
        dry_error("%s: key \"dtype\": \"%s\" is no type's name", r->path, dtype);
        return DRY_ERR_INPUT;
    }
    strcpy(a->dtype, dtype);
    return DRY_OK;
}

static enum dry_status read_details(const struct reading *r, struct dry_arch *a)
{
    const char *act;
    int bias = 0;
    enum dry_status s;

    if ((s = dry_json_text(r->root, "hidden_act", 0, "silu", r->path, &act)) ||
        (s = dry_json_real(r->root, "rms_norm_eps", 0, 1e-6, r->path, &a->norm_eps)) ||
        (s = dry_json_bool(r->root, "tie_word_embeddings", 0, 0, r->path, &a->tied)))
        return s;
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0) {
        dry_error("%s: key \"hidden_act\": \"%s\" is not computed, only silu is; use another base", r->path,
                  act);
        return DRY_ERR_INPUT;
    }
    if (!(a->norm_eps >= 0) || !(a->norm_eps < 1)) {
        dry_error("%s: key \"rms_norm_eps\": %g is not between 0 and 1", r->path, a->norm_eps);
        return DRY_ERR_INPUT;
    }
    if ((r->family->bit & (LLAMA | QWEN3)) &&
        (s = dry_json_bool(r->root, "attention_bias", 0, 0, r->path, &bias)))
        return s;
    if (r->family->bit == LLAMA && (s = dry_json_bool(r->root, "mlp_bias", 0, 0, r->path, &a->mlp_bias)))
        return s;
    a->qkv_bias = bias || r->family->bit == QWEN2;
    a->o_bias = bias;
    a->qk_norm = r->family->bit == QWEN3;
    return read_dtype(r, a);
}

enum dry_status dry_arch_read(const char *dir, struct dry_arch *a)
{
    char *path = dry_path_join(dir, "config.json");
    struct reading r = {.path = path};
    struct dry_arch read = {0};
    json_t *root = NULL;
    enum dry_status s = DRY_ERR_MEMORY;

    if (!path)
        return s;
    s = DRY_ERR_INPUT;
    if (!dry_file_exists(path)) {
        dry_error("%s: no such file; --base takes a Hugging Face model folder or a hub name", path);
        goto out;
    }
    if ((s = dry_json_read(path, &root)))
        goto out;
    r.root = root;
    if (!json_is_object(root)) {
        dry_error("%s: not a JSON object; download the model again", path);
        s = DRY_ERR_INPUT;
        goto out;
    }
    if ((s = find_family(&r)) || (s = check_keys(&r)) || (s = read_sizes(&r, &read)) ||
        (s = read_rope(&r, &read)) || (s = read_window(&r, &read)) || (s = read_details(&r, &read)))
        goto out;
    snprintf(read.family, sizeof read.family, "%s", r.family->name);
    *a = read;
out:
    json_decref(root);
    dry_free(path);
    return s;
}
