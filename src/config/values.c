/*
 * Values: defaults, the one strict way from text to a value, origins, and what is kept of them (JSON, hash,
 * command line). Owns the texts of a configuration.  Must not know files or how a command line is read.
 */
#include "config.h"

#include "config/values.h"

#include "base/log.h"
#include "base/utf8.h"
#include "config/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *member(const struct dry_config *c, const struct dry_option *o)
{
    return (char *)c + o->offset;
}

void dry_real_text(double value, char text[32])
{
    if (fabs(value) < 1e9 && value == floor(value)) {
        snprintf(text, 32, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

int dry_bounds_text(const struct dry_option *o, struct dry_buffer *b)
{
    char low[32], high[32];
    int whole = o->type == DRY_OPT_INT || (o->notes & DRY_NOTE_WHOLE);

    switch (o->type) {
    case DRY_OPT_BOOL:
        return dry_buffer_printf(b, "true or false");
    case DRY_OPT_CHOICE:
        if (!strchr(o->choices, '|'))
            return dry_buffer_printf(b, "%s (the only value)", o->choices);
        if (dry_buffer_printf(b, "one of ") != 0)
            return -1;
        for (const char *s = o->choices; *s; s++)
            if (*s == '|' ? dry_buffer_printf(b, ", ") : dry_buffer_append(b, s, 1))
                return -1;
        return 0;
    case DRY_OPT_INT:
    case DRY_OPT_REAL:
    case DRY_OPT_MAP:
        if (whole) {
            snprintf(low, sizeof low, "%.0f", o->least);
            snprintf(high, sizeof high, "%.0f", o->most);
        } else {
            dry_real_text(o->least, low);
            dry_real_text(o->most, high);
        }
        return dry_buffer_printf(b, "a %s from %s to %s", whole ? "whole number" : "number", low, high);
    case DRY_OPT_TEXT:
        return dry_buffer_printf(b, "text");
    }
    return -1;
}

/* Digits with a sign at most; nothing before or after. 0, or -1. */
static int read_whole(const char *text, size_t length, double least, double most, int64_t *value)
{
    char digits[32], *end;
    long long n;

    if (length == 0 || length >= sizeof digits || isspace((unsigned char)text[0]))
        return -1;
    memcpy(digits, text, length);
    digits[length] = '\0';
    errno = 0;
    n = strtoll(digits, &end, 10);
    if (errno || end != digits + length || !((double)n >= least && (double)n <= most))
        return -1;
    *value = n;
    return 0;
}

/* A decimal number; no hexadecimal, no names of numbers. 0, or -1. */
static int read_real(const char *text, size_t length, double least, double most, double *value)
{
    char digits[64], *end;
    double x;

    if (length == 0 || length >= sizeof digits)
        return -1;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (strspn(digits, "0123456789+-.eE") != length)
        return -1;
    errno = 0;
    x = strtod(digits, &end);
    if (end != digits + length || (errno == ERANGE && x == 0) || !(x >= least && x <= most))
        return -1;
    *value = x;
    return 0;
}

static enum dry_status refuse(const struct dry_option *o, const char *place, const char *text)
{
    struct dry_buffer b = {0};
    const char *known[16], *meant = NULL;
    char *words = NULL, *save = NULL;
    size_t count = 0;
    enum dry_status status = DRY_ERR_MEMORY;

    if (dry_bounds_text(o, &b) != 0)
        goto out;
    if (o->type == DRY_OPT_CHOICE) {
        words = dry_strdup(o->choices);
        if (!words)
            goto out;
        for (char *w = strtok_r(words, "|", &save); w && count < 16; w = strtok_r(NULL, "|", &save))
            known[count++] = w;
        meant = dry_nearest(text, known, count);
    }
    if (!*text)
        dry_error("%s: the value is empty; wanted: %s", place, b.data);
    else if (meant)
        dry_error("%s: \"%s\" is not %s; did you mean %s?", place, text, b.data, meant);
    else
        dry_error("%s: \"%s\" is not %s", place, text, b.data);
    status = DRY_ERR_USAGE;
out:
    dry_free(words);
    dry_buffer_reset(&b);
    return status;
}

static int is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (const char *s = choices; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL)
        if (n && n == strcspn(text, "|") && strncmp(s, text, n) == 0 && (s[n] == '|' || !s[n]))
            return 1;
    return 0;
}

int dry_map_next(const char **at, const char **key, size_t *key_length, const char **value,
                 size_t *value_length)
{
    const char *s = *at, *equal = NULL, *end = s;
    int depth = 0;

    if (!*s)
        return 0;
    for (; *end && (*end != ',' || depth > 0); end++) {
        if (*end == '\\' && end[1])
            end++;
        else if (strchr("([{", *end))
            depth++;
        else if (strchr(")]}", *end))
            depth--;
        else if (*end == '=' && depth <= 0)
            equal = end;
    }
    if (!equal || equal == s || equal + 1 == end || (*end == ',' && !end[1]))
        return -1;
    *key = s;
    *key_length = (size_t)(equal - s);
    *value = equal + 1;
    *value_length = (size_t)(end - equal - 1);
    *at = *end ? end + 1 : end;
    return 1;
}

static enum dry_status check_map(const struct dry_option *o, const char *place, const char *text)
{
    const char *at = text, *key, *value;
    size_t key_length, value_length;
    int more;

    while ((more = dry_map_next(&at, &key, &key_length, &value, &value_length)) == 1) {
        struct dry_buffer b = {0};
        int64_t whole;
        double real;
        int bad = o->notes & DRY_NOTE_WHOLE ? read_whole(value, value_length, o->least, o->most, &whole)
                                            : read_real(value, value_length, o->least, o->most, &real);
        if (bad) {
            if (dry_bounds_text(o, &b) == 0)
                dry_error("%s: \"%.*s\" of \"%.*s\" is not %s", place, (int)value_length, value,
                          (int)key_length, key, b.data);
            dry_buffer_reset(&b);
            return DRY_ERR_USAGE;
        }
    }
    if (more == -1) {
        dry_error("%s: \"%s\" is not of the form NAME=N,NAME=N", place, text);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

/* New text in *out; \n, \t and \\ become what they stand for. */
static enum dry_status unescape(const char *place, const char *text, char **out)
{
    char *s = dry_strdup(text), *to = s;

    if (!s)
        return DRY_ERR_MEMORY;
    for (const char *from = text; *from; from++) {
        const char *found;
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        found = *from ? strchr("nt\\", *from) : NULL;
        if (!found) {
            dry_error("%s: \"%s\": after a backslash comes n, t or a second backslash", place, text);
            dry_free(s);
            return DRY_ERR_USAGE;
        }
        *to++ = "\n\t\\"[found - "nt\\"];
    }
    *to = '\0';
    *out = s;
    return DRY_OK;
}

/* Texts of every kind: *out in new memory, or NULL for an empty map. */
static enum dry_status read_text(const struct dry_option *o, const char *place, const char *text,
                                 enum dry_origin origin, char **out)
{
    size_t size = strlen(text);

    if (dry_utf8_invalid(text, size) != size) {
        dry_error("%s: the value is not valid UTF-8", place);
        return DRY_ERR_USAGE;
    }
    if (o->type == DRY_OPT_CHOICE && !is_choice(o->choices, text))
        return refuse(o, place, text);
    if (o->type == DRY_OPT_TEXT && !size && !(o->notes & DRY_NOTE_ESCAPES)) {
        dry_error("%s: the value is empty; wanted: %s", place, o->argument);
        return DRY_ERR_USAGE;
    }
    if (o->notes & DRY_NOTE_LIST && (text[0] == ',' || text[size - 1] == ',' || strstr(text, ",,"))) {
        dry_error("%s: \"%s\" has an empty place; wanted: %s", place, text, o->argument);
        return DRY_ERR_USAGE;
    }
    if (o->type == DRY_OPT_MAP) {
        enum dry_status status = check_map(o, place, text);
        if (status != DRY_OK || !size) {
            *out = NULL;
            return status;
        }
    }
    if (o->notes & DRY_NOTE_ESCAPES && origin == DRY_ORIGIN_ARGUMENT)
        return unescape(place, text, out);
    *out = dry_strdup(text);
    return *out ? DRY_OK : DRY_ERR_MEMORY;
}

enum dry_status dry_values_set(struct dry_config *c, int i, const char *text, enum dry_origin origin,
                               const char *place)
{
    const struct dry_option *o = &dry_option_table()[i];
    struct dry_config_value *v = &c->values->value[i];
    char *own = NULL, *where = NULL;
    enum dry_status status = DRY_OK;
    int64_t whole = 0;
    double real = 0;

    switch (o->type) {
    case DRY_OPT_BOOL:
        whole = strcmp(text, "true") == 0;
        if (!whole && strcmp(text, "false") != 0)
            return refuse(o, place, text);
        break;
    case DRY_OPT_INT:
        if (read_whole(text, strlen(text), o->least, o->most, &whole) != 0)
            return refuse(o, place, text);
        break;
    case DRY_OPT_REAL:
        if (read_real(text, strlen(text), o->least, o->most, &real) != 0)
            return refuse(o, place, text);
        break;
    case DRY_OPT_TEXT:
    case DRY_OPT_CHOICE:
    case DRY_OPT_MAP:
        status = read_text(o, place, text, origin, &own);
        if (status != DRY_OK)
            return status;
        break;
    }
    if (origin == DRY_ORIGIN_FILE &&
        v->origin == DRY_ORIGIN_ARGUMENT) { /* checked, but the command line wins */
        dry_free(own);
        return DRY_OK;
    }
    where = dry_strdup(place);
    if (!where) {
        dry_free(own);
        return DRY_ERR_MEMORY;
    }
    if (o->type == DRY_OPT_BOOL)
        *(int *)member(c, o) = (int)whole;
    else if (o->type == DRY_OPT_INT)
        *(int64_t *)member(c, o) = whole;
    else if (o->type == DRY_OPT_REAL)
        *(double *)member(c, o) = real;
    else
        *(const char **)member(c, o) = own;
    dry_free(v->text);
    dry_free(v->place);
    *v = (struct dry_config_value){.origin = origin, .text = own, .place = where};
    return DRY_OK;
}

enum dry_status dry_config_create(struct dry_config **config)
{
    const struct dry_option *table = dry_option_table();
    int count = dry_options_count();
    struct dry_config *c = dry_alloc(1, sizeof *c, "options");
    enum dry_status status = DRY_ERR_MEMORY;

    if (!c)
        return status;
    c->values = dry_alloc(1, sizeof *c->values, "option values");
    if (!c->values)
        goto out;
    c->values->value = dry_alloc((size_t)count, sizeof *c->values->value, "option values");
    if (!c->values->value)
        goto out;
    for (int i = 0; i < count; i++) {
        char key[DRY_KEY_SIZE], place[DRY_KEY_SIZE + 16];
        dry_option_key(&table[i], key);
        snprintf(place, sizeof place, "%s (default)", key);
        if (table[i].otherwise) {
            status = dry_values_set(c, i, table[i].otherwise, DRY_ORIGIN_DEFAULT, place);
        } else {
            c->values->value[i].place = dry_strdup(place);
            status = c->values->value[i].place ? DRY_OK : DRY_ERR_MEMORY;
        }
        if (status != DRY_OK)
            goto out;
    }
    *config = c;
    return DRY_OK;
out:
    dry_config_destroy(c);
    return status;
}

void dry_config_destroy(struct dry_config *c)
{
    int count = dry_options_count();

    if (!c)
        return;
    if (c->values && c->values->value)
        for (int i = 0; i < count; i++) {
            dry_free(c->values->value[i].text);
            dry_free(c->values->value[i].place);
        }
    if (c->values)
        dry_free(c->values->value);
    dry_free(c->values);
    dry_free(c);
}

enum dry_status dry_config_set(struct dry_config *c, const char *flag, const char *value,
                               enum dry_origin origin)
{
    char place[DRY_KEY_SIZE + 2];
    int i = dry_option_find(flag);

    snprintf(place, sizeof place, "--%s", flag);
    if (i < 0) {
        const char *meant = dry_option_suggest(flag);
        dry_error("there is no option %s%s%s%s", place, meant ? "; did you mean --" : "", meant ? meant : "",
                  meant ? "?" : "");
        return DRY_ERR_USAGE;
    }
    return dry_values_set(c, i, value, origin, place);
}

enum dry_origin dry_config_origin(const struct dry_config *c, const char *flag)
{
    int i = dry_option_find(flag);

    return i < 0 ? DRY_ORIGIN_DEFAULT : c->values->value[i].origin;
}

const char *dry_config_place(const struct dry_config *c, const char *flag)
{
    int i = dry_option_find(flag);

    return i < 0 ? flag : c->values->value[i].place;
}

const char *dry_values_text(const struct dry_config *c, int i, char buffer[32])
{
    const struct dry_option *o = &dry_option_table()[i];

    switch (o->type) {
    case DRY_OPT_BOOL:
        return *(int *)member(c, o) ? "true" : "false";
    case DRY_OPT_INT:
        snprintf(buffer, 32, "%lld", (long long)*(int64_t *)member(c, o));
        return buffer;
    case DRY_OPT_REAL:
        dry_real_text(*(double *)member(c, o), buffer);
        return buffer;
    case DRY_OPT_TEXT:
    case DRY_OPT_CHOICE:
    case DRY_OPT_MAP:
        break;
    }
    return *(const char **)member(c, o);
}

static json_t *json_of(const struct dry_config *c, const struct dry_option *o)
{
    const char *text;

    switch (o->type) {
    case DRY_OPT_BOOL:
        return json_boolean(*(int *)member(c, o));
    case DRY_OPT_INT:
        return json_integer(*(int64_t *)member(c, o));
    case DRY_OPT_REAL:
        return json_real(*(double *)member(c, o));
    case DRY_OPT_TEXT:
    case DRY_OPT_CHOICE:
    case DRY_OPT_MAP:
        break;
    }
    text = *(const char **)member(c, o);
    return text ? json_string(text) : json_null();
}

static const char *const origins[] = {
    [DRY_ORIGIN_DEFAULT] = "default", [DRY_ORIGIN_FILE] = "file", [DRY_ORIGIN_ARGUMENT] = "argument"};

json_t *dry_config_json(const struct dry_config *c, unsigned command)
{
    const struct dry_option *table = dry_option_table();
    json_t *all = json_object();

    for (int i = 0; all && table[i].flag; i++) {
        char key[DRY_KEY_SIZE];
        json_t *one;
        if (!(table[i].commands & command))
            continue;
        dry_option_key(&table[i], key);
        one = json_pack("{s:o, s:s}", "value", json_of(c, &table[i]), "origin",
                        origins[c->values->value[i].origin]);
        if (!one || json_object_set_new(all, key, one) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    if (!all)
        dry_error("not enough memory for the copy of the options");
    return all;
}

static int append_value(struct dry_buffer *b, const json_t *value)
{
    char *text = json_is_string(value) || json_is_null(value)
                     ? NULL
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
    int failed;

    if (json_is_string(value))
        failed = dry_buffer_printf(b, "\"%s\"", json_string_value(value));
    else
        failed = dry_buffer_printf(b, "%s", text ? text : "not given");
    free(text);
    return failed;
}

void dry_config_differences(const json_t *then, const json_t *now)
{
    const struct dry_option *table = dry_option_table();
    struct dry_buffer b = {0};
    int failed = 0;

    for (int i = 0; table[i].flag && !failed; i++) {
        char key[DRY_KEY_SIZE];
        const json_t *before, *after;
        dry_option_key(&table[i], key);
        before = json_object_get(json_object_get(then, key), "value");
        after = json_object_get(json_object_get(now, key), "value");
        if (table[i].scope != DRY_SCOPE_CONTRACT || !before || !after || json_equal(before, after))
            continue;
        failed = dry_buffer_printf(&b, "%s--%s ", b.len ? ", " : "options then and now: ", table[i].flag) ||
                 append_value(&b, before) || dry_buffer_printf(&b, " -> ") || append_value(&b, after);
    }
    if (b.len && !failed)
        dry_error_more("%s", b.data);
    dry_buffer_reset(&b);
}

enum dry_status dry_config_text(const struct dry_config *c, char **text)
{
    const struct dry_option *table = dry_option_table();
    const char *name = dry_command_name(c->values->command);
    struct dry_buffer b = {0};
    int failed = dry_buffer_printf(&b, "command %s\n", name ? name : "none");

    for (int i = 0; table[i].flag && !failed; i++) {
        char buffer[32];
        const char *value = dry_values_text(c, i, buffer);
        if (table[i].scope == DRY_SCOPE_LOCAL)
            continue;
        failed = dry_buffer_printf(&b, "%s %s (%s)\n", table[i].flag, value ? value : "not given",
                                   origins[c->values->value[i].origin]);
    }
    if (failed) {
        dry_buffer_reset(&b);
        return DRY_ERR_MEMORY;
    }
    *text = b.data;
    return DRY_OK;
}

static int is_control(char byte)
{
    return (unsigned char)byte < 32 || byte == 127;
}

/* A word as a shell reads it back: bare, in single quotes, or with its control characters spelled out. */
static int append_word(struct dry_buffer *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    int control = 0, failed;

    if (*word && word[strspn(word, plain)] == '\0')
        return dry_buffer_printf(b, " %s", word);
    for (const char *s = word; *s; s++)
        control |= is_control(*s);
    failed = dry_buffer_printf(b, control ? " $'" : " '");
    for (; *word && !failed; word++) {
        if (control && is_control(*word))
            failed = dry_buffer_printf(b, "\\x%02x", (unsigned char)*word);
        else if (control && (*word == '\'' || *word == '\\'))
            failed = dry_buffer_printf(b, "\\%c", *word);
        else if (*word == '\'')
            failed = dry_buffer_printf(b, "'\\''");
        else
            failed = dry_buffer_append(b, word, 1);
    }
    return failed ? -1 : dry_buffer_printf(b, "'");
}

/* The option that a word names, or -1; *inside: the value follows after '='. */
static int option_of(const char *word, int *inside)
{
    char flag[DRY_KEY_SIZE];
    size_t n;

    if (strncmp(word, "--", 2) != 0)
        return -1;
    n = strcspn(word + 2, "=");
    if (n >= sizeof flag)
        return -1;
    memcpy(flag, word + 2, n);
    flag[n] = '\0';
    *inside = word[2 + n] == '=';
    return dry_option_find(flag);
}

int dry_values_command(const struct dry_config *c, int ranks, const char *const *drop, const char *add,
                       struct dry_buffer *b)
{
    const struct dry_option *table = dry_option_table();
    const struct dry_config_values *v = c->values;
    const char *name = dry_command_name(v->command);

    if (ranks > 1 && dry_buffer_printf(b, "mpirun -np %d ", ranks) != 0)
        return -1;
    if (dry_buffer_printf(b, "drydock %s", name ? name : dry_command_name(DRY_CMD_FINETUNE)) != 0)
        return -1;
    for (int w = 0; w < v->words; w++) {
        int inside = 1, i = option_of(v->word[w], &inside), dropped = 0;
        int follows = i >= 0 && !inside && table[i].type != DRY_OPT_BOOL && w + 1 < v->words;
        for (const char *const *d = drop; i >= 0 && *d; d++)
            dropped |= strcmp(table[i].flag, *d) == 0;
        if (!dropped && append_word(b, v->word[w]) != 0)
            return -1;
        if (follows && ++w && !dropped && append_word(b, v->word[w]) != 0)
            return -1;
    }
    return *add ? dry_buffer_printf(b, " %s", add) : 0;
}
