/*
 * PEFT adapters: saved and read back, configurations as PEFT writes them, and what is refused.
 */
#include "config.h"

#include "state/peft.h"

#include "base/file.h"
#include "base/memory.h"
#include "capture.h"
#include "model/safetensors.h"
#include "scratch.h"
#include "tap.h"

static const struct dry_arch arch = {.family = "llama",
                                     .hidden = 16,
                                     .layers = 3,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 4,
                                     .ffn = 24,
                                     .vocab = 32};

static const char *config_path(void)
{
    return scratch_path("adapter/adapter_config.json");
}

static int same_parts(const struct dry_adapter *a, const struct dry_adapter *b)
{
    int same = a->parts == b->parts && a->parameters == b->parameters;

    for (int64_t i = 0; same && i < a->parts; i++) {
        const struct dry_adapter_part *x = &a->part[i], *y = &b->part[i];

        same = x->layer == y->layer && x->proj == y->proj && x->rank == y->rank && x->alpha == y->alpha &&
               x->scale == y->scale && x->in == y->in && x->out == y->out && x->a == y->a && x->b == y->b;
    }
    return same;
}

/* Saves, opens, and compares shape and values. */
static void round_trip(struct dry_adapter *a, const char *name)
{
    const char *dir = scratch_path("adapter");
    float *values = dry_alloc((size_t)a->parameters, sizeof *values, "values");
    float *back = dry_alloc((size_t)a->parameters, sizeof *back, "values");
    struct dry_adapter *b = NULL;

    for (int64_t i = 0; i < a->parameters; i++)
        values[i] = (float)(i % 97 - 48) / 7;
    tap_ok(!dry_peft_save(dir, a, values, "Org/Name") && !dry_peft_open(dir, &arch, &b),
           "%s is saved and opened", name);
    tap_ok(b && same_parts(a, b) && b->dropout == a->dropout && b->request.rslora == a->request.rslora &&
               b->request.rank == a->request.rank && b->request.targets == a->request.targets,
           "%s has the same parts", name);
    tap_ok(b && !dry_peft_values(dir, b, back) &&
               memcmp(values, back, (size_t)a->parameters * sizeof *values) == 0,
           "%s has the same values", name);
    dry_adapter_destroy(b);
    dry_free(back);
    dry_free(values);
}

static void round_trips(void)
{
    static const struct {
        const char *name;
        struct dry_adapter_request request;
    } cases[] = {
        {"a plain adapter", {.rank = 4, .alpha = 8, .targets = 127, .dropout = 0.1}},
        {"two targets with rsLoRA", {.rank = 3, .alpha = 2.5, .targets = 5, .rslora = 1}},
        {"patterns by projection",
         {.rank = 4, .alpha = 8, .targets = 127, .rank_pattern = "down_proj=2", .alpha_pattern = "q_proj=3"}},
        {"patterns by layer",
         {.rank = 4,
          .alpha = 8,
          .targets = 127,
          .rank_pattern = "layers.1.mlp.up_proj=7,up_proj=2,k_proj=1",
          .alpha_pattern = ".*layers.2..*=0.25"}},
    };
    struct dry_adapter_choice choice[3 * DRY_PROJS] = {[1 * DRY_PROJS + DRY_PROJ_O] = {3, 6.0},
                                                       [2 * DRY_PROJS] = {2, 8.0}};
    struct dry_adapter_request r = {.rank = 3, .alpha = 8};
    struct dry_adapter *a = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dry_adapter_request request = cases[i].request;

        a = NULL;
        if (tap_ok(!dry_adapter_create(&arch, &request, &a), "%s is made", cases[i].name))
            round_trip(a, cases[i].name);
        dry_adapter_destroy(a);
    }
    a = NULL;
    if (tap_ok(!dry_adapter_create_chosen(&arch, &r, choice, &a), "two modules of two layers are made"))
        round_trip(a, "two modules of two layers");
    dry_adapter_destroy(a);
}

/* Writes a configuration with these members beside what every one has. */
static void write_config(const char *members)
{
    char text[2048];
    int n =
        snprintf(text, sizeof text,
                 "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"r\": 4, \"lora_alpha\": 8%s%s}\n",
                 *members ? ", " : "", members);

    scratch_write(config_path(), text, (size_t)n);
}

static struct dry_adapter *read_config(const char *members)
{
    struct dry_adapter *a = NULL;

    write_config(members);
    return dry_peft_open(scratch_path("adapter"), &arch, &a) ? NULL : a;
}

static void reads(const char *members, int64_t parts, const char *name)
{
    struct dry_adapter *a = read_config(members);

    tap_ok(a && a->parts == parts, "%s", name);
    dry_adapter_destroy(a);
}

static void refused(const char *members, const char *wants, const char *name)
{
    struct dry_adapter *a;

    capture_begin();
    a = read_config(members);
    capture_end();
    if (!tap_ok(!a && strstr(capture_text, wants) && strstr(capture_text, "adapter_config.json"), "%s", name))
        printf("# %s\n", capture_text);
    dry_adapter_destroy(a);
}

#define TARGETS "\"target_modules\": [\"q_proj\", \"v_proj\"]"

static void configurations(void)
{
    struct dry_adapter *a;

    reads(TARGETS, 6, "a list of names");
    reads("\"target_modules\": [\"self_attn.q_proj\", \"model.layers.1.mlp.up_proj\"]", 4,
          "ends of names and whole names");
    reads("\"target_modules\": \"all-linear\"", 21, "all-linear");
    reads("\"target_modules\": \"ALL-LINEAR\"", 21, "in capitals too");
    reads("\"target_modules\": \".*layers\\\\.[01]\\\\..*(q|k)_proj\"", 4, "a regular expression");
    reads("\"target_modules\": \"(?P<all>model)\\\\.layers.*\"", 21, "with Python's named groups");
    reads(TARGETS
          ", \"alora_invocation_tokens\": null, \"arrow_config\": null, \"bias\": \"none\", "
          "\"corda_config\": null, "
          "\"ensure_weight_tying\": false, \"eva_config\": null, \"exclude_modules\": null, "
          "\"fan_in_fan_out\": false, "
          "\"inference_mode\": true, \"init_lora_weights\": true, \"layer_replication\": null, "
          "\"loftq_config\": {}, "
          "\"megatron_core\": \"megatron.core\", \"peft_version\": \"0.21.0\", \"qalora_group_size\": "
          "16, \"use_dora\": false",
          6, "everything that PEFT writes by default");
    reads(TARGETS ", \"init_lora_weights\": \"gaussian\"", 6, "another start of A");
    a = read_config(
        TARGETS
        ", \"use_rslora\": true, \"lora_dropout\": 0.25, \"rank_pattern\": {\"^model.layers.2.*q_proj\": 16, "
        "\"q_proj\": 2}, \"alpha_pattern\": {\"layers.1.self_attn.v_proj\": 3}");
    tap_ok(a && dry_adapter_at(a, 2, DRY_PROJ_Q)->rank == 16 &&
               dry_adapter_at(a, 2, DRY_PROJ_Q)->scale == 2.0f &&
               dry_adapter_at(a, 1, DRY_PROJ_Q)->rank == 2 && dry_adapter_at(a, 1, DRY_PROJ_V)->alpha == 3 &&
               dry_adapter_at(a, 1, DRY_PROJ_V)->scale == 1.5f && a->dropout == 0.25,
           "patterns with an anchor, rsLoRA and dropout");
    dry_adapter_destroy(a);
    refused("", "target_modules", "no targets");
    refused("\"target_modules\": []", "matches no module", "an empty list");
    refused("\"target_modules\": [\"q_proj\", \"lm_head\"]", "\"lm_head\"", "the head among the targets");
    refused("\"target_modules\": [\"proj\"]", "\"proj\"", "an end that is no word");
    refused("\"target_modules\": \".*\"", "matches lm_head", "an expression that takes the head");
    refused("\"target_modules\": \"nothing\"", "matches no module", "an expression that takes nothing");
    refused("\"target_modules\": \"q_(proj\"", "target_modules", "an expression that is none");
    refused(TARGETS ", \"use_dora\": true", "\"use_dora\"", "DoRA");
    refused(TARGETS ", \"modules_to_save\": [\"lm_head\"]", "\"modules_to_save\"", "whole modules");
    refused(TARGETS ", \"bias\": \"all\"", "\"bias\"", "biases");
    refused(TARGETS ", \"fan_in_fan_out\": true", "\"fan_in_fan_out\"", "transposed weights");
    refused(TARGETS ", \"use_qalora\": true", "\"use_qalora\"", "QALoRA");
    refused(TARGETS ", \"trainable_token_indices\": [1]", "\"trainable_token_indices\"", "trained tokens");
    refused(TARGETS ", \"lora_bias\": true", "\"lora_bias\"", "LoRA with a bias");
    refused(TARGETS ", \"a_key_of_tomorrow\": {\"x\": 1}", "\"a_key_of_tomorrow\"", "what is not known");
    refused(TARGETS ", \"init_lora_weights\": \"pissa_niter_4\"", "\"pissa_niter_4\" changes the base",
            "PiSSA");
    refused(TARGETS ", \"lora_dropout\": 1.0", "lora_dropout", "dropout of all");
    refused(TARGETS ", \"rank_pattern\": {\"q_proj\": 0}", "rank 0", "a rank of 0");
    refused(TARGETS ", \"rank_pattern\": {\"q_proj\": \"x\"}", "rank_pattern", "a rank that is a text");
}

/* layers_to_transform and exclude_modules, by PEFT's rules. */
static void narrowed(void)
{
    struct dry_adapter *a;

    reads(TARGETS ", \"layers_to_transform\": [0, 2]", 4, "chosen layers");
    reads(TARGETS ", \"layers_to_transform\": 0, \"layers_pattern\": \"layers\"", 2,
          "one layer of the list's name");
    reads(TARGETS ", \"layers_to_transform\": [], \"layers_pattern\": null", 6,
          "an empty list of layers: all");
    refused(TARGETS ", \"layers_to_transform\": [3]", "none of the base's 3 layers", "a layer too many");
    refused(TARGETS ", \"layers_to_transform\": [true]", "\"layers_to_transform\"",
            "a layer that is no number");
    refused(TARGETS ", \"layers_to_transform\": [0], \"layers_pattern\": \"h\"", "\"layers_pattern\"",
            "layers of another name");
    refused("\"target_modules\": \".*q_proj\", \"layers_to_transform\": [0]", "\"layers_to_transform\"",
            "chosen layers of an expression");
    reads(TARGETS ", \"exclude_modules\": [\"v_proj\", \"layers.0.self_attn.q_proj\", \"x\"]", 2,
          "excluded ends of names");
    reads("\"target_modules\": \"all-linear\", \"exclude_modules\": \".*mlp.*\"", 12,
          "an excluded expression");
    reads("\"target_modules\": \".*\", \"exclude_modules\": [\"lm_head\", \"embed_tokens\"]", 21,
          "an expression without the head that it would take");
    refused("\"target_modules\": \".*\", \"exclude_modules\": [\"lm_head\"]", "embed_tokens",
            "an expression that still takes the embedding");
    refused(TARGETS ", \"exclude_modules\": [1]", "\"exclude_modules\"", "a number as an excluded name");
    refused(TARGETS ", \"exclude_modules\": {\"x\": 1}", "\"exclude_modules\"",
            "an object of excluded names");
    refused(TARGETS ", \"exclude_modules\": \".*\"", "matches no module", "everything excluded");
    refused(TARGETS ", \"exclude_modules\": \"(\"", "exclude_modules", "an excluded expression that is none");
    a = read_config(TARGETS ", \"layers_to_transform\": [1]");
    tap_ok(a && dry_adapter_at(a, 1, DRY_PROJ_V) && !dry_adapter_at(a, 0, DRY_PROJ_V),
           "the layer that was chosen");
    dry_adapter_destroy(a);
}

static void write_tensor(const char *name, int64_t rows, int64_t columns, float value)
{
    struct dry_tensor_out out = {.name = name, .dtype = DRY_F32, .dims = 2, .shape = {rows, columns}};
    struct dry_tensor_writer *w = NULL;
    float values[64] = {value};

    if (!dry_tensor_writer_begin(scratch_path("adapter/adapter_model.safetensors"), &out, 1, &w) &&
        !dry_tensor_writer_add(w, values, (size_t)(rows * columns) * sizeof *values))
        dry_tensor_writer_commit(w);
}

static void bad_values(const struct dry_adapter *a, float *values, const char *wants, const char *name)
{
    enum dry_status s;

    capture_begin();
    s = dry_peft_values(scratch_path("adapter"), a, values);
    capture_end();
    if (!tap_ok(s == DRY_ERR_INPUT && strstr(capture_text, wants), "%s", name))
        printf("# %s\n", capture_text);
}

static void values(void)
{
    const char *dir = scratch_path("adapter");
    struct dry_adapter *a = read_config("\"target_modules\": [\"model.layers.0.self_attn.q_proj\"]");
    struct dry_adapter *wide = read_config(TARGETS);
    float *x = dry_alloc((size_t)wide->parameters, sizeof *x, "values");
    char before[DRY_HASH_HEX], after[DRY_HASH_HEX];

    dry_peft_save(dir, wide, x, "base");
    tap_ok(!dry_peft_hash(dir, before), "the values' file has a hash");
    bad_values(a, x, "self_attn.v_proj.lora_A.weight\" is unexpected", "a tensor too many is named");
    write_tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 4, 16, 0);
    bad_values(a, x, "q_proj.lora_B.weight\" is missing", "a missing tensor is named");
    write_tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 2, 16, 0);
    bad_values(a, x, "the shape [4, 16]", "another rank is told");
    x[0] = NAN;
    dry_peft_save(dir, a, x, "base");
    bad_values(a, x, "not finite", "not-a-number is refused");
    tap_ok(!dry_peft_hash(dir, after) && strcmp(before, after) != 0, "other values have another hash");
    dry_free(x);
    dry_adapter_destroy(wide);
    dry_adapter_destroy(a);
}

int main(void)
{
    struct dry_adapter *a = NULL;

    scratch_begin();
    round_trips();
    configurations();
    narrowed();
    values();
    capture_begin();
    tap_ok(dry_peft_open(scratch_path("none"), &arch, &a) == DRY_ERR_INPUT &&
               strstr(capture_end(), "an adapter is a folder"),
           "a folder that is no adapter: the message says what one is");
    capture_begin();
    tap_ok(dry_peft_open(scratch_dir, &arch, &a) == DRY_ERR_INPUT &&
               strstr(capture_end(), "is a run's folder"),
           "a run's folder: the message says where its adapter is");
    return tap_done();
}
