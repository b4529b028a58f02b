/*
 * Writes and reads the cache's HDF5 file.
 * Owns HDF5 handles; HDF5's own error stack is silent, its innermost message becomes part of one error line.
 * Must not know how records are made or what they are used for.
 *
 * Writing: HDF5 makes the file in memory (cache_image.h), and base/file.h writes the bytes.
 */
#include "config.h"

#include "data/cache_file.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/cache_image.h"

#include <ctype.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20, CACHE_BYTES = 256 << 20, WRITE_BYTES = 4 << 20 };

struct dry_cache_file {
    char *path;
    hid_t file, tokens, space;
};

static herr_t innermost(unsigned n, const H5E_error2_t *error, void *text)
{
    (void)n;
    if (error->desc && error->desc[0])
        snprintf(text, 200, "%s", error->desc);
    return 1; /* the first is enough */
}

/* HDF5's last failure in its own words. */
static const char *reason(char text[200])
{
    snprintf(text, 200, "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, text);
    return text;
}

static void silence(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* ---- writing ---- */

static int put_text(hid_t file, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), a = -1;
    int good = 0;

    if (type >= 0 && space >= 0 && H5Tset_size(type, strlen(text) + 1) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a >= 0)
        good = H5Awrite(a, type, text) >= 0;
    if (a >= 0)
        H5Aclose(a);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return good;
}

static int put_int(hid_t file, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR), a = -1;
    int good = 0;

    if (space >= 0)
        a = H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a >= 0)
        good = H5Awrite(a, H5T_NATIVE_INT64, &value) >= 0;
    if (a >= 0)
        H5Aclose(a);
    if (space >= 0)
        H5Sclose(space);
    return good;
}

/* One dataset [rows] or, with columns > 1, [rows, columns]. */
static int put_dataset(hid_t file, const char *name, hid_t stored, hid_t native, int64_t rows,
                       int64_t columns, const void *data)
{
    hsize_t dims[2] = {(hsize_t)rows, (hsize_t)columns}, chunk[2] = {0, (hsize_t)columns};
    hsize_t most = CHUNK_BYTES / (H5Tget_size(stored) * (size_t)columns);
    int rank = columns > 1 ? 2 : 1, good = 0;
    hid_t space = H5Screate_simple(rank, dims, NULL), list = H5Pcreate(H5P_DATASET_CREATE), d = -1;

    chunk[0] = dims[0] < most ? dims[0] : most;
    if (space >= 0 && list >= 0 && H5Pset_chunk(list, rank, chunk) >= 0 && H5Pset_fletcher32(list) >= 0 &&
        H5Pset_obj_track_times(list, 0) >= 0)
        d = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (d >= 0)
        good = H5Dwrite(d, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (d >= 0 && H5Dclose(d) < 0)
        good = 0;
    if (list >= 0)
        H5Pclose(list);
    if (space >= 0)
        H5Sclose(space);
    return good;
}

static int put_i32(hid_t file, const char *name, int64_t rows, int64_t columns, const void *data)
{
    return put_dataset(file, name, H5T_STD_I32LE, H5T_NATIVE_INT32, rows, columns, data);
}

static int put_i64(hid_t file, const char *name, int64_t rows, const void *data)
{
    return put_dataset(file, name, H5T_STD_I64LE, H5T_NATIVE_INT64, rows, 1, data);
}

/* "count_broken_json" */
static void count_name(int outcome, char name[64])
{
    snprintf(name, 64, "count_%s", dry_outcome_name(outcome));
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
}

static int put_attributes(hid_t file, const struct dry_cache_origin *o, const struct dry_tables *t)
{
    char name[64];
    int good = put_int(file, "format_version", DRY_CACHE_VERSION) && put_text(file, "key", o->key) &&
               put_text(file, "data_hash", o->data_hash) &&
               put_text(file, "tokenizer_hash", o->tokenizer_hash) &&
               put_text(file, "rule_hash", o->rule_hash) && put_text(file, "data_path", o->data_path) &&
               put_text(file, "template", o->template_name) && put_text(file, "version", PACKAGE_VERSION) &&
               put_int(file, "special_text", t->special_text) && put_int(file, "truncated", t->truncated) &&
               put_int(file, "duplicates", t->duplicates) && put_int(file, "limit", t->limit) &&
               put_int(file, "largest_id", t->largest_id);

    for (int k = 0; k < DRY_RECORD_OUTCOMES && good; k++) {
        count_name(k, name);
        good = put_int(file, name, t->outcome[k]);
    }
    return good;
}

/* The tokens are the largest part and come first, so that their array can go before the others are copied. */
static int put_all(hid_t file, const struct dry_cache_origin *o, struct dry_tables *t)
{
    int good = put_i32(file, "tokens", t->tokens, 1, t->token);

    dry_free(t->token);
    t->token = NULL;
    return good && put_i64(file, "offset", t->records + 1, t->offset) &&
           put_i32(file, "span", t->spans, 2, t->span) &&
           put_i64(file, "span_offset", t->records + 1, t->span_offset) &&
           put_i64(file, "line", t->records, t->line) &&
           put_i32(file, "supervised", t->records, 1, t->supervised) &&
           put_dataset(file, "digest", H5T_STD_U64LE, H5T_NATIVE_UINT64, t->records, 1, t->digest) &&
           put_i32(file, "bucket", t->records, 1, t->bucket) &&
           put_i32(file, "bucket_length", t->buckets, 1, t->bucket_length) && put_attributes(file, o, t);
}

/* The tables' bytes; their chunk indexes and attributes are small beside what is added. */
static size_t expected_bytes(const struct dry_tables *t)
{
    int64_t records = t->records * (int64_t)(3 * sizeof(int64_t) + sizeof(uint64_t) + 2 * sizeof(int32_t));
    int64_t rest = t->tokens * (int64_t)sizeof(int32_t) + t->spans * (int64_t)sizeof(struct dry_span);

    return (size_t)(records + rest + rest / 256) + CHUNK_BYTES;
}

static enum dry_status make_image(const char *path, const struct dry_cache_origin *o, struct dry_tables *t,
                                  struct dry_image *m)
{
    hid_t file = dry_image_create(m);
    int good = file >= 0 && put_all(file, o, t);
    char why[200] = "";

    if (!good)
        reason(why);
    if (dry_image_close(m, file) < 0 && good) {
        reason(why);
        good = 0;
    }
    if (!good) {
        dry_error("cache %s: HDF5 could not make the file: %s", path, why);
        return DRY_ERR_INTERNAL;
    }
    return DRY_OK;
}

enum dry_status dry_cache_file_write(const char *path, const struct dry_cache_origin *o, struct dry_tables *t)
{
    struct dry_writer *w = NULL;
    struct dry_image m = {.expected = expected_bytes(t)};
    enum dry_status st;

    silence();
    st = make_image(path, o, t, &m);
    dry_free(t->token);
    t->token = NULL;
    if (!st)
        st = dry_writer_begin(path, &w);
    for (size_t at = 0; at < m.size && !st; at += WRITE_BYTES) {
        size_t piece = m.size - at < WRITE_BYTES ? m.size - at : WRITE_BYTES;
        st = dry_writer_write(w, m.data + at, piece);
    }
    if (st)
        dry_writer_abandon(w);
    else
        st = dry_writer_commit(w);
    dry_image_free(&m);
    return st;
}

/* ---- reading ---- */

#define REMEDY "delete the file and run prepare again"

static enum dry_status bad_attribute(const char *path, const char *name)
{
    dry_error("cache %s: attribute %s is missing or has another type; " REMEDY, path, name);
    return DRY_ERR_INPUT;
}

static enum dry_status get_int(hid_t file, const char *path, const char *name, int64_t *value)
{
    hid_t a = H5Aopen(file, name, H5P_DEFAULT), type = -1, space = -1;
    int good = 0;

    if (a >= 0) {
        type = H5Aget_type(a);
        space = H5Aget_space(a);
        good = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_INTEGER &&
               H5Sget_simple_extent_npoints(space) == 1 && H5Aread(a, H5T_NATIVE_INT64, value) >= 0;
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (a >= 0)
        H5Aclose(a);
    return good ? DRY_OK : bad_attribute(path, name);
}

/* Texts of fixed length, as put_text writes them. */
static enum dry_status get_text(hid_t file, const char *path, const char *name, char *text, size_t room)
{
    hid_t a = H5Aopen(file, name, H5P_DEFAULT), type = -1, space = -1;
    int good = 0;

    memset(text, 0, room);
    if (a >= 0) {
        type = H5Aget_type(a);
        space = H5Aget_space(a);
        good = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
               H5Tget_size(type) <= room && H5Sget_simple_extent_npoints(space) == 1 &&
               H5Aread(a, type, text) >= 0 && memchr(text, '\0', room) != NULL;
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (a >= 0)
        H5Aclose(a);
    return good ? DRY_OK : bad_attribute(path, name);
}

static enum dry_status get_attributes(hid_t file, const char *path, struct dry_cache_origin *o,
                                      struct dry_tables *t)
{
    const struct {
        const char *name;
        char *text;
        size_t room;
    } texts[] = {{"key", o->key, sizeof o->key},
                 {"data_hash", o->data_hash, sizeof o->data_hash},
                 {"tokenizer_hash", o->tokenizer_hash, sizeof o->tokenizer_hash},
                 {"rule_hash", o->rule_hash, sizeof o->rule_hash},
                 {"data_path", o->data_path, sizeof o->data_path},
                 {"template", o->template_name, sizeof o->template_name}};
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"special_text", &t->special_text},
                   {"truncated", &t->truncated},
                   {"duplicates", &t->duplicates},
                   {"limit", &t->limit},
                   {"largest_id", &t->largest_id}};
    char name[64];
    int64_t version = 0;
    enum dry_status st = get_int(file, path, "format_version", &version);

    if (!st && version != DRY_CACHE_VERSION) {
        dry_error("cache %s: attribute format_version is %lld, this drydock reads %d; " REMEDY, path,
                  (long long)version, DRY_CACHE_VERSION);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !st; i++)
        st = get_text(file, path, texts[i].name, texts[i].text, texts[i].room);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !st; i++)
        st = get_int(file, path, numbers[i].name, numbers[i].value);
    for (int k = 0; k < DRY_RECORD_OUTCOMES && !st; k++) {
        count_name(k, name);
        st = get_int(file, path, name, &t->outcome[k]);
    }
    if (!st && (t->limit < 1 || t->limit > INT32_MAX)) {
        dry_error("cache %s: attribute limit is %lld; " REMEDY, path, (long long)t->limit);
        return DRY_ERR_INPUT;
    }
    if (!st && (t->largest_id < 0 || t->largest_id > INT32_MAX)) {
        dry_error("cache %s: attribute largest_id is %lld; " REMEDY, path, (long long)t->largest_id);
        return DRY_ERR_INPUT;
    }
    return st;
}

static enum dry_status damaged(const char *path, const char *name)
{
    char why[200];

    dry_error("cache %s: dataset /%s is damaged (%s); " REMEDY, path, name, reason(why));
    return DRY_ERR_INPUT;
}

/* Opens a dataset and checks type and shape; *rows < 0 takes what the file has (at least 1). */
static enum dry_status open_dataset(hid_t file, const char *path, const char *name, hid_t stored, int columns,
                                    hid_t access, int64_t *rows, hid_t *dataset)
{
    hid_t d = H5Dopen2(file, name, access), type = -1, space = -1;
    hsize_t dims[2] = {0, 1};
    enum dry_status st = DRY_OK;

    if (d < 0)
        return damaged(path, name);
    type = H5Dget_type(d);
    space = H5Dget_space(d);
    if (type < 0 || space < 0) {
        st = damaged(path, name);
    } else if (H5Tequal(type, stored) <= 0) {
        dry_error("cache %s: dataset /%s has another element type than format version %d; " REMEDY, path,
                  name, DRY_CACHE_VERSION);
        st = DRY_ERR_INPUT;
    } else if (H5Sget_simple_extent_ndims(space) != (columns > 1 ? 2 : 1) ||
               H5Sget_simple_extent_dims(space, dims, NULL) < 0 || dims[1] != (hsize_t)columns ||
               dims[0] < 1 || dims[0] > (hsize_t)INT64_MAX / 16 ||
               (*rows >= 0 && dims[0] != (hsize_t)*rows)) {
        dry_error("cache %s: dataset /%s has %llu rows of %llu, not %lld of %d; " REMEDY, path, name,
                  (unsigned long long)dims[0], (unsigned long long)dims[1], (long long)*rows, columns);
        st = DRY_ERR_INPUT;
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (st) {
        H5Dclose(d);
        return st;
    }
    *rows = (int64_t)dims[0];
    *dataset = d;
    return DRY_OK;
}

/* A whole table in new memory. `most` bounds it by the file's size: nothing is compressed. */
static enum dry_status get_table(hid_t file, const char *path, const char *name, hid_t stored, hid_t native,
                                 int columns, int64_t most, int64_t *rows, void *out)
{
    size_t size = H5Tget_size(native) * (size_t)columns;
    hid_t d;
    void *data;
    enum dry_status st = open_dataset(file, path, name, stored, columns, H5P_DEFAULT, rows, &d);

    if (st)
        return st;
    if (*rows > most / (int64_t)size) {
        dry_error("cache %s: dataset /%s claims %lld rows, more than the file has bytes for; " REMEDY, path,
                  name, (long long)*rows);
        H5Dclose(d);
        return DRY_ERR_INPUT;
    }
    data = dry_alloc((size_t)*rows, size, name);
    st = data ? DRY_OK : DRY_ERR_MEMORY;
    if (data && H5Dread(d, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        st = damaged(path, name);
        dry_free(data);
        data = NULL;
    }
    H5Dclose(d);
    memcpy(out, &data, sizeof data);
    return st;
}

static enum dry_status get_tables(hid_t file, const char *path, int64_t bytes, struct dry_tables *t)
{
    const hid_t i32 = H5T_STD_I32LE, i64 = H5T_STD_I64LE;
    int64_t any = -1, offsets;
    enum dry_status st = get_table(file, path, "line", i64, H5T_NATIVE_INT64, 1, bytes, &any, &t->line);

    if (st)
        return st;
    t->records = any;
    offsets = any + 1;
    t->spans = t->buckets = -1;
    st = get_table(file, path, "offset", i64, H5T_NATIVE_INT64, 1, bytes, &offsets, &t->offset);
    if (!st)
        st = get_table(file, path, "span_offset", i64, H5T_NATIVE_INT64, 1, bytes, &offsets, &t->span_offset);
    if (!st)
        st = get_table(file, path, "span", i32, H5T_NATIVE_INT32, 2, bytes, &t->spans, &t->span);
    if (!st)
        st =
            get_table(file, path, "supervised", i32, H5T_NATIVE_INT32, 1, bytes, &t->records, &t->supervised);
    if (!st)
        st = get_table(file, path, "digest", H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, bytes, &t->records,
                       &t->digest);
    if (!st)
        st = get_table(file, path, "bucket", i32, H5T_NATIVE_INT32, 1, bytes, &t->records, &t->bucket);
    if (!st)
        st = get_table(file, path, "bucket_length", i32, H5T_NATIVE_INT32, 1, bytes, &t->buckets,
                       &t->bucket_length);
    return st;
}

/* Chunks stay in memory once read and checked: records are read in random order, each would cost a whole
 * chunk. */
static enum dry_status open_tokens(struct dry_cache_file *f, int64_t bytes, struct dry_tables *t)
{
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    enum dry_status st;

    t->tokens = -1;
    if (access < 0 ||
        H5Pset_chunk_cache(access, 12421, bytes < CACHE_BYTES ? (size_t)bytes + CHUNK_BYTES : CACHE_BYTES,
                           H5D_CHUNK_CACHE_W0_DEFAULT) < 0)
        st = damaged(f->path, "tokens");
    else
        st = open_dataset(f->file, f->path, "tokens", H5T_STD_I32LE, 1, access, &t->tokens, &f->tokens);
    if (access >= 0)
        H5Pclose(access);
    if (st)
        return st;
    f->space = H5Dget_space(f->tokens);
    return f->space >= 0 ? DRY_OK : damaged(f->path, "tokens");
}

static enum dry_status open_file(struct dry_cache_file *f)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    char why[200];

    /* No locks: a published file never changes, and some network file systems refuse locks. */
    if (access >= 0 && H5Pset_file_locking(access, 0, 1) >= 0)
        f->file = H5Fopen(f->path, H5F_ACC_RDONLY, access);
    if (f->file < 0)
        dry_error("cache %s: not a whole HDF5 file (%s); " REMEDY, f->path, reason(why));
    if (access >= 0)
        H5Pclose(access);
    return f->file < 0 ? DRY_ERR_INPUT : DRY_OK;
}

enum dry_status dry_cache_file_open(const char *path, struct dry_cache_origin *o, struct dry_tables *t,
                                    struct dry_cache_file **out)
{
    struct dry_cache_file *f;
    int64_t bytes = 0;
    enum dry_status st = dry_file_size(path, &bytes);

    if (st)
        return st;
    silence();
    f = dry_alloc(1, sizeof *f, "an open cache");
    if (!f)
        return DRY_ERR_MEMORY;
    f->file = f->tokens = f->space = -1;
    f->path = dry_strdup(path);
    st = f->path ? open_file(f) : DRY_ERR_MEMORY;
    if (!st)
        st = get_attributes(f->file, path, o, t);
    if (!st)
        st = get_tables(f->file, path, bytes, t);
    if (!st)
        st = open_tokens(f, bytes, t);
    if (st) {
        dry_cache_file_close(f);
        return st;
    }
    *out = f;
    return DRY_OK;
}

void dry_cache_file_close(struct dry_cache_file *f)
{
    if (!f)
        return;
    if (f->space >= 0)
        H5Sclose(f->space);
    if (f->tokens >= 0)
        H5Dclose(f->tokens);
    if (f->file >= 0)
        H5Fclose(f->file);
    dry_free(f->path);
    dry_free(f);
}

enum dry_status dry_cache_file_tokens(struct dry_cache_file *f, int64_t first, int64_t count, int32_t *ids)
{
    hsize_t start = (hsize_t)first, size = (hsize_t)count;
    hid_t memory = H5Screate_simple(1, &size, NULL);
    enum dry_status st = DRY_OK;

    if (memory < 0 || H5Sselect_hyperslab(f->space, H5S_SELECT_SET, &start, NULL, &size, NULL) < 0 ||
        H5Dread(f->tokens, H5T_NATIVE_INT32, memory, f->space, H5P_DEFAULT, ids) < 0)
        st = damaged(f->path, "tokens");
    if (memory >= 0)
        H5Sclose(memory);
    return st;
}
