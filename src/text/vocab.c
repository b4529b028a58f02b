/*
 * The vocabulary: token texts to ids by open addressing, ids to texts by a table.
 * Owns the texts.
 * Must not know how tokens are made.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/mix.h"

#include <string.h>

enum { LARGEST_ID = (1 << 24) - 1 };

struct entry {
    size_t text; /* offset into texts */
    uint32_t size;
    int32_t id; /* -1: free */
};

struct dry_vocab {
    struct entry *entry;
    size_t slots; /* a power of two */
    struct dry_buffer texts;
    size_t *piece; /* per id: offset + 1, 0 when none */
    int32_t size, count;
};

static struct entry *slot(const struct dry_vocab *v, const char *text, size_t size)
{
    size_t at = (size_t)dry_mix_bytes(text, size) & (v->slots - 1);

    while (v->entry[at].id >= 0 &&
           (v->entry[at].size != size || memcmp(v->texts.data + v->entry[at].text, text, size) != 0))
        at = (at + 1) & (v->slots - 1);
    return &v->entry[at];
}

static enum dry_status check_ids(const json_t *object, const char *where, int32_t *size)
{
    const char *token;
    json_t *value;

    *size = 0;
    json_object_foreach((json_t *)object, token, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > LARGEST_ID) {
            dry_error("%s: the id of token \"%s\" must be an integer from 0 to %d", where, token, LARGEST_ID);
            return DRY_ERR_INPUT;
        }
        if (json_integer_value(value) >= *size)
            *size = (int32_t)json_integer_value(value) + 1;
    }
    return DRY_OK;
}

enum dry_status dry_vocab_create(const json_t *object, const char *where, struct dry_vocab **v)
{
    if (!json_is_object(object) || json_object_size(object) == 0) {
        dry_error("%s: must be an object of token texts and ids, not empty", where);
        return DRY_ERR_INPUT;
    }
    int32_t size;
    enum dry_status status = check_ids(object, where, &size);
    if (status)
        return status;
    struct dry_vocab *made = dry_alloc(1, sizeof *made, "vocabulary");
    if (!made)
        return DRY_ERR_MEMORY;
    status = DRY_ERR_MEMORY;
    made->size = size;
    made->slots = 16;
    while (made->slots < 2 * json_object_size(object))
        made->slots *= 2;
    made->entry = dry_alloc(made->slots, sizeof *made->entry, "vocabulary");
    made->piece = dry_alloc((size_t)size, sizeof *made->piece, "vocabulary");
    if (!made->entry || !made->piece)
        goto out;
    for (size_t i = 0; i < made->slots; i++)
        made->entry[i].id = -1;
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)object, token, value)
    {
        size_t n = strlen(token), at = made->texts.len;
        int32_t id = (int32_t)json_integer_value(value);
        if (made->piece[id]) {
            dry_error("%s: tokens \"%s\" and \"%s\" have the same id %d", where,
                      made->texts.data + made->piece[id] - 1, token, id);
            status = DRY_ERR_INPUT;
            goto out;
        }
        if (dry_buffer_append(&made->texts, token, n + 1))
            goto out;
        *slot(made, token, n) = (struct entry){at, (uint32_t)n, id};
        made->piece[id] = at + 1;
        made->count++;
    }
    *v = made;
    return DRY_OK;
out:
    dry_vocab_destroy(made);
    return status;
}

void dry_vocab_destroy(struct dry_vocab *v)
{
    if (!v)
        return;
    dry_free(v->entry);
    dry_free(v->piece);
    dry_buffer_reset(&v->texts);
    dry_free(v);
}

int32_t dry_vocab_find(const struct dry_vocab *v, const char *text, size_t size)
{
    return slot(v, text, size)->id;
}

const char *dry_vocab_piece(const struct dry_vocab *v, int32_t id)
{
    return id >= 0 && id < v->size && v->piece[id] ? v->texts.data + v->piece[id] - 1 : NULL;
}

int32_t dry_vocab_size(const struct dry_vocab *v)
{
    return v->size;
}

int32_t dry_vocab_count(const struct dry_vocab *v)
{
    return v->count;
}
