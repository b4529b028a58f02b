/*
 * Allocation with a purpose in the message, checked products, and a growing byte buffer.
 * Owns nothing: all memory is the caller's.
 * Must not know what the memory is for.
 */
#include "config.h"

#include "base/memory.h"
#include "base/fault.h"
#include "base/log.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, POISON = 0xdb };

int dry_mul_size(size_t a, size_t b, size_t *product)
{
    size_t p;

    if (__builtin_mul_overflow(a, b, &p))
        return -1;
    *product = p;
    return 0;
}

int dry_add_size(size_t a, size_t b, size_t *sum)
{
    size_t s;

    if (__builtin_add_overflow(a, b, &s))
        return -1;
    *sum = s;
    return 0;
}

/* Uninitialised, aligned. */
static void *take(size_t bytes, const char *what)
{
    void *memory = NULL;

    if (dry_fault("alloc") || bytes > PTRDIFF_MAX - ALIGNMENT ||
        posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) != 0) {
        dry_error("out of memory: %zu bytes for %s", bytes, what);
        return NULL;
    }
    return memory;
}

void *dry_alloc(size_t count, size_t size, const char *what)
{
    size_t bytes;

    if (dry_mul_size(count, size, &bytes) != 0) {
        dry_error("out of memory: %zu times %zu bytes for %s is more than a machine can address", count, size,
                  what);
        return NULL;
    }
    void *memory = take(bytes, what);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

void *dry_realloc(void *memory, size_t old_count, size_t count, size_t size, const char *what)
{
    size_t bytes, kept;

    if (!memory)
        return dry_alloc(count, size, what);
    if (dry_mul_size(count, size, &bytes) != 0 || dry_mul_size(old_count, size, &kept) != 0) {
        dry_error("out of memory: %zu times %zu bytes for %s is more than a machine can address", count, size,
                  what);
        return NULL;
    }
    if (kept > bytes)
        kept = bytes;
    char *fresh = take(bytes, what);
    if (!fresh)
        return NULL;
    memcpy(fresh, memory, kept);
    memset(fresh + kept, 0, bytes - kept);
    dry_free(memory);
    return fresh;
}

char *dry_strndup(const char *text, size_t n)
{
    char *copy = take(n + 1, "text");

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

char *dry_strdup(const char *text)
{
    return dry_strndup(text, strlen(text));
}

char *dry_format(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    int length = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    char *text = take((size_t)(length < 0 ? 0 : length) + 1, "text");
    if (text) {
        va_start(ap, format);
        vsnprintf(text, (size_t)(length < 0 ? 0 : length) + 1, format, ap);
        va_end(ap);
    }
    return text;
}

void dry_free(void *memory)
{
    if (DRY_DEBUG && memory)
        memset(memory, POISON, malloc_usable_size(memory));
    free(memory);
}

/* Room for n more bytes and a NUL. */
static int reserve(struct dry_buffer *b, size_t n)
{
    size_t want, grown;

    if (dry_add_size(b->len, n, &want) != 0 || dry_add_size(want, 1, &want) != 0) {
        dry_error("out of memory: %zu bytes more for a buffer of %zu", n, b->len);
        return -1;
    }
    if (want <= b->capacity)
        return 0;
    if (dry_mul_size(b->capacity, 2, &grown) != 0 || grown < want)
        grown = want < 256 ? 256 : want;
    char *data = take(grown, "a buffer");
    if (!data)
        return -1;
    if (b->len)
        memcpy(data, b->data, b->len);
    data[b->len] = '\0';
    dry_free(b->data);
    b->data = data;
    b->capacity = grown;
    return 0;
}

int dry_buffer_append(struct dry_buffer *b, const void *bytes, size_t n)
{
    if (reserve(b, n) != 0)
        return -1;
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int dry_buffer_printf(struct dry_buffer *b, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    int length = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (length < 0 || reserve(b, (size_t)length) != 0)
        return -1;
    va_start(ap, format);
    vsnprintf(b->data + b->len, (size_t)length + 1, format, ap);
    va_end(ap);
    b->len += (size_t)length;
    return 0;
}

void dry_buffer_reset(struct dry_buffer *b)
{
    dry_free(b->data);
    *b = (struct dry_buffer){0};
}
