/*
 * Pre-tokenizers: a chain of steps that cut text into the pieces which BPE merges separately.  A step either
 * cuts the pieces or rewrites their text. Owns its steps. Must not know of tokens or ids.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/pattern.h"
#include "text/unicode.h"

#include <string.h>

enum kind { KIND_SPLIT, KIND_DIGITS, KIND_SPACES, KIND_METASPACE, KIND_SPACE_BEFORE, KIND_BYTES };
enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum scheme { PREPEND_FIRST, PREPEND_NEVER, PREPEND_ALWAYS };
enum { DEPTH = 16 };

struct step {
    enum kind kind;
    enum behavior behavior;
    int invert;
    char *string; /* what a Split looks for, or a Metaspace's replacement */
    struct dry_regex *re;
    enum scheme scheme;
    int cut; /* a Metaspace cuts before its replacement */
};

struct dry_pretokenizer {
    struct step *step;
    size_t steps;
    int leaves_bytes;
};

/* A stretch of one piece, and whether the step's pattern matched it. */
struct dry_match {
    size_t begin, end;
    int hit;
};

static const char known[] = "Sequence, Split, ByteLevel, Digits, Metaspace, Whitespace, WhitespaceSplit";

/* ---- reading ---- */

static enum dry_status read_split(const json_t *object, const char *where, struct step *s)
{
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                            "Contiguous"};
    const char *string, *regex, *behavior;
    enum dry_status status = dry_part_pattern(object, where, &string, &regex);

    if (!status)
        status = dry_json_text(object, "behavior", 1, NULL, where, &behavior);
    if (!status)
        status = dry_json_bool(object, "invert", 1, 0, where, &s->invert);
    if (status)
        return status;
    size_t i;
    for (i = 0; i < sizeof behaviors / sizeof behaviors[0] && strcmp(behaviors[i], behavior) != 0; i++)
        ;
    if (i == sizeof behaviors / sizeof behaviors[0]) {
        dry_error("%s: Split behavior \"%s\" is not known to drydock (known: Removed, Isolated, "
                  "MergedWithPrevious, "
                  "MergedWithNext, Contiguous)",
                  where, behavior);
        return DRY_ERR_INPUT;
    }
    s->behavior = (enum behavior)i;
    if (!string)
        return dry_part_regex(regex, where, &s->re);
    s->string = dry_strdup(string);
    return s->string ? DRY_OK : DRY_ERR_MEMORY;
}

static enum dry_status read_metaspace(const json_t *object, const char *where, struct step *s)
{
    static const char *const schemes[] = {"first", "never", "always"};
    const char *replacement, *scheme;
    int add, cut;
    uint32_t code;
    enum dry_status status = dry_json_text(object, "replacement", 1, NULL, where, &replacement);

    if (!status)
        status = dry_json_text(object, "prepend_scheme", 0, "always", where, &scheme);
    if (!status)
        status = dry_json_bool(object, "add_prefix_space", 0, 1, where, &add);
    if (!status)
        status = dry_json_bool(object, "split", 0, 1, where, &cut);
    if (status)
        return status;
    size_t i;
    for (i = 0; i < 3 && strcmp(schemes[i], scheme) != 0; i++)
        ;
    size_t n = strlen(replacement);
    if (i == 3 || n == 0 || dry_utf8_decode(replacement, n, &code) != n ||
        (!add && i != PREPEND_NEVER && json_object_get(object, "prepend_scheme"))) {
        dry_error("%s: Metaspace with replacement \"%s\", prepend_scheme \"%s\" and add_prefix_space %s is "
                  "not known to "
                  "drydock",
                  where, replacement, scheme, add ? "true" : "false");
        return DRY_ERR_INPUT;
    }
    s->scheme = add ? (enum scheme)i : PREPEND_NEVER;
    s->cut = cut;
    s->string = dry_strdup(replacement);
    return s->string ? DRY_OK : DRY_ERR_MEMORY;
}

/* Words and runs of other characters that are no space, with Rust's idea of a word. */
static enum dry_status read_whitespace(const char *where, struct step *s)
{
    struct dry_buffer word = {0}, pattern = {0};
    enum dry_status status = DRY_ERR_MEMORY;

    s->behavior = REMOVED;
    s->invert = 1;
    if (dry_pattern_word(&word) || dry_buffer_printf(&pattern, "[%s]+|[^%s", word.data, word.data) ||
        dry_pattern_space(&pattern) || dry_buffer_append(&pattern, "]+", 2))
        goto out;
    status = dry_regex_create(pattern.data, where, &s->re);
out:
    dry_buffer_reset(&word);
    dry_buffer_reset(&pattern);
    return status;
}

static enum dry_status add_step(struct dry_pretokenizer *p, enum kind kind, struct step **s)
{
    struct step *more = dry_realloc(p->step, p->steps, p->steps + 1, sizeof *more, "pre-tokenizer");

    if (!more)
        return DRY_ERR_MEMORY;
    p->step = more;
    *s = &p->step[p->steps++];
    **s = (struct step){.kind = kind, .behavior = ISOLATED};
    return DRY_OK;
}

static enum dry_status read_bytelevel(struct dry_pretokenizer *p, const json_t *object, const char *where)
{
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    int space, regex;
    struct step *s;
    enum dry_status status = dry_json_bool(object, "add_prefix_space", 1, 0, where, &space);

    if (!status)
        status = dry_json_bool(object, "use_regex", 0, 1, where, &regex);
    if (!status && space)
        status = add_step(p, KIND_SPACE_BEFORE, &s);
    if (!status && regex) {
        status = add_step(p, KIND_SPLIT, &s);
        if (!status)
            status = dry_part_regex(gpt2, where, &s->re);
    }
    return status ? status : add_step(p, KIND_BYTES, &s);
}

static enum dry_status read_any(struct dry_pretokenizer *p, const json_t *object, const char *where,
                                int depth)
{
    const char *type;
    struct step *s = NULL;
    enum dry_status status = dry_part_type(object, where, &type);

    if (status)
        return status;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(object, "pretokenizers");
        if (!json_is_array(list) || depth == DEPTH) {
            dry_error("%s: a Sequence needs an array \"pretokenizers\", nested at most %d deep", where,
                      DEPTH);
            return DRY_ERR_INPUT;
        }
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_any(p, json_array_get(list, i), where, depth + 1);
        return status;
    }
    if (strcmp(type, "ByteLevel") == 0)
        return read_bytelevel(p, object, where);
    if (strcmp(type, "Split") == 0) {
        status = add_step(p, KIND_SPLIT, &s);
        return status ? status : read_split(object, where, s);
    }
    if (strcmp(type, "Digits") == 0) {
        int individual;
        status = dry_json_bool(object, "individual_digits", 1, 0, where, &individual);
        if (!status)
            status = add_step(p, KIND_DIGITS, &s);
        if (!status)
            s->behavior = individual ? ISOLATED : CONTIGUOUS;
        return status;
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        status = add_step(p, KIND_SPACES, &s);
        if (!status)
            s->behavior = REMOVED;
        return status;
    }
    if (strcmp(type, "Whitespace") == 0) {
        status = add_step(p, KIND_SPLIT, &s);
        return status ? status : read_whitespace(where, s);
    }
    if (strcmp(type, "Metaspace") == 0) {
        status = add_step(p, KIND_METASPACE, &s);
        return status ? status : read_metaspace(object, where, s);
    }
    dry_error("%s: pre_tokenizer type \"%s\" is not known to drydock (known: %s)", where, type, known);
    return DRY_ERR_INPUT;
}

enum dry_status dry_pretokenizer_create(const json_t *object, const char *where, struct dry_pretokenizer **p)
{
    struct dry_pretokenizer *made = dry_alloc(1, sizeof *made, "pre-tokenizer");

    if (!made)
        return DRY_ERR_MEMORY;
    enum dry_status status = object && !json_is_null(object) ? read_any(made, object, where, 0) : DRY_OK;
    if (status) {
        dry_pretokenizer_destroy(made);
        return status;
    }
    /* The model maps bytes itself, and only for pieces that are not in its cache. */
    if (made->steps > 0 && made->step[made->steps - 1].kind == KIND_BYTES) {
        made->leaves_bytes = 1;
        made->steps--;
    }
    *p = made;
    return DRY_OK;
}

void dry_pretokenizer_destroy(struct dry_pretokenizer *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->steps; i++) {
        dry_free(p->step[i].string);
        dry_regex_destroy(p->step[i].re);
    }
    dry_free(p->step);
    dry_free(p);
}

int dry_pretokenizer_leaves_bytes(const struct dry_pretokenizer *p)
{
    return p->leaves_bytes;
}

int dry_pretokenizer_asks_first(const struct dry_pretokenizer *p)
{
    for (size_t i = 0; i < p->steps; i++)
        if (p->step[i].kind == KIND_METASPACE && p->step[i].scheme == PREPEND_FIRST)
            return 1;
    return 0;
}

/* ---- cutting ---- */

static int add_match(struct dry_pieces *p, size_t begin, size_t end, int hit)
{
    if (p->matches == p->match_capacity) {
        size_t capacity = p->match_capacity ? 2 * p->match_capacity : 256;
        struct dry_match *more = dry_realloc(p->match, p->match_capacity, capacity, sizeof *more, "matches");
        if (!more)
            return -1;
        p->match = more;
        p->match_capacity = capacity;
    }
    p->match[p->matches++] = (struct dry_match){begin, end, hit};
    return 0;
}

static int add_next(struct dry_pieces *p, size_t begin, size_t size, int first)
{
    if (size == 0)
        return 0;
    if (p->next_count == p->next_capacity) {
        size_t capacity = p->next_capacity ? 2 * p->next_capacity : 256;
        struct dry_piece *more =
            dry_realloc(p->next, p->next_capacity, capacity, sizeof *more, "pieces of text");
        if (!more)
            return -1;
        p->next = more;
        p->next_capacity = capacity;
    }
    p->next[p->next_count++] = (struct dry_piece){begin, size, first};
    return 0;
}

static enum dry_status find_regex(const struct step *s, const char *text, size_t size, struct dry_pieces *p)
{
    struct dry_matches m = {s->re, text, size, 0, SIZE_MAX};
    size_t at = 0, begin, end;
    int found;

    while ((found = dry_matches_next(&m, &begin, &end)) > 0) {
        if (begin > at && add_match(p, at, begin, 0))
            return DRY_ERR_MEMORY;
        if (add_match(p, begin, end, 1))
            return DRY_ERR_MEMORY;
        at = end;
    }
    if (found < 0)
        return DRY_ERR_INPUT;
    return at < size && add_match(p, at, size, 0) ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status find_string(const char *string, const char *text, size_t size, struct dry_pieces *p)
{
    size_t n = strlen(string), at = 0;

    while (at < size) {
        const char *hit = size - at >= n ? memmem(text + at, size - at, string, n) : NULL;
        size_t end = hit ? (size_t)(hit - text) : size;
        if (end > at && add_match(p, at, end, 0))
            return DRY_ERR_MEMORY;
        if (hit && add_match(p, end, end + n, 1))
            return DRY_ERR_MEMORY;
        at = hit ? end + n : size;
    }
    return DRY_OK;
}

static enum dry_status find_class(int (*is)(uint32_t), const char *text, size_t size, struct dry_pieces *p)
{
    size_t from = 0, at = 0;

    while (at < size) {
        uint32_t code;
        size_t n = dry_utf8_decode(text + at, size - at, &code);
        if (is(code)) {
            if ((at > from && add_match(p, from, at, 0)) || add_match(p, at, at + n, 1))
                return DRY_ERR_MEMORY;
            from = at + n;
        }
        at += n;
    }
    return at > from && add_match(p, from, at, 0) ? DRY_ERR_MEMORY : DRY_OK;
}

/* The pieces that a behaviour makes of the matches, as normalizer.rs folds them. */
static int apply(enum behavior behavior, struct dry_pieces *p, size_t base, int first)
{
    const struct dry_match *m = p->match;
    size_t n = p->matches;

    if (behavior == REMOVED || behavior == ISOLATED) {
        for (size_t i = 0; i < n; i++)
            if ((behavior == ISOLATED || !m[i].hit) &&
                add_next(p, base + m[i].begin, m[i].end - m[i].begin, first && m[i].begin == 0))
                return -1;
        return 0;
    }
    /* Join i to its neighbour: CONTIGUOUS: alike; PREVIOUS: a hit to what is before it, unless that is a hit;
     * NEXT: from behind, a hit to what follows it, unless that is a hit. */
    for (size_t i = 0; i < n;) {
        size_t last = i;
        if (behavior == CONTIGUOUS) {
            while (last + 1 < n && m[last + 1].hit == m[i].hit)
                last++;
        } else if (behavior == MERGED_WITH_PREVIOUS) {
            if (last + 1 < n && m[last + 1].hit && !m[last].hit)
                last++;
        } else if (last + 1 < n && m[last].hit && !m[last + 1].hit) {
            last++;
        }
        if (add_next(p, base + m[i].begin, m[last].end - m[i].begin, first && m[i].begin == 0))
            return -1;
        i = last + 1;
    }
    return 0;
}

static void take_next(struct dry_pieces *p)
{
    struct dry_piece *piece = p->piece;
    size_t capacity = p->capacity;

    p->piece = p->next;
    p->count = p->next_count;
    p->capacity = p->next_capacity;
    p->next = piece;
    p->next_capacity = capacity;
    p->next_count = 0;
}

static enum dry_status cut(const struct step *s, struct dry_pieces *p)
{
    p->next_count = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct dry_piece piece = p->piece[i];
        const char *text = p->text.data + piece.begin;
        enum dry_status status;
        p->matches = 0;
        if (s->kind == KIND_DIGITS)
            status = find_class(dry_unicode_is_numeric, text, piece.size, p);
        else if (s->kind == KIND_SPACES)
            status = find_class(dry_utf8_is_space, text, piece.size, p);
        else if (s->string)
            status = find_string(s->string, text, piece.size, p);
        else
            status = find_regex(s, text, piece.size, p);
        if (status)
            return status;
        if (s->invert)
            for (size_t k = 0; k < p->matches; k++)
                p->match[k].hit = !p->match[k].hit;
        if (apply(s->behavior, p, piece.begin, piece.first))
            return DRY_ERR_MEMORY;
    }
    take_next(p);
    return DRY_OK;
}

/* ---- rewriting ---- */

size_t dry_bytelevel_char(unsigned char byte, char out[2])
{
    uint32_t code = byte;

    /* Bytes that print stand for themselves, the other 68 for U+0100 and up, in order. */
    if (byte < 33)
        code = 256u + byte;
    else if (byte >= 127 && byte < 161)
        code = 256u + 33 + (byte - 127u);
    else if (byte == 173)
        code = 256u + 67;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | (code >> 6));
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

static int append_mapped(struct dry_buffer *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char bytes[2];
        if (dry_buffer_append(out, bytes, dry_bytelevel_char((unsigned char)text[i], bytes)))
            return -1;
    }
    return 0;
}

static int append_metaspace(const struct step *s, const struct dry_piece *piece, const char *text,
                            size_t size, struct dry_buffer *out)
{
    size_t n = strlen(s->string);
    int begins = (size >= n && memcmp(text, s->string, n) == 0) || text[0] == ' ';

    if (!begins && (s->scheme == PREPEND_ALWAYS || (s->scheme == PREPEND_FIRST && piece->first)) &&
        dry_buffer_append(out, s->string, n))
        return -1;
    for (size_t at = 0; at < size;) {
        const char *space = memchr(text + at, ' ', size - at);
        size_t end = space ? (size_t)(space - text) : size;
        if (dry_buffer_append(out, text + at, end - at) || (space && dry_buffer_append(out, s->string, n)))
            return -1;
        at = end + (space ? 1 : 0);
    }
    return 0;
}

static enum dry_status rewrite(const struct step *s, struct dry_pieces *p)
{
    p->spare.len = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct dry_piece *piece = &p->piece[i];
        const char *text = p->text.data + piece->begin;
        size_t begin = p->spare.len;
        int failed;
        if (s->kind == KIND_BYTES)
            failed = append_mapped(&p->spare, text, piece->size);
        else if (s->kind == KIND_METASPACE)
            failed = append_metaspace(s, piece, text, piece->size, &p->spare);
        else
            failed = (text[0] != ' ' && dry_buffer_append(&p->spare, " ", 1)) ||
                     dry_buffer_append(&p->spare, text, piece->size);
        if (failed)
            return DRY_ERR_MEMORY;
        piece->begin = begin;
        piece->size = p->spare.len - begin;
    }
    struct dry_buffer swap = p->text;
    p->text = p->spare;
    p->spare = swap;
    return DRY_OK;
}

/* A Metaspace cuts at its replacement, each merged with what follows. */
static enum dry_status run_step(const struct step *s, struct dry_pieces *p)
{
    if (s->kind == KIND_BYTES || s->kind == KIND_SPACE_BEFORE)
        return rewrite(s, p);
    if (s->kind != KIND_METASPACE)
        return cut(s, p);
    enum dry_status status = rewrite(s, p);
    if (status || !s->cut)
        return status;
    struct step split = {.kind = KIND_SPLIT, .behavior = MERGED_WITH_NEXT, .string = s->string};
    return cut(&split, p);
}

enum dry_status dry_pretokenizer_run(struct dry_pretokenizer *p, struct dry_pieces *pieces)
{
    for (size_t i = 0; i < p->steps; i++) {
        enum dry_status status = run_step(&p->step[i], pieces);
        if (status)
            return status;
    }
    return DRY_OK;
}
