/*
 * Writing safetensors: a header from names, types and shapes, then the tensors' bytes, complete or absent.
 * Owns the file until committed.  Must not know what the tensors mean.
 */
#include "config.h"

#include "model/safetensors.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The first tensor begins at a multiple of this, so that a map of the file is aligned. */
enum { HEADER_ALIGN = 64 };

struct dry_tensor_writer {
    struct dry_writer *file;
    char *path;
    uint64_t due; /* bytes still to come */
};

static enum dry_status tensor_bytes(const struct dry_tensor_out *t, size_t *bytes)
{
    size_t n = dry_dtype_size(t->dtype);

    if (t->dtype == DRY_OTHER) {
        *bytes = t->bytes;
        return DRY_OK;
    }
    for (int d = 0; d < t->dims; d++) {
        if (t->shape[d] < 0 || dry_mul_size(n, (size_t)t->shape[d], &n)) {
            dry_error("tensor \"%s\": its size overflows", t->name);
            return DRY_ERR_INTERNAL;
        }
    }
    *bytes = n;
    return DRY_OK;
}

static int describe(json_t *header, const struct dry_tensor_out *t, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array(), *entry;

    for (int d = 0; d < t->dims; d++) {
        if (json_array_append_new(shape, json_integer(t->shape[d]))) {
            json_decref(shape);
            return -1;
        }
    }
    entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype_text ? t->dtype_text : dry_dtype_name(t->dtype),
                  "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
    return entry ? json_object_set_new(header, t->name, entry) : -1;
}

/* The header's text in new memory (free), padded with spaces, and the bytes that follow it. */
static enum dry_status make_header(const struct dry_tensor_out *tensors, size_t count, struct dry_buffer *out,
                                   uint64_t *total)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    enum dry_status s = DRY_ERR_MEMORY;
    uint64_t at = 0;
    char *text = NULL;
    size_t bytes;

    for (size_t i = 0; header && i < count; i++) {
        s = tensor_bytes(&tensors[i], &bytes);
        if (s)
            goto out;
        s = DRY_ERR_MEMORY;
        if (describe(header, &tensors[i], at, at + bytes))
            goto out;
        at += bytes;
    }
    text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    if (!text || dry_buffer_append(out, text, strlen(text)))
        goto out;
    while ((out->len + sizeof(uint64_t)) % HEADER_ALIGN)
        if (dry_buffer_append(out, " ", 1))
            goto out;
    *total = at;
    s = DRY_OK;
out:
    if (s == DRY_ERR_MEMORY)
        dry_error("out of memory for the header of a safetensors file");
    free(text);
    json_decref(header);
    return s;
}

enum dry_status dry_tensor_writer_begin(const char *path, const struct dry_tensor_out *tensors, size_t count,
                                        struct dry_tensor_writer **w)
{
    struct dry_tensor_writer *made = dry_alloc(1, sizeof *made, "safetensors writer");
    struct dry_buffer header = {0};
    enum dry_status s = DRY_ERR_MEMORY;
    uint64_t length;

    if (!made)
        return s;
    made->path = dry_strdup(path);
    if (!made->path)
        goto out;
    s = make_header(tensors, count, &header, &made->due);
    if (s)
        goto out;
    s = dry_writer_begin(path, &made->file);
    if (s)
        goto out;
    length = header.len;
    s = dry_writer_write(made->file, &length, sizeof length);
    if (!s)
        s = dry_writer_write(made->file, header.data, header.len);
out:
    dry_buffer_reset(&header);
    if (s) {
        dry_tensor_writer_abandon(made);
        return s;
    }
    *w = made;
    return DRY_OK;
}

enum dry_status dry_tensor_writer_add(struct dry_tensor_writer *w, const void *bytes, size_t size)
{
    if (size > w->due) {
        dry_error("%s: %zu bytes more than its header tells of", w->path, (size_t)(size - w->due));
        return DRY_ERR_INTERNAL;
    }
    w->due -= size;
    return size ? dry_writer_write(w->file, bytes, size) : DRY_OK;
}

enum dry_status dry_tensor_writer_commit(struct dry_tensor_writer *w)
{
    struct dry_writer *file = w->file;
    enum dry_status s;

    if (w->due) {
        dry_error("%s: %" PRIu64 " bytes fewer than its header tells of", w->path, w->due);
        dry_tensor_writer_abandon(w);
        return DRY_ERR_INTERNAL;
    }
    s = dry_writer_commit(file);
    w->file = NULL;
    dry_tensor_writer_abandon(w);
    return s;
}

void dry_tensor_writer_abandon(struct dry_tensor_writer *w)
{
    if (!w)
        return;
    dry_writer_abandon(w->file);
    dry_free(w->path);
    dry_free(w);
}
