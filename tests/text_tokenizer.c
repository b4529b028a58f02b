/*
 * The tokenizer against golden ids of Hugging Face tokenizers (tests/golden/make_text_golden.py): small
 * tokenizers of the tree, each with the texts that its folder lists, and real ones where they are at hand.
 * Then what golden files cannot show: long runs, the ids that begin and end a text, refusals.
 */
#include "config.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "text/tokenizer.h"

#include <stdlib.h>

static char *under(const char *variable, const char *otherwise, const char *name)
{
    const char *top = getenv(variable);

    return dry_path_join(top ? top : otherwise, name);
}

static int same(const struct dry_ids *got, const json_t *want)
{
    int equal = got->count == json_array_size(want);

    for (size_t i = 0; i < got->count && equal; i++)
        equal = json_integer_value(json_array_get(want, i)) == got->id[i];
    return equal;
}

static void show(const char *what, const struct dry_ids *got, const json_t *line)
{
    char *text = json_dumps(json_object_get(line, "text"), JSON_ENCODE_ANY),
         *want = json_dumps(json_object_get(line, "ids"), 0);

    printf("# %s: text %s\n# want %s\n# got", what, text, want);
    for (size_t i = 0; i < got->count; i++)
        printf(" %d", got->id[i]);
    printf("\n");
    free(text);
    free(want);
}

/* Lines of a golden file for one tokenizer; name NULL: all lines. Twice, since the second pass comes from the
 * cache. */
static int check(struct dry_tokenizer *t, const char *path, const char *name, int *lines)
{
    struct dry_ids ids = {0};
    char *data;
    size_t size;
    int wrong = 0;

    *lines = 0;
    if (dry_file_read(path, &data, &size))
        return 1;
    for (int pass = 0; pass < 2; pass++)
        for (char *at = data, *end; (end = strchr(at, '\n')); at = end + 1) {
            json_t *line = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
            const json_t *text = json_object_get(line, "text"), *of = json_object_get(line, "tokenizer");
            if (!name || (of && strcmp(json_string_value(of), name) == 0)) {
                unsigned how =
                    (json_is_true(json_object_get(line, "special")) ? DRY_ENCODE_SPECIAL_TEXT : 0u) |
                    (json_is_true(json_object_get(line, "post")) ? DRY_ENCODE_POST : 0u);
                ids.count = 0;
                if (dry_tokenizer_encode(t, json_string_value(text), json_string_length(text), how, &ids) ||
                    !same(&ids, json_object_get(line, "ids"))) {
                    wrong++;
                    show(path, &ids, line);
                }
                ++*lines;
            }
            json_decref(line);
        }
    dry_free(data);
    dry_ids_reset(&ids);
    return wrong;
}

static void check_folder(const char *tokenizers, const char *name, const char *golden, const char *only)
{
    char *dir = dry_path_join(tokenizers, name), *path = dry_path_join(golden, only ? "real.jsonl" : name);
    struct dry_tokenizer *t = NULL;
    int lines = 0;

    if (!only) {
        dry_free(path);
        path = dry_path_join(dir, "golden.jsonl");
    }
    int wrong = dry_tokenizer_create(dir, &t) ? 1 : check(t, path, only, &lines);
    tap_ok(wrong == 0 && lines > 0, "%s: %d encodings as golden", name, lines);
    dry_tokenizer_destroy(t);
    dry_free(path);
    dry_free(dir);
}

static void check_golden(void)
{
    char *golden = under("top_srcdir", ".", "tests/golden/text"), **names;
    size_t count;

    if (dry_dir_list(golden, &names, &count)) {
        tap_ok(0, "golden folder");
    } else {
        for (size_t i = 0; i < count; i++)
            if (strcmp(names[i], "real.jsonl") != 0)
                check_folder(golden, names[i], golden, NULL);
        tap_ok(count > 20, "%zu golden tokenizers", count);
        dry_dir_free(names, count);
    }
    dry_free(golden);
}

static void check_real(void)
{
    static const char *const real[] = {"deepseek_v3", "llama2", "llama3_1", "qwen3"};
    char *golden = under("top_srcdir", ".", "tests/golden/text"),
         *beside = under("top_srcdir", ".", "../shared");
    char *tokenizers = under("DRYDOCK_SHARED", beside, "tokenizers");

    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
        char *dir = dry_path_join(tokenizers, real[i]);
        if (dry_file_is_dir(dir))
            check_folder(tokenizers, real[i], golden, real[i]);
        else
            tap_ok(1, "%s # SKIP no folder %s", real[i], dir);
        dry_free(dir);
    }
    dry_free(tokenizers);
    dry_free(beside);
    dry_free(golden);
}

static int encode(struct dry_tokenizer *t, const char *text, size_t size, unsigned how, struct dry_ids *ids)
{
    ids->count = 0;
    return dry_tokenizer_encode(t, text, size, how, ids) == DRY_OK;
}

/* A run without a place to cut must not take quadratic time: a megabyte in seconds, also where all is one
 * piece. */
static void check_long(const char *name)
{
    static const char *const units[] = {"a", " ", "\n", "!", "é", "1", " \n"};
    char *golden = under("top_srcdir", ".", "tests/golden/text"), *dir = dry_path_join(golden, name);
    struct dry_tokenizer *t = NULL;
    struct dry_ids ids = {0};
    enum { SIZE = 1 << 19 };
    char *text = dry_alloc(SIZE, 1, "test");

    if (dry_tokenizer_create(dir, &t) == DRY_OK) {
        double start = dry_clock_now();
        int good = 1;
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            size_t n = strlen(units[u]), size = SIZE / n * n;
            for (size_t i = 0; i < size; i++)
                text[i] = units[u][i % n];
            good = good && encode(t, text, size, DRY_ENCODE_SPECIAL_TEXT, &ids) && ids.count > 0;
        }
        double took = dry_clock_now() - start;
        tap_ok(good && took < 60, "%s: runs of %d bytes", name, (int)SIZE);
        printf("# %.2f s\n", took);
    } else {
        tap_ok(0, "%s: runs", name);
    }
    dry_tokenizer_destroy(t);
    dry_ids_reset(&ids);
    dry_free(text);
    dry_free(dir);
    dry_free(golden);
}

static void check_flags(void)
{
    char *dir = under("top_srcdir", ".", "tests/golden/text/llama3"),
         *two = under("top_srcdir", ".", "tests/golden/text/post");
    struct dry_tokenizer *t = NULL;
    struct dry_ids ids = {0};
    static const char text[] = "dock<|im_end|><|endoftext|>";
    int64_t count;
    int32_t first;

    if (dry_tokenizer_create(dir, &t) == DRY_OK) {
        tap_ok(encode(t, "", 0, DRY_ENCODE_POST, &ids) && ids.count == 1, "empty text has its BOS");
        tap_ok(encode(t, "", 0, 0, &ids) && ids.count == 0,
               "empty text has nothing without the post-processor");
        tap_ok(dry_tokenizer_special_count(t, text, sizeof text - 1, &count, &first) == DRY_OK &&
                   count == 2 && strcmp(dry_tokenizer_piece(t, first), "<|im_end|>") == 0,
               "special tokens in a text are counted");
        tap_ok(dry_tokenizer_special_count(t, "dock", 4, &count, NULL) == DRY_OK && count == 0,
               "no special token, no count");
        tap_equal(dry_tokenizer_eos(t), -1, "no configuration, no eos");
        tap_ok(strlen(dry_tokenizer_hash(t)) == 64, "a hash");
        tap_ok(!dry_tokenizer_piece(t, -1) && !dry_tokenizer_piece(t, dry_tokenizer_size(t)),
               "ids that are none");
        tap_ok(dry_tokenizer_piece(t, dry_tokenizer_size(t) - 1) != NULL, "the largest id");
    }
    dry_tokenizer_destroy(t);
    t = NULL;
    if (tap_ok(dry_tokenizer_create(two, &t) == DRY_OK, "a template with both ends")) {
        encode(t, "x", 1, DRY_ENCODE_POST, &ids);
        tap_equal((long long)ids.count, 5, "both ends");
        encode(t, "x", 1, DRY_ENCODE_PREFIX, &ids);
        tap_ok(ids.count == 3 && ids.id[0] == 66 && ids.id[1] == 64, "the prefix alone");
    }
    dry_tokenizer_destroy(t);
    dry_ids_reset(&ids);
    dry_free(two);
    dry_free(dir);
}

/* Which file says what ends a text, by Transformers' rules. */
static void check_ends(void)
{
    static const struct {
        const char *name, *config, *map, *generation, *eos; /* eos NULL: none */
    } cases[] = {
        {"by its text", "{\"eos_token\": \"<|im_end|>\"}", NULL, "{\"eos_token_id\": 1}", "<|im_end|>"},
        {"by a map alone", NULL, "{\"eos_token\": \"<|im_end|>\"}", "{\"eos_token_id\": 1}", "<|im_end|>"},
        {"by a map over a configuration that lists no added tokens", "{\"eos_token\": \"<|endoftext|>\"}",
         "{\"eos_token\": {\"content\": \"<|im_end|>\"}}", NULL, "<|im_end|>"},
        {"by a configuration that lists added tokens over a map",
         "{\"eos_token\": \"<|endoftext|>\", \"added_tokens_decoder\": {}}",
         "{\"eos_token\": \"<|im_end|>\"}", NULL, "<|endoftext|>"},
        {"by its id", "{}", "{}", "{\"eos_token_id\": [0, 1]}", ""},
        {"not at all", "{\"eos_token\": null}", NULL, NULL, NULL},
    };
    char *from = under("top_srcdir", ".", "tests/golden/text/llama3/tokenizer.json"), *data;
    size_t size;

    scratch_begin();
    if (!tap_ok(dry_file_read(from, &data, &size) == DRY_OK, "a tokenizer to end texts with"))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[16];
        const char *files[][2] = {{"tokenizer_config.json", cases[i].config},
                                  {"special_tokens_map.json", cases[i].map},
                                  {"generation_config.json", cases[i].generation}};
        struct dry_tokenizer *t = NULL;
        const char *piece = NULL;

        snprintf(dir, sizeof dir, "%zu", i);
        mkdir(scratch_path(dir), 0700);
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
            char *path = dry_path_join(scratch_path(dir), files[f][0]);
            if (files[f][1])
                scratch_write(path, files[f][1], strlen(files[f][1]));
            dry_free(path);
        }
        char *copy = dry_path_join(scratch_path(dir), "tokenizer.json");
        scratch_write(copy, data, size);
        dry_free(copy);
        if (dry_tokenizer_create(scratch_path(dir), &t) == DRY_OK && dry_tokenizer_eos(t) >= 0)
            piece = dry_tokenizer_piece(t, dry_tokenizer_eos(t));
        if (cases[i].eos && !*cases[i].eos)
            tap_ok(t && dry_tokenizer_eos(t) == 0, "a text's end is named %s", cases[i].name);
        else
            tap_ok(t && (cases[i].eos ? piece && strcmp(piece, cases[i].eos) == 0 : !piece),
                   "a text's end is named %s", cases[i].name);
        dry_tokenizer_destroy(t);
    }
    dry_free(data);
    dry_free(from);
}

int main(void)
{
    check_golden();
    check_real();
    check_flags();
    check_ends();
    check_long("llama3");
    check_long("smollm");
    check_long("llama2");
    return tap_done();
}
