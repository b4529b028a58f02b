/*
 * HDF5's memory driver, with the memory kept when HDF5 would free it.
 * Owns the bytes of struct dry_image.
 * Must not know what the file holds.
 */
#include "config.h"

#include "data/cache_image.h"

#include "base/memory.h"

#include <hdf5.h>

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "an HDF5 handle is passed as a number of 64 bits");

enum { STEP = 16 << 20 };

/* HDF5 would read a file of that name into memory first, so it is one that cannot be. */
static const char nowhere[] = "/dev/null/image.h5";

static void *image_realloc(void *data, size_t size, H5FD_file_image_op_t op, void *udata)
{
    struct dry_image *m = udata;
    size_t room = m->room + m->room / 2;

    (void)op;
    if (data && size <= m->room)
        return data;
    if (room < size)
        room = size > m->expected ? size : m->expected;
    data = data ? dry_realloc(data, m->room, room, 1, "the image of an HDF5 file")
                : dry_alloc(room, 1, "the image of an HDF5 file");
    if (data) {
        m->data = data;
        m->room = room;
    }
    return data;
}

/* Only a closed file has its final bytes: they stay when HDF5 is done with them. */
static herr_t image_keep(void *data, H5FD_file_image_op_t op, void *udata)
{
    (void)data;
    (void)op;
    (void)udata;
    return 0;
}

static void *same_udata(void *udata)
{
    return udata;
}

static herr_t keep_udata(void *udata)
{
    (void)udata;
    return 0;
}

int64_t dry_image_create(struct dry_image *m)
{
    H5FD_file_image_callbacks_t calls = {.image_realloc = image_realloc,
                                         .image_free = image_keep,
                                         .udata_copy = same_udata,
                                         .udata_free = keep_udata,
                                         .udata = m};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE), file = -1;

    if (access >= 0 && create >= 0 && H5Pset_fapl_core(access, STEP, 0) >= 0 &&
        H5Pset_file_image_callbacks(access, &calls) >= 0 && H5Pset_meta_block_size(access, 0) >= 0 &&
        H5Pset_small_data_block_size(access, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
        H5Pset_obj_track_times(create, 0) >= 0)
        file = H5Fcreate(nowhere, H5F_ACC_TRUNC, create, access);
    if (create >= 0)
        H5Pclose(create);
    if (access >= 0)
        H5Pclose(access);
    return file;
}

int dry_image_close(struct dry_image *m, int64_t file)
{
    ssize_t bytes = -1;

    if (file < 0)
        return -1;
    if (H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0)
        bytes = H5Fget_file_image(file, NULL, 0);
    if (H5Fclose(file) < 0 || bytes <= 0 || (size_t)bytes > m->room)
        return -1;
    m->size = (size_t)bytes;
    return 0;
}

void dry_image_free(struct dry_image *m)
{
    dry_free(m->data);
    m->data = NULL;
    m->size = m->room = 0;
}
