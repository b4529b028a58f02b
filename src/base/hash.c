/*
 * SHA-256 of bytes, fields and files.
 * Owns the library's contexts.
 * Must not know what is hashed, nor why.
 */
#include "config.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGEST = 32, PIECE = 1 << 20 };

struct dry_hash {
    EVP_MD_CTX *context;
};

/* The library reports failure for misuse only, and a wrong hash would let a wrong cache pass. */
static void must(int good)
{
    if (good == 1)
        return;
    dry_error("SHA-256 failed inside OpenSSL");
    dry_log_flush();
    abort();
}

enum dry_status dry_hash_create(struct dry_hash **h)
{
    struct dry_hash *fresh = dry_alloc(1, sizeof *fresh, "a hash");

    if (!fresh)
        return DRY_ERR_MEMORY;
    fresh->context = EVP_MD_CTX_new();
    if (!fresh->context || EVP_DigestInit_ex(fresh->context, EVP_sha256(), NULL) != 1) {
        dry_error("OpenSSL offers no SHA-256");
        dry_hash_destroy(fresh);
        return DRY_ERR_INTERNAL;
    }
    *h = fresh;
    return DRY_OK;
}

void dry_hash_destroy(struct dry_hash *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->context);
    dry_free(h);
}

void dry_hash_add(struct dry_hash *h, const void *data, size_t size)
{
    must(EVP_DigestUpdate(h->context, data, size));
}

static void add_size(struct dry_hash *h, size_t size)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)size >> 8 * i);
    dry_hash_add(h, bytes, sizeof bytes);
}

void dry_hash_field(struct dry_hash *h, const char *name, const void *data, size_t size)
{
    unsigned char present = data != NULL;

    add_size(h, strlen(name));
    dry_hash_add(h, name, strlen(name));
    dry_hash_add(h, &present, 1);
    add_size(h, size);
    if (size)
        dry_hash_add(h, data, size);
}

void dry_hash_text(struct dry_hash *h, const char *name, const char *text)
{
    dry_hash_field(h, name, text, text ? strlen(text) : 0);
}

void dry_hash_finish(struct dry_hash *h, char hex[DRY_HASH_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[DIGEST];
    unsigned length = 0;

    must(EVP_DigestFinal_ex(h->context, digest, &length));
    must(length == DIGEST);
    for (int i = 0; i < DIGEST; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * DIGEST] = '\0';
    dry_hash_destroy(h);
}

enum dry_status dry_hash_bytes(const void *data, size_t size, char hex[DRY_HASH_HEX])
{
    struct dry_hash *h;
    enum dry_status status = dry_hash_create(&h);

    if (status)
        return status;
    if (size)
        dry_hash_add(h, data, size);
    dry_hash_finish(h, hex);
    return DRY_OK;
}

enum dry_status dry_hash_file(const char *path, char hex[DRY_HASH_HEX])
{
    struct dry_hash *h = NULL;
    char *piece = NULL;
    enum dry_status status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        dry_error("cannot open %s: %s", path, strerror(errno));
        return DRY_ERR_IO;
    }
    status = dry_hash_create(&h);
    if (status)
        goto out;
    status = DRY_ERR_MEMORY;
    piece = dry_alloc(PIECE, 1, "a piece of a file to hash");
    if (!piece)
        goto out;
    for (;;) {
        ssize_t got = read(fd, piece, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            dry_error("cannot read %s: %s", path, strerror(errno));
            status = DRY_ERR_IO;
            goto out;
        }
        if (got == 0)
            break;
        dry_hash_add(h, piece, (size_t)got);
    }
    dry_hash_finish(h, hex);
    h = NULL;
    status = DRY_OK;
out:
    dry_free(piece);
    dry_hash_destroy(h);
    close(fd);
    return status;
}
