/*
 * Regular expressions of tokenizer.json are written for Oniguruma (Ruby syntax); this turns one into the same
 * expression for PCRE2.  What has no exact counterpart is refused by name. Owns nothing.  Must not know what
 * the expression splits.
 */
#ifndef DRY_TEXT_PATTERN_H
#define DRY_TEXT_PATTERN_H

#include "base/memory.h"
#include "base/status.h"

/* Local. Appends the translation; `where` names the origin for messages. INPUT, MEMORY. */
enum dry_status dry_pattern_translate(const char *pattern, const char *where, struct dry_buffer *out);

/* Local. Appends the word characters of Rust's regular expressions (\w) as the inside of a PCRE2 class. 0,
 * -1: MEMORY. */
int dry_pattern_word(struct dry_buffer *out);
/* Local. Appends White_Space as the inside of a PCRE2 class. 0, -1: MEMORY. */
int dry_pattern_space(struct dry_buffer *out);

#endif
