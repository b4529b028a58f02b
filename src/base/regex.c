/*
 * Compiles and runs regular expressions as Hugging Face tokenizers write them (Oniguruma, Ruby syntax) by
 * PCRE2. Owns compiled patterns with their match data and JIT stack. Must not know of tokenizers: a pattern
 * is text with an origin.
 */
#include "config.h"

#include "base/regex.h"
#include "base/log.h"
#include "base/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

/* White_Space and its complement, as members of a character class. PCRE2's own \s also holds U+180E. */
#define SPACE                                                                                                \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"
#define NO_SPACE                                                                                    \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}" \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

enum { JIT_STACK_START = 32 << 10, JIT_STACK_MOST = 64 << 20, STEPS = 10000000, STEPS_PER_BYTE = 64 };

struct dry_regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    char *where;
};

/* Two characters: \x, [^ and the like; their translation outside and inside a class, NULL: refused. */
static const struct escape {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    {'s', "[" SPACE "]", SPACE}, {'S', "[^" SPACE "]", NO_SPACE},   {'w', "[" WORD "]", WORD},
    {'W', "[^" WORD "]", NULL},  {'h', "[0-9a-fA-F]", "0-9a-fA-F"}, {'H', "[^0-9a-fA-F]", NULL},
};

static enum dry_status refuse(const char *pattern, const char *where, size_t at, const char *why)
{
    dry_error("%s: regular expression \"%s\", offset %zu: %s", where, pattern, at, why);
    return DRY_ERR_INPUT;
}

/* The pattern in PCRE2's words. The two dialects agree on what tokenizers use but for the escapes above; set
 * operations inside a class and Ruby's (?m) would be read differently and are refused. */
static enum dry_status translate(const char *pattern, const char *where, struct dry_buffer *out)
{
    int class = 0, failed = dry_buffer_append(out, "", 0);
    size_t opened = 0; /* where a class began: a ] right there is a member */

    for (size_t i = 0; pattern[i] && !failed; i++) {
        const char *c = pattern + i;
        const char *as = NULL;
        size_t width = 1;
        if (c[0] == '\\' && c[1]) {
            width = 2;
            for (size_t e = 0; e < sizeof escapes / sizeof escapes[0]; e++)
                if (escapes[e].letter == c[1]) {
                    as = class ? escapes[e].inside : escapes[e].outside;
                    if (!as)
                        return refuse(pattern, where, i,
                                      "this escape inside a character class is not supported");
                }
        } else if (!class && c[0] == '[') {
            class = 1;
            if (c[1] == '^')
                width = 2;
            opened = i + width;
        } else if (class && c[0] == '[' && c[1] == ':') {
            const char *end = strstr(c, ":]");
            if (end)
                width = (size_t)(end - c) + 2;
        } else if (class && (c[0] == '[' || (c[0] == '&' && c[1] == '&'))) {
            return refuse(pattern, where, i, "sets inside a character class are not supported");
        } else if (class && c[0] == ']' && i > opened) {
            class = 0;
        } else if (!class && strncmp(c, "(?", 2) == 0) {
            size_t flags = 2 + strspn(c + 2, "imx-");
            if ((c[flags] == ':' || c[flags] == ')') && memchr(c + 2, 'm', flags - 2))
                return refuse(pattern, where, i, "the flag m is not supported");
        }
        failed = as ? dry_buffer_append(out, as, strlen(as)) : dry_buffer_append(out, c, width);
        i += width - 1;
    }
    return failed ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status compile(struct dry_regex *re, const char *pattern, const struct dry_buffer *text)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int error;
    PCRE2_SIZE offset;

    if (!context) {
        dry_error("out of memory: compiling a regular expression");
        return DRY_ERR_MEMORY;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    re->code = pcre2_compile((PCRE2_SPTR)text->data, text->len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                             &error, &offset, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        char why[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        dry_error("%s: regular expression \"%s\": %s (offset %zu of \"%s\")", re->where, pattern, why, offset,
                  text->data);
        return DRY_ERR_INPUT;
    }
    re->match = pcre2_match_data_create(1, NULL);
    re->context = pcre2_match_context_create(NULL);
    if (!re->match || !re->context) {
        dry_error("out of memory: compiling a regular expression");
        return DRY_ERR_MEMORY;
    }
    /* Where this machine has no JIT, matching is slower and gives the same. */
    if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0) {
        re->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MOST, NULL);
        if (re->stack)
            pcre2_jit_stack_assign(re->context, NULL, re->stack);
    }
    return DRY_OK;
}

enum dry_status dry_regex_create(const char *pattern, const char *where, struct dry_regex **re)
{
    struct dry_buffer text = {0};
    struct dry_regex *fresh = dry_alloc(1, sizeof *fresh, "a regular expression");
    enum dry_status status = DRY_ERR_MEMORY;

    if (!fresh)
        return DRY_ERR_MEMORY;
    fresh->where = dry_strdup(where);
    if (!fresh->where)
        goto out;
    status = translate(pattern, where, &text);
    if (!status)
        status = compile(fresh, pattern, &text);
    if (!status) {
        *re = fresh;
        fresh = NULL;
    }
out:
    dry_buffer_reset(&text);
    dry_regex_destroy(fresh);
    return status;
}

void dry_regex_destroy(struct dry_regex *re)
{
    if (!re)
        return;
    pcre2_jit_stack_free(re->stack);
    pcre2_match_context_free(re->context);
    pcre2_match_data_free(re->match);
    pcre2_code_free(re->code);
    dry_free(re->where);
    dry_free(re);
}

int dry_regex_find(struct dry_regex *re, const char *text, size_t size, size_t from, size_t *begin,
                   size_t *end)
{
    uint64_t steps = STEPS + (uint64_t)STEPS_PER_BYTE * size;
    uint32_t options = PCRE2_NO_UTF_CHECK;

    pcre2_set_match_limit(re->context, steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps);
    int found = pcre2_match(re->code, (PCRE2_SPTR)text, size, from, options, re->match, re->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        found = pcre2_match(re->code, (PCRE2_SPTR)text, size, from, options | PCRE2_NO_JIT, re->match,
                            re->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        char why[256];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
        dry_error("%s: the regular expression gave up at byte %zu of %zu: %s", re->where, from, size, why);
        return -1;
    }
    const PCRE2_SIZE *pair = pcre2_get_ovector_pointer(re->match);
    *begin = pair[0];
    *end = pair[1];
    return 1;
}
