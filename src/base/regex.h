/*
 * Regular expressions with Unicode properties, by PCRE2 (UTF-8, UCP, JIT where there is one).  Owns compiled
 * patterns. The only home of <pcre2.h>.
 *
 * The dialect is PCRE2's own, but ^ and $ match at line feeds, the only newline.
 */
#ifndef DRY_BASE_REGEX_H
#define DRY_BASE_REGEX_H

#include "base/status.h"

#include <stddef.h>

struct dry_regex;
/* Local. `where` names the pattern's origin for the message (pattern and offset are added). INPUT. */
enum dry_status dry_regex_create(const char *pattern, const char *where, struct dry_regex **re);
void dry_regex_destroy(struct dry_regex *re);
/* Local. First match at or after `from` in valid UTF-8 text. 1: found, *begin and *end in bytes; 0: none; -1:
 * the engine gave up (match limit), logged. Not for use by two threads at once. */
int dry_regex_find(struct dry_regex *re, const char *text, size_t size, size_t from, size_t *begin,
                   size_t *end);

#endif
