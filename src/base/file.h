/*
 * Files and folders: whole reads, maps, and writes that are complete or absent.
 * Owns the handles that it gives out until closed.
 */
#ifndef DRY_BASE_FILE_H
#define DRY_BASE_FILE_H

#include "base/memory.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Local. The whole file; *data has a NUL after *size bytes and is freed with dry_free. IO, MEMORY. */
enum dry_status dry_file_read(const char *path, char **data, size_t *size);

/* A read-only map of a whole file (size 0: data is not NULL). */
struct dry_map {
    const unsigned char *data;
    size_t size;
};
enum dry_status dry_file_map(const char *path, struct dry_map *map);
void dry_file_unmap(struct dry_map *map);

/* Local. Writes path.tmp.<host>.<pid>, fsyncs, renames over path, fsyncs the folder. On failure nothing is
 * left. IO.
 */
enum dry_status dry_file_write(const char *path, const void *data, size_t size);

/* Local. A file made in pieces under the same protocol: begin, write..., then commit or abandon (NULL
 * allowed). */
struct dry_writer;
enum dry_status dry_writer_begin(const char *path, struct dry_writer **w);
enum dry_status dry_writer_write(struct dry_writer *w, const void *data, size_t size);
enum dry_status dry_writer_commit(struct dry_writer *w); /* frees w also on failure */
void dry_writer_abandon(struct dry_writer *w);

/* Local. The last part of the protocol, for files that another library wrote and closed: fsync temporary,
 * rename it to path, fsync the folder. On failure the temporary file is removed. IO. */
enum dry_status dry_file_publish(const char *temporary, const char *path);

int dry_file_exists(const char *path); /* a regular file (or link to one) */
int dry_file_is_dir(const char *path);
enum dry_status dry_file_size(const char *path, int64_t *bytes);
enum dry_status dry_dir_make(const char *path); /* with parents; existing is fine */
/* Local. Names (not "." and "..") in byte order; *names is one allocation of pointers plus each name;
 * dry_dir_free. */
enum dry_status dry_dir_list(const char *path, char ***names, size_t *count);
void dry_dir_free(char **names, size_t count);
/* Local. "a/b" in new memory; b alone when it is absolute. */
char *dry_path_join(const char *a, const char *b);
const char *dry_path_base(const char *path); /* after the last slash */

#endif
