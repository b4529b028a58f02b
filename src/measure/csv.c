/*
 * Reads comma-separated tables back, line by line, and says which line is damaged.
 * Owns the file's text while it is open.
 * Must not know what a column means; quotes are not needed by what this program writes.
 */
#include "config.h"

#include "measure/csv.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cuts the next whole line out of the text; NULL at the end. */
static char *next_line(struct dry_csv *c)
{
    char *line = c->text + c->at, *end = memchr(line, '\n', c->size - c->at);

    if (!end)
        return NULL;
    *end = 0;
    c->at += (size_t)(end - line) + 1;
    c->line++;
    return line;
}

static int count_fields(const char *line)
{
    int count = 1;

    for (; *line; line++)
        count += *line == ',';
    return count;
}

static void split(char *line, char **field, int count)
{
    for (int i = 0; i < count; i++) {
        field[i] = line;
        line += strcspn(line, ",");
        if (*line)
            *line++ = 0;
    }
}

enum dry_status dry_csv_open(const char *path, struct dry_csv **csv)
{
    struct dry_csv *c;
    enum dry_status status;
    char *line;

    *csv = NULL;
    if (!dry_file_exists(path))
        return DRY_OK;
    c = dry_alloc(1, sizeof *c, "a table");
    if (!c)
        return DRY_ERR_MEMORY;
    c->path = dry_strdup(path);
    status = c->path ? dry_file_read(path, &c->text, &c->size) : DRY_ERR_MEMORY;
    if (status || !(line = next_line(c)))
        goto out;
    c->columns = count_fields(line);
    c->name = dry_alloc((size_t)c->columns, sizeof *c->name, "a table's columns");
    c->field = dry_alloc((size_t)c->columns, sizeof *c->field, "a table's line");
    if (!c->name || !c->field) {
        status = DRY_ERR_MEMORY;
        goto out;
    }
    split(line, c->name, c->columns);
    *csv = c;
    c = NULL;
out:
    dry_csv_close(c);
    return status;
}

void dry_csv_close(struct dry_csv *c)
{
    if (!c)
        return;
    dry_free(c->path);
    dry_free(c->text);
    dry_free(c->name);
    dry_free(c->field);
    dry_free(c);
}

int dry_csv_column(const struct dry_csv *c, const char *name)
{
    for (int i = 0; i < c->columns; i++)
        if (strcmp(c->name[i], name) == 0)
            return i;
    return -1;
}

enum dry_status dry_csv_need(const struct dry_csv *c, const char *name, int *column)
{
    *column = dry_csv_column(c, name);
    if (*column >= 0)
        return DRY_OK;
    dry_error("%s:1: the table has no column \"%s\"; it is damaged, or another program's", c->path, name);
    return DRY_ERR_INPUT;
}

enum dry_status dry_csv_next(struct dry_csv *c, int *more)
{
    size_t before = c->at;
    char *line = next_line(c);
    int count;

    *more = line != NULL;
    if (!line)
        return DRY_OK;
    count = count_fields(line);
    if (count != c->columns || strlen(line) + 1 != c->at - before) {
        dry_error("%s:%ld: the line is damaged: it has %d field%s%s, and the table %d columns", c->path,
                  c->line, count, dry_plural(count),
                  strlen(line) + 1 != c->at - before ? " before a zero byte" : "", c->columns);
        return DRY_ERR_INPUT;
    }
    split(line, c->field, c->columns);
    return DRY_OK;
}

static enum dry_status refuse(const struct dry_csv *c, int column, const char *what)
{
    dry_error("%s:%ld: the line is damaged: %s is \"%.40s\", which is no %s", c->path, c->line,
              c->name[column], c->field[column], what);
    return DRY_ERR_INPUT;
}

enum dry_status dry_csv_real(const struct dry_csv *c, int column, double *value)
{
    char *end;
    double v;

    if (column < 0 || !*c->field[column]) {
        *value = NAN;
        return DRY_OK;
    }
    v = strtod(c->field[column], &end);
    if (*end || !isfinite(v))
        return refuse(c, column, "number");
    *value = v;
    return DRY_OK;
}

enum dry_status dry_csv_int(const struct dry_csv *c, int column, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    long long v;

    if (column < 0 || !*c->field[column]) {
        *value = least;
        return DRY_OK;
    }
    errno = 0;
    v = strtoll(c->field[column], &end, 10);
    if (*end || errno || v < least || v > most)
        return refuse(c, column, "whole number that can stand there");
    *value = v;
    return DRY_OK;
}

enum dry_status dry_csv_bits(const struct dry_csv *c, int column, uint64_t *value)
{
    char *end;
    unsigned long long v;

    *value = 0;
    if (column < 0 || !*c->field[column])
        return DRY_OK;
    errno = 0;
    v = strtoull(c->field[column], &end, 16);
    if (*end || errno)
        return refuse(c, column, "hexadecimal number");
    *value = v;
    return DRY_OK;
}
