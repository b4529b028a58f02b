/*
 * Checkpoints as HDF5 files: written whole under another name and renamed, checked whole when read.
 * Owns HDF5 handles during a call only.
 * Must not know of backends, ranks or the loop.
 */
#include "config.h"

#include "state/checkpoint.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/cache_image.h"

#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT_VERSION = 1, WHY = 400 };
static const hsize_t CHUNK_BYTES = 1 << 20;

/* ---- HDF5 helpers ---- */

/* HDF5 prints its error stack to standard error by itself: off during our calls, so that there is one line.
 */
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

static herr_t innermost(unsigned n, const H5E_error2_t *error, void *text)
{
    const char *system = error->desc ? strstr(error->desc, "error message = '") : NULL;
    char *why = text;

    (void)n;
    if (system) { /* what the operating system said tells more than HDF5's own words */
        snprintf(why, WHY, "%s", system + strlen("error message = '"));
        why[strcspn(why, "'")] = 0;
    } else if (error->desc && *error->desc) {
        snprintf(why, WHY, "%s", error->desc);
    }
    return 1;
}

/* The innermost cause of the last HDF5 error. */
static void hdf5_why(char why[WHY])
{
    snprintf(why, WHY, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    H5Eclear2(H5E_DEFAULT);
}

static herr_t put_scalar(hid_t file, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    herr_t error = attribute < 0 ? -1 : H5Awrite(attribute, type, value);

    if (attribute >= 0 && H5Aclose(attribute) < 0)
        error = -1;
    H5Sclose(space);
    return error;
}

static herr_t put_text(hid_t file, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    herr_t error;

    H5Tset_size(type, strlen(text) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    error = put_scalar(file, name, type, text);
    H5Tclose(type);
    return error;
}

static herr_t get_scalar(hid_t file, const char *name, hid_t type, void *value)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    herr_t error = attribute < 0 ? -1 : H5Aread(attribute, type, value);

    if (attribute >= 0)
        H5Aclose(attribute);
    return error;
}

static herr_t get_text(hid_t file, const char *name, char **text)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), type = -1;
    size_t size = 0;
    char *got = NULL;
    herr_t error = -1;

    if (attribute < 0)
        return -1;
    type = H5Aget_type(attribute);
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && !H5Tis_variable_str(type))
        size = H5Tget_size(type);
    if (size > 0)
        got = dry_alloc(size + 1, 1, name);
    if (got && H5Aread(attribute, type, got) >= 0) {
        *text = got;
        got = NULL;
        error = 0;
    }
    dry_free(got);
    if (type >= 0)
        H5Tclose(type);
    H5Aclose(attribute);
    return error;
}

/* ---- the tensors of a checkpoint ---- */

enum { GROUPS = 3 };
static const char *const group_names[GROUPS] = {"adapter", "m", "v"};

/* One dataset: where it is in the file and in the flat block. */
struct piece {
    char *path;
    hsize_t shape[2];
    int64_t offset;
};

/* Piece n of group g: A and B of each part in turn. MEMORY. */
static enum dry_status piece_at(const struct dry_adapter *a, int g, int64_t n, struct piece *p)
{
    const struct dry_adapter_part *part = &a->part[n / 2];
    int is_b = (int)(n % 2);
    char *name = dry_adapter_tensor_name(part, is_b);

    p->path = name ? dry_format("/%s/%s", group_names[g], name) : NULL;
    dry_free(name);
    p->shape[0] = (hsize_t)(is_b ? part->out : part->rank);
    p->shape[1] = (hsize_t)(is_b ? part->rank : part->in);
    p->offset = is_b ? part->b : part->a;
    return p->path ? DRY_OK : DRY_ERR_MEMORY;
}

static herr_t write_piece(hid_t file, const struct piece *p, const float *values)
{
    hsize_t rows = CHUNK_BYTES / (p->shape[1] * sizeof(float));
    hsize_t chunk[2] = {rows < 1 ? 1 : rows < p->shape[0] ? rows : p->shape[0], p->shape[1]};
    hid_t space = H5Screate_simple(2, p->shape, NULL);
    hid_t layout = H5Pcreate(H5P_DATASET_CREATE), links = H5Pcreate(H5P_LINK_CREATE), set;
    herr_t error = -1;

    H5Pset_chunk(layout, 2, chunk);
    H5Pset_fletcher32(layout);
    H5Pset_create_intermediate_group(links, 1);
    set = H5Dcreate2(file, p->path, H5T_IEEE_F32LE, space, links, layout, H5P_DEFAULT);
    if (set >= 0) {
        error = H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values + p->offset);
        if (H5Dclose(set) < 0)
            error = -1;
    }
    H5Pclose(links);
    H5Pclose(layout);
    H5Sclose(space);
    return error;
}

/* ---- the files of a folder ---- */

/* "step-000500.h5" -> 500; -1: another name. */
static int64_t step_of(const char *name)
{
    int64_t step;
    int end = 0;

    if (sscanf(name, "step-%" SCNd64 ".h5%n", &step, &end) != 1 || end == 0 || name[end] || step < 0)
        return -1;
    return step;
}

/* Steps of the checkpoints in a folder, newest first; *steps dry_free. A folder that is absent has none. */
static enum dry_status list_steps(const char *folder, int64_t **steps, size_t *count)
{
    char **names = NULL;
    size_t found = 0, n = 0;
    int64_t *list;

    *steps = NULL;
    *count = 0;
    if (!dry_file_is_dir(folder))
        return DRY_OK;
    if (dry_dir_list(folder, &names, &found))
        return DRY_ERR_IO;
    list = dry_alloc(found + 1, sizeof *list, "the list of checkpoints");
    for (size_t i = 0; list && i < found; i++) {
        int64_t step = step_of(names[i]);
        size_t at = n;

        if (step < 0)
            continue;
        for (; at > 0 && list[at - 1] < step; at--)
            list[at] = list[at - 1];
        list[at] = step;
        n++;
    }
    dry_dir_free(names, found);
    *steps = list;
    *count = n;
    return list ? DRY_OK : DRY_ERR_MEMORY;
}

static char *path_of(const char *output, int64_t step)
{
    return dry_format("%s/checkpoints/step-%06lld.h5", output, (long long)step);
}

/* ---- saving ---- */

static enum dry_status write_tensors(hid_t file, const char *path, const struct dry_adapter *a,
                                     const struct dry_checkpoint *c)
{
    const float *const block[GROUPS] = {c->values, c->m, c->v};
    char why[WHY];

    for (int g = 0; g < GROUPS; g++)
        for (int64_t n = 0; n < 2 * a->parts; n++) {
            struct piece p;
            herr_t error;

            if (piece_at(a, g, n, &p))
                return DRY_ERR_MEMORY;
            error = write_piece(file, &p, block[g]);
            if (error < 0) {
                hdf5_why(why);
                dry_error("%s: dataset %s cannot be made: %s", path, p.path, why);
            }
            dry_free(p.path);
            if (error < 0)
                return DRY_ERR_INTERNAL;
        }
    return DRY_OK;
}

static enum dry_status write_attributes(hid_t file, const char *path, const struct dry_checkpoint *c)
{
    json_t *object = dry_contract_json(&c->contract);
    char *contract = object ? json_dumps(object, JSON_COMPACT) : NULL;
    int64_t version = FORMAT_VERSION, complete = 1;
    enum dry_status status = DRY_OK;
    char why[WHY];

    if (!contract) {
        dry_error("%s: no memory for the contract's text", path);
        status = DRY_ERR_MEMORY;
    } else if (put_scalar(file, "format_version", H5T_NATIVE_INT64, &version) < 0 ||
               put_scalar(file, "step", H5T_NATIVE_INT64, &c->step) < 0 ||
               put_scalar(file, "validated_step", H5T_NATIVE_INT64, &c->validated_step) < 0 ||
               put_scalar(file, "update_offset", H5T_NATIVE_INT64, &c->update_offset) < 0 ||
               put_scalar(file, "best_step", H5T_NATIVE_INT64, &c->best_step) < 0 ||
               put_scalar(file, "best_loss", H5T_NATIVE_DOUBLE, &c->best_loss) < 0 ||
               put_scalar(file, "rate_factor", H5T_NATIVE_DOUBLE, &c->rate_factor) < 0 ||
               put_text(file, "contract", contract) < 0 ||
               put_text(file, "options", c->options ? c->options : "{}") < 0 ||
               put_text(file, "manifest", c->manifest ? c->manifest : "{}") < 0 ||
               put_scalar(file, "complete", H5T_NATIVE_INT64, &complete) < 0) {
        hdf5_why(why);
        dry_error("%s: an attribute cannot be made: %s", path, why);
        status = DRY_ERR_INTERNAL;
    }
    free(contract);
    json_decref(object);
    return status;
}

/* The file's bytes. */
static enum dry_status make_image(const char *path, const struct dry_adapter *a,
                                  const struct dry_checkpoint *c, struct dry_image *m)
{
    hid_t file = dry_image_create(m);
    enum dry_status status = DRY_OK;
    int bad = file < 0;
    char why[WHY];

    if (!bad)
        status = write_tensors(file, path, a, c);
    if (!bad && !status)
        status = write_attributes(file, path, c);
    if (dry_image_close(m, file) < 0)
        bad = 1;
    if (bad && !status) {
        hdf5_why(why);
        dry_error("%s: HDF5 cannot make the file: %s", path, why);
        status = DRY_ERR_INTERNAL;
    }
    return status;
}

static enum dry_status write_image(const char *path, const struct dry_image *m, int64_t step)
{
    struct dry_writer *w = NULL;
    enum dry_status status = dry_writer_begin(path, &w);

    if (status)
        return status;
    status = dry_writer_write(w, m->data, m->size / 2);
    if (dry_fault_at("kill-save", step))
        raise(SIGKILL);
    if (!status)
        status = dry_writer_write(w, m->data + m->size / 2, m->size - m->size / 2);
    if (!status)
        return dry_writer_commit(w);
    dry_writer_abandon(w);
    return status;
}

/* Keeps the one just written and the newest others, `keep` in all. */
static void remove_old(const char *output, const char *folder, int64_t just_written, int64_t keep)
{
    int64_t *steps = NULL, kept = 1;
    size_t count = 0;

    if (keep == 0 || list_steps(folder, &steps, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        char *path;

        if (steps[i] == just_written || ++kept <= keep)
            continue;
        path = path_of(output, steps[i]);
        if (path && unlink(path))
            dry_warn("%s: an old checkpoint cannot be removed: %s", path, strerror(errno));
        dry_free(path);
    }
    dry_free(steps);
}

/* What killed runs left: only one run writes here at a time (the folder's lock), so none of these is in use.
 */
static void remove_unfinished(const char *folder)
{
    char **names = NULL;
    size_t count = 0;

    if (dry_dir_list(folder, &names, &count))
        return;
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], "step-", 5) == 0 && strstr(names[i], ".h5.tmp.")) {
            char *path = dry_path_join(folder, names[i]);

            if (path)
                unlink(path);
            dry_free(path);
        }
    dry_dir_free(names, count);
}

enum dry_status dry_checkpoint_save(const char *output, const struct dry_adapter *a,
                                    const struct dry_checkpoint *c, int64_t keep)
{
    char *folder = dry_path_join(output, "checkpoints"), *path = path_of(output, c->step);
    struct dry_image m = {.expected = (size_t)a->parameters * GROUPS * sizeof(float) + CHUNK_BYTES};
    enum dry_status status = folder && path ? dry_dir_make(folder) : DRY_ERR_MEMORY;
    double began = dry_clock_now();
    struct quiet q;

    if (status)
        goto out;
    remove_unfinished(folder);
    quiet_begin(&q);
    status = make_image(path, a, c, &m);
    quiet_end(&q);
    if (!status)
        status = write_image(path, &m, c->step);
    if (!status)
        remove_old(output, folder, c->step, keep);
    dry_delay("checkpoint", began);
out:
    dry_image_free(&m);
    dry_free(path);
    dry_free(folder);
    return status;
}

/* ---- reading ---- */

/* What is wrong with a file that cannot be read as asked. */
enum verdict { WHOLE, DAMAGED, OTHER };

static enum verdict read_piece(hid_t file, const struct piece *p, float *into, char why[WHY])
{
    hid_t set = -1, space;
    hsize_t shape[2] = {0, 0};
    enum verdict verdict = WHOLE;
    htri_t there = H5Lexists(file, p->path, H5P_DEFAULT);
    int dims;

    if (there > 0)
        set = H5Dopen2(file, p->path, H5P_DEFAULT);
    if (set < 0) {
        H5Eclear2(H5E_DEFAULT);
        snprintf(why, WHY, there == 0 ? "it has no dataset %s" : "dataset %s cannot be opened", p->path);
        return there == 0 ? OTHER : DAMAGED;
    }
    space = H5Dget_space(set);
    dims = H5Sget_simple_extent_ndims(space);
    if (dims != 2 || H5Sget_simple_extent_dims(space, shape, NULL) != 2 || shape[0] != p->shape[0] ||
        shape[1] != p->shape[1]) {
        snprintf(why, WHY, "dataset %s is [%llu, %llu], the adapter wants [%llu, %llu]", p->path,
                 (unsigned long long)shape[0], (unsigned long long)shape[1], (unsigned long long)p->shape[0],
                 (unsigned long long)p->shape[1]);
        verdict = OTHER;
    } else if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, into) < 0) {
        char cause[WHY];

        hdf5_why(cause);
        snprintf(why, WHY, "dataset %.150s cannot be read: %.200s", p->path, cause);
        verdict = DAMAGED;
    }
    H5Sclose(space);
    H5Dclose(set);
    return verdict;
}

static enum verdict count_pieces(hid_t file, const struct dry_adapter *a, char why[WHY])
{
    for (int g = 0; g < GROUPS; g++) {
        hid_t group = H5Gopen2(file, group_names[g], H5P_DEFAULT);
        H5G_info_t info = {.nlinks = 0};
        herr_t error = group < 0 ? -1 : H5Gget_info(group, &info);

        if (group >= 0)
            H5Gclose(group);
        if (error < 0) {
            H5Eclear2(H5E_DEFAULT);
            snprintf(why, WHY, "its group /%s cannot be read", group_names[g]);
            return DAMAGED;
        }
        if (info.nlinks != (hsize_t)(2 * a->parts)) {
            snprintf(why, WHY, "it has %llu tensors in /%s, the adapter has %lld",
                     (unsigned long long)info.nlinks, group_names[g], (long long)(2 * a->parts));
            return OTHER;
        }
    }
    return WHOLE;
}

/* Reads the tensors; a NULL block reads into `scratch` only to check it. */
static enum verdict read_tensors(hid_t file, const struct dry_adapter *a, float *const block[GROUPS],
                                 float *scratch, char why[WHY])
{
    enum verdict verdict = count_pieces(file, a, why);

    for (int g = 0; g < GROUPS && verdict == WHOLE; g++)
        for (int64_t n = 0; n < 2 * a->parts && verdict == WHOLE; n++) {
            struct piece p;

            if (piece_at(a, g, n, &p)) {
                snprintf(why, WHY, "no memory to read it");
                return OTHER;
            }
            verdict = read_piece(file, &p, block[g] ? block[g] + p.offset : scratch, why);
            dry_free(p.path);
        }
    return verdict;
}

static enum verdict read_attributes(hid_t file, struct dry_checkpoint *c, char **contract, char why[WHY])
{
    int64_t version = 0, complete = 0;

    if (get_scalar(file, "complete", H5T_NATIVE_INT64, &complete) < 0 || complete != 1) {
        snprintf(why, WHY, "it was not written to its end");
        return DAMAGED;
    }
    if (get_scalar(file, "format_version", H5T_NATIVE_INT64, &version) < 0 || version != FORMAT_VERSION) {
        snprintf(why, WHY, "its format version is %lld, this drydock reads %d", (long long)version,
                 FORMAT_VERSION);
        return OTHER;
    }
    if (get_scalar(file, "step", H5T_NATIVE_INT64, &c->step) < 0 ||
        get_scalar(file, "validated_step", H5T_NATIVE_INT64, &c->validated_step) < 0 ||
        get_scalar(file, "update_offset", H5T_NATIVE_INT64, &c->update_offset) < 0 ||
        get_scalar(file, "best_step", H5T_NATIVE_INT64, &c->best_step) < 0 ||
        get_scalar(file, "best_loss", H5T_NATIVE_DOUBLE, &c->best_loss) < 0 ||
        get_scalar(file, "rate_factor", H5T_NATIVE_DOUBLE, &c->rate_factor) < 0 ||
        get_text(file, "contract", contract) < 0 || get_text(file, "options", &c->options) < 0 ||
        get_text(file, "manifest", &c->manifest) < 0) {
        char cause[WHY];

        hdf5_why(cause);
        snprintf(why, WHY, "an attribute cannot be read: %.300s", cause);
        return DAMAGED;
    }
    return WHOLE;
}

/* The whole file; *contract in new memory. c's texts are released by the caller in every case. */
static enum verdict read_file(const char *path, const struct dry_adapter *a, struct dry_checkpoint *c,
                              char **contract, char why[WHY])
{
    float *const block[GROUPS] = {c->values, c->m, c->v};
    float *scratch = NULL;
    enum verdict verdict;
    struct quiet q;
    hid_t file;

    if (!c->values || !c->m || !c->v)
        scratch = dry_alloc((size_t)a->parameters, sizeof *scratch, "checking a checkpoint");
    if ((!c->values || !c->m || !c->v) && !scratch) {
        snprintf(why, WHY, "no memory to check it");
        return OTHER;
    }
    quiet_begin(&q);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) {
        hdf5_why(why);
        verdict = DAMAGED;
    } else {
        verdict = read_attributes(file, c, contract, why);
        if (verdict == WHOLE)
            verdict = read_tensors(file, a, block, scratch, why);
        H5Fclose(file);
    }
    quiet_end(&q);
    dry_free(scratch);
    return verdict;
}

void dry_checkpoint_release(struct dry_checkpoint *c)
{
    dry_free(c->options);
    dry_free(c->manifest);
    c->options = c->manifest = NULL;
}

enum dry_status dry_checkpoint_load(const char *path, const struct dry_adapter *a, struct dry_checkpoint *c)
{
    struct dry_checkpoint got = {.values = c->values, .m = c->m, .v = c->v};
    enum dry_status status = DRY_ERR_INPUT;
    char *contract = NULL, why[WHY] = "";
    json_t *object = NULL;

    if (!dry_file_exists(path)) {
        dry_error("%s: there is no such checkpoint", path);
    } else if (read_file(path, a, &got, &contract, why) != WHOLE) {
        dry_error("%s: cannot be resumed from: %s", path, why);
    } else if (!(object = json_loads(contract, JSON_REJECT_DUPLICATES, NULL))) {
        dry_error("%s: its contract is no JSON", path);
    } else if (!(status = dry_contract_from_json(object, path, &got.contract))) {
        *c = got;
        got.options = got.manifest = NULL;
    }
    json_decref(object);
    dry_free(contract);
    dry_checkpoint_release(&got);
    return status;
}

/* ---- finding ---- */

static enum dry_status find_auto(const char *output, const struct dry_adapter *a, const int64_t *steps,
                                 size_t count, char **path)
{
    for (size_t i = 0; i < count; i++) {
        struct dry_checkpoint c = {.step = 0};
        char *candidate = path_of(output, steps[i]), *contract = NULL, why[WHY] = "";
        enum verdict verdict;

        if (!candidate)
            return DRY_ERR_MEMORY;
        verdict = read_file(candidate, a, &c, &contract, why);
        dry_checkpoint_release(&c);
        dry_free(contract);
        if (verdict == WHOLE) {
            *path = candidate;
            return DRY_OK;
        }
        if (verdict == OTHER)
            dry_error("%s: cannot be resumed from: %s; give another --output to start a new run", candidate,
                      why);
        else
            dry_warn("%s: damaged, passed over: %s", candidate, why);
        dry_free(candidate);
        if (verdict == OTHER)
            return DRY_ERR_INPUT;
    }
    if (count > 0) {
        dry_error("%s/checkpoints: none of the %zu checkpoints can be read; give another --output to start a "
                  "new run",
                  output, count);
        return DRY_ERR_INPUT;
    }
    *path = NULL;
    return DRY_OK;
}

enum dry_status dry_checkpoint_find(const char *output, const char *which, const struct dry_adapter *a,
                                    char **path)
{
    char *folder = dry_path_join(output, "checkpoints"), *end = NULL, *found = NULL;
    long long step = strtoll(which, &end, 10);
    enum dry_status status = DRY_ERR_MEMORY;
    int64_t *steps = NULL;
    size_t count = 0;

    if (!folder)
        return status;
    if (strcmp(which, "never") == 0) {
        status = DRY_OK;
    } else if (strcmp(which, "auto") == 0) {
        status = list_steps(folder, &steps, &count);
        if (!status)
            status = find_auto(output, a, steps, count, &found);
    } else {
        found = *which && !*end ? path_of(output, step) : dry_strdup(which);
        status = !found ? DRY_ERR_MEMORY : dry_file_exists(found) ? DRY_OK : DRY_ERR_INPUT;
        if (status == DRY_ERR_INPUT)
            dry_error("--resume %s: there is no checkpoint %s", which, found);
    }
    if (status)
        dry_free(found);
    else
        *path = found;
    dry_free(steps);
    dry_free(folder);
    return status;
}

enum dry_status dry_checkpoint_newest(const char *output, int64_t *step)
{
    char *folder = dry_path_join(output, "checkpoints");
    enum dry_status status;
    int64_t *steps = NULL;
    size_t count = 0;

    if (!folder)
        return DRY_ERR_MEMORY;
    status = list_steps(folder, &steps, &count);
    if (!status)
        *step = count ? steps[0] : -1;
    dry_free(steps);
    dry_free(folder);
    return status;
}

enum dry_status dry_checkpoint_after(const char *output, int64_t step, int64_t *next)
{
    char *folder = dry_path_join(output, "checkpoints");
    enum dry_status status;
    int64_t *steps = NULL, found = -1;
    size_t count = 0;

    if (!folder)
        return DRY_ERR_MEMORY;
    status = list_steps(folder, &steps, &count);
    for (size_t i = 0; i < count && steps[i] > step; i++)
        found = steps[i];
    if (!status)
        *next = found;
    dry_free(steps);
    dry_free(folder);
    return status;
}

/* checkpoints/before-change-N with the first N that is free. */
static char *aside_folder(const char *output)
{
    for (int n = 1;; n++) {
        char *folder = dry_format("%s/checkpoints/before-change-%d", output, n);

        if (!folder || !dry_file_is_dir(folder))
            return folder;
        dry_free(folder);
    }
}

enum dry_status dry_checkpoint_set_aside(const char *output, int64_t except)
{
    char *folder = dry_path_join(output, "checkpoints"), *aside = aside_folder(output);
    enum dry_status status = folder && aside ? DRY_OK : DRY_ERR_MEMORY;
    int64_t *steps = NULL;
    size_t count = 0;

    if (!status)
        status = list_steps(folder, &steps, &count);
    if (!status && count > 0)
        status = dry_dir_make(aside);
    for (size_t i = 0; i < count && !status; i++) {
        char *from = path_of(output, steps[i]), *to = from ? dry_path_join(aside, dry_path_base(from)) : NULL;

        if (!to) {
            status = DRY_ERR_MEMORY;
        } else if (steps[i] != except && rename(from, to)) {
            dry_error("%s: cannot be moved to %s: %s", from, to, strerror(errno));
            status = DRY_ERR_IO;
        }
        dry_free(from);
        dry_free(to);
    }
    dry_free(steps);
    dry_free(folder);
    dry_free(aside);
    return status;
}

const char *dry_checkpoint_library(void)
{
    return H5_VERS_INFO;
}
