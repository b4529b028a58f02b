/*
 * inspect's caches, checkpoints, runs, tokenizers and option files.
 * Owns what it opens during a call.
 * Must not know how it is printed.
 */
#include "config.h"

#include "command/inspect.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/cache.h"
#include "state/checkpoint_describe.h"

#include <inttypes.h>
#include <string.h>

/* ---- caches */

static json_t *outcomes(const struct dry_cache_view *v)
{
    json_t *object = json_object();

    for (int i = 0; i < DRY_RECORD_OUTCOMES; i++) {
        if (dry_inspect_put(object, dry_outcome_name((enum dry_outcome)i), json_integer(v->outcome[i]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *buckets(const struct dry_cache_view *v)
{
    json_t *rows = json_array();

    for (int32_t b = 0; b < v->buckets; b++) {
        json_int_t records = 0, tokens = 0;

        for (int64_t i = 0; i < v->records; i++) {
            if (v->bucket[i] == b) {
                records++;
                tokens += v->offset[i + 1] - v->offset[i];
            }
        }
        if (records && json_array_append_new(rows, json_pack("{s:I, s:I, s:I}", "bucket",
                                                             (json_int_t)v->bucket_length[b], "records",
                                                             records, "tokens", tokens))) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

/* Each record; only when asked for. */
static json_t *records(const struct dry_cache_view *v)
{
    json_t *rows = json_array();

    for (int64_t i = 0; i < v->records; i++) {
        if (json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:I, s:I}", "record", (json_int_t)i,
                                                  "line", (json_int_t)v->line[i], "tokens",
                                                  (json_int_t)(v->offset[i + 1] - v->offset[i]), "supervised",
                                                  (json_int_t)v->supervised_of[i], "bucket",
                                                  (json_int_t)v->bucket_length[v->bucket[i]]))) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

static int is_supervised(const struct dry_span *span, int64_t spans, int64_t token)
{
    for (int64_t i = 0; i < spans; i++)
        if (token >= span[i].begin && token < span[i].end)
            return 1;
    return 0;
}

/* One record's tokens: place, id, supervised or not, text. */
static enum dry_status read_record(const struct dry_inspect *in, struct dry_cache *c, int64_t n,
                                   json_t **rows)
{
    const struct dry_cache_view *v = dry_cache_view(c);
    int64_t length = v->offset[n + 1] - v->offset[n], spans = dry_cache_spans(c, n);
    int32_t *ids = dry_alloc((size_t)length, sizeof *ids, "a record's tokens");
    struct dry_span *span = dry_alloc((size_t)spans, sizeof *span, "a record's spans");
    json_t *made = json_array();
    enum dry_status s = ids && span ? dry_cache_read(c, n, ids, span, &spans) : DRY_ERR_MEMORY;

    for (int64_t i = 0; i < length && !s; i++) {
        const char *piece = dry_tokenizer_piece(in->tokenizer, ids[i]);

        if (json_array_append_new(made, json_pack("{s:I, s:i, s:b, s:s?}", "token", (json_int_t)i, "id",
                                                  (int)ids[i], "supervised", is_supervised(span, spans, i),
                                                  "piece", piece)))
            s = dry_inspect_no_memory(NULL);
    }
    dry_free(span);
    dry_free(ids);
    if (s) {
        json_decref(made);
        return s;
    }
    *rows = made;
    return DRY_OK;
}

static enum dry_status put_record(const struct dry_inspect *in, const char *path, struct dry_cache *c,
                                  json_t *made)
{
    const struct dry_cache_view *v = dry_cache_view(c);
    int64_t n = in->config->record;
    json_t *rows = NULL;
    enum dry_status s;

    if (n < 0)
        return DRY_OK;
    if (n >= v->records) {
        dry_error("--record %" PRId64 ": %s has records 0 to %" PRId64, n, path, v->records - 1);
        return DRY_ERR_USAGE;
    }
    if (strcmp(v->tokenizer_hash, dry_tokenizer_hash(in->tokenizer)) != 0) {
        dry_error(
            "%s was made with another tokenizer than that of --base %s; give the base that it was made for",
            path, in->config->base);
        return DRY_ERR_INPUT;
    }
    s = read_record(in, c, n, &rows);
    if (s)
        return s;
    if (dry_inspect_put(made, "record",
                        json_pack("{s:I, s:I, s:o}", "number", (json_int_t)n, "line", (json_int_t)v->line[n],
                                  "tokens", rows)))
        return dry_inspect_no_memory(NULL);
    return DRY_OK;
}

static json_t *describe_cache(const struct dry_inspect *in, const struct dry_cache_view *v)
{
    json_t *made = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:o, s:o}", "kind",
        "cache of tokenised records", "data", v->data_path, "template", v->template_name, "records",
        (json_int_t)v->records, "tokens", (json_int_t)v->tokens, "supervised", (json_int_t)v->supervised,
        "limit", (json_int_t)v->limit, "truncated", (json_int_t)v->truncated, "duplicates",
        (json_int_t)v->duplicates, "special_text", (json_int_t)v->special_text, "largest_id",
        (json_int_t)v->largest_id, "key", v->key, "data_hash", v->data_hash, "tokenizer_hash",
        v->tokenizer_hash, "rule_hash", v->rule_hash, "lines", outcomes(v), "buckets", buckets(v));

    if (made && in->config->verbose && dry_inspect_put(made, "record_list", records(v))) {
        json_decref(made);
        return NULL;
    }
    return made;
}

static enum dry_status inspect_cache(const struct dry_inspect *in, const char *path, json_t **content)
{
    struct dry_cache *c = NULL;
    json_t *made = NULL;
    enum dry_status s = dry_cache_open(path, NULL, &c);

    if (!s)
        s = dry_cache_check(c, 0, 1);
    if (!s) {
        made = describe_cache(in, dry_cache_view(c));
        s = made ? put_record(in, path, c, made) : dry_inspect_no_memory(NULL);
    }
    dry_cache_close(c);
    if (s) {
        json_decref(made);
        return s;
    }
    *content = made;
    return DRY_OK;
}

/* ---- checkpoints */

static enum dry_status inspect_checkpoint(const struct dry_inspect *in, const char *path, json_t **content)
{
    static const char *const hidden[] = {"options", "manifest", "tensors"};
    json_t *found = NULL, *made = json_pack("{s:s}", "kind", "checkpoint");
    enum dry_status s = dry_checkpoint_describe(path, &found);

    if (s) {
        json_decref(made);
        return s;
    }
    if (!made ||
        dry_inspect_put(made, "tensor_count",
                        json_integer((json_int_t)json_array_size(json_object_get(found, "tensors"))))) {
        json_decref(found);
        return dry_inspect_no_memory(made);
    }
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden && !in->config->verbose; i++)
        json_object_del(found, hidden[i]);
    if (json_object_update(made, found)) {
        json_decref(found);
        return dry_inspect_no_memory(made);
    }
    json_decref(found);
    *content = made;
    return DRY_OK;
}

enum dry_status dry_inspect_hdf5(const struct dry_inspect *in, const char *path, json_t **content)
{
    int is = dry_checkpoint_is(path);

    if (is < 0) {
        dry_error("%s: no whole HDF5 file, as a cache and a checkpoint are: it is cut off, damaged or "
                  "something else",
                  path);
        return DRY_ERR_INPUT;
    }
    if (!is)
        return inspect_cache(in, path, content);
    if (in->config->record >= 0) {
        dry_error("--record %" PRId64 ": %s is a checkpoint; a record is shown of a cache only",
                  in->config->record, path);
        return DRY_ERR_USAGE;
    }
    return inspect_checkpoint(in, path, content);
}

/* ---- runs */

/* The checkpoints that lie in the run's folder. */
static enum dry_status put_checkpoints(const char *dir, json_t *made)
{
    char *folder = dry_path_join(dir, "checkpoints"), **names = NULL;
    json_t *list = json_array();
    size_t count = 0;
    enum dry_status s = folder ? DRY_OK : DRY_ERR_MEMORY;
    int bad = 0;

    if (!s && dry_file_is_dir(folder))
        s = dry_dir_list(folder, &names, &count);
    for (size_t i = 0; i < count && !s; i++)
        if (strncmp(names[i], "step-", 5) == 0 && strcmp(names[i] + strlen(names[i]) - 3, ".h5") == 0)
            bad |= json_array_append_new(list, json_string(names[i]));
    bad |= !s && json_object_set(made, "checkpoints", list);
    json_decref(list);
    if (names)
        dry_dir_free(names, count);
    dry_free(folder);
    return s ? s : bad ? dry_inspect_no_memory(NULL) : DRY_OK;
}

enum dry_status dry_inspect_run(const struct dry_inspect *in, const char *dir, json_t **content)
{
    static const char *const brief[] = {"command",  "outcome", "exit",   "started",      "finished",
                                        "ranks",    "backend", "base",   "resumed_from", "plan_hash",
                                        "contract", "results", "stages", "changes"};
    char *path = dry_path_join(dir, "run.json");
    json_t *root = NULL, *made = json_pack("{s:s}", "kind", "run folder"), *value;
    enum dry_status s = path ? dry_json_read(path, &root) : DRY_ERR_MEMORY;
    int bad = !made;

    if (!s && !json_is_object(root)) {
        dry_error("%s: not a JSON object; the file is damaged", path);
        s = DRY_ERR_INPUT;
    }
    if (!s && in->config->verbose)
        bad |= json_object_update(made, root);
    for (size_t i = 0; i < sizeof brief / sizeof *brief && !s && !in->config->verbose; i++) {
        value = json_object_get(root, brief[i]);
        if (value)
            bad |= json_object_set(made, brief[i], value);
    }
    if (!s)
        s = bad ? dry_inspect_no_memory(NULL) : put_checkpoints(dir, made);
    json_decref(root);
    dry_free(path);
    if (s) {
        json_decref(made);
        return s;
    }
    *content = made;
    return DRY_OK;
}

/* ---- tokenizers and option files */

enum dry_status dry_inspect_tokenizer(const struct dry_inspect *in, const char *dir, json_t **content)
{
    struct dry_tokenizer *t = NULL;
    enum dry_status s = dry_tokenizer_create(dir, &t);
    int32_t bos, eos;
    json_t *made;

    (void)in;
    if (s)
        return s;
    bos = dry_tokenizer_bos(t);
    eos = dry_tokenizer_eos(t);
    made = json_pack("{s:s, s:i, s:i, s:s?, s:i, s:s?, s:s}", "kind", "tokenizer", "size",
                     (int)dry_tokenizer_size(t), "bos_id", (int)bos, "bos",
                     bos < 0 ? NULL : dry_tokenizer_piece(t, bos), "eos_id", (int)eos, "eos",
                     eos < 0 ? NULL : dry_tokenizer_piece(t, eos), "hash", dry_tokenizer_hash(t));
    dry_tokenizer_destroy(t);
    if (!made)
        return dry_inspect_no_memory(NULL);
    *content = made;
    return DRY_OK;
}

/* The options that the file sets, as they are understood. */
enum dry_status dry_inspect_config(const struct dry_inspect *in, const char *path, json_t **content)
{
    json_t *made = json_pack("{s:s}", "kind", "file of options"), *all = NULL, *options = json_object(),
           *value;
    struct dry_config *c = NULL;
    enum dry_status s = dry_config_create(&c);
    const char *name, *origin;
    int bad = !made || !options;

    (void)in;
    if (!s)
        s = dry_config_file(c, path);
    if (!s)
        all = dry_config_json(c, ~0u);
    json_object_foreach(all, name, value)
    {
        origin = json_string_value(json_object_get(value, "origin"));
        if (origin && strcmp(origin, "file") == 0)
            bad = bad || json_object_set(options, name, json_object_get(value, "value"));
    }
    bad = bad || (!s && !all) || json_object_set(made, "options", options);
    json_decref(all);
    json_decref(options);
    dry_config_destroy(c);
    if (s || bad) {
        json_decref(made);
        return s ? s : dry_inspect_no_memory(NULL);
    }
    *content = made;
    return DRY_OK;
}
