/*
 * SHA-256, by OpenSSL's libcrypto.  Owns its contexts.  The only home of <openssl/evp.h>.
 */
#ifndef DRY_BASE_HASH_H
#define DRY_BASE_HASH_H

#include "base/status.h"

#include <stddef.h>

enum { DRY_HASH_HEX = 65 }; /* 64 lower-case digits and a NUL */

struct dry_hash;
enum dry_status dry_hash_create(struct dry_hash **h);
void dry_hash_add(struct dry_hash *h, const void *data, size_t size);
/* A field: its length is hashed too, so that ("ab","c") and ("a","bc") differ. */
void dry_hash_field(struct dry_hash *h, const char *name, const void *data, size_t size);
void dry_hash_text(struct dry_hash *h, const char *name,
                   const char *text);                             /* NULL text is a field of its own */
void dry_hash_finish(struct dry_hash *h, char hex[DRY_HASH_HEX]); /* frees h */
void dry_hash_destroy(struct dry_hash *h);

enum dry_status dry_hash_file(const char *path, char hex[DRY_HASH_HEX]);
enum dry_status dry_hash_bytes(const void *data, size_t size, char hex[DRY_HASH_HEX]);

#endif
