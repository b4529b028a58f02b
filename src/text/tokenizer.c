/*
 * A tokenizer: the parts of tokenizer.json put together, and the tokens that begin and end a text.
 * Owns the parts and the scratch memory of encoding.
 * Must not know what the parts do inside, nor where texts come from.
 */
#include "config.h"

#include "text/parts.h"

#include "base/file.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

struct dry_tokenizer {
    struct dry_normalizer *normalizer;
    struct dry_pretokenizer *pretokenizer;
    struct dry_bpe *bpe;
    struct dry_added *added;
    struct dry_post post;
    int32_t eos, bos, size;
    char hash[DRY_HASH_HEX];
    struct dry_stretches raw, normal;
    struct dry_buffer normalized;
    struct dry_pieces pieces;
};

/* ---- reading ---- */

static enum dry_status check_top(const json_t *root, const char *path)
{
    const char *version;

    if (!json_is_object(root)) {
        dry_error("%s: must hold an object", path);
        return DRY_ERR_INPUT;
    }
    enum dry_status status = dry_json_text(root, "version", 0, "1.0", path, &version);
    if (!status && strcmp(version, "1.0") != 0) {
        dry_error("%s: version \"%s\" is not known to drydock (known: 1.0)", path, version);
        return DRY_ERR_INPUT;
    }
    return status;
}

static enum dry_status check_post(const struct dry_tokenizer *t, const char *path)
{
    const struct dry_ids *lists[] = {&t->post.prefix, &t->post.suffix};

    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < lists[i]->count; k++)
            if (!dry_tokenizer_piece(t, lists[i]->id[k])) {
                dry_error("%s: post_processor adds token id %d, which is no token", path, lists[i]->id[k]);
                return DRY_ERR_INPUT;
            }
    return DRY_OK;
}

static enum dry_status build(struct dry_tokenizer *t, const json_t *root, const char *path)
{
    enum dry_status status = check_top(root, path);

    if (!status)
        status = dry_normalizer_create(json_object_get(root, "normalizer"), path, &t->normalizer);
    if (!status)
        status = dry_pretokenizer_create(json_object_get(root, "pre_tokenizer"), path, &t->pretokenizer);
    if (!status && dry_pretokenizer_asks_first(t->pretokenizer) &&
        dry_normalizer_moves_start(t->normalizer)) {
        dry_error("%s: a Metaspace with prepend_scheme \"first\" behind a normalizer Replace or Strip is not "
                  "known to drydock",
                  path);
        status = DRY_ERR_INPUT;
    }
    if (!status)
        status = dry_bpe_create(json_object_get(root, "model"),
                                dry_pretokenizer_leaves_bytes(t->pretokenizer), path, &t->bpe);
    if (!status)
        status = dry_added_create(json_object_get(root, "added_tokens"), dry_bpe_vocab(t->bpe), t->normalizer,
                                  path, &t->added);
    if (status)
        return status;
    t->size = dry_vocab_size(dry_bpe_vocab(t->bpe));
    if (dry_added_size(t->added) > t->size)
        t->size = dry_added_size(t->added);
    status = dry_post_create(json_object_get(root, "post_processor"), path, &t->post);
    return status ? status : check_post(t, path);
}

/* ---- the tokens that begin and end a text ---- */

static int32_t find_token(const struct dry_tokenizer *t, const char *text)
{
    int32_t id = dry_added_find(t->added, text);

    return id >= 0 ? id : dry_vocab_find(dry_bpe_vocab(t->bpe), text, strlen(text));
}

/* "eos_token": a text, or an object with its text as "content". */
static enum dry_status end_by_text(const struct dry_tokenizer *t, const json_t *config, const char *key,
                                   const char *path, int32_t *id)
{
    const json_t *value = json_object_get(config, key);
    const char *text;
    enum dry_status status = json_is_object(value) ? dry_json_text(value, "content", 1, NULL, path, &text)
                                                   : dry_json_text(config, key, 0, NULL, path, &text);

    if (status || !text)
        return status;
    *id = find_token(t, text);
    if (*id < 0) {
        dry_error("%s: %s \"%s\" is no token of tokenizer.json", path, key, text);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* "eos_token_id": a number, or a list whose first entry counts. */
static enum dry_status end_by_id(const struct dry_tokenizer *t, const json_t *config, const char *key,
                                 const char *path, int32_t *id)
{
    const json_t *value = json_object_get(config, key);

    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!value || json_is_null(value))
        return DRY_OK;
    double number = json_number_value(value); /* a real where another number of the file is very large */
    if (!json_is_number(value) || !(number >= 0 && number < t->size) || number != (double)(int32_t)number ||
        !dry_tokenizer_piece(t, (int32_t)number)) {
        dry_error("%s: %s is no token id of tokenizer.json", path, key);
        return DRY_ERR_INPUT;
    }
    *id = (int32_t)number;
    return DRY_OK;
}

/* Transformers adds the tokens listed here to the tokenizer; a file that needs that would give other ids
 * here. */
static void warn_missing(const struct dry_tokenizer *t, const json_t *config, const char *path)
{
    const char *id;
    json_t *token;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, token)
    {
        const char *text = json_string_value(json_object_get(token, "content"));
        if (text && dry_added_find(t->added, text) < 0)
            dry_warn("%s: added token \"%s\" (id %s) is not among the added_tokens of tokenizer.json; "
                     "drydock does not "
                     "recognise it in a text",
                     path, text, id);
    }
}

/* One file's word on the ends; `named`: by text, which replaces what an earlier file said. */
static enum dry_status read_end_file(struct dry_tokenizer *t, const json_t *config, int named,
                                     const char *path)
{
    enum dry_status status = DRY_OK;

    if (!json_is_object(config)) {
        dry_error("%s: must hold an object", path);
        return DRY_ERR_INPUT;
    }
    if (named) {
        status = end_by_text(t, config, "eos_token", path, &t->eos);
        return status ? status : end_by_text(t, config, "bos_token", path, &t->bos);
    }
    if (t->eos < 0)
        status = end_by_id(t, config, "eos_token_id", path, &t->eos);
    if (!status && t->bos < 0)
        status = end_by_id(t, config, "bos_token_id", path, &t->bos);
    return status;
}

static enum dry_status read_ends(struct dry_tokenizer *t, const char *dir)
{
    enum { CONFIG, MAP, FILES = 4 };
    static const char *const names[FILES] = {[CONFIG] = "tokenizer_config.json",
                                             [MAP] = "special_tokens_map.json",
                                             "generation_config.json",
                                             "config.json"};
    enum dry_status status = DRY_OK;
    int modern = 0; /* Transformers reads the map only where the configuration lists no added tokens */

    t->eos = t->bos = -1;
    for (int i = 0; i < FILES && !status; i++) {
        json_t *config = NULL;
        char *path;

        if ((i == MAP && modern) || (i > MAP && t->eos >= 0 && t->bos >= 0))
            continue;
        path = dry_path_join(dir, names[i]);
        if (!path)
            return DRY_ERR_MEMORY;
        if (dry_file_exists(path))
            status = dry_json_read(path, &config);
        if (!status && config)
            status = read_end_file(t, config, i <= MAP, path);
        if (!status && i == CONFIG) {
            modern = json_object_get(config, "added_tokens_decoder") != NULL;
            warn_missing(t, config, path);
        }
        json_decref(config);
        dry_free(path);
    }
    return status;
}

static enum dry_status hash_all(struct dry_tokenizer *t, const char *data, size_t size)
{
    struct dry_hash *h;
    char text[32];
    enum dry_status status = dry_hash_create(&h);

    if (status)
        return status;
    dry_hash_field(h, "tokenizer.json", data, size);
    snprintf(text, sizeof text, "%d %d", t->eos, t->bos);
    dry_hash_text(h, "eos and bos", text);
    dry_hash_finish(h, t->hash);
    return DRY_OK;
}

static enum dry_status parse(const char *path, const char *data, size_t size, json_t **root)
{
    json_error_t error;

    *root = json_loadb(data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (*root)
        return DRY_OK;
    if (json_error_code(&error) == json_error_out_of_memory) {
        dry_error("out of memory: reading %s", path);
        return DRY_ERR_MEMORY;
    }
    dry_error("%s:%d:%d: not valid JSON: %s", path, error.line, error.column, error.text);
    return DRY_ERR_INPUT;
}

enum dry_status dry_tokenizer_create(const char *dir, struct dry_tokenizer **t)
{
    char *path = dry_path_join(dir, "tokenizer.json"), *data = NULL;
    size_t size;
    json_t *root = NULL;
    struct dry_tokenizer *made = dry_alloc(1, sizeof *made, "tokenizer");
    enum dry_status status = path && made ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && !dry_file_exists(path)) {
        dry_error(
            "%s: no such file; a base needs tokenizer.json (older models: save their fast tokenizer with "
            "Transformers' save_pretrained)",
            path);
        status = DRY_ERR_INPUT;
    }
    if (!status)
        status = dry_file_read(path, &data, &size);
    if (!status)
        status = parse(path, data, size, &root);
    if (!status)
        status = build(made, root, path);
    if (!status)
        status = read_ends(made, dir);
    if (!status)
        status = hash_all(made, data, size);
    json_decref(root);
    dry_free(data);
    dry_free(path);
    if (status) {
        dry_tokenizer_destroy(made);
        return status;
    }
    *t = made;
    return DRY_OK;
}

void dry_tokenizer_destroy(struct dry_tokenizer *t)
{
    if (!t)
        return;
    dry_normalizer_destroy(t->normalizer);
    dry_pretokenizer_destroy(t->pretokenizer);
    dry_bpe_destroy(t->bpe);
    dry_added_destroy(t->added);
    dry_post_reset(&t->post);
    dry_stretches_reset(&t->raw);
    dry_stretches_reset(&t->normal);
    dry_buffer_reset(&t->normalized);
    dry_pieces_reset(&t->pieces);
    dry_free(t);
}

/* ---- encoding ---- */

/* What a walk over a text finds; ids NULL: only the special tokens are counted. */
struct walk {
    int special;
    struct dry_ids *ids;
    int64_t count;
    int32_t first; /* special token */
};

static enum dry_status take_token(struct walk *w, const struct dry_stretch *s)
{
    if (s->special && w->count++ == 0)
        w->first = s->id;
    return w->ids && dry_ids_append(w->ids, &s->id, 1) ? DRY_ERR_MEMORY : DRY_OK;
}

static enum dry_status encode_plain(struct dry_tokenizer *t, const char *text, size_t size, int first,
                                    struct dry_ids *ids)
{
    if (dry_pieces_begin(&t->pieces, text, size, first))
        return DRY_ERR_MEMORY;
    enum dry_status status = dry_pretokenizer_run(t->pretokenizer, &t->pieces);
    for (size_t i = 0; i < t->pieces.count && !status; i++)
        status = dry_bpe_encode(t->bpe, t->pieces.text.data + t->pieces.piece[i].begin,
                                t->pieces.piece[i].size, ids);
    return status;
}

/* The text between two raw tokens: normalise it, cut it at the tokens that are matched then, encode the rest.
 */
static enum dry_status walk_normal(struct dry_tokenizer *t, const char *text, size_t size, int first,
                                   struct walk *w)
{
    enum dry_status status = DRY_OK;

    if (!dry_normalizer_is_empty(t->normalizer)) {
        status = dry_normalizer_run(t->normalizer, text, size, &t->normalized);
        text = t->normalized.data;
        size = t->normalized.len;
    }
    if (!status)
        status = dry_added_cut(t->added, 1, w->special, text, size, &t->normal);
    for (size_t i = 0; i < t->normal.count && !status; i++) {
        const struct dry_stretch *s = &t->normal.at[i];
        if (s->id >= 0)
            status = take_token(w, s);
        else if (w->ids)
            status = encode_plain(t, text + s->begin, s->end - s->begin, first && s->begin == 0, w->ids);
    }
    return status;
}

static enum dry_status walk(struct dry_tokenizer *t, const char *text, size_t size, struct walk *w)
{
    enum dry_status status = dry_added_cut(t->added, 0, w->special, text, size, &t->raw);

    for (size_t i = 0; i < t->raw.count && !status; i++) {
        const struct dry_stretch *s = &t->raw.at[i];
        if (s->id >= 0)
            status = take_token(w, s);
        else
            status = walk_normal(t, text + s->begin, s->end - s->begin, s->begin == 0, w);
    }
    return status;
}

enum dry_status dry_tokenizer_encode(struct dry_tokenizer *t, const char *text, size_t size, unsigned how,
                                     struct dry_ids *ids)
{
    struct walk w = {.special = (how & DRY_ENCODE_SPECIAL_TEXT) != 0, .ids = ids, .first = -1};
    size_t begin = ids->count;
    enum dry_status status = DRY_OK;

    if ((how & (DRY_ENCODE_POST | DRY_ENCODE_PREFIX)) &&
        dry_ids_append(ids, t->post.prefix.id, t->post.prefix.count))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = walk(t, text, size, &w);
    if (!status && (how & DRY_ENCODE_POST) && dry_ids_append(ids, t->post.suffix.id, t->post.suffix.count))
        status = DRY_ERR_MEMORY;
    if (status)
        ids->count = begin;
    return status;
}

enum dry_status dry_tokenizer_special_count(struct dry_tokenizer *t, const char *text, size_t size,
                                            int64_t *count, int32_t *first)
{
    struct walk w = {.special = 1, .first = -1};
    enum dry_status status = walk(t, text, size, &w);

    if (status)
        return status;
    *count = w.count;
    if (first)
        *first = w.first;
    return DRY_OK;
}

const char *dry_tokenizer_piece(const struct dry_tokenizer *t, int32_t id)
{
    const char *piece = dry_vocab_piece(dry_bpe_vocab(t->bpe), id);

    return piece ? piece : dry_added_piece(t->added, id);
}

int32_t dry_tokenizer_eos(const struct dry_tokenizer *t)
{
    return t->eos;
}

int32_t dry_tokenizer_bos(const struct dry_tokenizer *t)
{
    return t->bos;
}

int32_t dry_tokenizer_size(const struct dry_tokenizer *t)
{
    return t->size;
}

const char *dry_tokenizer_hash(const struct dry_tokenizer *t)
{
    return t->hash;
}
