/*
 * UTF-8 and Unicode: validation, decoding, normalisation and general categories, by utf8proc.  Owns nothing.
 * The only home of <utf8proc.h>.
 */
#ifndef DRY_BASE_UTF8_H
#define DRY_BASE_UTF8_H

#include "base/memory.h"

#include <stddef.h>
#include <stdint.h>

enum dry_utf8_form { DRY_UTF8_NFC, DRY_UTF8_NFD, DRY_UTF8_NFKC, DRY_UTF8_NFKD };

/* Local. Offset of the first byte that is no valid UTF-8 (no surrogates, no overlong forms), or size when all
 * is valid. */
size_t dry_utf8_invalid(const char *text, size_t size);
/* Local. Decodes the code point at text (valid UTF-8, size > 0); returns its length in bytes. */
size_t dry_utf8_decode(const char *text, size_t size, uint32_t *code);
/* Local. Encodes into out (4 bytes); returns the length. */
size_t dry_utf8_encode(uint32_t code, char out[4]);
/* Local. Appends the normalised text. 0, or -1 for lack of memory (logged). */
int dry_utf8_normalize(enum dry_utf8_form form, const char *text, size_t size, struct dry_buffer *out);
int dry_utf8_is_space(uint32_t code);       /* White_Space: 25 code points */
int dry_utf8_is_numeric(uint32_t code);     /* categories Nd, Nl, No */
int dry_utf8_is_letter(uint32_t code);      /* categories L* */
int dry_utf8_is_mark(uint32_t code);        /* categories M* */
int dry_utf8_is_punctuation(uint32_t code); /* categories P* */
uint32_t dry_utf8_lower(uint32_t code);     /* simple lower-case mapping */

#endif
