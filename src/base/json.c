/*
 * Reads and writes JSON files, and reads typed members with a message that names file and key.
 * Owns nothing: values belong to who holds their reference.
 * Must not know what a key means.
 */
#include "config.h"

#include "base/json.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum dry_status dry_json_read(const char *path, json_t **root)
{
    char *data;
    size_t size;
    json_error_t error;
    enum dry_status status = dry_file_read(path, &data, &size);

    if (status)
        return status;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *value = json_loadb(data, size, flags, &error);
    /* Files from Python hold integers beyond 64 bits, such as 1000000000000000019884624838656 for no limit;
     * then all numbers of the file are reals, and the readers below take whole ones for integers. */
    if (!value && json_error_code(&error) == json_error_numeric_overflow)
        value = json_loadb(data, size, flags | JSON_DECODE_INT_AS_REAL, &error);
    dry_free(data);
    if (!value) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            dry_error("out of memory: reading %s", path);
            return DRY_ERR_MEMORY;
        }
        dry_error("%s:%d:%d: not valid JSON: %s", path, error.line, error.column, error.text);
        return DRY_ERR_INPUT;
    }
    *root = value;
    return DRY_OK;
}

enum dry_status dry_json_write(const char *path, const json_t *root)
{
    struct dry_buffer text = {0};
    enum dry_status status = DRY_ERR_MEMORY;
    char *dumped = json_dumps(root, JSON_INDENT(2) | JSON_ENCODE_ANY);

    if (!dumped) {
        dry_error("cannot write %s: out of memory, or a value that JSON cannot hold", path);
        return DRY_ERR_MEMORY;
    }
    if (dry_buffer_append(&text, dumped, strlen(dumped)) == 0 && dry_buffer_append(&text, "\n", 1) == 0)
        status = dry_file_write(path, text.data, text.len);
    free(dumped);
    dry_buffer_reset(&text);
    return status;
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
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

static enum dry_status wrong(const json_t *value, const char *key, const char *where, const char *want)
{
    dry_error("%s: key \"%s\" is %s, want %s", where, key, type_name(value), want);
    return DRY_ERR_INPUT;
}

/* *value: the member, or NULL when it is missing or null and need not be there. */
static enum dry_status member(const json_t *object, const char *key, int required, const char *where,
                              json_t **value)
{
    if (!json_is_object(object)) {
        dry_error("%s: want an object with key \"%s\", found %s", where, key,
                  object ? type_name(object) : "nothing");
        return DRY_ERR_INPUT;
    }
    json_t *found = json_object_get(object, key);
    if (json_is_null(found))
        found = NULL;
    if (!found && required) {
        dry_error("%s: key \"%s\" is missing", where, key);
        return DRY_ERR_INPUT;
    }
    *value = found;
    return DRY_OK;
}

enum dry_status dry_json_int(const json_t *object, const char *key, int required, int64_t otherwise,
                             const char *where, int64_t *value)
{
    json_t *found;
    enum dry_status status = member(object, key, required, where, &found);

    if (status)
        return status;
    if (!found) {
        *value = otherwise;
    } else if (json_is_integer(found)) {
        *value = json_integer_value(found);
    } else { /* writers in Python leave 4096.0 where 4096 is meant */
        double real = json_number_value(found);
        if (!json_is_real(found) || real != floor(real) || !(fabs(real) <= 0x1p53))
            return wrong(found, key, where, "an integer");
        *value = (int64_t)real;
    }
    return DRY_OK;
}

enum dry_status dry_json_real(const json_t *object, const char *key, int required, double otherwise,
                              const char *where, double *value)
{
    json_t *found;
    enum dry_status status = member(object, key, required, where, &found);

    if (status)
        return status;
    if (found && !json_is_number(found))
        return wrong(found, key, where, "a number");
    *value = found ? json_number_value(found) : otherwise;
    return DRY_OK;
}

enum dry_status dry_json_bool(const json_t *object, const char *key, int required, int otherwise,
                              const char *where, int *value)
{
    json_t *found;
    enum dry_status status = member(object, key, required, where, &found);

    if (status)
        return status;
    if (found && !json_is_boolean(found))
        return wrong(found, key, where, "true or false");
    *value = found ? json_is_true(found) : otherwise;
    return DRY_OK;
}

enum dry_status dry_json_text(const json_t *object, const char *key, int required, const char *otherwise,
                              const char *where, const char **value)
{
    json_t *found;
    enum dry_status status = member(object, key, required, where, &found);

    if (status)
        return status;
    if (found && !json_is_string(found))
        return wrong(found, key, where, "a string");
    if (found && strlen(json_string_value(found)) != json_string_length(found))
        return wrong(found, key, where, "a string without a NUL character");
    *value = found ? json_string_value(found) : otherwise;
    return DRY_OK;
}
