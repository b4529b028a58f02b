/*
 * Sets up tiny models on a backend.
 * Owns the folder that it writes.  Must not know what is tested.
 */
#include "config.h"

#include "compute_case.h"

#include "base/memory.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARENA = 64 << 20 };

/* Relative to the largest entry: bfloat16 rounds by up to 2^-9 at each step of an operation. */
#define NARROW 1e-2
#define NARROW_GRADIENT 2e-2

double case_number(uint64_t stream, uint64_t index)
{
    uint32_t word[4];

    dry_random_words(7, DRY_RANDOM_SUBSET, stream, index, word);
    return (double)word[0] / 2147483648.0 - 1 + (double)word[1] / 2147483648.0 - 1;
}

static void make_batch(struct test_case *c)
{
    const struct case_spec *s = c->spec;
    struct dry_batch *b = &c->batch;
    int64_t vocab = c->base->arch.vocab, t = 0;

    while (b->records < CASE_RECORDS && s->length[b->records])
        b->useful += s->length[b->records++];
    b->tokens = b->useful + s->padding;
    c->id = calloc((size_t)b->tokens, sizeof *c->id);
    c->position = calloc((size_t)b->tokens, sizeof *c->position);
    c->offset = calloc((size_t)b->records + 1, sizeof *c->offset);
    c->row = calloc((size_t)b->tokens, sizeof *c->row);
    c->label = calloc((size_t)b->tokens, sizeof *c->label);
    for (int64_t r = 0; r < b->records; r++) {
        c->record[r] = 1000 + 7 * r;
        b->longest = s->length[r] > b->longest ? s->length[r] : b->longest;
        for (int64_t p = 0; p < s->length[r]; p++, t++) {
            c->id[t] = (int32_t)((t * 5 + r) % vocab);
            c->position[t] = (int32_t)p;
            if (p % 3 != 1 && p + 1 < s->length[r]) {
                c->row[b->rows] = (int32_t)t;
                c->label[b->rows++] = (int32_t)((t * 11 + 3) % vocab);
            }
        }
        c->offset[r + 1] = (int32_t)t;
    }
    b->step = 17;
    b->id = c->id;
    b->position = c->position;
    b->offset = c->offset;
    b->row = c->row;
    b->label = c->label;
    b->record = c->record;
}

static int make_adapter(struct test_case *c)
{
    const struct case_spec *s = c->spec;
    struct dry_adapter_request request = {.rank = s->rank, .alpha = s->alpha, .dropout = s->dropout};

    if (!s->targets)
        return 0;
    if (dry_adapter_targets(s->targets, &request.targets) ||
        dry_adapter_create(&c->base->arch, &request, &c->adapter))
        return -1;
    c->values = calloc((size_t)c->adapter->parameters, sizeof *c->values);
    c->reference.values = calloc((size_t)c->adapter->parameters, sizeof *c->reference.values);
    if (!c->values || !c->reference.values)
        return -1;
    for (int64_t i = 0; i < c->adapter->parameters; i++) {
        c->values[i] = (float)case_rounded(c, 0.3 * case_number(1, (uint64_t)i));
        c->reference.values[i] = (double)c->values[i];
    }
    return 0;
}

static int make_backend(struct test_case *c)
{
    struct dry_backend_options options = {.seed = 99};
    struct dry_scratch scratch;
    size_t weights, state, workspace, most;
    void *arena;

    if (c->ops->footprint(c->base, c->adapter, &c->limits, &weights, &state, &workspace, &scratch))
        return -1;
    most = scratch.attention > scratch.loss ? scratch.attention : scratch.loss;
    most = (most + 255) / 256 * 256;
    c->arena_bytes += most;
    if (c->ops->create(&options, &c->backend) || c->ops->load(c->backend, c->base, c->adapter, &c->limits) ||
        c->ops->arena(c->backend, c->arena_bytes, &arena) ||
        c->ops->state_set(c->backend, c->values, NULL, NULL) || c->ops->batch(c->backend, &c->batch, 1) ||
        c->ops->sums_clear(c->backend))
        return -1;
    c->arena = arena;
    c->scratch = arena;
    c->arena_used = most;
    c->reference = (struct reference){.base = c->base,
                                      .arch = &c->base->arch,
                                      .adapter = c->adapter,
                                      .batch = &c->batch,
                                      .values = c->reference.values,
                                      .seed = options.seed,
                                      .dropout = 1,
                                      .cache = &c->cache};
    return 0;
}

int case_open(struct test_case *c, const struct case_spec *spec, const char *backend)
{
    struct tiny_spec base = spec->base;
    int narrow; /* the backend holds bfloat16: weights too, and errors are of that size */

    memset(c, 0, sizeof *c);
    c->spec = spec;
    if (dry_backend_find(backend, &c->ops))
        return -1;
    narrow = c->ops->act_bytes == 2;
    if (narrow)
        base.dtype = DRY_BF16;
    c->tolerance = narrow ? NARROW : spec->tolerance;
    c->gradient_tolerance = narrow ? NARROW_GRADIENT : 10 * spec->tolerance;
    c->arena_bytes = ARENA;
    snprintf(c->dir, sizeof c->dir, "compute-case-%ld", (long)getpid());
    if (tiny_base_write(c->dir, &base) || dry_base_open(c->dir, &c->base))
        return -1;
    if (spec->linear_rope != 0) {
        c->base->arch.rope = DRY_ROPE_LINEAR;
        c->base->arch.rope_factor = spec->linear_rope;
    }
    make_batch(c);
    c->limits = (struct dry_limits){.tokens = c->batch.tokens,
                                    .records = c->batch.records,
                                    .rows = c->batch.rows,
                                    .longest = c->batch.longest,
                                    .training = 1};
    return make_adapter(c) || make_backend(c) ? -1 : 0;
}

void case_close(struct test_case *c)
{
    char path[96];

    if (c->backend)
        c->ops->destroy(c->backend);
    reference_clear(&c->cache);
    dry_adapter_destroy(c->adapter);
    dry_base_close(c->base);
    free(c->values);
    free(c->reference.values);
    free(c->id);
    free(c->position);
    free(c->offset);
    free(c->row);
    free(c->label);
    snprintf(path, sizeof path, "%s/config.json", c->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", c->dir);
    unlink(path);
    rmdir(c->dir);
}

void *case_buffer(struct test_case *c, int64_t columns)
{
    int64_t pitch = columns + c->ops->row_pad(c->adapter);
    size_t bytes = ((size_t)(c->batch.tokens * pitch) * c->ops->act_bytes + 255) / 256 * 256;
    void *p = c->arena + c->arena_used;

    if (c->arena_used + bytes > c->arena_bytes) {
        fprintf(stderr, "the test's arena is too small\n");
        abort();
    }
    c->arena_used += bytes;
    return p;
}

double case_rounded(const struct test_case *c, double x)
{
    float value = (float)x;
    uint16_t bits;

    if (c->ops->act_bytes == sizeof bits) {
        dry_from_f32(DRY_BF16, &value, 1, &bits);
        dry_to_f32(DRY_BF16, &bits, 1, &value);
    }
    return (double)value;
}

void *case_upload(struct test_case *c, const double *x, int64_t columns)
{
    int64_t useful = c->batch.useful * columns, all = c->batch.tokens * columns;
    float *host = malloc((size_t)all * sizeof *host);
    void *to = case_buffer(c, columns);

    if (!host)
        abort();
    for (int64_t i = 0; i < all; i++)
        host[i] = i < useful ? (float)x[i] : 1e18f;
    if (c->ops->put(c->backend, host, c->batch.tokens, columns, to))
        abort();
    free(host);
    return to;
}

float *case_download(struct test_case *c, const void *from, int64_t columns)
{
    float *host = malloc((size_t)(c->batch.tokens * columns) * sizeof *host);

    if (!host || c->ops->sync(c->backend) || c->ops->get(c->backend, from, c->batch.tokens, columns, host))
        abort();
    return host;
}
