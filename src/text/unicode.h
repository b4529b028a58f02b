/*
 * Unicode as Hugging Face tokenizers sees it.  Its parts follow different versions of the standard: regular
 * expressions know Unicode 16, digits and lower case Unicode 17, normalisation only Unicode 9.  utf8proc and
 * PCRE2 follow whatever was installed.  The tables here are what makes up the difference. Owns nothing.  Must
 * not know of tokens.
 */
#ifndef DRY_TEXT_UNICODE_H
#define DRY_TEXT_UNICODE_H

#include "base/memory.h"
#include "base/utf8.h"

#include <stddef.h>
#include <stdint.h>

/* A range of code points that Unicode 15 to 16 assigned, with its general category. */
struct dry_unicode_range {
    uint32_t first, last;
    char category[3];
};
/* Local. The table in order; *count entries. */
const struct dry_unicode_range *dry_unicode_assigned(size_t *count);

/* Local. Nd, Nl or No, for the pre-tokenizer Digits. */
int dry_unicode_is_numeric(uint32_t code);
/* Local. The full lower-case mapping of one code point: 1 or 2 code points in out. */
size_t dry_unicode_lower(uint32_t code, uint32_t out[2]);
/* Local. Appends the normalised text (valid UTF-8). 0, or -1 for lack of memory (logged). */
int dry_unicode_normalize(enum dry_utf8_form form, const char *text, size_t size, struct dry_buffer *out);

#endif
