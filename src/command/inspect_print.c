/*
 * What inspect tells, for people: keys and values, sections, and columns.
 * Owns nothing that outlives a call.
 * Must not know what the keys mean, but that "bytes" counts bytes.
 */
#include "config.h"

#include "command/inspect.h"

#include "command/setup.h"

#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, KEY_LEAST = 16, MOST_COLUMNS = 12 };

/* "a, b, c" in new memory. */
static char *show_list(const json_t *list)
{
    struct dry_buffer b = {0};
    char *text = NULL;
    int bad = 0;

    for (size_t i = 0; i < json_array_size(list) && !bad; i++) {
        const json_t *value = json_array_get(list, i);
        char *one =
            json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

        bad = dry_buffer_printf(&b, "%s%s", i ? ", " : "", one ? one : json_string_value(value));
        free(one);
    }
    if (!bad)
        text = dry_strdup(b.data ? b.data : "");
    dry_buffer_reset(&b);
    return text;
}

/* A value as text in new memory. NULL: no memory. */
static char *show(const char *key, const json_t *value)
{
    char human[16], *dump, *text;

    if (!value || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return dry_strdup("-");
    if (json_is_string(value))
        return dry_strdup(json_string_value(value));
    if (json_is_boolean(value))
        return dry_strdup(json_is_true(value) ? "yes" : "no");
    if (json_is_real(value))
        return dry_format("%.6g", json_real_value(value));
    if (json_is_integer(value) && strcmp(key, "bytes") == 0) {
        dry_bytes_text((double)json_integer_value(value), human);
        return dry_format("%" JSON_INTEGER_FORMAT " (%s)", json_integer_value(value), human);
    }
    if (json_is_array(value))
        return show_list(value);
    dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    text = dump ? dry_strdup(dump) : NULL;
    free(dump);
    return text;
}

/* An array of objects, which is printed as columns named by the first object's keys. */
static int is_table(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static int is_section(const json_t *value)
{
    return json_is_object(value) && json_object_size(value) > 0;
}

static int cell_width(const char *key, const json_t *value)
{
    char *text = show(key, value);
    int width = text ? (int)strlen(text) : 0;

    dry_free(text);
    return width;
}

static void print_cell(const char *text, const json_t *value, int width, int last)
{
    if (json_is_number(value))
        printf("%*s%s", width, text, last ? "" : "  ");
    else
        printf("%-*s%s", last ? 0 : width, text, last ? "" : "  ");
}

static int print_table(const json_t *rows, int indent)
{
    const char *key[MOST_COLUMNS], *name;
    int width[MOST_COLUMNS], columns = 0;
    json_t *row, *value, *first = json_array_get(rows, 0);
    size_t r;

    json_object_foreach(first, name, value)
    {
        if (columns == MOST_COLUMNS)
            break;
        key[columns] = name;
        width[columns] = (int)strlen(name);
        json_array_foreach(rows, r, row)
        {
            int w = cell_width(name, json_object_get(row, name));
            width[columns] = w > width[columns] ? w : width[columns];
        }
        columns++;
    }
    printf("%*s", indent, "");
    for (int c = 0; c < columns; c++)
        print_cell(key[c], json_object_get(first, key[c]), width[c], c == columns - 1);
    printf("\n");
    json_array_foreach(rows, r, row)
    {
        printf("%*s", indent, "");
        for (int c = 0; c < columns; c++) {
            json_t *cell = json_object_get(row, key[c]);
            char *text = show(key[c], cell);

            if (!text)
                return -1;
            print_cell(text, cell, width[c], c == columns - 1);
            dry_free(text);
        }
        printf("\n");
    }
    return 0;
}

/* The scalars of an object, their values under one another. */
static int print_scalars(const json_t *object, int indent)
{
    int width = KEY_LEAST;
    const char *key;
    json_t *value;
    char *text;

    json_object_foreach((json_t *)object, key, value)
    {
        if (!is_table(value) && !is_section(value) && (int)strlen(key) > width)
            width = (int)strlen(key);
    }
    json_object_foreach((json_t *)object, key, value)
    {
        if (is_table(value) || is_section(value))
            continue;
        text = show(key, value);
        if (!text)
            return -1;
        printf("%*s%-*s  %s\n", indent, "", width, key, text);
        dry_free(text);
    }
    return 0;
}

static int print_object(const json_t *object, int indent)
{
    const char *key;
    json_t *value;

    if (print_scalars(object, indent))
        return -1;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!is_table(value) && !is_section(value))
            continue;
        printf("%*s%s\n", indent, "", key);
        if (is_table(value) ? print_table(value, indent + INDENT) : print_object(value, indent + INDENT))
            return -1;
    }
    return 0;
}

enum dry_status dry_inspect_print(const char *path, const json_t *content)
{
    json_t *rest = json_copy((json_t *)content);
    int bad;

    if (!rest)
        return dry_inspect_no_memory(NULL);
    json_object_del(rest, "kind");
    printf("%s: %s\n", path, json_string_value(json_object_get(content, "kind")));
    bad = print_object(rest, INDENT);
    json_decref(rest);
    if (bad)
        return DRY_ERR_MEMORY;
    if (fflush(stdout) != 0) {
        dry_error("cannot write to standard output: %s", strerror(errno));
        return DRY_ERR_IO;
    }
    return DRY_OK;
}
