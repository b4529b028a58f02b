/*
 * Data files as lines, and the outcome of every kind of line by template plain.
 */
#include "config.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/tap.h"
#include "text/record.h"

#include <stdlib.h>
#include <unistd.h>

static struct dry_tokenizer *open_tokenizer(const char *name)
{
    const char *top = getenv("top_srcdir");
    char *golden = dry_path_join(top ? top : ".", "tests/golden/text"), *from = dry_path_join(golden, name);
    char *file = dry_path_join(from, "tokenizer.json"), dir[] = "/tmp/drydock-record.XXXXXX", *data;
    struct dry_tokenizer *t = NULL;
    size_t size;

    /* a folder with an eos, in both ways of writing it */
    if (mkdtemp(dir) && dry_file_read(file, &data, &size) == DRY_OK) {
        char *copy = dry_path_join(dir, "tokenizer.json"),
             *config = dry_path_join(dir, "tokenizer_config.json");
        static const char ends[] =
            "{\"eos_token\": {\"content\": \"<|im_end|>\", \"special\": true}, \"bos_token\": null, "
            "\"model_max_length\": 1000000000000000019884624838656}";
        if (dry_file_write(copy, data, size) == DRY_OK &&
            dry_file_write(config, ends, sizeof ends - 1) == DRY_OK &&
            dry_tokenizer_create(dir, &t) != DRY_OK)
            t = NULL;
        unlink(copy);
        unlink(config);
        rmdir(dir);
        dry_free(copy);
        dry_free(config);
        dry_free(data);
    }
    dry_free(file);
    dry_free(from);
    dry_free(golden);
    return t;
}

static const struct dry_record_rule plain = {.template_name = "plain",
                                             .prompt_field = "prompt",
                                             .completion_field = "completion",
                                             .separator = "\n",
                                             .special_text = "parse",
                                             .limit = 64};

struct line {
    const char *text;
    enum dry_outcome outcome;
    const char *why; /* part of the detail */
};

static const struct line lines[] = {
    {"{\"prompt\": \"a\", \"completion\": \"b\"}", DRY_RECORD_GOOD, ""},
    {" \t{\"completion\": \"b\", \"x\": [1, {}], \"prompt\": \"\", \"id\": 123456789012345678901234567890} ",
     DRY_RECORD_GOOD, ""},
    {"{\"prompt\": \"a\\u0000b\", \"completion\": \"\\ud83d\\udea2\"}", DRY_RECORD_GOOD, ""},
    {"{\"prompt\": \"a\", \"completion\": \" \"}", DRY_RECORD_GOOD, ""},
    {"{\"prompt\": \"a\", \"completion\": \"b\"", DRY_RECORD_BROKEN_JSON, "expected"},
    {"{\"prompt\": \"a\", \"completion\": \"b\"} {}", DRY_RECORD_BROKEN_JSON, "end of file expected"},
    {"{'prompt': 'a'}", DRY_RECORD_BROKEN_JSON, ""},
    {"{\"prompt\": \"\\ud83d\", \"completion\": \"b\"}", DRY_RECORD_BROKEN_JSON, "Unicode"},
    {"{\"prompt\": \"a\", \"prompt\": \"b\", \"completion\": \"b\"}", DRY_RECORD_BROKEN_JSON, "duplicate"},
    {"{\"prompt\": \"a\tb\", \"completion\": \"b\"}", DRY_RECORD_BROKEN_JSON, "control character"},
    {"\"text\"", DRY_RECORD_BROKEN_JSON, "a string, must be an object"},
    {"[1]", DRY_RECORD_BROKEN_JSON, "an array, must be an object"},
    {"null", DRY_RECORD_BROKEN_JSON, "null, must be an object"},
    {"{\"prompt\": \"a\xff\", \"completion\": \"b\"}", DRY_RECORD_INVALID_UTF8, "byte 0xff at column 14"},
    {"{\"prompt\": \"a\xc3\", \"completion\": \"b\"}", DRY_RECORD_INVALID_UTF8, "column 14"},
    {"{\"prompt\": \"\xed\xa0\x80\", \"completion\": \"b\"}", DRY_RECORD_INVALID_UTF8, "column 13"},
    {"{\"question\": \"a\", \"completion\": \"b\"}", DRY_RECORD_MISSING_FIELD,
     "no field \"prompt\" (fields here: question, completion)"},
    {"{}", DRY_RECORD_MISSING_FIELD, "fields here: none"},
    {"{\"prompt\": \"a\"}", DRY_RECORD_MISSING_FIELD, "no field \"completion\""},
    {"{\"prompt\": 3, \"completion\": \"b\"}", DRY_RECORD_WRONG_TYPE, "field \"prompt\" is a number"},
    {"{\"prompt\": \"a\", \"completion\": null}", DRY_RECORD_WRONG_TYPE, "field \"completion\" is null"},
    {"{\"prompt\": [\"a\"], \"completion\": \"b\"}", DRY_RECORD_WRONG_TYPE, "an array"},
    {"{\"prompt\": true, \"completion\": \"b\"}", DRY_RECORD_WRONG_TYPE, "true or false"},
    {"{\"prompt\": \"a\", \"completion\": \"\"}", DRY_RECORD_EMPTY_COMPLETION,
     "field \"completion\" is empty"},
};

static void check_outcomes(struct dry_tokenizer *t)
{
    struct dry_record r = {0};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        enum dry_status status = dry_record_encode(t, &plain, lines[i].text, strlen(lines[i].text), 7, &r);
        int good = status == DRY_OK && r.outcome == lines[i].outcome && strstr(r.why, lines[i].why) &&
                   r.line == 7 && (r.outcome == DRY_RECORD_GOOD) == (r.ids.count > 0 && r.spans == 1);
        if (!tap_ok(good, "line %zu: %s", i, dry_outcome_name(lines[i].outcome)))
            printf("# %s: %s\n", dry_outcome_name(r.outcome), r.why);
    }
    dry_record_reset(&r);
}

static int encode(struct dry_tokenizer *t, const struct dry_record_rule *rule, const char *text,
                  struct dry_record *r)
{
    return dry_record_encode(t, rule, text, strlen(text), 1, r) == DRY_OK;
}

static int ids_of(struct dry_tokenizer *t, const char *text, unsigned how, struct dry_ids *ids)
{
    return dry_tokenizer_encode(t, text, strlen(text), how, ids) == DRY_OK;
}

static void check_plain(struct dry_tokenizer *t, const char *name, size_t bos)
{
    struct dry_record r = {0};
    struct dry_ids want = {0};

    ids_of(t, "The dock\n", DRY_ENCODE_SPECIAL_TEXT | DRY_ENCODE_PREFIX, &want);
    size_t prompt = want.count;
    ids_of(t, "\nis open", DRY_ENCODE_SPECIAL_TEXT, &want);
    size_t all = want.count + 1;
    encode(t, &plain, "{\"prompt\": \"The dock\", \"completion\": \"\\nis open\"}", &r);
    tap_ok(r.ids.count == all && memcmp(r.ids.id, want.id, want.count * sizeof *want.id) == 0 &&
               r.ids.id[all - 1] == dry_tokenizer_eos(t),
           "%s: prompt, separator, completion and eos, tokenised apart", name);
    tap_ok(r.spans == 1 && (size_t)r.span[0].begin == prompt && (size_t)r.span[0].end == all &&
               (size_t)r.supervised == all - prompt && (size_t)r.full_length == all,
           "%s: completion and eos are supervised", name);
    struct dry_record_rule bare = plain;
    bare.separator = "";
    encode(t, &bare, "{\"prompt\": \"\", \"completion\": \"x\"}", &r);
    tap_ok(r.outcome == DRY_RECORD_GOOD && r.ids.count == 2 + bos && r.span[0].begin == 1 &&
               r.supervised == (int32_t)(1 + bos),
           "%s: an empty prompt: the first token is no label", name);
    dry_ids_reset(&want);
    dry_record_reset(&r);
}

static void check_limit(struct dry_tokenizer *t)
{
    struct dry_record r = {0};
    struct dry_record_rule rule = plain;
    static const char text[] = "{\"prompt\": \"0123\", \"completion\": \"567\"}";

    rule.limit = 9;
    tap_ok(encode(t, &rule, text, &r) && r.outcome == DRY_RECORD_GOOD && r.full_length == 9 &&
               r.supervised == 4,
           "as long as the limit");
    rule.limit = 8;
    tap_ok(encode(t, &rule, text, &r) && r.outcome == DRY_RECORD_TOO_LONG && r.full_length == 9 &&
               r.ids.count == 0,
           "over the limit: too long");
    tap_text(r.why, "9 tokens, at most 8", "the detail has both numbers");
    rule.truncate = 1;
    tap_ok(encode(t, &rule, text, &r) && r.outcome == DRY_RECORD_GOOD && r.ids.count == 8 &&
               r.supervised == 3 && r.full_length == 9 && r.ids.id[7] != dry_tokenizer_eos(t),
           "truncated at the end, eos lost");
    rule.limit = 5;
    tap_ok(encode(t, &rule, text, &r) && r.outcome == DRY_RECORD_UNSUPERVISED && r.ids.count == 0,
           "truncated to the prompt: nothing supervised");
    tap_text(r.why, "the prompt alone has 5 tokens, at most 5 of the record's 9 are kept",
             "the detail says so");
    dry_record_reset(&r);
}

static void check_special(struct dry_tokenizer *t)
{
    static const char text[] = "{\"prompt\": \"a\", \"completion\": \"b<|im_end|>c<|endoftext|>\"}";
    struct dry_record r = {0};
    struct dry_record_rule rule = plain;

    encode(t, &rule, text, &r);
    size_t parsed = r.ids.count;
    tap_ok(r.outcome == DRY_RECORD_GOOD && r.special_text == 2 && parsed == 2 + 4 + 1,
           "parse: special tokens, counted");
    rule.special_text = "plain";
    encode(t, &rule, text, &r);
    tap_ok(r.outcome == DRY_RECORD_GOOD && r.special_text == 2 && r.ids.count > parsed,
           "plain: text, counted");
    rule.special_text = "error";
    encode(t, &rule, text, &r);
    tap_ok(r.outcome == DRY_RECORD_SPECIAL_TEXT && strstr(r.why, "\"<|im_end|>\" in the completion"),
           "error: a bad record");
    dry_record_reset(&r);
}

static void check_rule(struct dry_tokenizer *t, const struct dry_tokenizer *without)
{
    struct dry_record_rule rule = plain;

    tap_equal(dry_record_rule_check(&rule, t), DRY_OK, "the rule is good");
    dry_log_set_level(DRY_LOG_ERROR);
    tap_equal(dry_record_rule_check(&rule, without), DRY_ERR_INPUT, "no eos");
    rule.template_name = "alpaca";
    tap_equal(dry_record_rule_check(&rule, t), DRY_ERR_USAGE, "a template that is not known");
    rule = plain;
    rule.completion_field = "prompt";
    tap_equal(dry_record_rule_check(&rule, t), DRY_ERR_USAGE, "one field twice");
    rule = plain;
    rule.special_text = "drop";
    tap_equal(dry_record_rule_check(&rule, t), DRY_ERR_USAGE, "a way with special tokens that is not known");
    char hex[3][DRY_HASH_HEX];
    for (int i = 0; i < 3; i++) {
        struct dry_hash *h;
        rule = plain;
        rule.truncate = i == 1;
        if (dry_hash_create(&h) == DRY_OK) {
            dry_record_rule_hash(&rule, h);
            dry_hash_finish(h, hex[i]);
        }
    }
    tap_ok(strcmp(hex[0], hex[1]) != 0 && strcmp(hex[0], hex[2]) == 0, "the rule's hash follows the rule");
}

static enum dry_status open_bytes(const void *bytes, size_t size, struct dry_lines **l)
{
    char path[] = "/tmp/drydock-lines.XXXXXX";
    int file = mkstemp(path);
    ssize_t wrote = file < 0 ? -1 : write(file, bytes, size);

    *l = NULL;
    if (file >= 0)
        close(file);
    enum dry_status status = wrote == (ssize_t)size ? dry_lines_open(path, l) : DRY_ERR_IO;
    unlink(path);
    return status;
}

static void check_lines(void)
{
    static const char data[] = "\xef\xbb\xbf{\"a\": 1}\r\n\r\n  \t\n{\"b\": 2}\n\n{\"c\": 3}";
    static const struct {
        const char *bytes, *name;
    } wrong[] = {{"", "an empty file"},
                 {" \n\n", "blank lines only"},
                 {"\xef\xbb\xbf", "a byte order mark only"},
                 {"\n [\n{\"a\": 1}]", "an array"},
                 {"\xff\xfe{", "UTF-16"},
                 {"\x1f\x8b\x08", "gzip"},
                 {"PAR1\x15", "Parquet"}};
    struct dry_lines *l;
    const char *text;
    size_t size;
    int64_t line;

    if (tap_ok(open_bytes(data, sizeof data - 1, &l) == DRY_OK && dry_lines_count(l) == 3,
               "lines are counted")) {
        dry_lines_get(l, 0, &text, &size, &line);
        tap_ok(line == 1 && size == 8 && memcmp(text, "{\"a\": 1}", 8) == 0, "no mark, no carriage return");
        dry_lines_get(l, 1, &text, &size, &line);
        tap_ok(line == 4 && size == 8, "blank lines are skipped and counted");
        dry_lines_get(l, 2, &text, &size, &line);
        tap_ok(line == 6 && size == 8 && memcmp(text, "{\"c\": 3}", 8) == 0,
               "the last line needs no newline");
    }
    dry_lines_close(l);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tap_equal(open_bytes(wrong[i].bytes, strlen(wrong[i].bytes), &l), DRY_ERR_INPUT, wrong[i].name);
        dry_lines_close(l);
    }
}

int main(void)
{
    struct dry_tokenizer *smollm = open_tokenizer("smollm"), *llama = open_tokenizer("llama3"), *none = NULL;
    const char *top = getenv("top_srcdir");
    char *dir = dry_path_join(top ? top : ".", "tests/golden/text/gpt2");

    if (tap_ok(smollm && llama && dry_tokenizer_create(dir, &none) == DRY_OK, "tokenizers")) {
        check_outcomes(smollm);
        check_plain(smollm, "without BOS", 0);
        check_plain(llama, "with BOS", 1);
        check_limit(smollm);
        check_special(smollm);
        check_rule(smollm, none);
    }
    check_lines();
    dry_free(dir);
    dry_tokenizer_destroy(smollm);
    dry_tokenizer_destroy(llama);
    dry_tokenizer_destroy(none);
    return tap_done();
}
