/*
 * Reads golden cases for the tests that compare with them.
 * Owns what it returns until the matching free.
 * Must not know what is compared.
 */
#include "config.h"

#include "golden_case.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void models_dir(char path[400])
{
    const char *top = getenv("top_srcdir");

    snprintf(path, 400, "%s/tests/golden/models", top ? top : ".");
}

enum dry_status golden_list(char ***names, size_t *count)
{
    char path[400];

    models_dir(path);
    return dry_dir_list(path, names, count);
}

const char *golden_path(const struct golden_case *c, const char *name, char path[600])
{
    snprintf(path, 600, "%s/%s", c->dir, name);
    return path;
}

enum dry_status golden_open(const char *name, struct golden_case *c)
{
    char models[400], path[600];

    memset(c, 0, sizeof *c);
    models_dir(models);
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->dir, sizeof c->dir, "%s/%s", models, name);
    return dry_json_read(golden_path(c, "golden.json", path), &c->golden);
}

void golden_close(struct golden_case *c)
{
    json_decref(c->golden);
    c->golden = NULL;
}

enum dry_status golden_records_read(const struct golden_case *c, const char *file, struct golden_records *r)
{
    struct dry_record_rule rule = {.template_name = "plain",
                                   .prompt_field = "prompt",
                                   .completion_field = "completion",
                                   .separator = "\n",
                                   .special_text = "parse",
                                   .limit = 1 << 20};
    struct dry_tokenizer *t = NULL;
    struct dry_lines *lines = NULL;
    enum dry_status status;
    char path[600];

    memset(r, 0, sizeof *r);
    status = dry_tokenizer_create(golden_path(c, "base", path), &t);
    if (!status)
        status = dry_lines_open(golden_path(c, file, path), &lines);
    if (!status) {
        r->count = dry_lines_count(lines);
        r->record = dry_alloc((size_t)r->count, sizeof *r->record, "golden records");
        status = r->record ? DRY_OK : DRY_ERR_MEMORY;
    }
    for (int64_t i = 0; i < r->count && !status; i++) {
        const char *text;
        size_t size;
        int64_t line;

        dry_lines_get(lines, i, &text, &size, &line);
        status = dry_record_encode(t, &rule, text, size, line, &r->record[i]);
        if (!status && r->record[i].outcome != DRY_RECORD_GOOD) {
            dry_error("%s:%lld: %s", path, (long long)line, dry_outcome_name(r->record[i].outcome));
            status = DRY_ERR_INPUT;
        }
    }
    dry_lines_close(lines);
    dry_tokenizer_destroy(t);
    if (status)
        golden_records_free(r);
    return status;
}

void golden_records_free(struct golden_records *r)
{
    for (int64_t i = 0; r->record && i < r->count; i++)
        dry_record_reset(&r->record[i]);
    dry_free(r->record);
    memset(r, 0, sizeof *r);
}

void golden_batch_free(struct dry_batch *b)
{
    dry_free((void *)b->id);
    dry_free((void *)b->position);
    dry_free((void *)b->offset);
    dry_free((void *)b->row);
    dry_free((void *)b->label);
    dry_free((void *)b->record);
    memset(b, 0, sizeof *b);
}

enum dry_status golden_batch(const struct golden_records *r, const int64_t *chosen, int64_t count,
                             int64_t multiple, struct dry_batch *b)
{
    int64_t useful = 0, rows = 0, longest = 0;

    for (int64_t i = 0; i < count; i++) {
        const struct dry_record *x = &r->record[chosen[i]];
        useful += (int64_t)x->ids.count;
        rows += x->supervised;
        longest = (int64_t)x->ids.count > longest ? (int64_t)x->ids.count : longest;
    }
    int64_t tokens = (useful + multiple - 1) / multiple * multiple;
    int32_t *id = dry_alloc((size_t)tokens, sizeof *id, "ids");
    int32_t *position = dry_alloc((size_t)tokens, sizeof *position, "positions");
    int32_t *offset = dry_alloc((size_t)count + 1, sizeof *offset, "offsets");
    int32_t *row = dry_alloc((size_t)rows, sizeof *row, "rows");
    int32_t *label = dry_alloc((size_t)rows, sizeof *label, "labels");
    int64_t *record = dry_alloc((size_t)count, sizeof *record, "records");

    *b = (struct dry_batch){.tokens = tokens,
                            .useful = useful,
                            .records = count,
                            .longest = longest,
                            .rows = rows,
                            .id = id,
                            .position = position,
                            .offset = offset,
                            .row = row,
                            .label = label,
                            .record = record};
    if (!id || !position || !offset || !row || !label || !record) {
        golden_batch_free(b);
        return DRY_ERR_MEMORY;
    }
    int32_t at = 0, filled = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct dry_record *x = &r->record[chosen[i]];
        offset[i] = at;
        record[i] = chosen[i];
        for (size_t s = 0; s < x->spans; s++)
            for (int32_t k = x->span[s].begin > 1 ? x->span[s].begin : 1; k < x->span[s].end; k++) {
                row[filled] = at + k - 1;
                label[filled++] = x->ids.id[k];
            }
        for (size_t k = 0; k < x->ids.count; k++, at++) {
            id[at] = x->ids.id[k];
            position[at] = (int32_t)k;
        }
    }
    offset[count] = at;
    if (filled != rows) {
        dry_error("golden records: %d labels in the spans, %lld counted", filled, (long long)rows);
        golden_batch_free(b);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

enum dry_status golden_adapter_read(const char *path, const struct dry_adapter *a, float *values)
{
    struct dry_tensors *t = NULL;
    enum dry_status status = dry_tensors_open_file(path, &t);

    for (int64_t i = 0; i < 2 * a->parts && !status; i++) {
        const struct dry_adapter_part *part = &a->part[i / 2];
        char *name = dry_adapter_tensor_name(part, (int)(i % 2));
        const struct dry_tensor *x = name ? dry_tensors_find(t, name) : NULL;
        int64_t elements = part->rank * (i % 2 ? part->out : part->in);

        if (!x || x->elements != elements) {
            dry_error("%s: %s is missing or of another size", path, name ? name : "?");
            status = DRY_ERR_INPUT;
        } else {
            dry_to_f32(x->dtype, x->data, elements, values + (i % 2 ? part->b : part->a));
        }
        dry_free(name);
    }
    if (!status && dry_tensors_count(t) != (size_t)(2 * a->parts)) {
        dry_error("%s: %zu tensors, the adapter has %lld", path, dry_tensors_count(t),
                  (long long)(2 * a->parts));
        status = DRY_ERR_INPUT;
    }
    dry_tensors_close(t);
    return status;
}
