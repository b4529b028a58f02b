/*
 * UTF-8 by hand where speed matters, Unicode by utf8proc's tables.
 * Owns nothing.
 * Must not know of tokenizers or records.
 */
#include "config.h"

#include "base/utf8.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const uint64_t high_bits = 0x8080808080808080;

static size_t ascii_run(const char *text, size_t size)
{
    size_t at = 0;

    while (at + 8 <= size) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        if (word & high_bits)
            break;
        at += 8;
    }
    while (at < size && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

/* Length of the sequence at text (table 3-7 of the Unicode standard), 0 when it is ill-formed or cut short.
 */
static size_t sequence(const unsigned char *s, size_t size)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t length;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        length = 2;
    } else if ((s[0] & 0xf0) == 0xe0) {
        length = 3;
        if (s[0] == 0xe0)
            low = 0xa0;
        if (s[0] == 0xed)
            high = 0x9f;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        length = 4;
        if (s[0] == 0xf0)
            low = 0x90;
        if (s[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (length > size || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t dry_utf8_invalid(const char *text, size_t size)
{
    size_t at = 0;

    while ((at += ascii_run(text + at, size - at)) < size) {
        size_t length = sequence((const unsigned char *)text + at, size - at);
        if (length == 0)
            return at;
        at += length;
    }
    return size;
}

size_t dry_utf8_decode(const char *text, size_t size, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;

    if (s[0] < 0x80 || size < 2) {
        *code = s[0];
        return 1;
    }
    if (s[0] < 0xe0 || size < 3) {
        *code = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
        return 2;
    }
    if (s[0] < 0xf0 || size < 4) {
        *code = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        return 3;
    }
    *code = (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
    return 4;
}

size_t dry_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

int dry_utf8_normalize(enum dry_utf8_form form, const char *text, size_t size, struct dry_buffer *out)
{
    static const int options[] = {
        [DRY_UTF8_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [DRY_UTF8_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [DRY_UTF8_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [DRY_UTF8_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *mapped = NULL;

    if (ascii_run(text, size) == size) /* normal in every form */
        return dry_buffer_append(out, text, size);
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &mapped,
                                           (utf8proc_option_t)options[form]);
    if (length < 0) {
        dry_error("cannot normalise %zu bytes of text: %s", size, utf8proc_errmsg(length));
        return -1;
    }
    int result = dry_buffer_append(out, mapped, (size_t)length);
    free(mapped);
    return result;
}

int dry_utf8_is_space(uint32_t code)
{
    return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
           code == 0x205f || code == 0x3000;
}

static int between(uint32_t code, utf8proc_category_t first, utf8proc_category_t last)
{
    if (code > 0x10ffff)
        return 0;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= first && category <= last;
}

int dry_utf8_is_numeric(uint32_t code)
{
    return between(code, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

int dry_utf8_is_letter(uint32_t code)
{
    return between(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

int dry_utf8_is_mark(uint32_t code)
{
    return between(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

int dry_utf8_is_punctuation(uint32_t code)
{
    return between(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

uint32_t dry_utf8_lower(uint32_t code)
{
    return code > 0x10ffff ? code : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}
