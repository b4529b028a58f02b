/*
 * Post-processors: the tokens that stand before and after every text (BOS, EOS).
 * Owns the two lists of ids.
 * Must not know what the text is.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"

#include <string.h>

enum { DEPTH = 16 };

static const char known[] = "TemplateProcessing, ByteLevel, Sequence";

void dry_post_reset(struct dry_post *p)
{
    dry_ids_reset(&p->prefix);
    dry_ids_reset(&p->suffix);
}

/* The ids of one special token of a template, by the template's own table. */
static enum dry_status append_special(const json_t *object, const char *name, const char *where,
                                      struct dry_ids *ids)
{
    const json_t *list =
        json_object_get(json_object_get(json_object_get(object, "special_tokens"), name), "ids");

    if (!json_is_array(list)) {
        dry_error("%s: the template's special token \"%s\" has no \"ids\" in \"special_tokens\"", where,
                  name);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > INT32_MAX / 2) {
            dry_error("%s: the ids of special token \"%s\" must be integers that are not negative", where,
                      name);
            return DRY_ERR_INPUT;
        }
        int32_t id = (int32_t)json_integer_value(value);
        if (dry_ids_append(ids, &id, 1))
            return DRY_ERR_MEMORY;
    }
    return DRY_OK;
}

static enum dry_status read_template(const json_t *object, const char *where, struct dry_ids *before,
                                     struct dry_ids *after)
{
    const json_t *single = json_object_get(object, "single");
    int seen = 0;

    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken"),
                     *sequence = json_object_get(item, "Sequence");
        const char *name;
        if (sequence && !special) {
            enum dry_status status = dry_json_text(sequence, "id", 1, NULL, where, &name);
            if (status)
                return status;
            if (strcmp(name, "A") != 0 || seen)
                break;
            seen = 1;
        } else if (special && !sequence) {
            enum dry_status status = dry_json_text(special, "id", 1, NULL, where, &name);
            if (!status)
                status = append_special(object, name, where, seen ? after : before);
            if (status)
                return status;
        } else {
            seen = 0;
            break;
        }
        if (i + 1 == json_array_size(single) && seen)
            return DRY_OK;
    }
    dry_error(
        "%s: TemplateProcessing must have a \"single\" template of special tokens and one Sequence \"A\"",
        where);
    return DRY_ERR_INPUT;
}

/* A later template of a Sequence wraps what the earlier ones made. */
static enum dry_status wrap(struct dry_post *p, struct dry_ids *before, struct dry_ids *after)
{
    if (dry_ids_append(before, p->prefix.id, p->prefix.count) ||
        dry_ids_append(&p->suffix, after->id, after->count))
        return DRY_ERR_MEMORY;
    struct dry_ids swap = p->prefix;
    p->prefix = *before;
    *before = swap;
    return DRY_OK;
}

static enum dry_status read_any(const json_t *object, const char *where, int depth, struct dry_post *p)
{
    const char *type;
    enum dry_status status = dry_part_type(object, where, &type);

    if (status)
        return status;
    if (strcmp(type, "ByteLevel") == 0) /* moves offsets only */
        return DRY_OK;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(object, "processors");
        if (!json_is_array(list) || depth == DEPTH) {
            dry_error("%s: a Sequence needs an array \"processors\", nested at most %d deep", where, DEPTH);
            return DRY_ERR_INPUT;
        }
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_any(json_array_get(list, i), where, depth + 1, p);
        return status;
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        struct dry_ids before = {0}, after = {0};
        status = read_template(object, where, &before, &after);
        if (!status)
            status = wrap(p, &before, &after);
        dry_ids_reset(&before);
        dry_ids_reset(&after);
        return status;
    }
    dry_error("%s: post_processor type \"%s\" is not known to drydock (known: %s)", where, type, known);
    return DRY_ERR_INPUT;
}

enum dry_status dry_post_create(const json_t *object, const char *where, struct dry_post *p)
{
    struct dry_post made = {{0}, {0}};
    enum dry_status status = object && !json_is_null(object) ? read_any(object, where, 0, &made) : DRY_OK;

    if (status) {
        dry_post_reset(&made);
        return status;
    }
    *p = made;
    return DRY_OK;
}
