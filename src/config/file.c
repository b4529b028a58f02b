/*
 * Option files in libconfig's form: keys to options, with file and line in every message.
 * Owns the parsed file while it reads.  Must not know what values mean.  The only home of <libconfig.h>.
 */
#include "config.h"

#include "config/options.h"

#include "base/file.h"
#include "base/log.h"
#include "config/values.h"

#include <ctype.h>
#include <errno.h>
#include <libconfig.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The path of the file that libconfig names: the whole one as it was given, an included one by its name in
 * @include, which is relative to the folder of the first. New memory, or NULL. */
static char *source_path(const char *from, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *joined;

    if (!from || strcmp(from, path) == 0)
        return dry_strdup(path);
    if (!slash || from[0] == '/')
        return dry_strdup(from);
    joined = dry_format("%.*s/%s", (int)(slash - path), path, from);
    if (joined && !dry_file_exists(joined)) { /* newer libconfig gives the whole path itself */
        dry_free(joined);
        return dry_strdup(from);
    }
    return joined;
}

/* The text of a line without blanks around it; "" when the file cannot be read. New memory, or NULL. */
static char *line_text(const char *path, int line)
{
    struct dry_buffer b = {0};
    FILE *in = path ? fopen(path, "r") : NULL;
    int at = 1, c;

    while (in && at <= line && (c = getc(in)) != EOF && b.len < 60) {
        if (at == line && c != '\n' && (b.len || !isspace(c)) &&
            dry_buffer_printf(&b, "%c", isprint(c) ? c : '?') != 0)
            break;
        at += c == '\n';
    }
    if (in)
        fclose(in);
    return b.data ? b.data : dry_strdup("");
}

static enum dry_status refuse_syntax(const config_t *file, const char *path)
{
    char *where = NULL;
    const char *what = config_error_text(file);
    int line = config_error_line(file);
    char *text;

    if (config_error_type(file) != CONFIG_ERR_PARSE) {
        dry_error("%s: cannot be read: %s", path, strerror(errno));
        return DRY_ERR_IO;
    }
    where = source_path(config_error_file(file), path);
    text = where ? line_text(where, line) : NULL;
    if (!text) {
        dry_free(where);
        return DRY_ERR_MEMORY;
    }
    if (strstr(what, "duplicate"))
        dry_error("%s:%d: a key stands here for the second time: %s", where, line, text);
    else if (strstr(what, "include"))
        dry_error("%s:%d: %s: %s; its name is relative to the folder of %s", where, line, what, text, path);
    else
        dry_error(
            "%s:%d: %s here or just before: %s (each line is KEY = VALUE; and VALUE a number, true, false, "
            "\"text\" or [list])",
            where, line, what, text);
    dry_free(text);
    dry_free(where);
    return DRY_ERR_USAGE;
}

/* The next literal of digits outside comments and texts, from s on; NULL at the end. *line is kept. */
static const char *next_digits(const char *s, const char *end, int *line)
{
    while (s < end) {
        if (*s == '"') {
            for (s++; s < end && *s != '"'; s++) {
                if (*s == '\\' && s + 1 < end)
                    s++;
                *line += *s == '\n';
            }
            s += s < end;
        } else if (*s == '#' || (*s == '/' && s + 1 < end && s[1] == '/')) {
            while (s < end && *s != '\n')
                s++;
        } else if (*s == '/' && s + 1 < end && s[1] == '*') {
            for (s += 2; s < end && !(*s == '*' && s + 1 < end && s[1] == '/'); s++)
                *line += *s == '\n';
            s += s < end ? 2 : 0;
        } else if (isalpha((unsigned char)*s) || *s == '*' || *s == '_') { /* a name, which may hold digits */
            while (s < end && (isalnum((unsigned char)*s) || strchr("-_*", *s)))
                s++;
        } else if (isdigit((unsigned char)*s)) {
            return s;
        } else {
            *line += *s++ == '\n';
        }
    }
    return NULL;
}

/* libconfig keeps whole numbers in 32 bits, with an L in 64, and wraps what is larger: that must not pass in
 * silence. */
static enum dry_status check_literals(const char *path)
{
    char *text;
    size_t size;
    int line = 1;
    enum dry_status status = dry_file_read(path, &text, &size);

    if (status != DRY_OK)
        return status;
    for (const char *s = next_digits(text, text + size, &line); s; s = next_digits(s, text + size, &line)) {
        int whole = s == text || s[-1] != '.';
        int hexadecimal = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
        unsigned long long value;
        char *end;
        errno = 0;
        value = strtoull(s, &end, hexadecimal ? 16 : 10);
        if (*end == '.' || *end == 'e' || *end == 'E') { /* a real number, its exponent included */
            char *after;
            strtod(s, &after);
            s = after > end ? after : end + 1;
            continue;
        }
        if (whole && (errno == ERANGE || value > LLONG_MAX || (value > INT_MAX && *end != 'L'))) {
            const char *fits = errno == ERANGE || value > LLONG_MAX ? "is too large" : "needs an L behind it";
            dry_error("%s:%d: %.*s %s (libconfig keeps whole numbers in 32 bits, with an L in 64)", path,
                      line, (int)(end - s), s, fits);
            status = DRY_ERR_USAGE;
        }
        s = end + (*end == 'L');
        while (*s == 'L')
            s++;
    }
    dry_free(text);
    return status;
}

struct seen {
    const char *path;
    const char *from[64];
    int count;
};

/* Every file that this setting and those in it came from, each once. */
static enum dry_status check_files(const config_setting_t *s, struct seen *seen)
{
    const char *from = config_setting_source_file(s);
    enum dry_status status = DRY_OK;
    int known = !from;

    for (int k = 0; k < seen->count && !known; k++)
        known = strcmp(seen->from[k], from) == 0;
    if (!known && seen->count == (int)(sizeof seen->from / sizeof *seen->from)) {
        dry_error("%s: includes more than %d files", seen->path, seen->count);
        return DRY_ERR_USAGE;
    }
    if (!known) {
        char *path = source_path(from, seen->path);
        status = path ? check_literals(path) : DRY_ERR_MEMORY;
        seen->from[seen->count++] = from;
        dry_free(path);
    }
    for (int i = 0; i < config_setting_length(s); i++) { /* of a scalar: 0 */
        enum dry_status one = check_files(config_setting_get_elem(s, (unsigned)i), seen);
        if (one > status)
            status = one;
    }
    return status;
}

static const char *kind_of(const config_setting_t *s)
{
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return "a whole number";
    case CONFIG_TYPE_FLOAT:
        return "a number with a fraction or an exponent";
    case CONFIG_TYPE_STRING:
        return "text";
    case CONFIG_TYPE_BOOL:
        return "true or false";
    case CONFIG_TYPE_GROUP:
        return "a group";
    default:
        return "a list";
    }
}

static int is_whole(const config_setting_t *s)
{
    return config_setting_type(s) == CONFIG_TYPE_INT || config_setting_type(s) == CONFIG_TYPE_INT64;
}

static int append_scalar(const config_setting_t *s, struct dry_buffer *b)
{
    char real[32];

    switch (config_setting_type(s)) {
    case CONFIG_TYPE_INT:
        return dry_buffer_printf(b, "%d", config_setting_get_int(s));
    case CONFIG_TYPE_INT64:
        return dry_buffer_printf(b, "%lld", config_setting_get_int64(s));
    case CONFIG_TYPE_FLOAT:
        dry_real_text(config_setting_get_float(s), real);
        return dry_buffer_printf(b, "%s", real);
    case CONFIG_TYPE_BOOL:
        return dry_buffer_printf(b, "%s", config_setting_get_bool(s) ? "true" : "false");
    default:
        return dry_buffer_printf(b, "%s", config_setting_get_string(s));
    }
}

/* A list's or group's members as "a,b" or "name=value,name=value". 1: of a wrong type, 0, -1: memory. */
static int append_members(const struct dry_option *o, const config_setting_t *s, struct dry_buffer *b)
{
    int group = config_setting_is_group(s);

    for (int i = 0; i < config_setting_length(s); i++) {
        const config_setting_t *m = config_setting_get_elem(s, (unsigned)i);
        int text = config_setting_type(m) == CONFIG_TYPE_STRING;
        if (group ? !config_setting_is_number(m) : o->type == DRY_OPT_MAP ? !text : !(text || is_whole(m)))
            return 1;
        if (group && o->notes & DRY_NOTE_WHOLE && !is_whole(m))
            return 1;
        if (!group && text && o->type == DRY_OPT_TEXT && strchr(config_setting_get_string(m), ','))
            return 1;
        if ((i && dry_buffer_printf(b, ",") != 0) ||
            (group && dry_buffer_printf(b, "%s=", config_setting_name(m)) != 0) || append_scalar(m, b) != 0)
            return -1;
    }
    return 0;
}

/* The setting as text in *b, when its libconfig type is one that the option takes. 1: it is not, 0, -1:
 * memory. */
static int setting_text(const struct dry_option *o, const config_setting_t *s, struct dry_buffer *b)
{
    int type = config_setting_type(s), good = 0;
    int list = type == CONFIG_TYPE_ARRAY || type == CONFIG_TYPE_LIST;

    if ((list && (o->type == DRY_OPT_MAP || o->notes & DRY_NOTE_LIST)) ||
        (type == CONFIG_TYPE_GROUP && o->type == DRY_OPT_MAP))
        return append_members(o, s, b);
    switch (o->type) {
    case DRY_OPT_BOOL:
        good = type == CONFIG_TYPE_BOOL;
        break;
    case DRY_OPT_INT:
        good = is_whole(s);
        break;
    case DRY_OPT_REAL:
        good = type == CONFIG_TYPE_FLOAT || is_whole(s);
        break;
    case DRY_OPT_TEXT:
    case DRY_OPT_CHOICE:
    case DRY_OPT_MAP:
        good = type == CONFIG_TYPE_STRING;
        break;
    }
    return good ? append_scalar(s, b) : 1;
}

static enum dry_status refuse_type(const struct dry_option *o, const config_setting_t *s, const char *place)
{
    struct dry_buffer b = {0}, shown = {0};
    enum dry_status status = DRY_ERR_MEMORY;
    int scalar = config_setting_is_scalar(s);

    if (dry_bounds_text(o, &b) != 0 || (scalar && append_scalar(s, &shown) != 0))
        goto out;
    if (scalar && (o->type == DRY_OPT_TEXT || o->type == DRY_OPT_CHOICE))
        dry_error("%s: %s is %s; text is wanted, in double quotes: \"%s\"", place, shown.data, kind_of(s),
                  shown.data);
    else if (o->type == DRY_OPT_MAP)
        dry_error("%s: wanted: a group { q_proj = 8; } or a list of texts (\"q_proj=8\"), each value %s",
                  place, b.data);
    else if (scalar)
        dry_error("%s: %s is %s; wanted: %s", place, shown.data, kind_of(s), b.data);
    else
        dry_error("%s: this is %s; wanted: %s%s", place, kind_of(s), b.data,
                  o->notes & DRY_NOTE_LIST ? ", or a list of such without commas in them" : "");
    status = DRY_ERR_USAGE;
out:
    dry_buffer_reset(&b);
    dry_buffer_reset(&shown);
    return status;
}

static enum dry_status refuse_key(const config_setting_t *s, const char *where)
{
    const char *meant = dry_option_suggest(config_setting_name(s));
    char key[DRY_KEY_SIZE];

    if (meant) {
        dry_option_key(&dry_option_table()[dry_option_find(meant)], key);
        dry_error("%s: unknown key %s; did you mean %s?", where, config_setting_name(s), key);
    } else {
        dry_error("%s: unknown key %s; drydock options lists all keys", where, config_setting_name(s));
    }
    return DRY_ERR_USAGE;
}

static enum dry_status take(struct dry_config *c, const config_setting_t *s, const char *path)
{
    const struct dry_option *table = dry_option_table();
    char *from = source_path(config_setting_source_file(s), path);
    char *where = from ? dry_format("%s:%u", from, config_setting_source_line(s)) : NULL;
    char *place = where ? dry_format("%s: %s", where, config_setting_name(s)) : NULL;
    struct dry_buffer text = {0};
    enum dry_status status = DRY_ERR_MEMORY;
    char key[DRY_KEY_SIZE];
    int i = 0, wrong;

    if (!place)
        goto out;
    for (; table[i].flag; i++) {
        dry_option_key(&table[i], key);
        if (strcmp(key, config_setting_name(s)) == 0)
            break;
    }
    if (!table[i].flag) {
        status = refuse_key(s, where);
        goto out;
    }
    wrong = setting_text(&table[i], s, &text);
    if (wrong > 0)
        status = refuse_type(&table[i], s, place);
    else if (wrong == 0)
        status = dry_values_set(c, i, text.data ? text.data : "", DRY_ORIGIN_FILE, place);
out:
    dry_buffer_reset(&text);
    dry_free(place);
    dry_free(where);
    dry_free(from);
    return status;
}

enum dry_status dry_config_file(struct dry_config *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? dry_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : NULL;
    struct seen seen = {.path = path};
    enum dry_status status = DRY_OK;
    config_t file;

    if (slash && !folder)
        return DRY_ERR_MEMORY;
    config_init(&file);
    config_set_auto_convert(&file, CONFIG_FALSE);
    if (folder)
        config_set_include_dir(&file, folder);
    errno = 0;
    if (!config_read_file(&file, path)) {
        status = refuse_syntax(&file, path);
        goto out;
    }
    status = check_files(config_root_setting(&file), &seen);
    if (status != DRY_OK)
        goto out;
    for (int i = 0; i < config_setting_length(config_root_setting(&file)); i++) {
        enum dry_status one = take(c, config_setting_get_elem(config_root_setting(&file), (unsigned)i), path);
        if (one > status)
            status = one;
    }
out:
    config_destroy(&file);
    dry_free(folder);
    return status;
}
