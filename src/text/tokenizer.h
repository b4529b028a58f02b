/*
 * tokenizer.json: text to token ids exactly as Hugging Face tokenizers does, built from the file's parts
 * (added tokens, normalizer, pre-tokenizers, BPE, post-processor).  A part that is not known is refused by
 * name, never guessed. Owns the vocabulary and its caches.  Must not know of records or templates.
 */
#ifndef DRY_TEXT_TOKENIZER_H
#define DRY_TEXT_TOKENIZER_H

#include "base/hash.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct dry_tokenizer;

/* A growing list of ids; visible. */
struct dry_ids {
    int32_t *id;
    size_t count, capacity;
};
void dry_ids_reset(struct dry_ids *ids);

enum dry_encode {
    DRY_ENCODE_SPECIAL_TEXT =
        1,                /* special tokens written in the text are recognised (else they are plain text) */
    DRY_ENCODE_POST = 2,  /* the post-processor adds its tokens (BOS where it does) */
    DRY_ENCODE_PREFIX = 4 /* of those only the ones before the text: it goes on elsewhere */
};

/* Local. Reads DIR/tokenizer.json and, for bos and eos, DIR/tokenizer_config.json ("eos_token"; over it
 * special_tokens_map.json where that has no "added_tokens_decoder"), else generation_config.json, else
 * config.json ("eos_token_id": of several the first). The objects "truncation" and "padding" have no effect,
 * as in Transformers, which sets its own for every call. INPUT names the file and the part. */
enum dry_status dry_tokenizer_create(const char *dir, struct dry_tokenizer **t);
void dry_tokenizer_destroy(struct dry_tokenizer *t);

/* Local. Appends the ids of valid UTF-8 text. Not for use by two threads at once on one tokenizer (it has a
 * cache). MEMORY, INPUT (regex gave up), the rest never fails. */
enum dry_status dry_tokenizer_encode(struct dry_tokenizer *t, const char *text, size_t size, unsigned how,
                                     struct dry_ids *ids);
/* Local. How many special tokens are written in the text (for the preflight), and the id of the first (-1:
 * none; may be NULL). MEMORY, INPUT (a regular expression gave up). */
enum dry_status dry_tokenizer_special_count(struct dry_tokenizer *t, const char *text, size_t size,
                                            int64_t *count, int32_t *first);

/* Local. The token's text as the file has it ("Ġthe"), borrowed; NULL when there is none. */
const char *dry_tokenizer_piece(const struct dry_tokenizer *t, int32_t id);
int32_t dry_tokenizer_eos(const struct dry_tokenizer *t);  /* -1: none */
int32_t dry_tokenizer_bos(const struct dry_tokenizer *t);  /* -1: none */
int32_t dry_tokenizer_size(const struct dry_tokenizer *t); /* largest id + 1 */
/* Local. SHA-256 of the bytes that decide the ids (tokenizer.json, and the eos and bos found). */
const char *dry_tokenizer_hash(const struct dry_tokenizer *t);

#endif
