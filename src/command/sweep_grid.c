/*
 * --vary: options and the values that a sweep gives them.
 * Owns the grid's texts.
 * Must not know of files, folders or ranks.
 */
#include "config.h"

#include "command/sweep.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

enum { MOST_POINTS = 10000 };

/* Without blanks around it, in place. */
static char *trim(char *text)
{
    char *end;

    text += strspn(text, " \t\n");
    for (end = text + strlen(text); end > text && strchr(" \t\n", end[-1]); end--)
        ;
    *end = '\0';
    return text;
}

/* Would finetune take it? What is wrong is said by the reader of options. */
static enum dry_status check_value(const char *flag, const char *value)
{
    char *word = dry_format("--%s=%s", flag, value), *argv[1] = {word};
    const char *rest[1];
    struct dry_config *c = NULL;
    int none = 0;
    enum dry_status status = word ? dry_config_create(&c) : DRY_ERR_MEMORY;

    if (!status)
        status = dry_config_arguments(c, DRY_CMD_FINETUNE, 1, argv, rest, &none);
    if (status == DRY_ERR_USAGE)
        dry_error_more("asked for by --vary: %s=%s", flag, value);
    dry_config_destroy(c);
    dry_free(word);
    return status;
}

static enum dry_status add_value(struct dry_sweep_axis *a, const char *value)
{
    for (int i = 0; i < a->values; i++)
        if (strcmp(a->value[i], value) == 0) {
            dry_error("--vary: %s has the value %s twice", a->flag, value);
            return DRY_ERR_USAGE;
        }
    if (!(a->value[a->values] = dry_strdup(value)))
        return DRY_ERR_MEMORY;
    a->values++;
    return check_value(a->flag, value);
}

/* "learning-rate=1e-4,2e-4": values that hold a comma are parted by |. */
static enum dry_status read_axis(const struct dry_config *c, char *text, struct dry_sweep_axis *a)
{
    char *values = strchr(text, '='), *save = NULL;
    const char *between;
    size_t most = 1;
    enum dry_status status = DRY_OK;

    if (!values) {
        dry_error(
            "--vary: \"%s\" is not NAME=VALUE,VALUE; a whole list is \"learning-rate=1e-4,2e-4;rank=8,16\"",
            trim(text));
        return DRY_ERR_USAGE;
    }
    *values++ = '\0';
    text = trim(text);
    text += strncmp(text, "--", 2) == 0 ? 2 : 0;
    if (strcmp(text, "output") == 0 || strcmp(text, "cache") == 0) {
        dry_error("--vary: %s is the sweep's: each configuration has a folder of its own in it", text);
        return DRY_ERR_USAGE;
    }
    if (dry_config_origin(c, text) == DRY_ORIGIN_ARGUMENT) {
        dry_error("--%s is given, and --vary gives it too; leave one of them out", text);
        return DRY_ERR_USAGE;
    }
    between = strchr(values, '|') ? "|" : ",";
    for (const char *s = values; *s; s++)
        most += *s == *between;
    a->flag = dry_strdup(text);
    a->value = dry_alloc(most, sizeof *a->value, "the values of --vary");
    if (!a->flag || !a->value)
        return DRY_ERR_MEMORY;
    for (char *v = strtok_r(values, between, &save); v && !status; v = strtok_r(NULL, between, &save))
        status = add_value(a, trim(v));
    if (!status && a->values == 0) {
        dry_error("--vary: %s has no value", a->flag);
        status = DRY_ERR_USAGE;
    }
    return status;
}

static enum dry_status read_axes(const struct dry_config *c, char *text, struct dry_sweep_grid *g)
{
    char *save = NULL;
    enum dry_status status = DRY_OK;

    for (char *one = strtok_r(text, ";", &save); one && !status; one = strtok_r(NULL, ";", &save)) {
        if (!*trim(one))
            continue;
        status = read_axis(c, one, &g->axis[g->axes++]);
        for (int i = 0; i < g->axes - 1 && !status; i++)
            if (strcmp(g->axis[i].flag, g->axis[g->axes - 1].flag) == 0) {
                dry_error("--vary: %s stands in it twice", g->axis[i].flag);
                status = DRY_ERR_USAGE;
            }
        if (!status)
            g->points *= g->axis[g->axes - 1].values;
        if (!status && g->points > MOST_POINTS) {
            dry_error("--vary: more than %d combinations", MOST_POINTS);
            status = DRY_ERR_USAGE;
        }
    }
    return status;
}

enum dry_status dry_sweep_grid_read(const struct dry_config *c, struct dry_sweep_grid *g)
{
    char *text = c->vary ? dry_strdup(c->vary) : NULL;
    size_t axes = 1;
    enum dry_status status;

    *g = (struct dry_sweep_grid){.points = 1};
    if (!c->vary)
        return DRY_OK;
    for (const char *s = c->vary; *s; s++)
        axes += *s == ';';
    g->axis = dry_alloc(axes, sizeof *g->axis, "the options of --vary");
    status = text && g->axis ? read_axes(c, text, g) : DRY_ERR_MEMORY;
    dry_free(text);
    if (!status && g->axes == 0) {
        dry_error("--vary names no option; such as --vary \"learning-rate=1e-4,2e-4;rank=8,16\"");
        status = DRY_ERR_USAGE;
    }
    return status;
}

void dry_sweep_grid_release(struct dry_sweep_grid *g)
{
    for (int i = 0; g->axis && i < g->axes; i++) {
        for (int v = 0; v < g->axis[i].values; v++)
            dry_free(g->axis[i].value[v]);
        dry_free(g->axis[i].value);
        dry_free(g->axis[i].flag);
    }
    dry_free(g->axis);
}

const char *dry_sweep_grid_value(const struct dry_sweep_grid *g, int64_t point, int axis)
{
    for (int i = g->axes - 1; i > axis; i--)
        point /= g->axis[i].values;
    return g->axis[axis].value[point % g->axis[axis].values];
}
