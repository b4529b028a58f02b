/*
 * The parts of a tokenizer, each read from its object in tokenizer.json and then run: added tokens,
 * normalizer, pre-tokenizers, BPE model, post-processor.  Private to text/. A part owns what it read; texts
 * of the JSON are copied.  A part must not know of the others.
 */
#ifndef DRY_TEXT_PARTS_H
#define DRY_TEXT_PARTS_H

#include "base/json.h"
#include "base/memory.h"
#include "base/regex.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

/* Local. Appends ids. 0, or -1 for lack of memory (logged). */
int dry_ids_append(struct dry_ids *ids, const int32_t *id, size_t n);

/* ---- strings to ids: the vocabulary ---- */

struct dry_vocab;
/* Local. From {"token": id, ...}. INPUT, MEMORY. */
enum dry_status dry_vocab_create(const json_t *object, const char *where, struct dry_vocab **v);
void dry_vocab_destroy(struct dry_vocab *v);
int32_t dry_vocab_find(const struct dry_vocab *v, const char *text, size_t size); /* -1: none */
/* The token's text, NUL-terminated; NULL when there is none. */
const char *dry_vocab_piece(const struct dry_vocab *v, int32_t id);
int32_t dry_vocab_size(const struct dry_vocab *v); /* largest id + 1 */
int32_t dry_vocab_count(const struct dry_vocab *v);

/* ---- text in pieces: what pre-tokenizers turn one stretch of text into ---- */

struct dry_piece {
    size_t begin, size; /* in bytes of the pieces' text */
    int first;          /* begins where the whole input begins */
};
struct dry_pieces {
    struct dry_buffer text, spare; /* spare: where a step that changes the text writes it */
    struct dry_piece *piece, *next;
    size_t count, capacity, next_count, next_capacity;
    struct dry_match *match; /* scratch of splitting */
    size_t matches, match_capacity;
};
void dry_pieces_reset(struct dry_pieces *p);
/* Local. One piece that is the whole text. 0, -1: MEMORY. */
int dry_pieces_begin(struct dry_pieces *p, const char *text, size_t size, int first);

/* ---- normalizer ---- */

struct dry_normalizer;
/* Local. `object` may be NULL or null: no change. INPUT, MEMORY. */
enum dry_status dry_normalizer_create(const json_t *object, const char *where, struct dry_normalizer **n);
void dry_normalizer_destroy(struct dry_normalizer *n);
int dry_normalizer_is_empty(const struct dry_normalizer *n);
/* Whether it can remove or replace the text's beginning (then "the first piece" has no exact meaning). */
int dry_normalizer_moves_start(const struct dry_normalizer *n);
/* Local. *out is overwritten. INPUT (expression gave up), MEMORY. */
enum dry_status dry_normalizer_run(struct dry_normalizer *n, const char *text, size_t size,
                                   struct dry_buffer *out);

/* ---- pre-tokenizers ---- */

struct dry_pretokenizer;
enum dry_status dry_pretokenizer_create(const json_t *object, const char *where, struct dry_pretokenizer **p);
void dry_pretokenizer_destroy(struct dry_pretokenizer *p);
/* Whether the last step is ByteLevel's mapping, which is left to the model (dry_bpe_encode with bytes = 1).
 */
int dry_pretokenizer_leaves_bytes(const struct dry_pretokenizer *p);
int dry_pretokenizer_asks_first(const struct dry_pretokenizer *p);
/* Local. In place. INPUT, MEMORY. */
enum dry_status dry_pretokenizer_run(struct dry_pretokenizer *p, struct dry_pieces *pieces);
/* The character that ByteLevel writes for a byte, in UTF-8; returns its length (1 or 2). */
size_t dry_bytelevel_char(unsigned char byte, char out[2]);

/* ---- BPE ---- */

struct dry_bpe;
/* Local. bytes: pieces come as plain bytes and are mapped here. INPUT, MEMORY. */
enum dry_status dry_bpe_create(const json_t *object, int bytes, const char *where, struct dry_bpe **b);
void dry_bpe_destroy(struct dry_bpe *b);
const struct dry_vocab *dry_bpe_vocab(const struct dry_bpe *b);
/* Local. Appends one piece's ids. INPUT (unknown character without an unk token in the vocabulary), MEMORY.
 */
enum dry_status dry_bpe_encode(struct dry_bpe *b, const char *text, size_t size, struct dry_ids *ids);

/* ---- added tokens ---- */

struct dry_added;
/* Local. From the array "added_tokens"; ids follow from the vocabulary as in Hugging Face tokenizers and must
 * be those of the file. Texts of normalized tokens pass through n. INPUT, MEMORY. */
enum dry_status dry_added_create(const json_t *array, const struct dry_vocab *v, struct dry_normalizer *n,
                                 const char *where, struct dry_added **a);
void dry_added_destroy(struct dry_added *a);
int32_t dry_added_find(const struct dry_added *a, const char *text); /* -1: none */
const char *dry_added_piece(const struct dry_added *a, int32_t id);  /* NULL: none */
int32_t dry_added_size(const struct dry_added *a);                   /* largest id + 1, 0 when none */

/* A stretch of text: an added token's id, or -1 and plain text. */
struct dry_stretch {
    size_t begin, end;
    int32_t id;
    int special;
};
struct dry_stretches {
    struct dry_stretch *at;
    size_t count, capacity;
};
void dry_stretches_reset(struct dry_stretches *s);
/* Local. Cuts text at the tokens that are matched on the raw (normalized = 0) or on the normalised text;
 * special tokens only if asked. *out is overwritten. INPUT, MEMORY. */
enum dry_status dry_added_cut(struct dry_added *a, int normalized, int special, const char *text, size_t size,
                              struct dry_stretches *out);

/* ---- post-processor ---- */

struct dry_post {
    struct dry_ids prefix, suffix; /* ids before and after the text */
};
enum dry_status dry_post_create(const json_t *object, const char *where, struct dry_post *p);
void dry_post_reset(struct dry_post *p);

/* ---- reading JSON ---- */

/* Local. The string object["type"]. INPUT. */
enum dry_status dry_part_type(const json_t *object, const char *where, const char **type);
/* Local. A pattern {"String": s} or {"Regex": r}: one of the two is set, borrowed. INPUT. */
enum dry_status dry_part_pattern(const json_t *object, const char *where, const char **string,
                                 const char **regex);
/* Local. An Oniguruma expression compiled for PCRE2. INPUT, MEMORY. */
enum dry_status dry_part_regex(const char *pattern, const char *where, struct dry_regex **re);

/* Successive matches as the onig crate gives them: no empty match right behind the one before. */
struct dry_matches {
    struct dry_regex *re;
    const char *text;
    size_t size, from, last; /* last: end of the previous match, SIZE_MAX before the first */
};
/* Local. 1, 0 (no more) or -1 (gave up, logged). */
int dry_matches_next(struct dry_matches *m, size_t *begin, size_t *end);

#endif
