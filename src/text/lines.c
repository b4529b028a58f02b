/*
 * A data file as lines: one record each, blank lines skipped, CRLF and a byte order mark accepted.
 * Owns the map of the file and where its records begin.
 * Must not know what a record holds.
 */
#include "config.h"

#include "text/record.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

struct line {
    size_t begin, size;
    int64_t number; /* 1-based */
};

struct dry_lines {
    struct dry_map map;
    struct line *line;
    int64_t count;
    size_t capacity;
};

static int is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Files that are something else than lines of JSON, by how they begin. */
static enum dry_status check_kind(const char *path, const unsigned char *data, size_t size)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *is, *remedy;
    } kinds[] = {
        {"\xff\xfe", 2, "UTF-16 text", "iconv -f utf-16 -t utf-8"},
        {"\xfe\xff", 2, "UTF-16 text", "iconv -f utf-16 -t utf-8"},
        {"\x1f\x8b", 2, "compressed by gzip", "gzip -dc"},
        {"\x28\xb5\x2f\xfd", 4, "compressed by zstd", "zstd -dc"},
        {"\xfd"
         "7zXZ",
         5, "compressed by xz", "xz -dc"},
        {"BZh", 3, "compressed by bzip2", "bzip2 -dc"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (size >= kinds[i].n && memcmp(data, kinds[i].bytes, kinds[i].n) == 0) {
            dry_error("%s: is %s, not JSON lines in UTF-8; convert it first:", path, kinds[i].is);
            dry_error_more("%s '%s' > data.jsonl", kinds[i].remedy, path);
            return DRY_ERR_INPUT;
        }
    if (size >= 4 && memcmp(data, "PAR1", 4) == 0) {
        dry_error("%s: is a Parquet file, not JSON lines; convert it first, for example:", path);
        dry_error_more(
            "python3 -c \"import pandas; pandas.read_parquet('%s').to_json('data.jsonl', orient='records', "
            "lines=True, force_ascii=False)\"",
            path);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status check_start(const char *path, const unsigned char *data, size_t size, size_t *begin)
{
    enum dry_status status = check_kind(path, data, size);
    size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (status)
        return status;
    *begin = at;
    while (at < size && is_blank(data[at]))
        at++;
    if (at == size) {
        dry_error("%s: is empty; it must hold one JSON object a line", path);
        return DRY_ERR_INPUT;
    }
    if (data[at] == '[') {
        dry_error("%s: is a JSON array; it must hold one JSON object a line; convert it first by one of:",
                  path);
        dry_error_more("jq -c '.[]' '%s' > data.jsonl", path);
        dry_error_more("python3 -c \"import json; [print(json.dumps(r)) for r in json.load(open('%s', "
                       "encoding='utf-8'))]\" > data.jsonl",
                       path);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status add_line(struct dry_lines *l, size_t begin, size_t end, int64_t number)
{
    const unsigned char *data = l->map.data;
    size_t at = begin;

    while (at < end && is_blank(data[at]))
        at++;
    if (at == end)
        return DRY_OK;
    if (data[end - 1] == '\r')
        end--;
    if ((size_t)l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 1024;
        struct line *more = dry_realloc(l->line, l->capacity, capacity, sizeof *more, "lines of the data");
        if (!more)
            return DRY_ERR_MEMORY;
        l->line = more;
        l->capacity = capacity;
    }
    l->line[l->count++] = (struct line){begin, end - begin, number};
    return DRY_OK;
}

enum dry_status dry_lines_open(const char *path, struct dry_lines **l)
{
    struct dry_lines *made = dry_alloc(1, sizeof *made, "lines of the data");
    size_t at = 0;
    int64_t number = 1;

    if (!made)
        return DRY_ERR_MEMORY;
    enum dry_status status = dry_file_map(path, &made->map);
    if (status) {
        dry_free(made);
        return status;
    }
    status = check_start(path, made->map.data, made->map.size, &at);
    while (!status && at < made->map.size) {
        const unsigned char *newline = memchr(made->map.data + at, '\n', made->map.size - at);
        size_t end = newline ? (size_t)(newline - made->map.data) : made->map.size;
        status = add_line(made, at, end, number++);
        at = end + 1;
    }
    if (status) {
        dry_lines_close(made);
        return status;
    }
    *l = made;
    return DRY_OK;
}

void dry_lines_close(struct dry_lines *l)
{
    if (!l)
        return;
    dry_file_unmap(&l->map);
    dry_free(l->line);
    dry_free(l);
}

int64_t dry_lines_count(const struct dry_lines *l)
{
    return l->count;
}

void dry_lines_get(const struct dry_lines *l, int64_t n, const char **text, size_t *size, int64_t *line)
{
    *text = (const char *)l->map.data + l->line[n].begin;
    *size = l->line[n].size;
    *line = l->line[n].number;
}
