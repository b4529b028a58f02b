/*
 * From Oniguruma's syntax to PCRE2's, one construct after another; properties are completed by the code
 * points that Unicode 15 and 16 assigned, since the installed PCRE2 may be older. Owns nothing that outlives
 * a call. Must not know what the expression splits.
 */
#include "config.h"

#include "text/pattern.h"

#include "base/log.h"
#include "text/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 };

/* One translation. Positions are byte offsets: `at` into the source, the others into the output. */
struct translation {
    const char *pattern, *where;
    size_t at;
    struct dry_buffer *out;
    size_t atom;         /* where the last atom begins, for a quantifier that must wrap it */
    size_t group[DEPTH]; /* where each open group begins */
    int fold[DEPTH + 1]; /* whether letters match without case, per depth */
    int depth;
};

/* Scripts with the ranges that Unicode 15 and 16 added; PCRE2's \p{Han} would mean script extensions. */
static const struct {
    const char *name, *more;
} scripts[] = {
    {"Han", "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"Hiragana", "\\x{1b132}"},
    {"Katakana", "\\x{1b155}"},
    {"Hangul", ""},
    {"Latin", "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}"},
    {"Greek", ""},
    {"Cyrillic", "\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}"},
    {"Arabic", "\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"},
    {"Hebrew", ""},
    {"Thai", ""},
};

static const char *const categories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                         "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                         "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};

/* White_Space and its complement: PCRE2's \s has U+180E too in older versions. */
static const char space[] =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
static const char not_space[] =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
static const char hex[] = "0-9a-fA-F";
static const char not_hex[] = "\\x00-\\x2f\\x3a-\\x40\\x47-\\x60\\x67-\\x{10ffff}";

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static int put(struct translation *t, const char *text)
{
    return dry_buffer_append(t->out, text, strlen(text));
}

static enum dry_status refuse(const struct translation *t, size_t begin, size_t end, const char *why)
{
    dry_error("%s: regular expression \"%s\": \"%.*s\" at byte %zu %s", t->where, t->pattern,
              (int)(end - begin), t->pattern + begin, begin, why);
    return DRY_ERR_INPUT;
}

/* The younger code points of the categories that begin with `category`, neighbours joined. */
static int put_assigned(struct dry_buffer *out, const char *category)
{
    size_t count, n = strlen(category);
    const struct dry_unicode_range *range = dry_unicode_assigned(&count);

    for (size_t i = 0; i < count; i++) {
        if (strncmp(range[i].category, category, n) != 0)
            continue;
        uint32_t first = range[i].first, last = range[i].last;
        while (i + 1 < count && range[i + 1].first == last + 1 &&
               strncmp(range[i + 1].category, category, n) == 0)
            last = range[++i].last;
        if (dry_buffer_printf(out, first == last ? "\\x{%x}" : "\\x{%x}-\\x{%x}", first, last))
            return -1;
    }
    return 0;
}

static int put_category(struct dry_buffer *out, const char *category)
{
    return dry_buffer_printf(out, "\\p{%s}", category) || put_assigned(out, category);
}

int dry_pattern_word(struct dry_buffer *out)
{
    static const char known[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";

    return dry_buffer_append(out, known, sizeof known - 1) || put_assigned(out, "L") ||
           put_assigned(out, "M") || put_assigned(out, "Nd") || put_assigned(out, "Nl") ||
           put_assigned(out, "Pc");
}

int dry_pattern_space(struct dry_buffer *out)
{
    return dry_buffer_append(out, space, sizeof space - 1);
}

/* Oniguruma's \w: no joiners, but the digits and fractions of Latin-1. */
static int put_word(struct dry_buffer *out)
{
    static const char known[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

    return dry_buffer_append(out, known, sizeof known - 1) || put_assigned(out, "L") ||
           put_assigned(out, "M") || put_assigned(out, "Nd") || put_assigned(out, "Nl") ||
           put_assigned(out, "Pc");
}

/* A set's inside; *negated when the set is the complement of what was put. t->at is behind the backslash, on
 * p, s, w, ... *known = 0 when this is no set. */
static enum dry_status put_set(struct translation *t, struct dry_buffer *out, int *negated, int *known)
{
    size_t begin = t->at - 1;
    char c = t->pattern[t->at];
    int failed = 0;

    *known = 1;
    *negated = 0;
    switch (c) {
    case 's':
    case 'S':
        *negated = c == 'S';
        failed = dry_pattern_space(out);
        break;
    case 'h':
    case 'H':
        *negated = c == 'H';
        failed = dry_buffer_append(out, hex, sizeof hex - 1);
        break;
    case 'd':
    case 'D':
        *negated = c == 'D';
        failed = put_category(out, "Nd");
        break;
    case 'w':
    case 'W':
        *negated = c == 'W';
        failed = put_word(out);
        break;
    case 'p':
    case 'P': {
        char name[24];
        size_t n = 0, at = t->at + 1;
        *negated = c == 'P';
        if (t->pattern[at] != '{')
            return refuse(t, begin, at, "needs a property in braces");
        if (t->pattern[++at] == '^') {
            *negated = !*negated;
            at++;
        }
        while (t->pattern[at] && t->pattern[at] != '}' && n + 1 < sizeof name)
            name[n++] = t->pattern[at++];
        name[n] = '\0';
        if (t->pattern[at] != '}')
            return refuse(t, begin, at, "is no property known to drydock");
        t->at = at;
        size_t i;
        for (i = 0; i < COUNT(categories) && strcmp(categories[i], name) != 0; i++)
            ;
        if (i < COUNT(categories)) {
            if (t->fold[t->depth] && name[0] == 'L' && strchr("ult", name[1]) && name[1])
                return refuse(t, begin, at + 1, "inside (?i) is not known to drydock");
            failed = put_category(out, name);
            break;
        }
        for (i = 0; i < COUNT(scripts) && strcmp(scripts[i].name, name) != 0; i++)
            ;
        if (i == COUNT(scripts))
            return refuse(
                t, begin, at + 1,
                "is not known to drydock (known: general categories such as L, Lu, Nd, and the scripts Han, "
                "Hiragana, Katakana, Hangul, Latin, Greek, Cyrillic, Arabic, Hebrew, Thai)");
        failed = dry_buffer_printf(out, "\\p{sc:%s}%s", name, scripts[i].more);
        break;
    }
    default:
        *known = 0;
        return DRY_OK;
    }
    t->at++;
    return failed ? DRY_ERR_MEMORY : DRY_OK;
}

/* Escapes that stand for one character, alike in and outside brackets. t->at is on the character behind the
 * backslash. */
static enum dry_status put_escape(struct translation *t, int bracket)
{
    static const struct {
        char letter;
        const char *code;
    } controls[] = {{'n', "\\x0a"}, {'t', "\\x09"}, {'r', "\\x0d"}, {'f', "\\x0c"},
                    {'v', "\\x0b"}, {'a', "\\x07"}, {'e', "\\x1b"}};
    const char *p = t->pattern;
    size_t begin = t->at - 1;
    unsigned char c = (unsigned char)p[t->at];

    for (size_t i = 0; i < COUNT(controls); i++)
        if (c == controls[i].letter) {
            t->at++;
            return put(t, controls[i].code) ? DRY_ERR_MEMORY : DRY_OK;
        }
    if (c == 'b' && bracket) {
        t->at++;
        return put(t, "\\x08") ? DRY_ERR_MEMORY : DRY_OK;
    }
    if (c == 'x' || c == 'u') {
        size_t at = t->at + 1, most = c == 'u' ? 4 : 2, least = c == 'u' ? 4 : 1, n = 0;
        int brace = c == 'x' && p[at] == '{';
        if (brace) {
            at++;
            most = 6;
        }
        while (n < most && isxdigit((unsigned char)p[at + n]))
            n++;
        char digits[8] = "";
        memcpy(digits, p + at, n);
        unsigned long code = strtoul(digits, NULL, 16);
        /* without braces \x is a byte, and a byte from 0x80 is no character */
        if (n < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
            (brace && p[at + n] != '}') || (c == 'x' && !brace && code > 0x7f))
            return refuse(t, begin, at + n, "is no character code known to drydock");
        if (dry_buffer_printf(t->out, "\\x{%lx}", code))
            return DRY_ERR_MEMORY;
        t->at = at + n + (brace ? 1 : 0);
        return DRY_OK;
    }
    if (c == '\0')
        return refuse(t, begin, begin + 1, "escapes nothing");
    if (isalnum(c) || c == '\n')
        return refuse(t, begin, t->at + 1, "is not known to drydock");
    if (c < 0x80) {
        char text[3] = {'\\', (char)c, '\0'};
        t->at++;
        return put(t, text) ? DRY_ERR_MEMORY : DRY_OK;
    }
    uint32_t code;
    t->at += dry_utf8_decode(p + t->at, strlen(p + t->at), &code);
    return dry_buffer_printf(t->out, "\\x{%x}", code) ? DRY_ERR_MEMORY : DRY_OK;
}

/* A set inside brackets: only those complements that can be written down are taken. */
static enum dry_status put_bracket_set(struct translation *t, int *known)
{
    size_t begin = t->at - 1;
    struct dry_buffer inside = {0};
    int negated;
    char letter = t->pattern[t->at];
    enum dry_status status = put_set(t, &inside, &negated, known);

    if (!status && *known) {
        if (!negated)
            status = dry_buffer_append(t->out, inside.data, inside.len) ? DRY_ERR_MEMORY : DRY_OK;
        else if (letter == 'S' || letter == 'H')
            status = put(t, letter == 'S' ? not_space : not_hex) ? DRY_ERR_MEMORY : DRY_OK;
        else
            status = refuse(t, begin, t->at, "inside brackets is not known to drydock");
    }
    dry_buffer_reset(&inside);
    return status;
}

static enum dry_status bracket(struct translation *t)
{
    const char *p = t->pattern;
    size_t begin = t->at++;
    int after_set = 0;

    if (put(t, "["))
        return DRY_ERR_MEMORY;
    if (p[t->at] == '^') {
        t->at++;
        if (put(t, "^"))
            return DRY_ERR_MEMORY;
    }
    if (p[t->at] == ']') { /* first: an ordinary character */
        t->at++;
        if (put(t, "\\]"))
            return DRY_ERR_MEMORY;
    }
    while (p[t->at] != ']') {
        enum dry_status status = DRY_OK;
        int set = 0;
        if (p[t->at] == '\0')
            return refuse(t, begin, t->at, "is not closed");
        if (p[t->at] == '[')
            return refuse(t, t->at, t->at + 2,
                          "inside brackets (a nested or POSIX set) is not known to drydock");
        if (p[t->at] == '&' && p[t->at + 1] == '&')
            return refuse(t, t->at, t->at + 2, "inside brackets (an intersection) is not known to drydock");
        if (p[t->at] == '\\') {
            t->at++;
            status = put_bracket_set(t, &set);
            if (!status && !set)
                status = put_escape(t, 1);
        } else if (p[t->at] == '-' && (after_set || (p[t->at + 1] == '\\' && p[t->at + 2] &&
                                                     strchr("sShHdDwWpP", p[t->at + 2])))) {
            t->at++; /* no range can begin or end with a set */
            status = put(t, "\\-") ? DRY_ERR_MEMORY : DRY_OK;
        } else {
            status = dry_buffer_append(t->out, p + t->at, 1) ? DRY_ERR_MEMORY : DRY_OK;
            t->at++;
        }
        if (status)
            return status;
        after_set = set;
    }
    t->at++;
    return put(t, "]") ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status escape(struct translation *t)
{
    const char *p = t->pattern;
    struct dry_buffer inside = {0};
    int negated, known;
    char c = p[++t->at];

    if (c == 'A' || c == 'z' || c == 'Z') {
        char text[3] = {'\\', c, '\0'};
        t->at++;
        return put(t, text) ? DRY_ERR_MEMORY : DRY_OK;
    }
    if (c >= '1' && c <= '9')
        return refuse(t, t->at - 1, t->at + 1, "(a back reference) is not known to drydock");
    if (c == 'b' || c == 'B') {
        enum dry_status status = put_word(&inside) ? DRY_ERR_MEMORY : DRY_OK;
        const char *w = inside.data;
        const char *format =
            c == 'b' ? "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))" : "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))";
        if (!status && dry_buffer_printf(t->out, format, w, w, w, w))
            status = DRY_ERR_MEMORY;
        dry_buffer_reset(&inside);
        t->at++;
        return status;
    }
    enum dry_status status = put_set(t, &inside, &negated, &known);
    if (!status && known && dry_buffer_printf(t->out, negated ? "[^%s]" : "[%s]", inside.data))
        status = DRY_ERR_MEMORY;
    dry_buffer_reset(&inside);
    if (!status && !known)
        status = put_escape(t, 0);
    return status;
}

static enum dry_status open_group(struct translation *t)
{
    static const char *const plain[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const char *p = t->pattern + t->at;
    size_t begin = t->at, outer = t->out->len;

    if (t->depth == DEPTH)
        return refuse(t, begin, begin + 1, "is nested too deeply");
    int fold = t->fold[t->depth];
    if (p[1] != '?') {
        t->at++;
        if (put(t, "(?:")) /* without back references a capture is only a group */
            return DRY_ERR_MEMORY;
    } else {
        size_t i;
        for (i = 0; i < COUNT(plain) && strncmp(p, plain[i], strlen(plain[i])) != 0; i++)
            ;
        if (i < COUNT(plain)) {
            t->at += strlen(plain[i]);
            if (put(t, plain[i]))
                return DRY_ERR_MEMORY;
        } else {
            char flags[16];
            size_t n = 0, at = 2;
            int on = 1;
            for (; n + 1 < sizeof flags && (p[at] == 'i' || p[at] == 'm' || p[at] == '-'); at++) {
                if (p[at] == '-')
                    on = 0;
                if (p[at] == 'i')
                    fold = on;
                flags[n++] = p[at] == 'm' ? 's' : p[at]; /* Ruby's m lets the dot match a newline */
            }
            flags[n] = '\0';
            if (n == 0 || (p[at] != ':' && p[at] != ')'))
                return refuse(t, begin, begin + at + (p[at] ? 1 : 0), "is not known to drydock");
            /* An option that is not a group reaches to the end of the enclosing group, alternatives included,
             * which PCRE2 does alike only at its beginning. */
            if (p[at] == ')' && (begin > 0 || t->depth > 0))
                return refuse(t, begin, begin + at + 1, "away from the beginning is not known to drydock");
            t->at += at + 1;
            if (dry_buffer_printf(t->out, "(?%s%c", flags, p[at]))
                return DRY_ERR_MEMORY;
            if (p[at] == ')') {
                t->fold[0] = fold;
                return DRY_OK;
            }
        }
    }
    t->group[t->depth++] = outer;
    t->fold[t->depth] = fold;
    return DRY_OK;
}

/* {n}, {n,}, {,m}, {n,m}; anything else in braces is text. Ruby has no possessive {n,m}+: it repeats the
 * repetition. */
static enum dry_status interval(struct translation *t)
{
    const char *p = t->pattern;
    size_t begin = t->at, at = begin + 1, low = at, high, lows, highs = 0;
    int comma = 0;

    while (isdigit((unsigned char)p[at]))
        at++;
    lows = at - low;
    high = at;
    if (p[at] == ',') {
        comma = 1;
        high = ++at;
        while (isdigit((unsigned char)p[at]))
            at++;
        highs = at - high;
    }
    if (p[at] != '}' || lows + highs == 0) {
        t->atom = t->out->len;
        t->at++;
        return put(t, "\\{") ? DRY_ERR_MEMORY : DRY_OK;
    }
    at++;
    if (p[at] == '?' && !comma)
        return refuse(t, begin, at + 1, "is not known to drydock");
    int again = p[at] == '+' || p[at] == '*';
    struct dry_buffer atom = {0};
    enum dry_status status = DRY_ERR_MEMORY;
    if (again) {
        if (dry_buffer_append(&atom, t->out->data + t->atom, t->out->len - t->atom))
            goto out;
        t->out->len = t->atom;
        if (put(t, "(?:") || dry_buffer_append(t->out, atom.data, atom.len))
            goto out;
    }
    if (dry_buffer_printf(t->out, "{%.*s", lows ? (int)lows : 1, lows ? p + low : "0") ||
        (comma && dry_buffer_printf(t->out, ",%.*s", (int)highs, p + high)) || put(t, again ? "})" : "}"))
        goto out;
    t->at = at;
    status = DRY_OK;
out:
    dry_buffer_reset(&atom);
    return status;
}

static enum dry_status one(struct translation *t)
{
    const char *p = t->pattern;
    char c = p[t->at];
    size_t atom = t->out->len;
    enum dry_status status = DRY_OK;

    switch (c) {
    case '\\':
        status = escape(t);
        break;
    case '[':
        status = bracket(t);
        break;
    case '(':
        status = open_group(t);
        break;
    case ')':
        if (t->depth == 0)
            return refuse(t, t->at, t->at + 1, "closes nothing");
        atom = t->group[--t->depth];
        t->at++;
        status = put(t, ")") ? DRY_ERR_MEMORY : DRY_OK;
        break;
    case '{':
        return interval(t);
    case '*':
    case '+':
    case '?':
        t->at++;
        return dry_buffer_append(t->out, &c, 1) ? DRY_ERR_MEMORY : DRY_OK;
    case '}':
    case ']':
        t->at++;
        status = put(t, c == '}' ? "\\}" : "\\]") ? DRY_ERR_MEMORY : DRY_OK;
        break;
    default: { /* ^ and $ too: base/regex.h takes them as Ruby does, at every line */
        uint32_t code;
        size_t n = dry_utf8_decode(p + t->at, strlen(p + t->at), &code);
        status = dry_buffer_append(t->out, p + t->at, n) ? DRY_ERR_MEMORY : DRY_OK;
        t->at += n;
    }
    }
    t->atom = atom;
    return status;
}

enum dry_status dry_pattern_translate(const char *pattern, const char *where, struct dry_buffer *out)
{
    struct translation t = {.pattern = pattern, .where = where, .out = out};

    if (put(&t, ""))
        return DRY_ERR_MEMORY;
    while (pattern[t.at]) {
        enum dry_status status = one(&t);
        if (status)
            return status;
    }
    if (t.depth > 0)
        return refuse(&t, 0, 0, "has a group that is not closed");
    return DRY_OK;
}
