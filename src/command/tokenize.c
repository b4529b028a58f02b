/*
 * tokenize: JSON lines with a text each to token ids and pieces, one line out for each line in, to check a
 * tokenizer; of the text alone, unless the line asks by "post": true for the post-processor's tokens too.
 * Owns nothing. Must not know how texts become tokens.
 */
#include "config.h"

#include "command/command.h"

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "model/base.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where lines come from, and what is reused from line to line. */
struct source {
    FILE *in;
    const char *name;
    int64_t line;
    int special; /* where a line does not say */
    struct dry_ids ids;
    struct dry_buffer out;
};

static int append_json(struct dry_buffer *out, const char *text)
{
    int failed = dry_buffer_append(out, "\"", 1);

    for (; *text && !failed; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            failed = dry_buffer_printf(out, "\\%c", c);
        else if (c < 0x20)
            failed = dry_buffer_printf(out, "\\u%04x", c);
        else
            failed = dry_buffer_append(out, text, 1);
    }
    return failed || dry_buffer_append(out, "\"", 1);
}

static enum dry_status print_ids(const struct dry_tokenizer *t, struct source *s)
{
    s->out.len = 0;
    int failed = dry_buffer_append(&s->out, "{\"ids\": [", 9);
    for (size_t i = 0; i < s->ids.count && !failed; i++)
        failed = dry_buffer_printf(&s->out, i ? ", %" PRId32 : "%" PRId32, s->ids.id[i]);
    failed = failed || dry_buffer_append(&s->out, "], \"pieces\": [", 14);
    for (size_t i = 0; i < s->ids.count && !failed; i++)
        failed = (i && dry_buffer_append(&s->out, ", ", 2)) ||
                 append_json(&s->out, dry_tokenizer_piece(t, s->ids.id[i]));
    if (failed || dry_buffer_append(&s->out, "]}\n", 3))
        return DRY_ERR_MEMORY;
    /* line by line, so that another program can hold a conversation */
    if (fwrite(s->out.data, 1, s->out.len, stdout) != s->out.len || fflush(stdout)) {
        dry_error("cannot write to standard output: %s", strerror(errno));
        return DRY_ERR_IO;
    }
    return DRY_OK;
}

static enum dry_status encode_object(struct dry_tokenizer *t, const json_t *object, struct source *s)
{
    char where[512];
    int special, post;
    const json_t *text = json_object_get(object, "text");

    snprintf(where, sizeof where, "%s:%" PRId64, s->name, s->line);
    enum dry_status status = dry_json_bool(object, "special", 0, s->special, where, &special);
    if (!status)
        status = dry_json_bool(object, "post", 0, 0, where, &post);
    if (!status && !json_is_string(text)) {
        dry_error("%s: must be an object with a string \"text\", such as {\"text\": \"Hello\"}", where);
        status = DRY_ERR_INPUT;
    }
    if (status)
        return status;
    s->ids.count = 0;
    status = dry_tokenizer_encode(t, json_string_value(text), json_string_length(text),
                                  (special ? DRY_ENCODE_SPECIAL_TEXT : 0u) | (post ? DRY_ENCODE_POST : 0u),
                                  &s->ids);
    return status ? status : print_ids(t, s);
}

static enum dry_status encode_line(struct dry_tokenizer *t, const char *text, size_t size, struct source *s)
{
    json_error_t error;
    size_t invalid = dry_utf8_invalid(text, size);

    if (invalid < size) {
        dry_error("%s:%" PRId64 ": byte 0x%02x at column %zu is not UTF-8", s->name, s->line,
                  (unsigned char)text[invalid], invalid + 1);
        return DRY_ERR_INPUT;
    }
    json_t *value = json_loadb(
        text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
        &error);
    if (!value) {
        dry_error("%s:%" PRId64 ": broken JSON at column %d: %s", s->name, s->line, error.column, error.text);
        return DRY_ERR_INPUT;
    }
    enum dry_status status = encode_object(t, value, s);
    json_decref(value);
    return status;
}

static enum dry_status encode_all(struct dry_tokenizer *t, struct source *s)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t got;
    enum dry_status status = DRY_OK;

    while (!status && (got = getline(&line, &capacity, s->in)) >= 0) {
        const char *text = line;
        size_t size = (size_t)got;
        if (++s->line == 1 && size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
            text += 3;
            size -= 3;
        }
        while (size > 0 && strchr(" \t\r\n", text[size - 1]) && text[size - 1])
            size--;
        if (size > 0)
            status = encode_line(t, text, size, s);
    }
    if (!status && ferror(s->in)) {
        dry_error("%s: cannot read: %s", s->name, strerror(errno));
        status = DRY_ERR_IO;
    }
    free(line);
    return status;
}

/* Rank 0 alone: reading and writing lines is not shared. */
static enum dry_status run(const struct dry_config *c)
{
    char *dir = NULL;
    struct dry_tokenizer *t = NULL;
    struct source s = {.in = stdin, .name = "standard input", .special = c->special};
    enum dry_status status;

    if (!c->base) {
        dry_error("tokenize needs --base: a folder with tokenizer.json, or a hub name");
        return DRY_ERR_USAGE;
    }
    status = dry_base_locate(c->base, &dir);
    if (!status)
        status = dry_tokenizer_create(dir, &t);
    if (!status && c->data) {
        s.name = c->data;
        s.in = fopen(c->data, "re");
        if (!s.in) {
            dry_error("%s: cannot open: %s", c->data, strerror(errno));
            status = DRY_ERR_IO;
        }
    }
    if (!status)
        status = encode_all(t, &s);
    if (s.in && s.in != stdin)
        fclose(s.in);
    dry_ids_reset(&s.ids);
    dry_buffer_reset(&s.out);
    dry_tokenizer_destroy(t);
    dry_free(dir);
    return status;
}

enum dry_status dry_command_tokenize(const struct dry_call *call)
{
    enum dry_status status = dry_comm_rank(call->comm) == 0 ? run(call->config) : DRY_OK;

    return dry_comm_agree(call->comm, status);
}
