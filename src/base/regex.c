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

enum { JIT_STACK_START = 32 << 10, JIT_STACK_MOST = 64 << 20, STEPS = 10000000, STEPS_PER_BYTE = 64 };

struct dry_regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    char *where;
};

static enum dry_status compile(struct dry_regex *re, const char *pattern)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int error;
    PCRE2_SIZE offset;

    if (!context) {
        dry_error("out of memory: compiling a regular expression");
        return DRY_ERR_MEMORY;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    re->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        char why[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        dry_error("%s: regular expression \"%s\", byte %zu: %s", re->where, pattern, (size_t)offset, why);
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
    struct dry_regex *fresh = dry_alloc(1, sizeof *fresh, "a regular expression");
    enum dry_status status = DRY_ERR_MEMORY;

    if (!fresh)
        return DRY_ERR_MEMORY;
    fresh->where = dry_strdup(where);
    if (fresh->where)
        status = compile(fresh, pattern);
    if (status)
        dry_regex_destroy(fresh);
    else
        *re = fresh;
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
