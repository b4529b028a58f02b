/*
 * The BPE model: a piece of text becomes characters, characters become tokens by merges in the order of their
 * rank. Owns vocabulary, merges, a cache of short pieces and the scratch memory of merging. Must not know
 * where pieces come from.
 *
 * Merging follows tokenizers/src/models/bpe/word.rs: a queue ordered by rank and position; an entry whose
 * pair is gone is dropped unless the pair that is there now gives the same token.
 */
#include "config.h"

#include "text/parts.h"

#include "base/log.h"
#include "text/mix.h"

#include <stdio.h>
#include <string.h>

/* Short pieces make up nearly all text. One slot is a cache line, the newest piece wins. */
enum { CACHE_SLOTS = 1 << 16, CACHE_TEXT = 30, CACHE_IDS = 8 };

struct cached {
    uint8_t size, count; /* size 0: free */
    char text[CACHE_TEXT];
    int32_t id[CACHE_IDS];
};
_Static_assert(sizeof(struct cached) == 64, "a cache slot is a cache line");

struct merge {
    uint64_t pair; /* left id in the upper half; NO_PAIR: free */
    uint32_t rank;
    int32_t id;
};
#define NO_PAIR UINT64_MAX

/* Neighbours are indexes, -1 at the ends; a symbol that was merged into its left neighbour has id -1. */
struct symbol {
    int32_t id;
    int64_t previous, next;
};

struct entry {
    uint32_t rank;
    int32_t id;
    int64_t at;
};

struct dry_bpe {
    struct dry_vocab *vocab;
    struct merge *merge;
    size_t slots; /* a power of two */
    int bytes, byte_fallback, fuse_unk, ignore_merges;
    int has_unk;
    int32_t unk;           /* -1: not in the vocabulary */
    int32_t byte_id[256];  /* bytes: the id of a byte's character, -1: none */
    int32_t fallback[256]; /* the id of <0xNN>, -1: none */
    char *where;
    struct cached *cache;
    struct symbol *symbol;
    size_t symbols, symbol_capacity;
    struct entry *heap;
    size_t entries, heap_capacity;
    struct dry_buffer mapped;
};

/* ---- reading ---- */

static struct merge *merge_slot(const struct dry_bpe *b, uint64_t pair)
{
    size_t at = (size_t)dry_mix(pair) & (b->slots - 1);

    while (b->merge[at].pair != NO_PAIR && b->merge[at].pair != pair)
        at = (at + 1) & (b->slots - 1);
    return &b->merge[at];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The two halves of a merge, as "a b" or ["a", "b"]. */
static int halves(const json_t *item, const char *half[2], size_t size[2])
{
    if (json_is_array(item) && json_array_size(item) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *text = json_array_get(item, i);
            if (!json_is_string(text))
                return -1;
            half[i] = json_string_value(text);
            size[i] = json_string_length(text);
        }
        return 0;
    }
    if (!json_is_string(item))
        return -1;
    const char *text = json_string_value(item);
    size_t n = json_string_length(item);
    const char *gap = memchr(text, ' ', n);
    if (!gap || memchr(gap + 1, ' ', n - (size_t)(gap + 1 - text)))
        return -1;
    half[0] = text;
    size[0] = (size_t)(gap - text);
    half[1] = gap + 1;
    size[1] = n - size[0] - 1;
    return 0;
}

static enum dry_status read_merges(struct dry_bpe *b, const json_t *list, const char *where)
{
    size_t n = json_array_size(list);
    uint32_t rank = 0;

    if (!json_is_array(list)) {
        dry_error("%s: key \"merges\" must be an array", where);
        return DRY_ERR_INPUT;
    }
    b->slots = 16;
    while (b->slots < 2 * n)
        b->slots *= 2;
    b->merge = dry_alloc(b->slots, sizeof *b->merge, "merges");
    if (!b->merge)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < b->slots; i++)
        b->merge[i].pair = NO_PAIR;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const char *half[2];
        size_t size[2];
        if (json_is_string(item) && strncmp(json_string_value(item), "#version", 8) == 0)
            continue;
        if (halves(item, half, size)) {
            dry_error("%s: merge %zu must be \"a b\" or [\"a\", \"b\"]", where, i);
            return DRY_ERR_INPUT;
        }
        b->mapped.len = 0;
        if (dry_buffer_append(&b->mapped, half[0], size[0]) ||
            dry_buffer_append(&b->mapped, half[1], size[1]))
            return DRY_ERR_MEMORY;
        int32_t left = dry_vocab_find(b->vocab, half[0], size[0]);
        int32_t right = dry_vocab_find(b->vocab, half[1], size[1]);
        int32_t id = dry_vocab_find(b->vocab, b->mapped.data, b->mapped.len);
        if (left < 0 || right < 0 || id < 0) {
            int bad = left < 0 ? 0 : 1;
            const char *missing = left >= 0 && right >= 0 ? b->mapped.data : half[bad];
            dry_error("%s: merge %zu needs token \"%.*s\", which is not in the vocabulary", where, i,
                      (int)(left >= 0 && right >= 0 ? b->mapped.len : size[bad]), missing);
            return DRY_ERR_INPUT;
        }
        /* a pair that is listed twice has its last rank, as in the original's table */
        *merge_slot(b, pair_of(left, right)) = (struct merge){pair_of(left, right), rank++, id};
    }
    return DRY_OK;
}

static enum dry_status read_options(struct dry_bpe *b, const json_t *object, const char *where)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout;
    const char *unk;
    enum dry_status status = dry_json_real(object, "dropout", 0, 0, where, &dropout);

    if (!status && dropout != 0) {
        dry_error("%s: BPE dropout %g is not known to drydock (known: null)", where, dropout);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < 2 && !status; i++) {
        const char *text;
        status = dry_json_text(object, affixes[i], 0, "", where, &text);
        if (!status && *text) {
            dry_error("%s: BPE %s \"%s\" is not known to drydock (known: null and \"\")", where, affixes[i],
                      text);
            return DRY_ERR_INPUT;
        }
    }
    if (!status)
        status = dry_json_bool(object, "byte_fallback", 0, 0, where, &b->byte_fallback);
    if (!status)
        status = dry_json_bool(object, "fuse_unk", 0, 0, where, &b->fuse_unk);
    if (!status)
        status = dry_json_bool(object, "ignore_merges", 0, 0, where, &b->ignore_merges);
    if (!status)
        status = dry_json_text(object, "unk_token", 0, NULL, where, &unk);
    if (status)
        return status;
    b->has_unk = unk != NULL;
    b->unk = unk ? dry_vocab_find(b->vocab, unk, strlen(unk)) : -1;
    return DRY_OK;
}

static void fill_bytes(struct dry_bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char text[8];
        size_t n = dry_bytelevel_char((unsigned char)i, text);
        b->byte_id[i] = dry_vocab_find(b->vocab, text, n);
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        b->fallback[i] = dry_vocab_find(b->vocab, text, 6);
    }
}

enum dry_status dry_bpe_create(const json_t *object, int bytes, const char *where, struct dry_bpe **b)
{
    const char *type;
    struct dry_bpe *made = NULL;
    enum dry_status status = DRY_OK;

    if (!json_is_object(object)) {
        dry_error("%s: key \"model\" must be an object", where);
        return DRY_ERR_INPUT;
    }
    /* files of before 2020 have no type */
    status = dry_json_text(object, "type", 0, "BPE", where, &type);
    if (!status && strcmp(type, "BPE") != 0) {
        dry_error("%s: model type \"%s\" is not known to drydock (known: BPE)", where, type);
        return DRY_ERR_INPUT;
    }
    if (status)
        return status;
    made = dry_alloc(1, sizeof *made, "tokenizer model");
    if (!made)
        return DRY_ERR_MEMORY;
    made->bytes = bytes;
    made->where = dry_strdup(where);
    made->cache = dry_alloc(CACHE_SLOTS, sizeof *made->cache, "tokenizer cache");
    status = made->where && made->cache ? DRY_OK : DRY_ERR_MEMORY;
    if (!status)
        status = dry_vocab_create(json_object_get(object, "vocab"), where, &made->vocab);
    if (!status)
        status = read_options(made, object, where);
    if (!status)
        status = read_merges(made, json_object_get(object, "merges"), where);
    if (status) {
        dry_bpe_destroy(made);
        return status;
    }
    fill_bytes(made);
    *b = made;
    return DRY_OK;
}

void dry_bpe_destroy(struct dry_bpe *b)
{
    if (!b)
        return;
    dry_vocab_destroy(b->vocab);
    dry_free(b->merge);
    dry_free(b->where);
    dry_free(b->cache);
    dry_free(b->symbol);
    dry_free(b->heap);
    dry_buffer_reset(&b->mapped);
    dry_free(b);
}

const struct dry_vocab *dry_bpe_vocab(const struct dry_bpe *b)
{
    return b->vocab;
}

/* ---- characters ---- */

static int add_symbol(struct dry_bpe *b, int32_t id)
{
    if (b->symbols == b->symbol_capacity) {
        size_t capacity = b->symbol_capacity ? 2 * b->symbol_capacity : 256;
        struct symbol *more =
            dry_realloc(b->symbol, b->symbol_capacity, capacity, sizeof *more, "symbols of a piece");
        if (!more)
            return -1;
        b->symbol = more;
        b->symbol_capacity = capacity;
    }
    int64_t at = (int64_t)b->symbols;
    if (at > 0)
        b->symbol[at - 1].next = at;
    b->symbol[at] = (struct symbol){id, at - 1, -1};
    b->symbols++;
    return 0;
}

/* A character that is no token becomes its bytes' tokens if all exist. 1: done, 0: not possible, -1: MEMORY.
 */
static int fall_back(struct dry_bpe *b, const char *text, size_t n)
{
    if (!b->byte_fallback)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (b->fallback[(unsigned char)text[i]] < 0)
            return 0;
    for (size_t i = 0; i < n; i++)
        if (add_symbol(b, b->fallback[(unsigned char)text[i]]))
            return -1;
    return 1;
}

static enum dry_status refuse_unk(const struct dry_bpe *b, const char *text, size_t n)
{
    dry_error("%s: the character \"%.*s\" is not in the vocabulary, and neither is the unk_token", b->where,
              (int)n, text);
    return DRY_ERR_INPUT;
}

/* Symbols of a text by characters, with unknown ones as model.rs has them: bytes, the unknown token (which
 * waits, to be fused, until the next known character), or nothing. */
static enum dry_status symbols_of_text(struct dry_bpe *b, const char *text, size_t size)
{
    int waiting = 0;

    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t n = dry_utf8_decode(text + at, size - at, &code);
        int32_t id = dry_vocab_find(b->vocab, text + at, n);
        if (id >= 0) {
            if ((waiting && add_symbol(b, b->unk)) || add_symbol(b, id))
                return DRY_ERR_MEMORY;
            waiting = 0;
        } else {
            int fell = fall_back(b, text + at, n);
            if (fell < 0)
                return DRY_ERR_MEMORY;
            if (!fell && b->has_unk) {
                if (b->unk < 0)
                    return refuse_unk(b, text + at, n);
                if (waiting && !b->fuse_unk && add_symbol(b, b->unk))
                    return DRY_ERR_MEMORY;
                waiting = 1;
            }
        }
        at += n;
    }
    return waiting && add_symbol(b, b->unk) ? DRY_ERR_MEMORY : DRY_OK;
}

static int map_bytes(struct dry_bpe *b, const char *text, size_t size)
{
    b->mapped.len = 0;
    for (size_t i = 0; i < size; i++) {
        char bytes[2];
        if (dry_buffer_append(&b->mapped, bytes, dry_bytelevel_char((unsigned char)text[i], bytes)))
            return -1;
    }
    return 0;
}

static enum dry_status symbols_of_bytes(struct dry_bpe *b, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        int32_t id = b->byte_id[(unsigned char)text[i]];
        if (id < 0) { /* not all bytes are tokens: the general way */
            b->symbols = 0;
            if (map_bytes(b, text, size))
                return DRY_ERR_MEMORY;
            return symbols_of_text(b, b->mapped.data, b->mapped.len);
        }
        if (add_symbol(b, id))
            return DRY_ERR_MEMORY;
    }
    return DRY_OK;
}

/* ---- merging ---- */

static int before(const struct entry *a, const struct entry *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static int push(struct dry_bpe *b, int64_t at)
{
    int64_t next = b->symbol[at].next;
    const struct merge *m = merge_slot(b, pair_of(b->symbol[at].id, b->symbol[next].id));

    if (m->pair == NO_PAIR)
        return 0;
    if (b->entries == b->heap_capacity) {
        size_t capacity = b->heap_capacity ? 2 * b->heap_capacity : 256;
        struct entry *more =
            dry_realloc(b->heap, b->heap_capacity, capacity, sizeof *more, "merges of a piece");
        if (!more)
            return -1;
        b->heap = more;
        b->heap_capacity = capacity;
    }
    struct entry fresh = {m->rank, m->id, at};
    size_t i = b->entries++;
    for (; i > 0 && before(&fresh, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = fresh;
    return 0;
}

static struct entry pop(struct dry_bpe *b)
{
    struct entry top = b->heap[0], last = b->heap[--b->entries];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= b->entries)
            break;
        if (child + 1 < b->entries && before(&b->heap[child + 1], &b->heap[child]))
            child++;
        if (!before(&b->heap[child], &last))
            break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

static int merge_all(struct dry_bpe *b)
{
    struct symbol *s = b->symbol;

    b->entries = 0;
    for (size_t i = 0; i + 1 < b->symbols; i++)
        if (push(b, (int64_t)i))
            return -1;
    while (b->entries > 0) {
        struct entry top = pop(b);
        int64_t next = s[top.at].next;
        if (s[top.at].id < 0 || next < 0)
            continue;
        const struct merge *m = merge_slot(b, pair_of(s[top.at].id, s[next].id));
        if (m->pair == NO_PAIR || m->id != top.id)
            continue;
        s[top.at].id = top.id;
        s[top.at].next = s[next].next;
        s[next].id = -1;
        if (s[top.at].next >= 0)
            s[s[top.at].next].previous = top.at;
        if (s[top.at].previous >= 0 && push(b, s[top.at].previous))
            return -1;
        if (s[top.at].next >= 0 && push(b, top.at))
            return -1;
    }
    return 0;
}

static int append_symbols(const struct dry_bpe *b, struct dry_ids *ids)
{
    if (b->symbols == 0)
        return 0;
    for (int64_t at = 0; at >= 0; at = b->symbol[at].next)
        if (dry_ids_append(ids, &b->symbol[at].id, 1))
            return -1;
    return 0;
}

/* ---- a piece ---- */

/* With ignore_merges a piece that is a token is that token, whatever merges would make of it. */
static enum dry_status whole_piece(struct dry_bpe *b, const char *text, size_t size, int32_t *id)
{
    *id = -1;
    if (!b->ignore_merges)
        return DRY_OK;
    if (b->bytes) {
        if (map_bytes(b, text, size))
            return DRY_ERR_MEMORY;
        text = b->mapped.data;
        size = b->mapped.len;
    }
    *id = dry_vocab_find(b->vocab, text, size);
    return DRY_OK;
}

static enum dry_status encode(struct dry_bpe *b, const char *text, size_t size, struct dry_ids *ids)
{
    int32_t whole;
    enum dry_status status = whole_piece(b, text, size, &whole);

    if (status)
        return status;
    if (whole >= 0)
        return dry_ids_append(ids, &whole, 1) ? DRY_ERR_MEMORY : DRY_OK;
    b->symbols = 0;
    status = b->bytes ? symbols_of_bytes(b, text, size) : symbols_of_text(b, text, size);
    if (status)
        return status;
    return merge_all(b) || append_symbols(b, ids) ? DRY_ERR_MEMORY : DRY_OK;
}

enum dry_status dry_bpe_encode(struct dry_bpe *b, const char *text, size_t size, struct dry_ids *ids)
{
    if (size == 0)
        return DRY_OK;
    if (size > CACHE_TEXT)
        return encode(b, text, size, ids);
    struct cached *c = &b->cache[dry_mix_bytes(text, size) & (CACHE_SLOTS - 1)];
    if (c->size == size && memcmp(c->text, text, size) == 0)
        return dry_ids_append(ids, c->id, c->count) ? DRY_ERR_MEMORY : DRY_OK;
    size_t begin = ids->count;
    enum dry_status status = encode(b, text, size, ids);
    if (!status && ids->count - begin <= CACHE_IDS) {
        c->size = (uint8_t)size;
        c->count = (uint8_t)(ids->count - begin);
        memcpy(c->text, text, size);
        if (c->count > 0)
            memcpy(c->id, ids->id + begin, c->count * sizeof *c->id);
    }
    return status;
}
