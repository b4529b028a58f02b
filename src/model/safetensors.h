/*
 * safetensors: reading one file or an index of shards, and writing.
 * Owns the maps of the files.  Must not know what the tensors mean.
 */
#ifndef DRY_MODEL_SAFETENSORS_H
#define DRY_MODEL_SAFETENSORS_H

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum dry_dtype { DRY_F32, DRY_BF16, DRY_F16, DRY_OTHER };
size_t dry_dtype_size(enum dry_dtype t);      /* OTHER: 0 */
const char *dry_dtype_name(enum dry_dtype t); /* "F32" ... */

enum { DRY_TENSOR_DIMS = 4 };

struct dry_tensor {
    const char *name;
    enum dry_dtype dtype;
    char dtype_text[16]; /* as the file has it */
    int dims;
    int64_t shape[DRY_TENSOR_DIMS];
    int64_t elements;
    const void *data; /* in the map, never NULL; not aligned to more than the file aligns it */
    size_t bytes;
    int file; /* index of the shard */
};

struct dry_tensors;
/* Local. DIR/model.safetensors, or DIR/model.safetensors.index.json and its shards. Every header is checked
 * whole: sizes, overlaps, gaps, range, duplicates; an index must name exactly its shards' tensors. INPUT, IO.
 */
enum dry_status dry_tensors_open_dir(const char *dir, struct dry_tensors **t);
enum dry_status dry_tensors_open_file(const char *path, struct dry_tensors **t);
enum dry_status dry_tensors_open_index(const char *path,
                                       struct dry_tensors **t); /* ...index.json and its shards */
void dry_tensors_close(struct dry_tensors *t);
size_t dry_tensors_count(const struct dry_tensors *t);
/* Local. In the order of names: one array, so that i is also the difference to dry_tensors_at(t, 0). */
const struct dry_tensor *dry_tensors_at(const struct dry_tensors *t, size_t i);
const struct dry_tensor *dry_tensors_find(const struct dry_tensors *t, const char *name); /* NULL: absent */
int dry_tensors_files(const struct dry_tensors *t);
const char *dry_tensors_file(const struct dry_tensors *t, int file);       /* path */
const json_t *dry_tensors_metadata(const struct dry_tensors *t, int file); /* __metadata__ or NULL */
/* Local. Adds each file's name, size and header bytes to a hash (not the tensors' bytes). */
void dry_tensors_hash(const struct dry_tensors *t, struct dry_hash *h);

/* Local. dst[i] = float(src[i]) for n elements; exact for bf16 and f16. src may be unaligned. */
void dry_to_f32(enum dry_dtype from, const void *src, int64_t n, float *dst);
/* Local. Rounds to nearest even; n elements. Not-a-number stays one; over the range of f16 becomes infinite.
 */
void dry_from_f32(enum dry_dtype to, const float *src, int64_t n, void *dst);

/* Local. A file to be: names, types and shapes first, then the bytes in that order, by the publish protocol.
 */
struct dry_tensor_out {
    const char *name;
    enum dry_dtype dtype;
    const char *dtype_text; /* OTHER: the file's word for it, with bytes; else NULL */
    size_t bytes;           /* OTHER only */
    int dims;
    int64_t shape[DRY_TENSOR_DIMS];
};
struct dry_tensor_writer;
/* Local. Begins the file with its header, __metadata__ {"format": "pt"}. IO, MEMORY. */
enum dry_status dry_tensor_writer_begin(const char *path, const struct dry_tensor_out *tensors, size_t count,
                                        struct dry_tensor_writer **w);
/* Local. The next bytes, in pieces of any size. INTERNAL when they are more than the header says. */
enum dry_status dry_tensor_writer_add(struct dry_tensor_writer *w, const void *bytes, size_t size);
enum dry_status
dry_tensor_writer_commit(struct dry_tensor_writer *w); /* frees w; INTERNAL when bytes are missing */
void dry_tensor_writer_abandon(struct dry_tensor_writer *w);

#endif
