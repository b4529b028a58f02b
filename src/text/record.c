/*
 * One line of data becomes one record of tokens, by the rule of a template; what is wrong with a line is an
 * outcome that says why. Owns what is in struct dry_record. Must not know of files, batches or what happens
 * to bad records.
 */
#include "config.h"

#include "text/record.h"

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [DRY_RECORD_GOOD] = "good",
    [DRY_RECORD_BROKEN_JSON] = "broken JSON",
    [DRY_RECORD_INVALID_UTF8] = "invalid UTF-8",
    [DRY_RECORD_MISSING_FIELD] = "missing field",
    [DRY_RECORD_WRONG_TYPE] = "wrong type",
    [DRY_RECORD_EMPTY_COMPLETION] = "empty completion",
    [DRY_RECORD_SPECIAL_TEXT] = "special token in the text",
    [DRY_RECORD_TOO_LONG] = "too long",
    [DRY_RECORD_UNSUPERVISED] = "nothing supervised",
};
_Static_assert(sizeof names / sizeof names[0] == DRY_RECORD_OUTCOMES, "a name for each outcome");

const char *dry_outcome_name(enum dry_outcome outcome)
{
    return outcome >= 0 && outcome < DRY_RECORD_OUTCOMES ? names[outcome] : "unknown";
}

void dry_record_reset(struct dry_record *r)
{
    dry_ids_reset(&r->ids);
    dry_free(r->span);
    *r = (struct dry_record){0};
}

/* ---- what is wrong ---- */

static void bad(struct dry_record *r, enum dry_outcome outcome, const char *format, ...) DRY_PRINTF(3, 4);

static void bad(struct dry_record *r, enum dry_outcome outcome, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(r->why, sizeof r->why, format, ap);
    va_end(ap);
    /* one clean line: no control characters, no character cut in half */
    size_t n = strlen(r->why);
    n = dry_utf8_invalid(r->why, n);
    r->why[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)r->why[i] < 0x20)
            r->why[i] = ' ';
    r->outcome = outcome;
    r->ids.count = 0;
    r->spans = 0;
    r->supervised = 0;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

static void bad_missing(struct dry_record *r, const json_t *object, const char *field)
{
    char keys[120] = "";
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach((json_t *)object, key, value)
    {
        int wrote = snprintf(keys + n, sizeof keys - n, "%s%s", n ? ", " : "", key);
        if (wrote < 0 || n + (size_t)wrote >= sizeof keys)
            break;
        n += (size_t)wrote;
    }
    bad(r, DRY_RECORD_MISSING_FIELD, "no field \"%s\" (fields here: %s)", field,
        n || keys[0] ? keys : "none");
}

/* ---- reading ---- */

/* *text stays NULL when the record is bad. */
static void get_text(struct dry_record *r, const json_t *object, const char *field, const char **text,
                     size_t *size)
{
    const json_t *value = json_object_get(object, field);

    *text = NULL;
    if (!value)
        bad_missing(r, object, field);
    else if (!json_is_string(value))
        bad(r, DRY_RECORD_WRONG_TYPE, "field \"%s\" is %s, must be a string", field, type_name(value));
    else {
        *text = json_string_value(value);
        *size = json_string_length(value);
    }
}

/* *object is NULL when the line is bad. Numbers are read as reals: one that is too large for an integer is of
 * no concern. */
static enum dry_status parse(struct dry_record *r, const char *text, size_t size, json_t **object)
{
    json_error_t error;
    size_t invalid = dry_utf8_invalid(text, size);

    *object = NULL;
    if (invalid < size) {
        bad(r, DRY_RECORD_INVALID_UTF8, "byte 0x%02x at column %zu is not UTF-8",
            (unsigned char)text[invalid], invalid + 1);
        return DRY_OK;
    }
    json_t *value = json_loadb(
        text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
        &error);
    if (!value && json_error_code(&error) == json_error_out_of_memory) {
        dry_error("out of memory: reading a record");
        return DRY_ERR_MEMORY;
    }
    if (!value) {
        bad(r, DRY_RECORD_BROKEN_JSON, "column %d: %s", error.column, error.text);
        return DRY_OK;
    }
    if (!json_is_object(value)) {
        bad(r, DRY_RECORD_BROKEN_JSON, "the line is %s, must be an object", type_name(value));
        json_decref(value);
        return DRY_OK;
    }
    *object = value;
    return DRY_OK;
}

/* ---- template plain ---- */

struct plain {
    const char *prompt, *completion; /* prompt: with the separator */
    size_t prompt_size, completion_size;
};

static enum dry_status count_special(struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                     const struct plain *p, struct dry_record *r)
{
    int64_t in_prompt, in_completion;
    int32_t first, second;
    enum dry_status status = dry_tokenizer_special_count(t, p->prompt, p->prompt_size, &in_prompt, &first);

    if (!status)
        status = dry_tokenizer_special_count(t, p->completion, p->completion_size, &in_completion, &second);
    if (status)
        return status;
    int64_t all = in_prompt + in_completion;
    r->special_text = all > INT32_MAX ? INT32_MAX : (int32_t)all;
    if (all > 0 && strcmp(rule->special_text, "error") == 0)
        bad(r, DRY_RECORD_SPECIAL_TEXT,
            "%" PRId64 " special token%s written in the text, the first is \"%s\" in the %s", all,
            all == 1 ? " is" : "s are", dry_tokenizer_piece(t, in_prompt > 0 ? first : second),
            in_prompt > 0 ? "prompt" : "completion");
    return DRY_OK;
}

static enum dry_status set_span(struct dry_record *r, size_t begin, size_t end)
{
    if (r->span_capacity == 0) {
        r->span = dry_alloc(1, sizeof *r->span, "supervised spans");
        if (!r->span)
            return DRY_ERR_MEMORY;
        r->span_capacity = 1;
    }
    r->span[0] = (struct dry_span){(int32_t)begin, (int32_t)end};
    r->spans = 1;
    r->supervised = (int32_t)(end - begin);
    return DRY_OK;
}

static enum dry_status encode_parts(struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                    const struct plain *p, struct dry_record *r)
{
    unsigned how = strcmp(rule->special_text, "parse") == 0 ? DRY_ENCODE_SPECIAL_TEXT : 0;
    int32_t eos = dry_tokenizer_eos(t);
    enum dry_status status =
        dry_tokenizer_encode(t, p->prompt, p->prompt_size, how | DRY_ENCODE_PREFIX, &r->ids);
    size_t prompt = r->ids.count;

    if (!status)
        status = dry_tokenizer_encode(t, p->completion, p->completion_size, how, &r->ids);
    if (!status && dry_ids_append(&r->ids, &eos, 1))
        status = DRY_ERR_MEMORY;
    if (status)
        return status;
    size_t length = r->ids.count, limit = (size_t)rule->limit;
    r->full_length = length > INT32_MAX ? INT32_MAX : (int32_t)length;
    if (length > limit && !rule->truncate) {
        bad(r, DRY_RECORD_TOO_LONG, "%zu tokens, at most %zu", length, limit);
        return DRY_OK;
    }
    if (length > limit)
        r->ids.count = limit;
    size_t begin = prompt > 0 ? prompt : 1; /* a record's first token is predicted by nothing */
    if (begin < r->ids.count)
        return set_span(r, begin, r->ids.count);
    if (length > limit)
        bad(r, DRY_RECORD_UNSUPERVISED,
            "the prompt alone has %zu tokens, at most %zu of the record's %zu are kept", prompt, limit,
            length);
    else
        bad(r, DRY_RECORD_UNSUPERVISED, "a record of %zu token%s has no token that follows another", length,
            length == 1 ? "" : "s");
    return DRY_OK;
}

static enum dry_status encode_plain(struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                    const json_t *object, struct dry_record *r)
{
    const char *prompt;
    size_t prompt_size;
    struct plain p;
    struct dry_buffer joined = {0};
    enum dry_status status = DRY_ERR_MEMORY;

    get_text(r, object, rule->prompt_field, &prompt, &prompt_size);
    if (!prompt)
        return DRY_OK;
    get_text(r, object, rule->completion_field, &p.completion, &p.completion_size);
    if (!p.completion)
        return DRY_OK;
    if (p.completion_size == 0) {
        bad(r, DRY_RECORD_EMPTY_COMPLETION, "field \"%s\" is empty", rule->completion_field);
        return DRY_OK;
    }
    if (dry_buffer_append(&joined, prompt, prompt_size) ||
        dry_buffer_append(&joined, rule->separator, strlen(rule->separator)))
        goto out;
    p.prompt = joined.data;
    p.prompt_size = joined.len;
    status = count_special(t, rule, &p, r);
    if (!status && r->outcome == DRY_RECORD_GOOD)
        status = encode_parts(t, rule, &p, r);
out:
    dry_buffer_reset(&joined);
    return status;
}

enum dry_status dry_record_encode(struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                  const char *text, size_t size, int64_t line, struct dry_record *r)
{
    json_t *object;

    r->line = line;
    r->outcome = DRY_RECORD_GOOD;
    r->why[0] = '\0';
    r->ids.count = 0;
    r->spans = 0;
    r->supervised = r->full_length = r->special_text = 0;
    enum dry_status status = parse(r, text, size, &object);
    if (!status && object)
        status = encode_plain(t, rule, object, r);
    json_decref(object);
    return status;
}

/* ---- the rule ---- */

void dry_record_rule_hash(const struct dry_record_rule *rule, struct dry_hash *h)
{
    char text[64];

    dry_hash_text(h, "template", rule->template_name);
    dry_hash_text(h, "prompt_field", rule->prompt_field);
    dry_hash_text(h, "completion_field", rule->completion_field);
    dry_hash_text(h, "separator", rule->separator);
    dry_hash_text(h, "special_text", rule->special_text);
    snprintf(text, sizeof text, "%" PRId64 " %s", rule->limit, rule->truncate ? "truncate" : "refuse");
    dry_hash_text(h, "limit", text);
}

enum dry_status dry_record_rule_check(const struct dry_record_rule *rule, const struct dry_tokenizer *t)
{
    const char *special = rule->special_text;

    if (strcmp(rule->template_name, "plain") != 0) {
        dry_error("--template %s is not known to drydock (known: plain)", rule->template_name);
        return DRY_ERR_USAGE;
    }
    if (strcmp(special, "parse") != 0 && strcmp(special, "plain") != 0 && strcmp(special, "error") != 0) {
        dry_error("--special-text %s is not known to drydock (known: parse, plain, error)", special);
        return DRY_ERR_USAGE;
    }
    if (!*rule->prompt_field || !*rule->completion_field ||
        strcmp(rule->prompt_field, rule->completion_field) == 0) {
        dry_error("--prompt-field \"%s\" and --completion-field \"%s\" must name two different fields",
                  rule->prompt_field, rule->completion_field);
        return DRY_ERR_USAGE;
    }
    size_t n = strlen(rule->separator);
    if (dry_utf8_invalid(rule->separator, n) < n) {
        dry_error("--separator is not valid UTF-8");
        return DRY_ERR_USAGE;
    }
    if (rule->limit < 2) {
        dry_error("--max-seq-length %" PRId64 " leaves nothing to learn: at least 2 tokens", rule->limit);
        return DRY_ERR_USAGE;
    }
    if (dry_tokenizer_eos(t) < 0) {
        dry_error("the base has no end-of-sequence token: set \"eos_token\" in its tokenizer_config.json");
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}
