/*
 * The engine: gradients against finite differences, what an adapter on few projections skips, layouts, and
 * the memory that a run is compared with.
 */
#include "config.h"

#include "base/file.h"
#include "base/memory.h"
#include "tap.h"
#include "tiny.h"
#include "train/engine.h"
#include "train/room.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS = 3, USEFUL = 29, TOKENS = 32, ROWS = USEFUL - RECORDS, VOCAB = 32 };

static const int32_t offsets[RECORDS + 1] = {0, 9, 24, USEFUL};

/* A micro-batch by hand: every token but a record's first is a label. */
struct sample {
    int32_t id[TOKENS], position[TOKENS], row[ROWS], label[ROWS];
    int64_t record[RECORDS];
    struct dry_batch batch;
};

static void sample_fill(struct sample *s)
{
    int64_t rows = 0;

    memset(s, 0, sizeof *s);
    for (int r = 0; r < RECORDS; r++) {
        s->record[r] = 10 + r;
        for (int32_t t = offsets[r]; t < offsets[r + 1]; t++) {
            s->id[t] = (t * 7 + r * 3 + 1) % VOCAB;
            s->position[t] = t - offsets[r];
        }
        for (int32_t t = offsets[r]; t + 1 < offsets[r + 1]; t++) {
            s->row[rows] = t;
            s->label[rows++] = s->id[t + 1];
        }
    }
    s->batch = (struct dry_batch){.step = 1,
                                  .tokens = TOKENS,
                                  .useful = USEFUL,
                                  .records = RECORDS,
                                  .longest = 15,
                                  .rows = rows,
                                  .id = s->id,
                                  .position = s->position,
                                  .offset = offsets,
                                  .row = s->row,
                                  .label = s->label,
                                  .record = s->record};
}

/* A base, an adapter on it with values, and the engine. */
struct bench {
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values;
    struct dry_backend *backend;
    struct dry_engine *engine;
    struct sample sample;
};

static const struct dry_limits limits = {
    .tokens = TOKENS, .records = RECORDS, .rows = ROWS, .longest = 15, .training = 1};

static void bench_close(struct bench *b)
{
    dry_engine_destroy(b->engine);
    if (b->backend)
        b->backend->ops->destroy(b->backend);
    dry_free(b->values);
    dry_adapter_destroy(b->adapter);
    dry_base_close(b->base);
}

static int bench_open(struct bench *b, const char *dir, unsigned targets, const struct dry_limits *l)
{
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = targets};
    struct dry_backend_options o = {.seed = 1};
    const struct dry_backend_ops *ops;

    memset(b, 0, sizeof *b);
    sample_fill(&b->sample);
    if (dry_base_open(dir, &b->base) || dry_adapter_create(&b->base->arch, &request, &b->adapter) ||
        dry_backend_find("cpu", &ops) || ops->create(&o, &b->backend) ||
        dry_engine_create(b->backend, b->base, b->adapter, l, &b->engine))
        return -1;
    b->values = dry_alloc((size_t)b->adapter->parameters, sizeof *b->values, "values");
    return b->values ? 0 : -1;
}

/* Values that depend on layer, projection and element only, so that an adapter with fewer parts has the same;
 * B is 0 on parts that are not in `alive`. */
static void fill(struct bench *b, int64_t lowest, unsigned alive)
{
    for (int64_t p = 0; p < b->adapter->parts; p++) {
        const struct dry_adapter_part *part = &b->adapter->part[p];
        unsigned state = (unsigned)(part->layer * DRY_PROJS + (int)part->proj) * 2654435761U + 12345;
        int on = part->layer >= lowest && (alive >> part->proj & 1);

        for (int64_t i = 0; i < part->rank * (part->in + part->out); i++) {
            float value = (float)((state = state * 1664525U + 1013904223U) >> 8) / (float)(1 << 24) - 0.5F;

            if (i < part->rank * part->in)
                b->values[part->a + i] = value;
            else
                b->values[part->b + i - part->rank * part->in] = on ? value : 0;
        }
    }
}

/* Loss of the sample with the values; -1: failed. */
static double loss_of(struct bench *b)
{
    int64_t words[DRY_SUMS];
    const struct dry_backend_ops *ops = b->backend->ops;

    if (ops->state_set(b->backend, b->values, NULL, NULL) || ops->sums_clear(b->backend) ||
        dry_engine_batch(b->engine, &b->sample.batch, 0) || dry_engine_evaluate(b->engine) ||
        ops->sums_read(b->backend, words) || words[DRY_SUM_FLAGS])
        return -1;
    return ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS);
}

/* Gradient sums into g [parameters]; returns the loss, or -1. */
static double gradient_of(struct bench *b, float *g)
{
    int64_t words[DRY_SUMS];
    const struct dry_backend_ops *ops = b->backend->ops;

    if (ops->state_set(b->backend, b->values, NULL, NULL) || ops->sums_clear(b->backend) ||
        dry_engine_batch(b->engine, &b->sample.batch, 0) || dry_engine_forward(b->engine) ||
        dry_engine_backward(b->engine) || ops->gradient_get(b->backend, g) ||
        ops->sums_read(b->backend, words) || words[DRY_SUM_FLAGS])
        return -1;
    return ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS);
}

/* Central differences along a few directions: one per part, so that every path of backward is met. */
static void differences(const char *dir, const char *family)
{
    struct bench b;
    float *g, *kept;
    double worst = 0;

    if (!tap_ok(bench_open(&b, dir, 0x7f, &limits) == 0, "%s: engine", family)) {
        bench_close(&b);
        return;
    }
    fill(&b, 0, 0x7f);
    g = calloc((size_t)b.adapter->parameters, sizeof *g);
    kept = malloc((size_t)b.adapter->parameters * sizeof *kept);
    memcpy(kept, b.values, (size_t)b.adapter->parameters * sizeof *kept);
    double forward = gradient_of(&b, g);
    tap_ok(forward > 0 && forward == loss_of(&b), "%s: training and evaluation give the same loss", family);
    for (int64_t p = 0; p < b.adapter->parts; p++)
        for (int is_b = 0; is_b < 2; is_b++) {
            const struct dry_adapter_part *part = &b.adapter->part[p];
            int64_t at = is_b ? part->b : part->a, n = part->rank * (is_b ? part->out : part->in);
            double slope = 0, norm = 0, h;

            for (int64_t i = 0; i < n; i++)
                norm += (double)g[at + i] * g[at + i];
            norm = sqrt(norm);
            h = 2e-3;
            for (int sign = -1; sign <= 1; sign += 2) {
                for (int64_t i = 0; i < n; i++)
                    b.values[at + i] = (float)(kept[at + i] + sign * h * g[at + i] / norm);
                slope += sign * loss_of(&b) / (2 * h);
            }
            memcpy(b.values + at, kept + at, (size_t)n * sizeof *kept);
            worst = fmax(worst, fabs(slope - norm) / norm);
            if (!(fabs(slope - norm) <= 5e-3 * norm))
                printf("# layer %lld %s %c: slope %g, gradient %g\n", (long long)part->layer,
                       dry_proj_name(part->proj), "AB"[is_b], slope, norm);
        }
    tap_ok(worst <= 5e-3, "%s: gradients agree with finite differences (worst %.1e)", family, worst);
    free(g);
    free(kept);
    bench_close(&b);
}

/* An adapter on few projections gives the bits that the full adapter gives there: what is skipped changes
 * nothing. */
static void skips(const char *dir, unsigned targets, const char *what)
{
    struct bench full, few;
    int good = bench_open(&full, dir, 0x7f, &limits) == 0 && bench_open(&few, dir, targets, &limits) == 0;
    float *g = NULL, *h = NULL;

    if (tap_ok(good, "%s: engines", what)) {
        fill(&full, 0, targets);
        fill(&few, 0, targets);
        g = calloc((size_t)full.adapter->parameters, sizeof *g);
        h = calloc((size_t)few.adapter->parameters, sizeof *h);
        tap_ok(gradient_of(&full, g) > 0 && gradient_of(&few, h) > 0, "%s: gradients", what);
        for (int64_t p = 0; p < few.adapter->parts && good; p++) {
            const struct dry_adapter_part *a = &few.adapter->part[p];
            const struct dry_adapter_part *b = dry_adapter_at(full.adapter, a->layer, a->proj);

            good = b && !memcmp(h + a->a, g + b->a, (size_t)(a->rank * a->in) * sizeof *g) &&
                   !memcmp(h + a->b, g + b->b, (size_t)(a->rank * a->out) * sizeof *g);
        }
        tap_ok(good, "%s: the same bits as with all projections", what);
    }
    free(g);
    free(h);
    bench_close(&full);
    bench_close(&few);
}

/* Only the upper layer is adapted, by a pattern of targets that names it. */
static void upper_layer(const char *dir)
{
    struct dry_limits evaluation = limits;
    struct dry_layout all, upper, plain;
    struct dry_adapter *adapter = NULL;
    struct dry_base *base = NULL;
    const struct dry_backend_ops *ops;
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = 0x7f};
    size_t sum = 0;
    int overlap = 0;

    evaluation.training = 0;
    tap_ok(dry_base_open(dir, &base) == DRY_OK && dry_backend_find("cpu", &ops) == DRY_OK &&
               dry_adapter_create(&base->arch, &request, &adapter) == DRY_OK,
           "layout: base and adapter");
    tap_ok(dry_engine_layout(ops, base, adapter, &limits, &all) == DRY_OK, "layout of training");
    for (int i = 0; i < all.parts; i++) {
        sum += all.part[i].bytes;
        for (int j = 0; j < i; j++)
            if (all.part[i].in_arena && all.part[j].in_arena &&
                all.part[i].offset < all.part[j].offset + all.part[j].bytes &&
                all.part[j].offset < all.part[i].offset + all.part[i].bytes)
                overlap = 1;
    }
    tap_equal((long long)sum, (long long)all.total, "the parts add up to the total");
    tap_ok(!overlap, "no two parts of the arena overlap");
    tap_ok(dry_engine_layout(ops, base, NULL, &evaluation, &plain) == DRY_OK && plain.arena < all.arena,
           "an evaluation without adapter needs less");
    for (int64_t p = 0; p < adapter->parts; p++) /* as if layer 0 had no adapter */
        if (adapter->part[p].layer == 0)
            adapter->index[adapter->part[p].layer * DRY_PROJS + (int)adapter->part[p].proj] = -1;
    tap_ok(dry_engine_layout(ops, base, adapter, &limits, &upper) == DRY_OK && upper.arena == all.arena,
           "two layers, the lower one not adapted: one shared and one kept set");
    dry_adapter_destroy(adapter);
    dry_base_close(base);
}

static void room(const char *dir)
{
    struct dry_base *base = NULL;
    const struct dry_backend_ops *ops;
    struct dry_adapter *adapter = NULL;
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = 0x7f};
    struct dry_limits many = {.tokens = 4096, .records = 64, .rows = 4096, .longest = 64, .training = 1};
    struct dry_layout l;
    int64_t tokens = -1;

    tap_ok(dry_room_host() > 0, "this host tells how much memory is left");
    tap_ok(dry_base_open(dir, &base) == DRY_OK && dry_backend_find("cpu", &ops) == DRY_OK &&
               dry_adapter_create(&base->arch, &request, &adapter) == DRY_OK,
           "room: base and adapter");
    dry_engine_layout(ops, base, adapter, &many, &l);
    tap_ok(dry_room_tokens(ops, base, adapter, &many, l.total, 16, &tokens) == DRY_OK && tokens == 4096,
           "what fits whole is not cut");
    tap_ok(dry_room_tokens(ops, base, adapter, &many, l.total - 1, 16, &tokens) == DRY_OK && tokens < 4096 &&
               tokens % 16 == 0 && tokens > 0,
           "a byte less: fewer tokens");
    tap_ok(dry_room_tokens(ops, base, adapter, &many, 100, 16, &tokens) == DRY_OK && tokens == 0,
           "no room: 0");
    many.tokens = INT64_MAX / 2;
    tap_ok(dry_engine_layout(ops, base, adapter, &many, &l) == DRY_ERR_MEMORY,
           "sizes that overflow are refused");
    dry_adapter_destroy(adapter);
    dry_base_close(base);
}

int main(void)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    char folder[] = "/tmp/drydock-engine.XXXXXX", dir[128], command[160];

    if (!mkdtemp(folder))
        return tap_skip_all("no temporary folder");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct tiny_spec spec = {
            .family = families[i], .vocab = VOCAB, .seed = 3 + (unsigned)i, .tied = i == 1};

        snprintf(dir, sizeof dir, "%s/%s", folder, families[i]);
        if (tap_ok(tiny_base_write(dir, &spec) == DRY_OK, "%s: base written", families[i]))
            differences(dir, families[i]);
    }
    skips(dir, 1U << DRY_PROJ_DOWN, "down alone");
    skips(dir, 1U << DRY_PROJ_UP, "up alone");
    skips(dir, 1U << DRY_PROJ_O, "o alone");
    skips(dir, 1U << DRY_PROJ_Q | 1U << DRY_PROJ_V, "q and v");
    upper_layer(dir);
    room(dir);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        printf("# %s is left\n", folder);
    return tap_done();
}
