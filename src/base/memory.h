/*
 * Allocation that names what it was for, checks products, and can be made to fail in tests.
 * Owns nothing; what it returns is the caller's and is freed with dry_free.
 */
#ifndef DRY_BASE_MEMORY_H
#define DRY_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Local. count * size zeroed bytes, 64-byte aligned, never NULL for count 0; on overflow or lack of memory
 * logs an error naming `what` and returns NULL. */
void *dry_alloc(size_t count, size_t size, const char *what);
/* Local. Grows or shrinks memory of dry_alloc from old_count to count elements, new ones zeroed. NULL:
 * logged, old kept. */
void *dry_realloc(void *memory, size_t old_count, size_t count, size_t size, const char *what);
/* Local. A copy of a string, or of its first n bytes with a NUL after them. NULL: logged. */
char *dry_strdup(const char *text);
char *dry_strndup(const char *text, size_t n);
/* Local. printf into new memory. NULL: logged. */
char *dry_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Local. NULL is allowed. */
void dry_free(void *memory);

/* Local. *product = a * b (or sum); returns 0, or -1 on overflow and leaves *product alone. */
int dry_mul_size(size_t a, size_t b, size_t *product);
int dry_add_size(size_t a, size_t b, size_t *sum);

/* A growing byte buffer; visible so that readers can walk it. data always has a NUL after len bytes once
 * non-NULL. */
struct dry_buffer {
    char *data;
    size_t len, capacity;
};
/* Local. Append; return 0, or -1 when memory is short (logged; buffer unchanged). */
int dry_buffer_append(struct dry_buffer *b, const void *bytes, size_t n);
int dry_buffer_printf(struct dry_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dry_buffer_reset(struct dry_buffer *b); /* frees, leaves it empty and usable */

#endif
