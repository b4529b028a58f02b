/*
 * The base: tiny ones of every family opened and checked, what does not fit refused, and hub names looked up.
 */
#include "config.h"

#include "model/base.h"

#include "base/file.h"
#include "base/memory.h"
#include "capture.h"
#include "scratch.h"
#include "tap.h"
#include "tiny.h"

static struct dry_base *open_tiny(const char *name, const struct tiny_spec *spec)
{
    const char *dir = scratch_path(name);
    struct dry_base *b = NULL;

    if (!tap_ok(!tiny_base_write(dir, spec) && !dry_base_open(dir, &b), "%s is opened", name))
        return NULL;
    tap_ok(b->layer[0].weight[DRY_PROJ_K]->shape[0] == b->arch.kv_heads * b->arch.head_dim &&
               b->layer[b->arch.layers - 1].weight[DRY_PROJ_DOWN]->shape[1] == b->arch.ffn &&
               !b->layer[0].bias[DRY_PROJ_Q] == !b->arch.qkv_bias &&
               !b->layer[0].bias[DRY_PROJ_O] == !b->arch.o_bias &&
               !b->layer[0].bias[DRY_PROJ_UP] == !b->arch.mlp_bias &&
               !b->layer[0].q_norm == !b->arch.qk_norm && (b->head == b->embed) == b->arch.tied,
           "%s has the tensors of its architecture", name);
    return b;
}

static void families(void)
{
    static const struct {
        const char *name;
        struct tiny_spec spec;
        int64_t parameters;
    } cases[] = {
        /* embedding and head 32 x 16, layer: 16 x (16 + 8 + 8 + 16) + 3 x 16 x 24 + 2 x 16, norm 16 */
        {"llama", {.family = "llama"}, 2 * 512 + 2 * (768 + 1152 + 32) + 16},
        {"llama-biases", {.qkv_bias = 1, .mlp_bias = 1, .llama3 = 1, .old_keys = 1}, 0},
        {"llama-tied-shards", {.tied = 1, .shards = 3, .dtype = DRY_BF16}, 512 + 2 * (768 + 1152 + 32) + 16},
        {"mistral", {.family = "mistral", .head_dim = 8, .window = 64}, 0},
        {"qwen2", {.family = "qwen2", .tied = 1, .dtype = DRY_F16}, 0},
        {"qwen3", {.family = "qwen3", .head_dim = 8}, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dry_base *b = open_tiny(cases[i].name, &cases[i].spec);
        int64_t elements = 0;

        for (size_t t = 0; b && t < dry_tensors_count(b->tensors); t++)
            elements += dry_tensors_at(b->tensors, t)->elements;
        tap_ok(b && elements == dry_arch_parameters(&b->arch) &&
                   (!cases[i].parameters || elements == cases[i].parameters),
               "%s: parameters are counted as the file has them", cases[i].name);
        dry_base_close(b);
    }
}

/* Opens a folder that must be refused with these words. */
static void refused(const char *dir, const char *wants, const char *name)
{
    struct dry_base *b = NULL;
    enum dry_status s;

    capture_begin();
    s = dry_base_open(dir, &b);
    capture_end();
    if (!tap_ok(s == DRY_ERR_INPUT && strstr(capture_text, wants), "%s", name))
        printf("# %s\n", capture_text);
    dry_base_close(b);
}

/* Replaces bytes of the weights' file by as many others. */
static void patch(const char *dir, const char *from, const char *to)
{
    char path[600], *data = NULL, *at;
    size_t size = 0;

    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (dry_file_read(path, &data, &size))
        return;
    at = memmem(data, size, from, strlen(from));
    if (at)
        memcpy(at, to, strlen(to));
    scratch_write(path, data, size);
    dry_free(data);
}

static void mismatches(void)
{
    const char *dir = scratch_path("broken");
    struct tiny_spec spec = {.family = "llama"}, wider = {.family = "llama", .ffn = 40};
    char config[600], *data = NULL;
    size_t size = 0;

    snprintf(config, sizeof config, "%s/config.json", dir);
    tiny_base_write(dir, &spec);
    patch(dir, "layers.1.mlp.up_proj.weight", "layers.1.mlp.xp_proj.weight");
    refused(dir, "\"model.layers.1.mlp.up_proj.weight\" is missing", "a missing tensor is named");
    tiny_base_write(dir, &spec);
    patch(dir, "\"model.embed_tokens.weight\"", "\"embed_tokens.weight\"      ");
    refused(dir, "lack their \"model.\"", "names without prefix are told");
    tiny_base_write(dir, &wider);
    dry_file_read(config, &data, &size);
    tiny_base_write(dir, &spec);
    scratch_write(config, data, size);
    dry_free(data);
    refused(dir, "is [24, 16], but config.json makes it [40, 16]", "a wrong shape is told with both shapes");
    spec.qkv_bias = 1;
    tiny_base_write(dir, &spec);
    dry_file_read(config, &data, &size);
    spec.qkv_bias = 0;
    tiny_base_write(dir, &spec);
    scratch_write(config, data, size);
    dry_free(data);
    refused(dir, "q_proj.bias\" is missing", "a bias that config.json promises is looked for");
    tiny_base_write(dir, &spec);
    dry_file_read(config, &data, &size);
    spec.qkv_bias = 1;
    tiny_base_write(dir, &spec);
    scratch_write(config, data, size);
    dry_free(data);
    refused(dir, "k_proj.bias\" is unknown", "a tensor that nothing computes with is refused");
    spec.qkv_bias = 0;
    tiny_base_write(dir, &spec);
    patch(dir, "{\"dtype\":\"F32\",\"shape\":[16],", "{\"dtype\":\"I32\",\"shape\":[16],");
    refused(dir, "is of type I32", "integers for weights are refused");
}

/* A tied base whose file has the head all the same. */
static void tied_with_head(void)
{
    const char *dir = scratch_path("tied");
    struct tiny_spec spec = {.tied = 1};
    char config[600], *data = NULL;
    size_t size = 0;

    snprintf(config, sizeof config, "%s/config.json", dir);
    tiny_base_write(dir, &spec);
    dry_file_read(config, &data, &size);
    spec.tied = 0;
    tiny_base_write(dir, &spec);
    scratch_write(config, data, size);
    dry_free(data);
    refused(dir, "lm_head.weight differs from the embedding",
            "a head that differs from a tied embedding is refused");
}

static void hashes(void)
{
    struct tiny_spec spec = {.family = "llama"}, other = {.family = "llama", .vocab = 48};
    struct dry_base *a = NULL, *b = NULL, *c = NULL;

    tiny_base_write(scratch_path("a"), &spec);
    tiny_base_write(scratch_path("b"), &spec);
    tiny_base_write(scratch_path("c"), &other);
    tap_ok(!dry_base_open(scratch_path("a"), &a) && !dry_base_open(scratch_path("b"), &b) &&
               !dry_base_open(scratch_path("c"), &c) && strlen(a->hash) == 64 &&
               strcmp(a->hash, b->hash) == 0 && strcmp(a->hash, c->hash) != 0,
           "the hash tells bases apart, not folders");
    dry_base_close(a);
    dry_base_close(b);
    dry_base_close(c);
}

static void hub(void)
{
    const char *home = scratch_path("home"),
               *snapshot = scratch_path("home/hub/models--Org--Name/snapshots/abc123");
    char *dir = NULL;

    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    setenv("HF_HOME", home, 1);
    dry_dir_make(snapshot);
    dry_dir_make(scratch_path("home/hub/models--Org--Name/refs"));
    capture_begin();
    tap_ok(dry_base_locate("Org/Name", &dir) == DRY_ERR_INPUT, "a name that is not in the cache is refused");
    capture_end();
    tap_ok(strstr(capture_text, "hf download Org/Name") != NULL, "with the download command");
    scratch_write(scratch_path("home/hub/models--Org--Name/refs/main"), "abc123\n", 7);
    tap_ok(!dry_base_locate("Org/Name", &dir), "refs/main is followed");
    tap_text(dir, snapshot, "to its snapshot");
    dry_free(dir);
    dir = NULL;
    scratch_write(scratch_path("home/hub/models--Org--Name/refs/main"), "def456", 6);
    capture_begin();
    tap_ok(dry_base_locate("Org/Name", &dir) == DRY_ERR_INPUT, "a snapshot that is not there is refused");
    scratch_write(scratch_path("home/hub/models--Org--Name/refs/main"), "../../x", 7);
    tap_ok(dry_base_locate("Org/Name", &dir) == DRY_ERR_INPUT, "so is a reference that leads elsewhere");
    tap_ok(dry_base_locate("../Org/Name", &dir) == DRY_ERR_INPUT, "and a path that is no name");
    tap_ok(dry_base_locate(scratch_path("home/hub/models--Org--Name/refs/main"), &dir) == DRY_ERR_INPUT,
           "and a file");
    capture_end();
    setenv("HF_HUB_CACHE", scratch_path("home/hub"), 1);
    setenv("HF_HOME", "/nowhere", 1);
    scratch_write(scratch_path("home/hub/models--Org--Name/refs/main"), "abc123", 6);
    tap_ok(!dry_base_locate("Org/Name", &dir), "HF_HUB_CACHE goes before HF_HOME");
    dry_free(dir);
    dir = NULL;
    tap_ok(!dry_base_locate(scratch_dir, &dir) && strcmp(dir, scratch_dir) == 0, "a folder is itself");
    dry_free(dir);
}

int main(void)
{
    scratch_begin();
    families();
    mismatches();
    tied_with_head();
    hashes();
    hub();
    return tap_done();
}
