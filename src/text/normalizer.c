/*
 * The normalizer: a chain of steps, each of which rewrites the text between added tokens.
 * Owns its steps and a scratch buffer.
 * Must not know of tokens or ids.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/unicode.h"

#include <string.h>

enum kind { KIND_FORM, KIND_PREPEND, KIND_REPLACE, KIND_LOWERCASE, KIND_STRIP };
enum { DEPTH = 16 };

struct step {
    enum kind kind;
    enum dry_utf8_form form;
    char *text;    /* prepended, or put in place of a match */
    char *pattern; /* a string to replace, or NULL: re */
    struct dry_regex *re;
    int left, right; /* strip */
};

struct dry_normalizer {
    struct step *step;
    size_t steps;
    struct dry_buffer scratch;
};

static const char known[] = "NFC, NFD, NFKC, NFKD, Sequence, Prepend, Replace, Lowercase, Strip";

static enum dry_status read_step(const json_t *object, const char *type, const char *where, struct step *s)
{
    static const struct {
        const char *type;
        enum dry_utf8_form form;
    } forms[] = {
        {"NFC", DRY_UTF8_NFC}, {"NFD", DRY_UTF8_NFD}, {"NFKC", DRY_UTF8_NFKC}, {"NFKD", DRY_UTF8_NFKD}};
    const char *text, *string = NULL, *regex = NULL;
    enum dry_status status;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(type, forms[i].type) == 0) {
            *s = (struct step){.kind = KIND_FORM, .form = forms[i].form};
            return DRY_OK;
        }
    if (strcmp(type, "Lowercase") == 0) {
        s->kind = KIND_LOWERCASE;
        return DRY_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        s->kind = KIND_STRIP;
        status = dry_json_bool(object, "strip_left", 1, 0, where, &s->left);
        return status ? status : dry_json_bool(object, "strip_right", 1, 0, where, &s->right);
    }
    if (strcmp(type, "Prepend") == 0) {
        s->kind = KIND_PREPEND;
        status = dry_json_text(object, "prepend", 1, NULL, where, &text);
    } else if (strcmp(type, "Replace") == 0) {
        s->kind = KIND_REPLACE;
        status = dry_json_text(object, "content", 1, NULL, where, &text);
        if (!status)
            status = dry_part_pattern(object, where, &string, &regex);
    } else {
        dry_error("%s: normalizer type \"%s\" is not known to drydock (known: %s)", where, type, known);
        return DRY_ERR_INPUT;
    }
    if (status)
        return status;
    s->text = dry_strdup(text);
    if (!s->text)
        return DRY_ERR_MEMORY;
    if (string) {
        s->pattern = dry_strdup(string);
        return s->pattern ? DRY_OK : DRY_ERR_MEMORY;
    }
    return regex ? dry_part_regex(regex, where, &s->re) : DRY_OK;
}

static enum dry_status read_any(struct dry_normalizer *n, const json_t *object, const char *where, int depth)
{
    const char *type;
    enum dry_status status = dry_part_type(object, where, &type);

    if (status)
        return status;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(object, "normalizers");
        if (!json_is_array(list) || depth == DEPTH) {
            dry_error("%s: a Sequence needs an array \"normalizers\", nested at most %d deep", where, DEPTH);
            return DRY_ERR_INPUT;
        }
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_any(n, json_array_get(list, i), where, depth + 1);
        return status;
    }
    struct step *more = dry_realloc(n->step, n->steps, n->steps + 1, sizeof *more, "normalizer");
    if (!more)
        return DRY_ERR_MEMORY;
    n->step = more;
    return read_step(object, type, where, &n->step[n->steps++]);
}

enum dry_status dry_normalizer_create(const json_t *object, const char *where, struct dry_normalizer **n)
{
    struct dry_normalizer *made = dry_alloc(1, sizeof *made, "normalizer");

    if (!made)
        return DRY_ERR_MEMORY;
    enum dry_status status = object && !json_is_null(object) ? read_any(made, object, where, 0) : DRY_OK;
    if (status) {
        dry_normalizer_destroy(made);
        return status;
    }
    *n = made;
    return DRY_OK;
}

void dry_normalizer_destroy(struct dry_normalizer *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->steps; i++) {
        dry_free(n->step[i].text);
        dry_free(n->step[i].pattern);
        dry_regex_destroy(n->step[i].re);
    }
    dry_free(n->step);
    dry_buffer_reset(&n->scratch);
    dry_free(n);
}

int dry_normalizer_is_empty(const struct dry_normalizer *n)
{
    return n->steps == 0;
}

int dry_normalizer_moves_start(const struct dry_normalizer *n)
{
    for (size_t i = 0; i < n->steps; i++)
        if (n->step[i].kind == KIND_REPLACE || n->step[i].kind == KIND_STRIP)
            return 1;
    return 0;
}

static enum dry_status replace_string(const struct step *s, const char *text, size_t size,
                                      struct dry_buffer *out)
{
    size_t n = strlen(s->pattern), m = strlen(s->text), at = 0;

    for (;;) {
        const char *hit = size - at >= n ? memmem(text + at, size - at, s->pattern, n) : NULL;
        size_t end = hit ? (size_t)(hit - text) : size;
        if (dry_buffer_append(out, text + at, end - at))
            return DRY_ERR_MEMORY;
        if (!hit)
            return DRY_OK;
        if (dry_buffer_append(out, s->text, m))
            return DRY_ERR_MEMORY;
        at = end + n;
    }
}

static enum dry_status replace_regex(const struct step *s, const char *text, size_t size,
                                     struct dry_buffer *out)
{
    struct dry_matches m = {s->re, text, size, 0, SIZE_MAX};
    size_t at = 0, begin, end, n = strlen(s->text);
    int found;

    while ((found = dry_matches_next(&m, &begin, &end)) > 0) {
        if (dry_buffer_append(out, text + at, begin - at) || dry_buffer_append(out, s->text, n))
            return DRY_ERR_MEMORY;
        at = end;
    }
    if (found < 0)
        return DRY_ERR_INPUT;
    return dry_buffer_append(out, text + at, size - at) ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status lowercase(const char *text, size_t size, struct dry_buffer *out)
{
    for (size_t at = 0; at < size;) {
        uint32_t code, lower[2];
        at += dry_utf8_decode(text + at, size - at, &code);
        size_t n = dry_unicode_lower(code, lower);
        for (size_t i = 0; i < n; i++) {
            char bytes[4];
            if (dry_buffer_append(out, bytes, dry_utf8_encode(lower[i], bytes)))
                return DRY_ERR_MEMORY;
        }
    }
    return DRY_OK;
}

static enum dry_status strip(const struct step *s, const char *text, size_t size, struct dry_buffer *out)
{
    size_t begin = 0, end = 0, at = 0;
    int leading = s->left;

    while (at < size) {
        uint32_t code;
        size_t n = dry_utf8_decode(text + at, size - at, &code);
        at += n;
        if (!dry_utf8_is_space(code)) {
            leading = 0;
            end = at;
        } else if (leading) {
            begin = at;
        }
    }
    if (!s->right || end < begin)
        end = s->right ? begin : size;
    return dry_buffer_append(out, text + begin, end - begin) ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status run_step(const struct step *s, const char *text, size_t size, struct dry_buffer *out)
{
    switch (s->kind) {
    case KIND_FORM:
        return dry_unicode_normalize(s->form, text, size, out) ? DRY_ERR_MEMORY : DRY_OK;
    case KIND_PREPEND:
        if (size > 0 && dry_buffer_append(out, s->text, strlen(s->text)))
            return DRY_ERR_MEMORY;
        return dry_buffer_append(out, text, size) ? DRY_ERR_MEMORY : DRY_OK;
    case KIND_REPLACE:
        /* empty text has no match, not even for an expression that matches nothing */
        if (size == 0)
            return DRY_OK;
        return s->pattern ? replace_string(s, text, size, out) : replace_regex(s, text, size, out);
    case KIND_LOWERCASE:
        return lowercase(text, size, out);
    case KIND_STRIP:
        return strip(s, text, size, out);
    }
    return DRY_ERR_INTERNAL;
}

enum dry_status dry_normalizer_run(struct dry_normalizer *n, const char *text, size_t size,
                                   struct dry_buffer *out)
{
    out->len = 0;
    if (n->steps == 0)
        return dry_buffer_append(out, text, size) ? DRY_ERR_MEMORY : DRY_OK;
    for (size_t i = 0; i < n->steps; i++) {
        n->scratch.len = 0;
        enum dry_status status = run_step(&n->step[i], text, size, &n->scratch);
        if (status)
            return status;
        struct dry_buffer swap = n->scratch;
        n->scratch = *out;
        *out = swap;
        text = out->data ? out->data : "";
        size = out->len;
    }
    return DRY_OK;
}
