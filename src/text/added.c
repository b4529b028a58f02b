/*
 * Added tokens: texts that are found before the normalizer or before the pre-tokenizers see anything, the
 * leftmost first, of those the longest. Owns the tokens and a tree of their bytes per pass. Must not know of
 * merges.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/pattern.h"

#include <stdlib.h>
#include <string.h>

struct token {
    char *text;
    char *match; /* what is looked for: the text, normalised when the token is */
    size_t match_size;
    int32_t id;
    int single_word, lstrip, rstrip, normalized, special;
};

/* A node of the tree: its byte, what follows it, and what else may stand there. */
struct node {
    unsigned char byte;
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* -1: no token ends here */
};

struct tree {
    struct node *node;
    size_t nodes, capacity;
    int32_t root[256]; /* -1: no token begins so */
};

struct dry_added {
    struct token *token;
    size_t tokens;
    struct tree tree[2];    /* raw, normalised */
    struct dry_regex *word; /* one word character, where a token asks for it */
};

/* ---- the tree ---- */

static int32_t new_node(struct tree *t, unsigned char byte)
{
    if (t->nodes == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 256;
        struct node *more = dry_realloc(t->node, t->capacity, capacity, sizeof *more, "added tokens");
        if (!more)
            return -1;
        t->node = more;
        t->capacity = capacity;
    }
    t->node[t->nodes] = (struct node){byte, -1, -1, -1};
    return (int32_t)t->nodes++;
}

static int32_t next_node(const struct tree *t, int32_t node, unsigned char byte)
{
    int32_t at = t->node[node].child;

    while (at >= 0 && t->node[at].byte != byte)
        at = t->node[at].sibling;
    return at;
}

/* 0, or -1: MEMORY. *other: a token with the same text, or -1. */
static int insert(struct tree *t, const struct token *token, int32_t index, int32_t *other)
{
    const unsigned char *text = (const unsigned char *)token->match;
    int32_t at = t->root[text[0]];

    if (at < 0 && (at = t->root[text[0]] = new_node(t, text[0])) < 0)
        return -1;
    for (size_t i = 1; i < token->match_size; i++) {
        int32_t next = next_node(t, at, text[i]);
        if (next < 0) {
            next = new_node(t, text[i]);
            if (next < 0)
                return -1;
            t->node[next].sibling = t->node[at].child;
            t->node[at].child = next;
        }
        at = next;
    }
    *other = t->node[at].token;
    t->node[at].token = index;
    return 0;
}

/* The longest token at the beginning of text, or -1. */
static int32_t longest(const struct tree *t, const char *text, size_t size, size_t *length)
{
    int32_t found = -1, at = t->root[(unsigned char)text[0]];

    for (size_t i = 1; at >= 0; i++) {
        if (t->node[at].token >= 0) {
            found = t->node[at].token;
            *length = i;
        }
        if (i == size)
            break;
        at = next_node(t, at, (unsigned char)text[i]);
    }
    return found;
}

/* ---- reading ---- */

static enum dry_status read_token(const json_t *object, const char *where, size_t index,
                                  struct dry_normalizer *n, struct token *t)
{
    const char *text;
    int64_t id;
    struct dry_buffer normal = {0};
    enum dry_status status = dry_json_text(object, "content", 1, NULL, where, &text);

    if (!status)
        status = dry_json_int(object, "id", 1, -1, where, &id);
    if (!status)
        status = dry_json_bool(object, "single_word", 1, 0, where, &t->single_word);
    if (!status)
        status = dry_json_bool(object, "lstrip", 1, 0, where, &t->lstrip);
    if (!status)
        status = dry_json_bool(object, "rstrip", 1, 0, where, &t->rstrip);
    if (!status)
        status = dry_json_bool(object, "normalized", 1, 0, where, &t->normalized);
    if (!status)
        status = dry_json_bool(object, "special", 1, 0, where, &t->special);
    if (status)
        return status;
    if (id < 0 || id > INT32_MAX / 2 || !*text) {
        dry_error("%s: entry %zu needs an id that is not negative and a content that is not empty", where,
                  index);
        return DRY_ERR_INPUT;
    }
    t->id = (int32_t)id;
    t->text = dry_strdup(text);
    if (!t->text)
        return DRY_ERR_MEMORY;
    if (!t->normalized) {
        t->match = dry_strdup(text);
        t->match_size = strlen(text);
        return t->match ? DRY_OK : DRY_ERR_MEMORY;
    }
    status = dry_normalizer_run(n, text, strlen(text), &normal);
    if (!status && normal.len == 0) {
        dry_error("%s: the normalizer leaves nothing of token \"%s\"", where, text);
        status = DRY_ERR_INPUT;
    }
    if (!status) {
        t->match = dry_strndup(normal.data, normal.len);
        t->match_size = normal.len;
        if (!t->match)
            status = DRY_ERR_MEMORY;
    }
    dry_buffer_reset(&normal);
    return status;
}

/* The original ignores the file's ids: a token of the vocabulary has that id, another the next free one. */
static enum dry_status check_id(const struct token *t, const struct dry_vocab *v, const char *where,
                                int32_t *next)
{
    int32_t id = dry_vocab_find(v, t->text, strlen(t->text));

    if (id < 0)
        id = (*next)++;
    if (id == t->id)
        return DRY_OK;
    dry_error("%s: token \"%s\" has id %d, but Hugging Face tokenizers would give it %d (its id in the "
              "vocabulary, or the "
              "next after the vocabulary's %d tokens and the added tokens before it)",
              where, t->text, t->id, id, dry_vocab_count(v));
    return DRY_ERR_INPUT;
}

static enum dry_status make_word(struct dry_added *a, const char *where)
{
    struct dry_buffer pattern = {0};
    enum dry_status status = DRY_ERR_MEMORY;

    if (dry_buffer_append(&pattern, "[", 1) == 0 && dry_pattern_word(&pattern) == 0 &&
        dry_buffer_append(&pattern, "]", 1) == 0)
        status = dry_regex_create(pattern.data, where, &a->word);
    dry_buffer_reset(&pattern);
    return status;
}

static int by_text(const void *a, const void *b)
{
    const struct token *const *x = a, *const *y = b;

    return strcmp((*x)->text, (*y)->text);
}

static enum dry_status check_twice(const struct dry_added *a, const char *where)
{
    const struct token **order = dry_alloc(a->tokens, sizeof(struct token *), "added tokens");
    enum dry_status status = DRY_OK;

    if (!order)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < a->tokens; i++)
        order[i] = &a->token[i];
    qsort(order, a->tokens, sizeof *order, by_text);
    for (size_t i = 1; i < a->tokens && !status; i++)
        if (strcmp(order[i - 1]->text, order[i]->text) == 0) {
            dry_error("%s: token \"%s\" is listed twice", where, order[i]->text);
            status = DRY_ERR_INPUT;
        }
    dry_free(order);
    return status;
}

static enum dry_status read_all(struct dry_added *a, const json_t *array, const struct dry_vocab *v,
                                struct dry_normalizer *n, const char *where)
{
    int32_t next = dry_vocab_count(v);
    enum dry_status status = DRY_OK;

    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        a->tokens = i + 1; /* also one that fails may own texts */
        status = read_token(json_array_get(array, i), where, i, n, &a->token[i]);
    }
    if (!status)
        status = check_twice(a, where);
    for (size_t i = 0; i < a->tokens && !status; i++) {
        struct token *t = &a->token[i];
        int32_t other;
        status = check_id(t, v, where, &next);
        if (!status && t->single_word && !a->word)
            status = make_word(a, where);
        if (!status && insert(&a->tree[t->normalized], t, (int32_t)i, &other))
            status = DRY_ERR_MEMORY;
        if (!status && other >= 0) {
            dry_error("%s: tokens \"%s\" and \"%s\" are the same text after the normalizer", where,
                      a->token[other].text, t->text);
            status = DRY_ERR_INPUT;
        }
    }
    return status;
}

enum dry_status dry_added_create(const json_t *array, const struct dry_vocab *v, struct dry_normalizer *n,
                                 const char *where, struct dry_added **a)
{
    if (array && !json_is_null(array) && !json_is_array(array)) {
        dry_error("%s: must be an array", where);
        return DRY_ERR_INPUT;
    }
    struct dry_added *made = dry_alloc(1, sizeof *made, "added tokens");
    if (!made)
        return DRY_ERR_MEMORY;
    for (int i = 0; i < 2; i++)
        memset(made->tree[i].root, 0xff, sizeof made->tree[i].root);
    made->token = dry_alloc(json_array_size(array), sizeof *made->token, "added tokens");
    enum dry_status status = made->token ? read_all(made, array, v, n, where) : DRY_ERR_MEMORY;
    if (status) {
        dry_added_destroy(made);
        return status;
    }
    *a = made;
    return DRY_OK;
}

void dry_added_destroy(struct dry_added *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->tokens; i++) {
        dry_free(a->token[i].text);
        dry_free(a->token[i].match);
    }
    dry_free(a->token);
    dry_free(a->tree[0].node);
    dry_free(a->tree[1].node);
    dry_regex_destroy(a->word);
    dry_free(a);
}

int32_t dry_added_find(const struct dry_added *a, const char *text)
{
    for (size_t i = 0; i < a->tokens; i++)
        if (strcmp(a->token[i].text, text) == 0)
            return a->token[i].id;
    return -1;
}

const char *dry_added_piece(const struct dry_added *a, int32_t id)
{
    for (size_t i = 0; i < a->tokens; i++)
        if (a->token[i].id == id)
            return a->token[i].text;
    return NULL;
}

int32_t dry_added_size(const struct dry_added *a)
{
    int32_t size = 0;

    for (size_t i = 0; i < a->tokens; i++)
        if (a->token[i].id >= size)
            size = a->token[i].id + 1;
    return size;
}

/* ---- finding ---- */

void dry_stretches_reset(struct dry_stretches *s)
{
    dry_free(s->at);
    *s = (struct dry_stretches){0};
}

static int add_stretch(struct dry_stretches *s, size_t begin, size_t end, const struct token *t)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        struct dry_stretch *more =
            dry_realloc(s->at, s->capacity, capacity, sizeof *more, "stretches of text");
        if (!more)
            return -1;
        s->at = more;
        s->capacity = capacity;
    }
    s->at[s->count++] = (struct dry_stretch){begin, end, t ? t->id : -1, t ? t->special : 0};
    return 0;
}

static size_t character_before(const char *text, size_t at, uint32_t *code)
{
    size_t begin = at - 1;

    while (begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin--;
    dry_utf8_decode(text + begin, at - begin, code);
    return begin;
}

/* 1, 0, or -1: the expression gave up. */
static int is_word(const struct dry_added *a, const char *text, size_t begin, size_t end)
{
    size_t b, e;

    return dry_regex_find(a->word, text + begin, end - begin, 0, &b, &e);
}

/* Whether [begin, end) stands as a word of its own. */
static int stands_alone(const struct dry_added *a, const char *text, size_t size, size_t begin, size_t end)
{
    uint32_t code;

    if (begin > 0) {
        int word = is_word(a, text, character_before(text, begin, &code), begin);
        if (word)
            return word < 0 ? -1 : 0;
    }
    if (end < size) {
        int word = is_word(a, text, end, end + dry_utf8_decode(text + end, size - end, &code));
        if (word)
            return word < 0 ? -1 : 0;
    }
    return 1;
}

/* One match, as find_matches of added_vocabulary.rs treats it; *from is where the text not yet given out
 * begins (an rstrip may lie behind it and a later match before it, the original does not mind either). */
static enum dry_status take(const struct dry_added *a, const struct token *t, const char *text, size_t size,
                            size_t begin, size_t end, size_t *from, struct dry_stretches *out)
{
    uint32_t code;

    if (t->single_word) {
        int alone = stands_alone(a, text, size, begin, end);
        if (alone <= 0)
            return alone < 0 ? DRY_ERR_INPUT : DRY_OK;
    }
    if (t->lstrip) {
        size_t left = begin;
        while (left > 0) {
            size_t before = character_before(text, left, &code);
            if (!dry_utf8_is_space(code))
                break;
            left = before;
        }
        begin = left > *from ? left : *from;
    }
    if (t->rstrip)
        while (end < size) {
            size_t n = dry_utf8_decode(text + end, size - end, &code);
            if (!dry_utf8_is_space(code))
                break;
            end += n;
        }
    if ((*from < begin && add_stretch(out, *from, begin, NULL)) || add_stretch(out, begin, end, t))
        return DRY_ERR_MEMORY;
    *from = end;
    return DRY_OK;
}

enum dry_status dry_added_cut(struct dry_added *a, int normalized, int special, const char *text, size_t size,
                              struct dry_stretches *out)
{
    const struct tree *tree = &a->tree[normalized];
    size_t from = 0, at = 0;

    out->count = 0;
    while (tree->nodes > 0 && at < size) {
        size_t length;
        int32_t index =
            tree->root[(unsigned char)text[at]] < 0 ? -1 : longest(tree, text + at, size - at, &length);
        if (index < 0) {
            at++;
            continue;
        }
        const struct token *t = &a->token[index];
        if (special || !t->special) {
            enum dry_status status = take(a, t, text, size, at, at + length, &from, out);
            if (status)
                return status;
        }
        at += length;
    }
    return from < size && add_stretch(out, from, size, NULL) ? DRY_ERR_MEMORY : DRY_OK;
}
