/*
 * Compares manifests part by part.
 * Owns the list of differences while it grows.
 * Must not know which command asks, nor what becomes of a difference.
 */
#include "config.h"

#include "command/differ.h"

#include "base/log.h"
#include "base/memory.h"
#include "config/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 160 };

static const struct {
    enum dry_differ kind;
    const char *name;
} kinds[] = {
    {DRY_DIFFER_DATA, "data"},   {DRY_DIFFER_CONTRACT, "contract"}, {DRY_DIFFER_VALIDATION, "validation"},
    {DRY_DIFFER_CACHE, "cache"}, {DRY_DIFFER_VERSIONS, "versions"}, {DRY_DIFFER_DEVICES, "devices"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *dry_differ_name(enum dry_differ kind)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "?";
}

/* ---- the list ---- */

enum dry_status dry_differ_add(struct dry_differences *d, enum dry_differ kind, const char *name,
                               const char *const *value)
{
    struct dry_difference *one;

    if (d->count == d->room) {
        int more = d->room ? 2 * d->room : 8;
        struct dry_difference *item =
            d->item
                ? dry_realloc(d->item, (size_t)d->room, (size_t)more, sizeof *item, "the runs' differences")
                : dry_alloc((size_t)more, sizeof *item, "the runs' differences");

        if (!item)
            return DRY_ERR_MEMORY;
        d->item = item;
        d->room = more;
    }
    one = &d->item[d->count];
    one->kind = kind;
    snprintf(one->name, sizeof one->name, "%s", name);
    one->value = dry_alloc((size_t)d->runs, sizeof *one->value, "a difference");
    if (!one->value)
        return DRY_ERR_MEMORY;
    d->count++;
    for (int r = 0; r < d->runs; r++)
        if (!(one->value[r] = dry_strdup(value[r])))
            return DRY_ERR_MEMORY;
    return DRY_OK;
}

void dry_differ_release(struct dry_differences *d)
{
    for (int i = 0; i < d->count; i++) {
        for (int r = 0; r < d->runs; r++)
            dry_free(d->item[i].value[r]);
        dry_free(d->item[i].value);
    }
    dry_free(d->item);
    *d = (struct dry_differences){0};
}

/* ---- values ---- */

void dry_differ_text(const json_t *value, char *text, size_t size)
{
    if (json_is_string(value)) {
        const char *s = json_string_value(value);
        size_t n = 0;

        for (; *s && n + 3 < size; s++) { /* a separator's newline must not end the line */
            if (*s == '\n' || *s == '\t')
                text[n++] = '\\';
            text[n++] = *s == '\n' ? 'n' : *s == '\t' ? 't' : *s;
        }
        text[n] = 0;
    } else if (json_is_real(value)) {
        double x = json_real_value(value);

        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, size, "%.*g", digits, x);
            if (strtod(text, NULL) == x)
                break;
        }
    } else if (json_is_integer(value)) {
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    } else {
        snprintf(text, size, "%s", json_is_true(value) ? "true" : json_is_false(value) ? "false" : "-");
    }
}

/* part NULL: the manifest itself. */
static const json_t *at(const json_t *run, const char *part, const char *key)
{
    return json_object_get(part ? json_object_get(run, part) : run, key);
}

static const json_t *option(const json_t *run, const char *key)
{
    return json_object_get(at(run, "options", key), "value");
}

/* A hash by its first digits. */
static int is_hash(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) == 64 &&
           strspn(json_string_value(value), "0123456789abcdef") == 64;
}

/* Adds a difference when values differ; a run that does not tell (NULL) differs from none. */
static enum dry_status look(struct dry_differences *d, enum dry_differ kind, const char *name,
                            const json_t *const *value, int *differs)
{
    const json_t *first = NULL;
    char(*text)[TEXT];
    const char **list;
    enum dry_status status = DRY_ERR_MEMORY;

    *differs = 0;
    for (int r = 0; r < d->runs; r++) {
        if (value[r] && !first)
            first = value[r];
        *differs = *differs || (value[r] && !json_equal(first, value[r]));
    }
    if (!*differs)
        return DRY_OK;
    text = dry_alloc((size_t)d->runs, sizeof *text, "a difference");
    list = dry_alloc((size_t)d->runs, sizeof *list, "a difference");
    if (text && list) {
        for (int r = 0; r < d->runs; r++) {
            dry_differ_text(value[r], text[r], sizeof text[r]);
            if (is_hash(value[r]))
                text[r][12] = 0;
            list[r] = text[r];
        }
        status = dry_differ_add(d, kind, name, list);
    }
    dry_free(text);
    dry_free(list);
    return status;
}

/* A look at the same place of all manifests. */
static enum dry_status look_at(json_t *const *run, struct dry_differences *d, enum dry_differ kind,
                               const char *name, const char *part, const char *key, int *differs)
{
    const json_t **value = dry_alloc((size_t)d->runs, sizeof *value, "the runs' values");
    enum dry_status status = value ? DRY_OK : DRY_ERR_MEMORY;

    for (int r = 0; r < d->runs && !status; r++)
        value[r] = part && strcmp(part, "options") == 0 ? option(run[r], key) : at(run[r], part, key);
    if (!status)
        status = look(d, kind, name, value, differs);
    dry_free(value);
    return status;
}

/* The options of one group of --help, and whether any differs. */
static enum dry_status look_at_options(json_t *const *run, struct dry_differences *d, enum dry_differ kind,
                                       const char *group, int *any)
{
    const struct dry_option *table = dry_option_table();
    enum dry_status status = DRY_OK;
    char key[64];
    int differs;

    *any = 0;
    for (int i = 0; table[i].flag && !status; i++) {
        if (table[i].scope != DRY_SCOPE_CONTRACT || strcmp(table[i].group, group) != 0 ||
            strcmp(table[i].flag, "max-seq-length") == 0) /* stands in the contract itself */
            continue;
        snprintf(key, sizeof key, "%s", table[i].flag);
        for (char *c = key; *c; c++)
            if (*c == '-')
                *c = '_';
        status = look_at(run, d, kind, key, "options", key, &differs);
        *any = *any || differs;
    }
    return status;
}

/* ---- the kinds ---- */

/* The key of the tokenised records says whether there is a difference; the rest says which. */
static enum dry_status look_at_data(json_t *const *run, struct dry_differences *d)
{
    int before = d->count, differs;
    enum dry_status status;

    if ((status = look_at(run, d, DRY_DIFFER_DATA, "data (SHA-256)", "data", "sha256", &differs)) ||
        (status = look_at(run, d, DRY_DIFFER_DATA, "tokenizer (SHA-256)", NULL, "tokenizer", &differs)) ||
        (status = look_at(run, d, DRY_DIFFER_DATA, "records", "contract", "records", &differs)))
        return status;
    status = look_at_options(run, d, DRY_DIFFER_DATA, "Records", &differs);
    if (!status && d->count == before)
        status = look_at(run, d, DRY_DIFFER_DATA, "data (key of its cache)", "contract", "data", &differs);
    return status;
}

static enum dry_status look_at_changes(json_t *const *run, struct dry_differences *d)
{
    const json_t **value = dry_alloc((size_t)d->runs, sizeof *value, "the runs' values");
    json_t **count = dry_alloc((size_t)d->runs, sizeof *count, "the runs' values");
    enum dry_status status = value && count ? DRY_OK : DRY_ERR_MEMORY;
    int differs;

    for (int r = 0; r < d->runs && !status; r++) {
        value[r] = count[r] = json_integer((json_int_t)json_array_size(json_object_get(run[r], "changes")));
        if (!count[r])
            status = DRY_ERR_MEMORY;
    }
    if (!status)
        status = look(d, DRY_DIFFER_CONTRACT, "accepted batch changes", value, &differs);
    for (int r = 0; count && r < d->runs; r++)
        json_decref(count[r]);
    dry_free(count);
    dry_free(value);
    return status;
}

static enum dry_status look_at_contract(json_t *const *run, struct dry_differences *d)
{
    enum dry_status status = DRY_OK;
    const char *key;
    json_t *value;
    int differs, any;

    json_object_foreach(json_object_get(run[0], "contract"), key, value)
    {
        if (strcmp(key, "data") == 0 || strcmp(key, "records") == 0)
            continue;
        if (strcmp(key, "adapter") == 0) {
            int before = d->count;

            status = look_at(run, d, DRY_DIFFER_CONTRACT, "adapter (hash)", "contract", key, &differs);
            if (!status && differs)
                status = look_at_options(run, d, DRY_DIFFER_CONTRACT, "Adapter", &any);
            if (!status && differs && any) { /* the options tell more than the hash */
                for (int r = 0; r < d->runs; r++)
                    dry_free(d->item[before].value[r]);
                dry_free(d->item[before].value);
                memmove(d->item + before, d->item + before + 1,
                        (size_t)(--d->count - before) * sizeof *d->item);
            }
        } else {
            status = look_at(run, d, DRY_DIFFER_CONTRACT, key, "contract", key, &differs);
        }
        if (status)
            return status;
    }
    return look_at_changes(run, d);
}

static enum dry_status look_at_validation(json_t *const *run, struct dry_differences *d)
{
    const json_t **value = dry_alloc((size_t)d->runs, sizeof *value, "the runs' values");
    json_t *none = json_string("none");
    enum dry_status status = value && none ? DRY_OK : DRY_ERR_MEMORY;
    int differs;

    for (int r = 0; r < d->runs && !status; r++) {
        value[r] = at(run[r], "validation", "sha256");
        if (json_is_null(option(run[r], "validation_data")))
            value[r] = none;
    }
    if (!status)
        status = look(d, DRY_DIFFER_VALIDATION, "validation data (SHA-256)", value, &differs);
    json_decref(none);
    dry_free(value);
    return status;
}

/* A quarter of the base more or less in memory is a start that another time can be expected of. */
static enum dry_status look_at_cache(json_t *const *run, struct dry_differences *d)
{
    double least = INFINITY, most = -INFINITY;
    char(*text)[TEXT] = dry_alloc((size_t)d->runs, sizeof *text, "a difference");
    const char **list = dry_alloc((size_t)d->runs, sizeof *list, "a difference");
    enum dry_status status = text && list ? DRY_OK : DRY_ERR_MEMORY;

    for (int r = 0; r < d->runs && !status; r++) {
        const json_t *share = at(run[r], "page_cache", "base");

        list[r] = text[r];
        snprintf(text[r], sizeof text[r], "-");
        if (!json_is_number(share))
            continue;
        least = fmin(least, json_number_value(share));
        most = fmax(most, json_number_value(share));
        snprintf(text[r], sizeof text[r], "%.0f %%", 100 * json_number_value(share));
    }
    if (!status && most - least > 0.25)
        status = dry_differ_add(d, DRY_DIFFER_CACHE, "base in memory at the start", list);
    dry_free(text);
    dry_free(list);
    return status;
}

/* The compiler's flags, on which roundings depend, as configure told them; 0: a run that does not tell. */
static int flags_of(const json_t *run, char *text, size_t size)
{
    static const char label[] = "flags ";
    const char *line = json_string_value(at(run, "build", "configured"));

    while (line && strncmp(line, label, strlen(label)) != 0) {
        line = strchr(line, '\n');
        line += line != NULL;
    }
    if (!line)
        return 0;
    line += strlen(label);
    line += strspn(line, " ");
    snprintf(text, size, "\"%.*s\"", (int)strcspn(line, "\n"), line);
    return 1;
}

static enum dry_status look_at_flags(json_t *const *run, struct dry_differences *d)
{
    char(*text)[512] = dry_alloc((size_t)d->runs, sizeof *text, "a difference");
    const char **list = dry_alloc((size_t)d->runs, sizeof *list, "a difference");
    enum dry_status status = text && list ? DRY_OK : DRY_ERR_MEMORY;
    int differs = 0, known = 1;

    for (int r = 0; r < d->runs && !status; r++) {
        list[r] = text[r];
        known = known && flags_of(run[r], text[r], sizeof text[r]);
        differs = differs || (known && strcmp(text[r], text[0]) != 0);
    }
    if (!status && known && differs)
        status = dry_differ_add(d, DRY_DIFFER_VERSIONS, "compiler flags", list);
    dry_free(text);
    dry_free(list);
    return status;
}

static enum dry_status look_at_versions(json_t *const *run, struct dry_differences *d)
{
    static const char *const build[] = {"drydock", "revision", "compiler"};
    json_t *libraries = json_object();
    const char *key;
    json_t *value;
    enum dry_status status = libraries ? DRY_OK : DRY_ERR_MEMORY;
    int differs;

    for (size_t i = 0; i < sizeof build / sizeof *build && !status; i++)
        status = look_at(run, d, DRY_DIFFER_VERSIONS, build[i], "build", build[i], &differs);
    if (!status)
        status = look_at_flags(run, d);
    for (int r = 0; r < d->runs && !status; r++)
        if (json_is_object(json_object_get(run[r], "libraries")) &&
            json_object_update(libraries, json_object_get(run[r], "libraries")))
            status = DRY_ERR_MEMORY;
    json_object_foreach(libraries, key, value)
    {
        if (!status)
            status = look_at(run, d, DRY_DIFFER_VERSIONS, key, "libraries", key, &differs);
    }
    json_decref(libraries);
    return status;
}

/* Adds a name to a list of such, once. */
static void add_name(char *list, size_t size, const char *name)
{
    size_t n = strlen(list), length = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ','))
            return;
    if (length && n < size)
        snprintf(list + n, size - n, "%s%s", n ? ", " : "", name);
}

void dry_differ_devices(const json_t *run, char *text, size_t size)
{
    const json_t *devices = json_object_get(run, "devices"),
                 *cpu = json_object_get(json_object_get(run, "host"), "cpu");
    const char *backend = json_string_value(json_object_get(run, "backend"));

    *text = 0;
    for (size_t i = 0; i < json_array_size(devices) && backend && strncmp(backend, "cpu", 3) != 0; i++) {
        const char *device = json_string_value(json_object_get(json_array_get(devices, i), "device"));
        char kind[TEXT];

        snprintf(kind, sizeof kind, "%s", device ? device : "");
        kind[strcspn(kind, "(")] = 0; /* "cuda: NVIDIA H200 (GPU 0, ...": where no probe told */
        while (*kind && kind[strlen(kind) - 1] == ' ')
            kind[strlen(kind) - 1] = 0;
        add_name(text, size, strncmp(kind, "cuda: ", 6) == 0 ? kind + 6 : kind);
    }
    if (backend && strncmp(backend, "cpu", 3) == 0 && json_is_string(cpu))
        snprintf(text, size, "%s", json_string_value(cpu));
}

static enum dry_status look_at_devices(json_t *const *run, struct dry_differences *d)
{
    char(*text)[TEXT] = dry_alloc((size_t)d->runs, sizeof *text, "a difference");
    const char **list = dry_alloc((size_t)d->runs, sizeof *list, "a difference"), *first = NULL;
    enum dry_status status = text && list ? DRY_OK : DRY_ERR_MEMORY;
    int differs = 0;

    for (int r = 0; r < d->runs && !status; r++) {
        dry_differ_devices(run[r], text[r], sizeof text[r]);
        list[r] = *text[r] ? text[r] : "-";
        if (*text[r] && !first)
            first = text[r];
        differs = differs || (*text[r] && strcmp(first, text[r]) != 0);
    }
    if (!status && differs)
        status = dry_differ_add(d, DRY_DIFFER_DEVICES, "devices", list);
    dry_free(text);
    dry_free(list);
    return status;
}

enum dry_status dry_differ_look(json_t *const *run, int runs, unsigned wanted, struct dry_differences *d)
{
    enum dry_status status = DRY_OK;

    d->runs = runs;
    if (wanted & DRY_DIFFER_DATA)
        status = look_at_data(run, d);
    if (!status && wanted & DRY_DIFFER_CONTRACT)
        status = look_at_contract(run, d);
    if (!status && wanted & DRY_DIFFER_VALIDATION)
        status = look_at_validation(run, d);
    if (!status && wanted & DRY_DIFFER_CACHE)
        status = look_at_cache(run, d);
    if (!status && wanted & DRY_DIFFER_VERSIONS)
        status = look_at_versions(run, d);
    if (!status && wanted & DRY_DIFFER_DEVICES)
        status = look_at_devices(run, d);
    return status;
}

/* ---- accepted and refused ---- */

enum dry_status dry_differ_allowed(const char *list, unsigned may, unsigned *allowed)
{
    const char *known[KINDS];
    char word[32];
    size_t count = 0;

    *allowed = 0;
    for (int i = 0; i < KINDS; i++)
        if (may & kinds[i].kind)
            known[count++] = kinds[i].name;
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
        unsigned bit = 0;

        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        for (int i = 0; i < KINDS; i++)
            if ((may & kinds[i].kind) && strcmp(kinds[i].name, word) == 0)
                bit = kinds[i].kind;
        if (!bit) {
            const char *meant = dry_nearest(word, known, count);
            struct dry_buffer names = {0};

            for (size_t i = 0; i < count; i++)
                if (dry_buffer_printf(&names, "%s%s", i ? ", " : "", known[i]))
                    break;
            dry_error("--allow: \"%s\" is none of %s%s%s%s", word, names.data ? names.data : "",
                      meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
            dry_buffer_reset(&names);
            return DRY_ERR_USAGE;
        }
        *allowed |= bit;
    }
    return DRY_OK;
}

enum dry_status dry_differ_refuse(const struct dry_differences *d, const char *const *name, unsigned allowed,
                                  const char *why)
{
    struct dry_buffer line = {0}, list = {0};
    unsigned needed = 0;
    int failed = 0;

    for (int i = 0; i < d->count && !failed; i++) {
        const struct dry_difference *one = &d->item[i];

        if (one->kind & allowed)
            continue;
        needed |= one->kind;
        dry_buffer_reset(&line);
        failed = dry_buffer_printf(&line, "%s: %s is", dry_differ_name(one->kind), one->name);
        for (int r = 0; r < d->runs && !failed; r++)
            failed = dry_buffer_printf(&line, "%s %s in %s", r ? "," : "", one->value[r], name[r]);
        if (!failed)
            dry_error("%s", line.data);
    }
    for (int i = 0; i < KINDS && !failed; i++)
        if ((needed | allowed) & kinds[i].kind)
            failed = dry_buffer_printf(&list, "%s%s", list.len ? "," : "", kinds[i].name);
    if (needed && !failed)
        dry_error("%s; --allow %s accepts what is named above", why, list.data);
    dry_buffer_reset(&line);
    dry_buffer_reset(&list);
    return failed ? DRY_ERR_MEMORY : needed ? DRY_ERR_USAGE : DRY_OK;
}

json_t *dry_differ_json(const struct dry_differences *d)
{
    json_t *all = json_array();

    for (int i = 0; all && i < d->count; i++) {
        json_t *values = json_array();

        for (int r = 0; values && r < d->runs; r++)
            if (json_array_append_new(values, json_string(d->item[i].value[r]))) {
                json_decref(values);
                values = NULL;
            }
        if (json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "kind", dry_differ_name(d->item[i].kind),
                                                 "name", d->item[i].name, "values", values))) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
