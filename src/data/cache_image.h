/*
 * An HDF5 file made in memory, whose bytes base/file.h then writes: HDF5 never meets a full disk, which its
 * cleanup does not survive well, and no half-written file can be taken for a whole one. Owns the bytes.  For
 * caches and checkpoints.
 */
#ifndef DRY_DATA_CACHE_IMAGE_H
#define DRY_DATA_CACHE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct dry_image {
    char *data;      /* of dry_alloc; final once closed */
    size_t size;     /* bytes of the file; set by close */
    size_t room;     /* bytes at data */
    size_t expected; /* bytes that the file will about take, set by the caller, so that data seldom moves */
};

/* Local. A new file in m, which stays where it is until the file is closed; negative: failed (HDF5 has the
 * reason). Its metadata has checksums, it holds no times, and every HDF5 from 1.10 on reads it; its last byte
 * is in use, so that a cut file is found. */
int64_t dry_image_create(struct dry_image *m);
/* Local. Closes the file (negative is allowed); negative: failed, there are no bytes. */
int dry_image_close(struct dry_image *m, int64_t file);
void dry_image_free(struct dry_image *m);

#endif
