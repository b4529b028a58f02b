/*
 * PEFT's patterns: values for the modules whose names match a regular expression, such as rank_pattern.
 * Owns the compiled expressions.  Must not know what the values mean.
 */
#include "config.h"

#include "model/pattern.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/regex.h"
#include "config/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    char *key;
    struct dry_regex *regex;
    double value;
    int used;
};

struct dry_patterns {
    struct pattern *pattern;
    size_t count, capacity;
};

static enum dry_status create(size_t capacity, struct dry_patterns **p)
{
    struct dry_patterns *made = dry_alloc(1, sizeof *made, "patterns");

    if (!made)
        return DRY_ERR_MEMORY;
    made->pattern = dry_alloc(capacity, sizeof *made->pattern, "patterns");
    made->capacity = capacity;
    if (!made->pattern) {
        dry_free(made);
        return DRY_ERR_MEMORY;
    }
    *p = made;
    return DRY_OK;
}

void dry_patterns_destroy(struct dry_patterns *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++) {
        dry_regex_destroy(p->pattern[i].regex);
        dry_free(p->pattern[i].key);
    }
    dry_free(p->pattern);
    dry_free(p);
}

static enum dry_status add(struct dry_patterns *p, const char *key, size_t size, double value,
                           const char *where)
{
    struct pattern *at = &p->pattern[p->count];
    enum dry_status s = DRY_ERR_MEMORY;
    char *text;

    at->key = dry_strndup(key, size);
    if (!at->key)
        return s;
    p->count++;
    at->value = value;
    text = dry_format("\\A(.*\\.)?(%s)\\z", at->key);
    if (text)
        s = dry_regex_create(text, where, &at->regex);
    dry_free(text);
    return s;
}

/* A number of `size` bytes; not-a-number: it is none. */
static double to_number(const char *text, size_t size)
{
    char copy[32], *end;
    double value;

    if (size == 0 || size >= sizeof copy)
        return NAN;
    memcpy(copy, text, size);
    copy[size] = 0;
    value = strtod(copy, &end);
    return *end || !isfinite(value) ? NAN : value;
}

static enum dry_status add_pairs(struct dry_patterns *p, const char *text, const char *where)
{
    const char *at = text, *key, *number;
    size_t key_size, size;
    double value;
    enum dry_status s;
    int more;

    while ((more = dry_map_next(&at, &key, &key_size, &number, &size)) > 0) {
        value = to_number(number, size);
        if (isnan(value))
            break;
        s = add(p, key, key_size, value, where);
        if (s)
            return s == DRY_ERR_INPUT ? DRY_ERR_USAGE : s;
    }
    if (more) {
        dry_error("%s: \"%s\" is not KEY=NUMBER,KEY=NUMBER, such as down_proj=4", where, text);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

enum dry_status dry_patterns_from_text(const char *text, const char *where, struct dry_patterns **p)
{
    struct dry_patterns *made = NULL;
    size_t capacity = 0;
    enum dry_status s;

    for (const char *c = text; c && *c; c++)
        capacity += c == text || *c == ',';
    s = create(capacity, &made);
    if (!s && text)
        s = add_pairs(made, text, where);
    if (s) {
        dry_patterns_destroy(made);
        return s;
    }
    *p = made;
    return DRY_OK;
}

enum dry_status dry_patterns_from_json(const json_t *object, const char *where, struct dry_patterns **p)
{
    struct dry_patterns *made = NULL;
    const char *key;
    json_t *value;
    enum dry_status s;

    if (object && !json_is_null(object) && !json_is_object(object)) {
        dry_error("%s: not an object of numbers", where);
        return DRY_ERR_INPUT;
    }
    s = create(json_object_size(object), &made);
    if (s)
        return s;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_number(value)) {
            dry_error("%s: the value of \"%s\" is not a number", where, key);
            s = DRY_ERR_INPUT;
        } else
            s = add(made, key, strlen(key), json_number_value(value), where);
        if (s)
            break;
    }
    if (s) {
        dry_patterns_destroy(made);
        return s;
    }
    *p = made;
    return DRY_OK;
}

enum dry_status dry_patterns_find(struct dry_patterns *p, const char *module, double *value)
{
    for (size_t i = 0; i < p->count; i++) {
        size_t begin, end;
        int found = dry_regex_find(p->pattern[i].regex, module, strlen(module), 0, &begin, &end);

        if (found < 0)
            return DRY_ERR_INPUT;
        if (!found)
            continue;
        p->pattern[i].used = 1;
        *value = p->pattern[i].value;
        return DRY_OK;
    }
    return DRY_OK;
}

const char *dry_patterns_unused(const struct dry_patterns *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (!p->pattern[i].used)
            return p->pattern[i].key;
    return NULL;
}
