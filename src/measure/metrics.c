/*
 * Appends lines to metrics.jsonl and cuts off what a resumed run will write again.
 * Owns the file descriptor.
 * Must not know what a line says beyond its step.
 */
#include "config.h"

#include "measure/metrics.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dry_metrics {
    char *path;
    int fd;
};

/* Does a line (without its newline) still hold when the run goes on after these steps? */
static int holds(const char *text, size_t size, int64_t step, int64_t validated)
{
    json_t *line = json_loadb(text, size, 0, NULL), *number = json_object_get(line, "step");
    int validation = json_object_get(line, "validation_loss") != NULL;
    int keep = json_is_integer(number) && json_integer_value(number) <= (validation ? validated : step);

    json_decref(line);
    return keep;
}

/* Rewrites the file with the lines that hold. */
static enum dry_status cut(const char *path, int64_t step, int64_t validated)
{
    struct dry_buffer kept = {0};
    enum dry_status status = DRY_OK;
    size_t size = 0;
    char *text = NULL;

    if (dry_file_exists(path))
        status = dry_file_read(path, &text, &size);
    for (size_t at = 0; text && at < size && !status;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;

        if (end && holds(text + at, length, step, validated) &&
            dry_buffer_append(&kept, text + at, length + 1))
            status = DRY_ERR_MEMORY;
        at += length + 1;
    }
    if (!status)
        status = dry_file_write(path, kept.len ? kept.data : "", kept.len);
    dry_buffer_reset(&kept);
    dry_free(text);
    return status;
}

enum dry_status dry_metrics_open(const char *output, int64_t step, int64_t validated,
                                 struct dry_metrics **metrics)
{
    struct dry_metrics *m = dry_alloc(1, sizeof *m, "the metrics file");
    enum dry_status status;

    if (!m)
        return DRY_ERR_MEMORY;
    m->fd = -1;
    m->path = dry_path_join(output, "metrics.jsonl");
    status = m->path ? cut(m->path, step, validated) : DRY_ERR_MEMORY;
    if (!status && (m->fd = open(m->path, O_WRONLY | O_APPEND | O_CLOEXEC)) < 0) {
        dry_error("%s: cannot be opened: %s", m->path, strerror(errno));
        status = DRY_ERR_IO;
    }
    if (status)
        dry_metrics_close(m);
    else
        *metrics = m;
    return status;
}

enum dry_status dry_metrics_put(struct dry_metrics *m, json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    char *whole = text ? dry_format("%s\n", text) : NULL;
    enum dry_status status = DRY_OK;
    size_t left = whole ? strlen(whole) : 0;

    if (!whole) {
        dry_error("%s: no memory for a line", m->path);
        status = DRY_ERR_MEMORY;
    }
    for (const char *at = whole; left > 0 && !status;) {
        ssize_t done = write(m->fd, at, left);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            dry_error("%s: cannot be written: %s", m->path, strerror(errno));
            status = DRY_ERR_IO;
            break;
        }
        at += done;
        left -= (size_t)done;
    }
    free(text);
    dry_free(whole);
    json_decref(line);
    return status;
}

void dry_metrics_close(struct dry_metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    dry_free(m->path);
    dry_free(m);
}
