/*
 * merge: W + scale B A into a new Hugging Face folder, tensor by tensor and block by block.
 * Owns the files that it writes until they are complete.
 * Must not know of backends: the product is small beside the reading and writing, and is made here.
 */
#include "config.h"

#include "state/merge.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Floats converted at a time, and columns of a row worked on while they are in the first cache. */
enum { BLOCK = 1 << 20, COLUMNS = 1024 };

/* What a folder has beside config.json and weights that the merged model needs too. */
static const char *const copied[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
    "NOTICE.txt",
    "USE_POLICY.md",
};

/* A merge under way. shard[i] is the file that tensor i of the base goes to. */
struct merge {
    const struct dry_base *base;
    const struct dry_adapter *adapter;
    const float *values;
    const char *output;
    enum dry_dtype to;
    int *shard;
    int shards, written;
    uint64_t total;
    float *block;         /* [BLOCK] or a row, whichever is more */
    unsigned char *bytes; /* the same in the type written */
    int64_t capacity;
};

static const struct dry_tensor *tensor_at(const struct merge *m, size_t i)
{
    return dry_tensors_at(m->base->tensors, i);
}

static enum dry_dtype type_of(const struct merge *m, const struct dry_tensor *t)
{
    return t->dtype == DRY_OTHER || m->to == DRY_OTHER ? t->dtype : m->to;
}

static uint64_t bytes_of(const struct merge *m, const struct dry_tensor *t)
{
    enum dry_dtype type = type_of(m, t);

    return type == DRY_OTHER ? t->bytes : (uint64_t)t->elements * dry_dtype_size(type);
}

static char *shard_path(const struct merge *m, int shard)
{
    if (m->shards == 1)
        return dry_path_join(m->output, "model.safetensors");
    return dry_format("%s/model-%05d-of-%05d.safetensors", m->output, shard + 1, m->shards);
}

/* The part that adapts a base tensor, or NULL. */
static const struct dry_adapter_part *part_of(const struct merge *m, const struct dry_tensor *t)
{
    for (int64_t i = 0; i < m->adapter->parts; i++) {
        const struct dry_adapter_part *part = &m->adapter->part[i];

        if (m->base->layer[part->layer].weight[part->proj] == t)
            return part;
    }
    return NULL;
}

/* row [n columns] += scale sum over k of b[k] a[k, columns]; k in rising order, so that the bits are fixed.
 */
static void add_row(float *row, const float *b, const float *a, int64_t rank, int64_t in, float scale)
{
    float sum[COLUMNS];

    for (int64_t c = 0; c < in; c += COLUMNS) {
        int64_t n = in - c < COLUMNS ? in - c : COLUMNS;

        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t k = 0; k < rank; k++) {
            const float weight = b[k], *from = a + k * in + c;

            for (int64_t i = 0; i < n; i++)
                sum[i] += weight * from[i];
        }
        for (int64_t i = 0; i < n; i++)
            row[c + i] += scale * sum[i];
    }
}

/* Rows of a block; each is one thread's, so their number changes nothing. */
static void add_rows(float *block, int64_t rows, const float *b, const float *a,
                     const struct dry_adapter_part *part)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        add_row(block + r * part->in, b + r * part->rank, a, part->rank, part->in, part->scale);
}

static enum dry_status check_finite(const struct dry_tensor *t, enum dry_dtype type,
                                    const unsigned char *bytes, int64_t n, float *scratch)
{
    dry_to_f32(type, bytes, n, scratch);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(scratch[i])) {
            dry_error("tensor \"%s\": a merged value is not finite as %s; merge with --dtype float32, and "
                      "look at the "
                      "adapter",
                      t->name, dry_dtype_name(type));
            return DRY_ERR_NUMERIC;
        }
    }
    return DRY_OK;
}

/* One tensor: as it is where neither values nor type change, else by blocks of whole rows. */
static enum dry_status write_tensor(struct merge *m, struct dry_tensor_writer *w, const struct dry_tensor *t)
{
    const struct dry_adapter_part *part = part_of(m, t);
    enum dry_dtype type = type_of(m, t);
    int64_t width = part ? part->in : 1, step = m->capacity / width * width;
    enum dry_status s = DRY_OK;

    if (!part && type == t->dtype)
        return dry_tensor_writer_add(w, t->data, t->bytes);
    for (int64_t at = 0; at < t->elements && !s; at += step) {
        int64_t n = t->elements - at < step ? t->elements - at : step;

        dry_to_f32(t->dtype, (const char *)t->data + (size_t)at * dry_dtype_size(t->dtype), n, m->block);
        if (part)
            add_rows(m->block, n / width, m->values + part->b + at / width * part->rank, m->values + part->a,
                     part);
        dry_from_f32(type, m->block, n, m->bytes);
        s = check_finite(t, type, m->bytes, n, m->block);
        if (!s)
            s = dry_tensor_writer_add(w, m->bytes, (size_t)n * dry_dtype_size(type));
    }
    return s;
}

static void describe(const struct merge *m, const struct dry_tensor *t, struct dry_tensor_out *out)
{
    out->name = t->name;
    out->dtype = type_of(m, t);
    out->dtype_text = out->dtype == DRY_OTHER ? t->dtype_text : NULL;
    out->bytes = t->bytes;
    out->dims = t->dims;
    memcpy(out->shape, t->shape, sizeof out->shape);
}

static enum dry_status write_shard(struct merge *m, int shard)
{
    size_t all = dry_tensors_count(m->base->tensors), count = 0;
    struct dry_tensor_out *out = dry_alloc(all, sizeof *out, "shard header");
    char *path = shard_path(m, shard);
    struct dry_tensor_writer *w = NULL;
    enum dry_status s = DRY_ERR_MEMORY;

    if (!out || !path)
        goto out;
    for (size_t i = 0; i < all; i++)
        if (m->shard[i] == shard)
            describe(m, tensor_at(m, i), &out[count++]);
    s = dry_tensor_writer_begin(path, out, count, &w);
    for (size_t i = 0; i < all && !s; i++)
        if (m->shard[i] == shard)
            s = write_tensor(m, w, tensor_at(m, i));
    if (s) {
        dry_tensor_writer_abandon(w);
        goto out;
    }
    s = dry_tensor_writer_commit(w);
    if (!s)
        dry_info("wrote %s: %zu tensors", path, count);
out:
    dry_free(path);
    dry_free(out);
    return s;
}

/* Fills shards in the order of names; one shard when all fits. */
static enum dry_status deal(struct merge *m, int64_t shard_bytes)
{
    size_t count = dry_tensors_count(m->base->tensors);
    int64_t widest = 1;
    uint64_t used = 0;

    m->shard = dry_alloc(count, sizeof *m->shard, "shard table");
    if (!m->shard)
        return DRY_ERR_MEMORY;
    m->shards = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = bytes_of(m, tensor_at(m, i));

        if (used && used + bytes > (uint64_t)shard_bytes) {
            m->shards++;
            used = 0;
        }
        m->shard[i] = m->shards - 1;
        used += bytes;
        m->total += bytes;
    }
    for (int64_t i = 0; i < m->adapter->parts; i++)
        widest = m->adapter->part[i].in > widest ? m->adapter->part[i].in : widest;
    m->capacity = widest > BLOCK ? widest : BLOCK;
    m->block = dry_alloc((size_t)m->capacity, sizeof *m->block, "merge block");
    m->bytes = dry_alloc((size_t)m->capacity, sizeof(float), "merge block");
    return m->block && m->bytes ? DRY_OK : DRY_ERR_MEMORY;
}

static enum dry_status write_index(const struct merge *m)
{
    char *path = dry_path_join(m->output, "model.safetensors.index.json"), *file;
    json_t *map = json_object(), *root = NULL;
    int failed = !path || !map;
    enum dry_status s = DRY_ERR_MEMORY;

    for (size_t i = 0; i < dry_tensors_count(m->base->tensors) && !failed; i++) {
        file = shard_path(m, m->shard[i]);
        failed = !file || json_object_set_new(map, tensor_at(m, i)->name, json_string(dry_path_base(file)));
        dry_free(file);
    }
    root = failed ? NULL
                  : json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)m->total, "weight_map",
                              map);
    if (root)
        s = dry_json_write(path, root);
    else
        dry_error("out of memory for the index of %s", m->output);
    json_decref(root);
    json_decref(map);
    dry_free(path);
    return s;
}

/* Byte for byte, unless the type of the weights changes: then it is told under the key that the file has. */
static enum dry_status write_config(const struct merge *m)
{
    static const char *const names[] = {
        [DRY_F32] = "float32", [DRY_BF16] = "bfloat16", [DRY_F16] = "float16"};
    char *from = dry_path_join(m->base->dir, "config.json"), *to = dry_path_join(m->output, "config.json"),
         *data = NULL;
    enum dry_status s = from && to ? DRY_OK : DRY_ERR_MEMORY;
    json_t *root = NULL;
    size_t size;

    if (s)
        goto out;
    if (m->to == DRY_OTHER || strcmp(m->base->arch.dtype, names[m->to]) == 0) {
        s = dry_file_read(from, &data, &size);
        if (!s)
            s = dry_file_write(to, data, size);
        goto out;
    }
    s = dry_json_read(from, &root);
    if (s)
        goto out;
    if (json_object_set_new(root, json_object_get(root, "torch_dtype") ? "torch_dtype" : "dtype",
                            json_string(names[m->to])) ||
        (json_object_get(root, "dtype") && json_object_set_new(root, "dtype", json_string(names[m->to])))) {
        dry_error("out of memory for %s", to);
        s = DRY_ERR_MEMORY;
        goto out;
    }
    s = dry_json_write(to, root);
out:
    json_decref(root);
    dry_free(data);
    dry_free(to);
    dry_free(from);
    return s;
}

static enum dry_status copy_files(const struct merge *m)
{
    enum dry_status s = DRY_OK;
    size_t size;

    for (size_t i = 0; i < sizeof copied / sizeof *copied && !s; i++) {
        char *from = dry_path_join(m->base->dir, copied[i]), *to = dry_path_join(m->output, copied[i]),
             *data = NULL;

        if (!from || !to)
            s = DRY_ERR_MEMORY;
        else if (dry_file_exists(from)) {
            s = dry_file_read(from, &data, &size);
            if (!s)
                s = dry_file_write(to, data, size);
        }
        dry_free(data);
        dry_free(to);
        dry_free(from);
    }
    return s;
}

/* Weights of another model beside the new ones would be read with them. */
static enum dry_status check_output(const struct dry_base *base, const char *output)
{
    char *here = realpath(base->dir, NULL), *there = realpath(output, NULL), **names = NULL;
    int exists = there != NULL, same = here && there && strcmp(here, there) == 0;
    enum dry_status s = DRY_OK;
    size_t count = 0;

    free(here);
    free(there);
    if (same) {
        dry_error("--output %s is the base itself; give another folder", output);
        return DRY_ERR_USAGE;
    }
    if (!exists)
        return dry_dir_make(output);
    if ((s = dry_dir_list(output, &names, &count)))
        return s;
    for (size_t i = 0; i < count && !s; i++) {
        if (strstr(names[i], ".safetensors") && strncmp(names[i], "model", strlen("model")) == 0) {
            dry_error("--output %s already holds weights (%s); give another folder, or remove them", output,
                      names[i]);
            s = DRY_ERR_USAGE;
        }
    }
    dry_dir_free(names, count);
    return s;
}

static void remove_weights(const struct merge *m)
{
    for (int i = 0; i < m->written; i++) {
        char *path = shard_path(m, i);

        if (path)
            unlink(path);
        dry_free(path);
    }
    if (m->shards > 1) {
        char *index_path = dry_path_join(m->output, "model.safetensors.index.json");

        if (index_path)
            unlink(index_path);
        dry_free(index_path);
    }
}

enum dry_status dry_merge(const struct dry_base *base, const struct dry_adapter *a, const float *values,
                          const char *output, enum dry_dtype to, int64_t shard_bytes)
{
    struct merge m = {.base = base, .adapter = a, .values = values, .output = output, .to = to};
    enum dry_status s = check_output(base, output);

    if (!s)
        s = deal(&m, shard_bytes);
    while (!s && m.written < m.shards) {
        s = write_shard(&m, m.written);
        if (!s)
            m.written++;
    }
    if (!s && m.shards > 1)
        s = write_index(&m);
    if (!s)
        s = copy_files(&m);
    if (!s)
        s = write_config(&m);
    if (s)
        remove_weights(&m);
    dry_free(m.bytes);
    dry_free(m.block);
    dry_free(m.shard);
    return s;
}
