/*
 * The cache's HDF5 file: written whole, read with every check.
 * Owns its HDF5 handles.  Private to data/.
 */
#ifndef DRY_DATA_CACHE_FILE_H
#define DRY_DATA_CACHE_FILE_H

#include "data/tables.h"

/* What the file says of its origin; texts for people may be cut to their room. */
struct dry_cache_origin {
    char key[DRY_HASH_HEX], data_hash[DRY_HASH_HEX], tokenizer_hash[DRY_HASH_HEX], rule_hash[DRY_HASH_HEX];
    char data_path[1024], template_name[64];
};

/* Local. Makes the file's image in memory and writes it by the publish protocol, so that a full disk or a
 * kill leaves nothing behind. t->token is freed on the way, success or not. IO, MEMORY, INTERNAL. */
enum dry_status dry_cache_file_write(const char *path, const struct dry_cache_origin *o,
                                     struct dry_tables *t);

struct dry_cache_file;
/* Local. Opens for reading; origin and tables but the tokens. Damage and wrong shapes are INPUT. */
enum dry_status dry_cache_file_open(const char *path, struct dry_cache_origin *o, struct dry_tables *t,
                                    struct dry_cache_file **f);
void dry_cache_file_close(struct dry_cache_file *f);
/* Local. ids[count] = tokens from `first` on. INPUT on a checksum that does not match. */
enum dry_status dry_cache_file_tokens(struct dry_cache_file *f, int64_t first, int64_t count, int32_t *ids);

#endif
