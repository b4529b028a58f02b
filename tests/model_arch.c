/*
 * config.json: the corpus, the values read from each family, and rotary frequencies.
 */
#include "config.h"

#include "model/arch.h"

#include "corpus.h"
#include "scratch.h"
#include "tap.h"

/* The reader takes a folder: the file is copied into one as config.json. */
static enum dry_status read_config(const char *path)
{
    struct dry_arch a;
    char *data = NULL;
    size_t size = 0;
    enum dry_status s = dry_file_read(path, &data, &size);

    if (s)
        return s;
    scratch_write(scratch_path("config.json"), data, size);
    dry_free(data);
    s = dry_arch_read(scratch_dir, &a);
    if (!s && (a.hidden != 16 || a.layers != 2 || a.heads != 4 || a.ffn != 24 || a.vocab != 32))
        s = DRY_ERR_INTERNAL;
    return s;
}

static int read_text(const char *text, struct dry_arch *a)
{
    scratch_write(scratch_path("config.json"), text, strlen(text));
    return dry_arch_read(scratch_dir, a) == DRY_OK;
}

#define SIZES "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"vocab_size\": 32"

static void families(void)
{
    struct dry_arch a;

    tap_ok(read_text("{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_attention_heads\": 4, " SIZES
                     ", \"attention_bias\": true, \"mlp_bias\": true, \"torch_dtype\": \"float16\", "
                     "\"max_sequence_length\": 2048}",
                     &a),
           "a short Llama configuration is read");
    tap_ok(a.kv_heads == 4 && a.head_dim == 4 && a.rope_theta == 10000 && a.norm_eps == 1e-6 &&
               a.max_positions == 2048,
           "defaults are those of Transformers");
    tap_ok(a.qkv_bias && a.o_bias && a.mlp_bias && !a.tied && !a.qk_norm && a.window == 0 &&
               !strcmp(a.dtype, "float16"),
           "Llama has biases where it says so");
    tap_ok(read_text("{\"model_type\": \"mistral\", \"hidden_size\": 16, \"num_attention_heads\": 8, " SIZES
                     ", \"head_dim\": 6}",
                     &a),
           "a short Mistral configuration is read");
    tap_ok(a.kv_heads == 8 && a.head_dim == 6 && a.window == 4096 && !a.qkv_bias,
           "absent sliding_window is Mistral's");
    tap_ok(
        read_text("{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"num_attention_heads\": 4, " SIZES
                  ", \"num_key_value_heads\": null, \"tie_word_embeddings\": true, \"dtype\": \"bfloat16\"}",
                  &a),
        "a short Qwen2 configuration is read");
    tap_ok(a.kv_heads == 4 && a.qkv_bias && !a.o_bias && a.tied && a.window == 0 &&
               !strcmp(a.dtype, "bfloat16"),
           "Qwen2 has q, k and v biases");
    tap_ok(read_text("{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"num_attention_heads\": 4, " SIZES
                     ", \"num_key_value_heads\": 2}",
                     &a),
           "a short Qwen3 configuration is read");
    tap_ok(a.head_dim == 128 && a.qk_norm && !a.qkv_bias && !a.o_bias,
           "Qwen3 has heads of 128 and norms on q and k");
    tap_ok(read_text("{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"num_attention_heads\": 4, " SIZES
                     ", \"num_key_value_heads\": 2, \"use_sliding_window\": true, \"sliding_window\": 64, "
                     "\"max_window_layers\": 2}",
                     &a) &&
               a.window == 0,
           "no layer over max_window_layers: no window");
    tap_ok(read_text("{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"num_attention_heads\": 4, " SIZES
                     ", \"num_key_value_heads\": 2, \"use_sliding_window\": true, \"sliding_window\": 64, "
                     "\"max_window_layers\": 1}",
                     &a) &&
               a.window == 64,
           "one layer over it: a window");
}

static void frequencies(void)
{
    struct dry_arch a;
    double f[4], low, high;

    tap_ok(read_text("{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_attention_heads\": 2, " SIZES
                     ", \"rope_theta\": 777, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": "
                     "\"llama3\", "
                     "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                     "\"original_max_position_embeddings\": 128}}",
                     &a) &&
               a.rope_theta == 10000.0 && a.rope_original == 128,
           "the inner rope_theta counts");
    dry_arch_inv_freq(&a, f);
    /* Wavelengths 6.28, 62.8, 628 and 6283 of a context of 128: kept below 32, divided above 128, between
     * them a mean. */
    high = 0.1 * (128 * 0.1 / (2 * 3.14159265358979323846) - 1) / 3;
    low = (0.1 / 8) * (4 - 128 * 0.1 / (2 * 3.14159265358979323846)) / 3;
    tap_near(f[0], 1, 1e-15, "short waves are kept");
    tap_near(f[1], high + low, 1e-12, "waves between are mixed");
    tap_near(f[2], 0.01 / 8, 1e-15, "long waves are divided");
    tap_near(f[3], 0.001 / 8, 1e-15, "and the longest too");
    a.rope = DRY_ROPE_LINEAR;
    dry_arch_inv_freq(&a, f);
    tap_near(f[1], 0.1 / 8, 1e-15, "linear scaling divides all");
    a.rope = DRY_ROPE_DEFAULT;
    dry_arch_inv_freq(&a, f);
    tap_near(f[1], 0.1, 1e-15, "without scaling: theta^(-2i/d)");
}

static void counts(void)
{
    struct dry_arch a;

    tap_ok(read_text("{\"model_type\": \"llama\", \"hidden_size\": 576, \"intermediate_size\": 1536, "
                     "\"num_hidden_layers\": 30, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, "
                     "\"vocab_size\": 49152, \"tie_word_embeddings\": true}",
                     &a),
           "a model of 135 M parameters is read");
    tap_equal(dry_arch_parameters(&a), 134515008, "its parameters");
    tap_equal(dry_arch_matrix_parameters(&a), 134479872,
              "its matrix parameters: with the head, without norms");
    tap_equal(dry_proj_out(&a, DRY_PROJ_K), 192, "k has the kv heads' width");
    tap_equal(dry_proj_in(&a, DRY_PROJ_DOWN), 1536, "down takes the ffn's width");
    tap_text(dry_proj_module(DRY_PROJ_GATE), "mlp.gate_proj", "names are Transformers'");
}

int main(void)
{
    struct dry_arch a;

    scratch_begin();
    tap_ok(corpus_replay(".json", read_config, "config.json") > 50, "the corpus was replayed");
    families();
    frequencies();
    counts();
    scratch_remove(scratch_path("config.json"));
    capture_begin();
    tap_ok(dry_arch_read(scratch_dir, &a) == DRY_ERR_INPUT &&
               strstr(capture_end(), "Hugging Face model folder"),
           "a folder without config.json: the message says what is wanted");
    return tap_done();
}
