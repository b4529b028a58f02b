/*
 * What the parts of a tokenizer share: reading their JSON, compiling expressions, walking matches, and lists
 * of pieces. Owns nothing. Must not know what any part does.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/pattern.h"

#include <string.h>

void dry_ids_reset(struct dry_ids *ids)
{
    dry_free(ids->id);
    *ids = (struct dry_ids){0};
}

int dry_ids_append(struct dry_ids *ids, const int32_t *id, size_t n)
{
    if (n > ids->capacity - ids->count) {
        size_t capacity = ids->capacity ? ids->capacity : 64;
        while (capacity - ids->count < n)
            if (dry_mul_size(capacity, 2, &capacity)) {
                dry_error("a list of token ids is too long");
                return -1;
            }
        int32_t *more = dry_realloc(ids->id, ids->capacity, capacity, sizeof *more, "token ids");
        if (!more)
            return -1;
        ids->id = more;
        ids->capacity = capacity;
    }
    if (n > 0)
        memcpy(ids->id + ids->count, id, n * sizeof *id);
    ids->count += n;
    return 0;
}

void dry_pieces_reset(struct dry_pieces *p)
{
    dry_buffer_reset(&p->text);
    dry_buffer_reset(&p->spare);
    dry_free(p->piece);
    dry_free(p->next);
    dry_free(p->match);
    *p = (struct dry_pieces){0};
}

int dry_pieces_begin(struct dry_pieces *p, const char *text, size_t size, int first)
{
    p->text.len = 0;
    if (dry_buffer_append(&p->text, text, size))
        return -1;
    if (p->capacity == 0) {
        p->piece = dry_alloc(64, sizeof *p->piece, "pieces of text");
        if (!p->piece)
            return -1;
        p->capacity = 64;
    }
    p->piece[0] = (struct dry_piece){0, size, first};
    p->count = 1;
    return 0;
}

enum dry_status dry_part_type(const json_t *object, const char *where, const char **type)
{
    if (!json_is_object(object)) {
        dry_error("%s: must be an object", where);
        return DRY_ERR_INPUT;
    }
    return dry_json_text(object, "type", 1, NULL, where, type);
}

enum dry_status dry_part_pattern(const json_t *object, const char *where, const char **string,
                                 const char **regex)
{
    const json_t *pattern = json_object_get(object, "pattern");

    if (!json_is_object(pattern) || json_object_size(pattern) != 1) {
        dry_error("%s: key \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}", where);
        return DRY_ERR_INPUT;
    }
    enum dry_status status = dry_json_text(pattern, "String", 0, NULL, where, string);
    if (!status)
        status = dry_json_text(pattern, "Regex", 0, NULL, where, regex);
    if (status)
        return status;
    const char *one = *string ? *string : *regex;
    if (!one || !*one) {
        dry_error("%s: key \"pattern\" has neither a \"String\" nor a \"Regex\" that is not empty", where);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

enum dry_status dry_part_regex(const char *pattern, const char *where, struct dry_regex **re)
{
    struct dry_buffer translated = {0};
    enum dry_status status = dry_pattern_translate(pattern, where, &translated);

    if (!status)
        status = dry_regex_create(translated.data, where, re);
    dry_buffer_reset(&translated);
    return status;
}

int dry_matches_next(struct dry_matches *m, size_t *begin, size_t *end)
{
    while (m->from <= m->size) {
        size_t b, e;
        int found = dry_regex_find(m->re, m->text, m->size, m->from, &b, &e);
        if (found <= 0)
            return found;
        if (b == e && e == m->last) {
            uint32_t code;
            m->from += m->from < m->size ? dry_utf8_decode(m->text + m->from, m->size - m->from, &code) : 1;
            continue;
        }
        m->from = m->last = e;
        *begin = b;
        *end = e;
        return 1;
    }
    return 0;
}
