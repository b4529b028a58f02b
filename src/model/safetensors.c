/*
 * Reading safetensors: one file or an index of shards, every header checked before a byte of a tensor is
 * used. Owns the maps of the files.  Must not know what the tensors mean.
 */
#include "config.h"

#include "model/safetensors.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors files are little-endian, and are used in place");

enum { LENGTH_BYTES = 8 };
/* The format's own bound on a header. */
static const uint64_t header_most = 100000000;

struct file {
    char *path;
    struct dry_map map;
    json_t *header;
    size_t header_size; /* with the length */
};

struct dry_tensors {
    struct file *file;
    size_t files;
    struct dry_tensor *tensor; /* by name */
    size_t count;
};

/* Bits of every element type that the format defines. */
static const struct {
    const char *name;
    enum dry_dtype dtype;
    int bits;
} types[] = {
    {"F32", DRY_F32, 32},          {"BF16", DRY_BF16, 16},        {"F16", DRY_F16, 16},
    {"BOOL", DRY_OTHER, 8},        {"U8", DRY_OTHER, 8},          {"I8", DRY_OTHER, 8},
    {"F8_E5M2", DRY_OTHER, 8},     {"F8_E4M3", DRY_OTHER, 8},     {"F8_E8M0", DRY_OTHER, 8},
    {"F8_E4M3FNUZ", DRY_OTHER, 8}, {"F8_E5M2FNUZ", DRY_OTHER, 8}, {"F4", DRY_OTHER, 4},
    {"F6_E2M3", DRY_OTHER, 6},     {"F6_E3M2", DRY_OTHER, 6},     {"I16", DRY_OTHER, 16},
    {"U16", DRY_OTHER, 16},        {"I32", DRY_OTHER, 32},        {"U32", DRY_OTHER, 32},
    {"I64", DRY_OTHER, 64},        {"U64", DRY_OTHER, 64},        {"F64", DRY_OTHER, 64},
    {"C64", DRY_OTHER, 64},
};

static int by_offset(const void *a, const void *b)
{
    const struct dry_tensor *x = *(const struct dry_tensor *const *)a,
                            *y = *(const struct dry_tensor *const *)b;

    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    const struct dry_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static enum dry_status read_shape(const struct file *f, const char *name, const json_t *shape,
                                  struct dry_tensor *t)
{
    size_t i, elements = 1;
    json_t *entry;

    if (!json_is_array(shape)) {
        dry_error("%s: tensor \"%s\": shape is not an array; download the file again", f->path, name);
        return DRY_ERR_INPUT;
    }
    if (json_array_size(shape) > DRY_TENSOR_DIMS) {
        dry_error("%s: tensor \"%s\" has %zu dimensions; at most %d are read", f->path, name,
                  json_array_size(shape), DRY_TENSOR_DIMS);
        return DRY_ERR_INPUT;
    }
    json_array_foreach(shape, i, entry)
    {
        json_int_t n = json_is_integer(entry) ? json_integer_value(entry) : -1;
        if (n < 0 || dry_mul_size(elements, (size_t)n, &elements) || elements > INT64_MAX) {
            dry_error("%s: tensor \"%s\": dimension %zu of its shape is no size; download the file again",
                      f->path, name, i);
            return DRY_ERR_INPUT;
        }
        t->shape[i] = n;
    }
    t->dims = (int)json_array_size(shape);
    t->elements = (int64_t)elements;
    return DRY_OK;
}

/* Bytes that elements of the type's name take; a type of a later version of the format is kept, unsized. */
static enum dry_status check_type(const struct file *f, const char *name, const char *text,
                                  struct dry_tensor *t)
{
    size_t bits;

    if (!text || strlen(text) >= sizeof t->dtype_text) {
        dry_error("%s: tensor \"%s\": dtype is missing or no type's name; download the file again", f->path,
                  name);
        return DRY_ERR_INPUT;
    }
    strcpy(t->dtype_text, text);
    t->dtype = DRY_OTHER;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, text) != 0)
            continue;
        t->dtype = types[i].dtype;
        if (dry_mul_size((size_t)t->elements, (size_t)types[i].bits, &bits) || bits % 8 ||
            bits / 8 != t->bytes) {
            dry_error("%s: tensor \"%s\": %" PRId64
                      " elements of %s do not take %zu bytes; download the file again",
                      f->path, name, t->elements, text, t->bytes);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

static enum dry_status read_tensor(const struct file *f, int index, const char *name, const json_t *entry,
                                   struct dry_tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t space = f->map.size - f->header_size;
    json_int_t begin, end;
    enum dry_status s;

    if (!json_is_object(entry)) {
        dry_error("%s: tensor \"%s\" is not described by an object; download the file again", f->path, name);
        return DRY_ERR_INPUT;
    }
    if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1))) {
        dry_error("%s: tensor \"%s\": data_offsets is not [begin, end]; download the file again", f->path,
                  name);
        return DRY_ERR_INPUT;
    }
    begin = json_integer_value(json_array_get(offsets, 0));
    end = json_integer_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin || (uint64_t)end > space) {
        dry_error("%s: tensor \"%s\" lies at bytes %" PRId64 "..%" PRId64
                  " of %zu: the file is cut off or damaged; "
                  "download it again",
                  f->path, name, (int64_t)begin, (int64_t)end, space);
        return DRY_ERR_INPUT;
    }
    t->name = name;
    t->file = index;
    t->data = f->map.data + f->header_size + begin;
    t->bytes = (size_t)(end - begin);
    s = read_shape(f, name, json_object_get(entry, "shape"), t);
    return s ? s : check_type(f, name, json_string_value(json_object_get(entry, "dtype")), t);
}

/* The tensors must fill the file: no byte used twice, none left over. */
static enum dry_status check_layout(const struct file *f, struct dry_tensor *t, size_t count)
{
    const unsigned char *at = f->map.data + f->header_size, *end = f->map.data + f->map.size;
    struct dry_tensor **order = dry_alloc(count, sizeof *order, "tensor order");
    enum dry_status s = DRY_OK;

    if (!order)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        order[i] = &t[i];
    qsort(order, count, sizeof *order, by_offset);
    for (size_t i = 0; i < count && !s; i++) {
        if ((const unsigned char *)order[i]->data < at) {
            dry_error("%s: tensors \"%s\" and \"%s\" overlap; the file is damaged, download it again",
                      f->path, order[i - 1]->name, order[i]->name);
            s = DRY_ERR_INPUT;
        } else if ((const unsigned char *)order[i]->data > at) {
            dry_error(
                "%s: bytes before tensor \"%s\" belong to no tensor; the file is damaged, download it again",
                f->path, order[i]->name);
            s = DRY_ERR_INPUT;
        }
        at = (const unsigned char *)order[i]->data + order[i]->bytes;
    }
    if (!s && at != end) {
        dry_error(
            "%s: %zu bytes after the last tensor belong to none; the file is damaged, download it again",
            f->path, (size_t)(end - at));
        s = DRY_ERR_INPUT;
    }
    dry_free(order);
    return s;
}

static enum dry_status check_metadata(const struct file *f)
{
    const json_t *metadata = json_object_get(f->header, "__metadata__");
    const char *key;
    json_t *value;

    if (!metadata)
        return DRY_OK;
    if (!json_is_object(metadata)) {
        dry_error("%s: __metadata__ is not an object; download the file again", f->path);
        return DRY_ERR_INPUT;
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            dry_error("%s: __metadata__ entry \"%s\" is not a text; download the file again", f->path, key);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

/* Maps the file and parses its header; what was opened stays in f for the caller to close. */
static enum dry_status open_header(struct file *f)
{
    static const char pointer[] = "version https://git-lfs";
    json_error_t error;
    uint64_t length;
    enum dry_status s = dry_file_map(f->path, &f->map);

    if (s)
        return s;
    if (f->map.size >= sizeof pointer - 1 && memcmp(f->map.data, pointer, sizeof pointer - 1) == 0) {
        dry_error("%s is a Git LFS pointer, not the weights; run `git lfs pull` in its folder", f->path);
        return DRY_ERR_INPUT;
    }
    if (f->map.size < LENGTH_BYTES + 2) {
        dry_error("%s: %zu bytes are no safetensors file; download it again", f->path, f->map.size);
        return DRY_ERR_INPUT;
    }
    memcpy(&length, f->map.data, sizeof length);
    if (length < 2 || length > header_most || length > f->map.size - LENGTH_BYTES) {
        dry_error("%s: no safetensors file, or cut off: its header is said to take %" PRIu64
                  " of %zu bytes; download "
                  "it again",
                  f->path, length, f->map.size);
        return DRY_ERR_INPUT;
    }
    f->header_size = LENGTH_BYTES + (size_t)length;
    f->header =
        json_loadb((const char *)f->map.data + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(f->header)) {
        dry_error("%s: the safetensors header is no JSON object%s%s; download the file again", f->path,
                  f->header ? "" : ": ", f->header ? "" : error.text);
        return DRY_ERR_INPUT;
    }
    return check_metadata(f);
}

/* Opens file number `index` and appends its tensors. */
static enum dry_status add_file(struct dry_tensors *t, int index)
{
    struct file *f = &t->file[index];
    struct dry_tensor *grown;
    enum dry_status s = open_header(f);
    size_t first = t->count, count;
    const char *name;
    json_t *entry;

    if (s)
        return s;
    count = json_object_size(f->header) - (json_object_get(f->header, "__metadata__") != NULL);
    grown = dry_realloc(t->tensor, first, first + count, sizeof *grown, "tensor table");
    if (!grown)
        return DRY_ERR_MEMORY;
    t->tensor = grown;
    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        s = read_tensor(f, index, name, entry, &t->tensor[t->count]);
        if (s)
            return s;
        t->count++;
    }
    return check_layout(f, t->tensor + first, count);
}

static enum dry_status sort_names(struct dry_tensors *t)
{
    qsort(t->tensor, t->count, sizeof *t->tensor, by_name);
    for (size_t i = 1; i < t->count; i++) {
        if (strcmp(t->tensor[i - 1].name, t->tensor[i].name) == 0) {
            dry_error("tensor \"%s\" is both in %s and in %s; keep the shards of one model only",
                      t->tensor[i].name, t->file[t->tensor[i - 1].file].path,
                      t->file[t->tensor[i].file].path);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

static enum dry_status create(size_t files, struct dry_tensors **t)
{
    struct dry_tensors *made = dry_alloc(1, sizeof *made, "safetensors");

    if (!made)
        return DRY_ERR_MEMORY;
    made->file = dry_alloc(files, sizeof *made->file, "shard table");
    made->tensor = dry_alloc(0, sizeof *made->tensor, "tensor table");
    if (!made->file || !made->tensor) {
        dry_tensors_close(made);
        return DRY_ERR_MEMORY;
    }
    *t = made;
    return DRY_OK;
}

enum dry_status dry_tensors_open_file(const char *path, struct dry_tensors **t)
{
    struct dry_tensors *made = NULL;
    enum dry_status s = create(1, &made);

    if (s)
        return s;
    made->files = 1;
    made->file[0].path = dry_strdup(path);
    s = made->file[0].path ? add_file(made, 0) : DRY_ERR_MEMORY;
    if (!s)
        s = sort_names(made);
    if (s) {
        dry_tensors_close(made);
        return s;
    }
    *t = made;
    return DRY_OK;
}

/* The shards that a weight_map names, each once, as it first names them, as the keys of a new object. */
static enum dry_status list_shards(const char *index_path, const json_t *map, json_t **shards)
{
    const char *tensor, *shard;
    json_t *found = json_object(), *value;

    if (!found) {
        dry_error("out of memory for the shards of %s", index_path);
        return DRY_ERR_MEMORY;
    }
    if (!json_is_object(map) || json_object_size(map) == 0) {
        dry_error("%s: weight_map is missing or names no tensor; download the file again", index_path);
        json_decref(found);
        return DRY_ERR_INPUT;
    }
    json_object_foreach((json_t *)map, tensor, value)
    {
        shard = json_string_value(value);
        if (!shard || !*shard || strchr(shard, '/') || strcmp(shard, "..") == 0) {
            dry_error(
                "%s: weight_map entry \"%s\" is not a file name in the same folder; download the file again",
                index_path, tensor);
            json_decref(found);
            return DRY_ERR_INPUT;
        }
        if (json_object_set_new(found, shard, json_null())) {
            dry_error("out of memory for the shards of %s", index_path);
            json_decref(found);
            return DRY_ERR_MEMORY;
        }
    }
    *shards = found;
    return DRY_OK;
}

static enum dry_status open_shards(const char *dir, const char *index_path, const json_t *shards,
                                   struct dry_tensors *t)
{
    enum dry_status s = DRY_OK;
    const char *name;
    json_t *none;

    json_object_foreach((json_t *)shards, name, none)
    {
        struct file *f = &t->file[t->files];

        f->path = dry_path_join(dir, name);
        if (!f->path)
            return DRY_ERR_MEMORY;
        t->files++;
        if (!dry_file_exists(f->path)) {
            dry_error("%s: missing: %s names this shard; download the model again, whole", f->path,
                      index_path);
            return DRY_ERR_INPUT;
        }
        s = add_file(t, (int)t->files - 1);
        if (s)
            return s;
    }
    return sort_names(t);
}

/* Index and shards must tell of the same tensors. */
static enum dry_status check_index(const char *index_path, const json_t *map, const struct dry_tensors *t)
{
    const struct dry_tensor *found;
    const char *name;
    json_t *shard;

    json_object_foreach((json_t *)map, name, shard)
    {
        found = dry_tensors_find(t, name);
        if (!found || strcmp(dry_path_base(t->file[found->file].path), json_string_value(shard)) != 0) {
            dry_error("%s: tensor \"%s\" is not in %s, where it should be; download the model again, whole",
                      index_path, name, json_string_value(shard));
            return DRY_ERR_INPUT;
        }
    }
    for (size_t i = 0; i < t->count; i++) {
        if (!json_object_get(map, t->tensor[i].name)) {
            dry_error("%s: tensor \"%s\" is in %s but not in the index; download the model again, whole",
                      index_path, t->tensor[i].name, t->file[t->tensor[i].file].path);
            return DRY_ERR_INPUT;
        }
    }
    return DRY_OK;
}

enum dry_status dry_tensors_open_index(const char *path, struct dry_tensors **t)
{
    size_t folder = (size_t)(dry_path_base(path) - path);
    char *dir = dry_strndup(path, folder > 1 ? folder - 1 : folder);
    json_t *root = NULL, *shards = NULL, *map;
    struct dry_tensors *made = NULL;
    enum dry_status s = dir ? dry_json_read(path, &root) : DRY_ERR_MEMORY;

    if (s)
        goto out;
    map = json_object_get(root, "weight_map");
    s = list_shards(path, map, &shards);
    if (s)
        goto out;
    s = create(json_object_size(shards), &made);
    if (s)
        goto out;
    s = open_shards(*dir ? dir : ".", path, shards, made);
    if (!s)
        s = check_index(path, map, made);
out:
    json_decref(shards);
    json_decref(root);
    dry_free(dir);
    if (s) {
        dry_tensors_close(made);
        return s;
    }
    *t = made;
    return DRY_OK;
}

/* Says what to do about a folder without safetensors. */
static enum dry_status no_weights(const char *dir)
{
    static const char *const old[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                      "consolidated.00.pth"};

    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        char *path = dry_path_join(dir, old[i]);
        int there = path && dry_file_exists(path);

        dry_free(path);
        if (there) {
            dry_error("%s: weights are %s only; convert them to safetensors (Transformers: "
                      "save_pretrained(..., safe_serialization=True))",
                      dir, old[i]);
            return DRY_ERR_INPUT;
        }
    }
    dry_error("%s: neither model.safetensors nor model.safetensors.index.json is there; download the model "
              "again, whole",
              dir);
    return DRY_ERR_INPUT;
}

enum dry_status dry_tensors_open_dir(const char *dir, struct dry_tensors **t)
{
    char *single = dry_path_join(dir, "model.safetensors");
    char *index_path = dry_path_join(dir, "model.safetensors.index.json");
    enum dry_status s;

    if (!single || !index_path)
        s = DRY_ERR_MEMORY;
    else if (dry_file_exists(single))
        s = dry_tensors_open_file(single, t);
    else if (dry_file_exists(index_path))
        s = dry_tensors_open_index(index_path, t);
    else
        s = no_weights(dir);
    dry_free(index_path);
    dry_free(single);
    return s;
}

void dry_tensors_close(struct dry_tensors *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->files; i++) {
        json_decref(t->file[i].header);
        if (t->file[i].map.data)
            dry_file_unmap(&t->file[i].map);
        dry_free(t->file[i].path);
    }
    dry_free(t->tensor);
    dry_free(t->file);
    dry_free(t);
}

size_t dry_tensors_count(const struct dry_tensors *t)
{
    return t->count;
}

const struct dry_tensor *dry_tensors_at(const struct dry_tensors *t, size_t i)
{
    return &t->tensor[i];
}

const struct dry_tensor *dry_tensors_find(const struct dry_tensors *t, const char *name)
{
    struct dry_tensor key = {.name = name};

    return t->count ? bsearch(&key, t->tensor, t->count, sizeof key, by_name) : NULL;
}

int dry_tensors_files(const struct dry_tensors *t)
{
    return (int)t->files;
}

const char *dry_tensors_file(const struct dry_tensors *t, int file)
{
    return t->file[file].path;
}

const json_t *dry_tensors_metadata(const struct dry_tensors *t, int file)
{
    return json_object_get(t->file[file].header, "__metadata__");
}

void dry_tensors_hash(const struct dry_tensors *t, struct dry_hash *h)
{
    for (size_t i = 0; i < t->files; i++) {
        const struct file *f = &t->file[i];
        uint64_t size = f->map.size;

        dry_hash_text(h, "file", dry_path_base(f->path));
        dry_hash_field(h, "size", &size, sizeof size);
        dry_hash_field(h, "header", f->map.data, f->header_size);
    }
}
