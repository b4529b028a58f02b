/*
 * A page in the making: markup appended to a buffer, with what others named escaped.  Private to measure.
 * Owns the text.  A lack of memory is kept and told at the end, so that drawing need not look at it.
 */
#ifndef DRY_MEASURE_PAGE_H
#define DRY_MEASURE_PAGE_H

#include "base/memory.h"

struct dry_page {
    struct dry_buffer text;
    int failed; /* a lack of memory, logged */
};

/* Local. Markup of ours, by printf. */
void dry_page_put(struct dry_page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Local. Text of others: < > & " ' escaped; bytes that are no UTF-8, and what XML does not allow, become
 * U+FFFD. NULL: nothing. */
void dry_page_text(struct dry_page *p, const char *text);
/* Local. <tag class="class">text</tag>; class NULL: none. */
void dry_page_element(struct dry_page *p, const char *tag, const char *class, const char *text);

#endif
