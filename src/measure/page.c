/*
 * Appends markup and escaped text to a page.
 * Owns nothing but the page's buffer.
 * Must not know what is shown.
 */
#include "config.h"

#include "measure/page.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dry_page_put(struct dry_page *p, const char *format, ...)
{
    char room[512], *text = room;
    va_list ap;
    int size;

    if (p->failed)
        return;
    va_start(ap, format);
    size = vsnprintf(room, sizeof room, format, ap);
    va_end(ap);
    if (size >= (int)sizeof room) {
        text = dry_alloc((size_t)size + 1, 1, "a page");
        if (text) {
            va_start(ap, format);
            vsnprintf(text, (size_t)size + 1, format, ap);
            va_end(ap);
        }
    }
    if (!text || size < 0 || dry_buffer_append(&p->text, text, (size_t)size))
        p->failed = 1;
    if (text != room)
        dry_free(text);
}

static void bytes(struct dry_page *p, const char *text, size_t size)
{
    if (!p->failed && dry_buffer_append(&p->text, text, size))
        p->failed = 1;
}

static const char *escape(unsigned char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return (c < 32 && c != '\t' && c != '\n') || c == 127 ? "\xef\xbf\xbd" : NULL;
    }
}

/* Control characters of the second table and the two that are no characters. */
static int forbidden(uint32_t code)
{
    return (code >= 0x80 && code < 0xa0) || (code & 0xfffe) == 0xfffe || (code >= 0xfdd0 && code < 0xfdf0);
}

void dry_page_text(struct dry_page *p, const char *text)
{
    static const char broken[] = "\xef\xbf\xbd";
    size_t size = text ? strlen(text) : 0, valid = text ? dry_utf8_invalid(text, size) : 0;

    for (size_t i = 0; i < size;) {
        const char *instead;
        uint32_t code = 0;
        size_t length;

        if (i == valid) { /* goes on behind the broken byte */
            bytes(p, broken, sizeof broken - 1);
            i++;
            valid = i + dry_utf8_invalid(text + i, size - i);
            continue;
        }
        length = dry_utf8_decode(text + i, size - i, &code);
        instead = code < 0x80 ? escape((unsigned char)code) : forbidden(code) ? broken : NULL;
        bytes(p, instead ? instead : text + i, instead ? strlen(instead) : length);
        i += length;
    }
}

void dry_page_element(struct dry_page *p, const char *tag, const char *class, const char *text)
{
    if (class)
        dry_page_put(p, "<%s class=\"%s\">", tag, class);
    else
        dry_page_put(p, "<%s>", tag);
    dry_page_text(p, text);
    dry_page_put(p, "</%s>", tag);
}
