/*
 * What a checkpoint holds, for people: its attributes and tensors, whatever adapter it belongs to.
 * Owns HDF5 handles during a call only.
 * Must not know of backends, ranks or the loop.
 */
#include "config.h"

#include "state/checkpoint_describe.h"

#include "base/log.h"
#include "base/memory.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS = 3, DIMS = 2 };
static const char *const groups[GROUPS] = {"adapter", "m", "v"};

/* HDF5 prints its own error stack unless told not to. */
struct quiet {
    H5E_auto2_t function;
    void *data;
};

static void quiet_begin(struct quiet *q)
{
    H5Eget_auto2(H5E_DEFAULT, &q->function, &q->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static void quiet_end(const struct quiet *q)
{
    H5Eset_auto2(H5E_DEFAULT, q->function, q->data);
}

int dry_checkpoint_is_hdf5(const char *path)
{
    struct quiet q;
    int is;

    quiet_begin(&q);
    is = H5Fis_hdf5(path) > 0;
    quiet_end(&q);
    return is;
}

int dry_checkpoint_is(const char *path)
{
    struct quiet q;
    hid_t file;
    int is = -1;

    quiet_begin(&q);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file >= 0) {
        is = 1;
        for (int g = 0; g < GROUPS; g++)
            is = is && H5Lexists(file, groups[g], H5P_DEFAULT) > 0;
        H5Fclose(file);
    }
    quiet_end(&q);
    return is;
}

/* ---- attributes */

/* A text attribute; JSON becomes JSON. */
static json_t *read_text(hid_t attribute, hid_t type)
{
    size_t size = H5Tget_size(type);
    char *text = size ? dry_alloc(size + 1, 1, "an attribute of a checkpoint") : NULL;
    json_t *value = NULL;

    if (text && H5Aread(attribute, type, text) >= 0) {
        if (text[0] == '{' || text[0] == '[')
            value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (!value)
            value = json_string(text);
    }
    dry_free(text);
    return value;
}

static json_t *read_attribute(hid_t attribute)
{
    hid_t type = H5Aget_type(attribute);
    H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    json_t *value = NULL;
    double real;
    int64_t whole;

    if (class == H5T_INTEGER && H5Aread(attribute, H5T_NATIVE_INT64, &whole) >= 0)
        value = json_integer(whole);
    else if (class == H5T_FLOAT && H5Aread(attribute, H5T_NATIVE_DOUBLE, &real) >= 0)
        value = isfinite(real) ? json_real(real) : json_null();
    else if (class == H5T_STRING && !H5Tis_variable_str(type))
        value = read_text(attribute, type);
    if (type >= 0)
        H5Tclose(type);
    return value;
}

static herr_t add_attribute(hid_t file, const char *name, const H5A_info_t *info, void *content)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    json_t *value = attribute >= 0 ? read_attribute(attribute) : NULL;

    (void)info;
    if (attribute >= 0)
        H5Aclose(attribute);
    return value && json_object_set_new(content, name, value) == 0 ? 0 : -1;
}

/* ---- tensors */

/* The norm of a dataset of floats, and its shape. Negative: it cannot be read. */
static double read_norm(hid_t file, const char *group, const char *name, hsize_t shape[DIMS])
{
    char *path = dry_format("/%s/%s", group, name);
    hid_t set = path ? H5Dopen2(file, path, H5P_DEFAULT) : -1, space = set >= 0 ? H5Dget_space(set) : -1;
    float *values = NULL;
    double sum = -1;

    if (space >= 0 && H5Sget_simple_extent_ndims(space) == DIMS &&
        H5Sget_simple_extent_dims(space, shape, NULL) == DIMS)
        values = dry_alloc((size_t)(shape[0] * shape[1]), sizeof *values, "a tensor of a checkpoint");
    if (values && H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0) {
        sum = 0;
        for (hsize_t i = 0; i < shape[0] * shape[1]; i++)
            sum += (double)values[i] * values[i];
    }
    dry_free(values);
    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    dry_free(path);
    return sum < 0 ? sum : sqrt(sum);
}

/* What the walk over the tensors fills; failed: the tensor that could not be read. */
struct walk {
    hid_t file;
    json_t *list;
    char failed[128];
};

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static herr_t add_tensor(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    struct walk *w = data;
    hsize_t shape[DIMS] = {0, 0};
    double norm[GROUPS];
    json_t *entry;

    (void)group;
    (void)info;
    for (int g = 0; g < GROUPS; g++) {
        norm[g] = read_norm(w->file, groups[g], name, shape);
        if (norm[g] < 0) {
            snprintf(w->failed, sizeof w->failed, "/%s/%s", groups[g], name);
            return -1;
        }
    }
    entry = json_pack("{s:s, s:[I, I], s:o, s:o, s:o}", "name", name, "shape", (json_int_t)shape[0],
                      (json_int_t)shape[1], "norm", number(norm[0]), "m_norm", number(norm[1]), "v_norm",
                      number(norm[2]));
    return entry && json_array_append_new(w->list, entry) == 0 ? 0 : -1;
}

static enum dry_status read_content(const char *path, hid_t file, json_t *content)
{
    struct walk w = {.file = file, .list = json_array()};
    hid_t group = H5Gopen2(file, groups[0], H5P_DEFAULT);
    hsize_t at = 0;
    herr_t bad = 0;

    if (!w.list || json_object_set_new(content, "tensors", w.list)) {
        dry_error("out of memory for the content of %s", path);
        bad = -1;
    } else if (H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, &at, add_attribute, content) < 0) {
        dry_error("%s: its attributes cannot be read; the file is damaged", path);
        bad = -1;
    } else if (group < 0 || H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, add_tensor, &w) < 0) {
        dry_error("%s: dataset %s cannot be read; the file is damaged", path,
                  w.failed[0] ? w.failed : "/adapter");
        bad = -1;
    } else if (json_integer_value(json_object_get(content, "complete")) != 1) {
        dry_error("%s: was not written to its end", path);
        bad = -1;
    }
    if (group >= 0)
        H5Gclose(group);
    return bad ? DRY_ERR_INPUT : DRY_OK;
}

enum dry_status dry_checkpoint_describe(const char *path, json_t **content)
{
    json_t *made = json_object();
    enum dry_status s = DRY_ERR_INPUT;
    struct quiet q;
    hid_t file;

    if (!made) {
        dry_error("out of memory for the content of %s", path);
        return DRY_ERR_MEMORY;
    }
    quiet_begin(&q);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        dry_error("%s: cannot be opened as HDF5; the file is cut off or damaged", path);
    else {
        s = read_content(path, file, made);
        H5Fclose(file);
    }
    quiet_end(&q);
    if (s) {
        json_decref(made);
        return s;
    }
    *content = made;
    return DRY_OK;
}
