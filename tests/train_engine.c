/*
 * The engine: gradients against finite differences, what an adapter on few projections skips, what backward
 * recomputes, layouts, and the memory that a run is compared with. DRY_TEST_BACKEND names another backend
 * than "cpu" for the part on recomputing.
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

/* The engine on an adapter that b has. */
static int bench_start(struct bench *b, const char *backend, const struct dry_limits *l)
{
    struct dry_backend_options o = {.seed = 1};
    const struct dry_backend_ops *ops;

    sample_fill(&b->sample);
    if (dry_backend_find(backend, &ops) || ops->create(&o, &b->backend) ||
        dry_engine_create(b->backend, b->base, b->adapter, l, &b->engine))
        return -1;
    b->values = dry_alloc((size_t)b->adapter->parameters, sizeof *b->values, "values");
    return b->values ? 0 : -1;
}

static int bench_open(struct bench *b, const char *dir, unsigned targets, const struct dry_limits *l)
{
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = targets};

    memset(b, 0, sizeof *b);
    if (dry_base_open(dir, &b->base) || dry_adapter_create(&b->base->arch, &request, &b->adapter))
        return -1;
    return bench_start(b, "cpu", l);
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

enum { DEEP = 4, STEPS = 2, MICROS = 2 };

/* Adapters on all projections of the layers above `lowest`, and on those of its groups from `bottom` on. */
static int deep_open(struct bench *b, const char *dir, int64_t lowest, enum dry_group bottom,
                     const struct dry_limits *l)
{
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .dropout = 0.25};
    struct dry_adapter_choice choice[DEEP * DRY_PROJS] = {{0}};
    const char *backend = getenv("DRY_TEST_BACKEND");
    enum dry_proj member[3];

    memset(b, 0, sizeof *b);
    for (int64_t layer = lowest; layer < DEEP; layer++)
        for (int g = layer == lowest ? (int)bottom : 0; g < DRY_GROUPS; g++)
            for (int i = dry_group_members((enum dry_group)g, member); i-- > 0;)
                choice[layer * DRY_PROJS + (int)member[i]] = (struct dry_adapter_choice){2, 4};
    if (dry_base_open(dir, &b->base) ||
        dry_adapter_create_chosen(&b->base->arch, &request, choice, &b->adapter))
        return -1;
    return bench_start(b, backend ? backend : "cpu", l);
}

/* Steps of two micro-batches with dropout and an evaluation in between; the last step's gradients into g, the
 * values into v. */
static int deep_run(struct bench *b, float *g, float *v)
{
    struct dry_adamw o = {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    const struct dry_backend_ops *ops = b->backend->ops;
    double norm;

    fill(b, 0, 0x7f);
    if (ops->state_set(b->backend, b->values, NULL, NULL))
        return -1;
    for (o.step = 1; o.step <= STEPS; o.step++) {
        b->sample.batch.step = o.step;
        if (dry_engine_batch(b->engine, &b->sample.batch, 0) || dry_engine_evaluate(b->engine) ||
            ops->sums_clear(b->backend))
            return -1;
        for (int micro = 0; micro < MICROS; micro++) {
            b->sample.record[0] = 100 * micro;
            if (dry_engine_batch(b->engine, &b->sample.batch, 1) || dry_engine_forward(b->engine) ||
                dry_engine_backward(b->engine))
                return -1;
        }
        if (ops->gradient_get(b->backend, g) || ops->adamw(b->backend, &o, &norm) || !(norm > 0))
            return -1;
    }
    return ops->state_get(b->backend, v, NULL, NULL) ? -1 : 0;
}

/* Whatever backward recomputes, gradients and adapter have the same bits. */
static void recompute(const char *dir, int64_t lowest, enum dry_group bottom)
{
    float *g[3] = {NULL}, *v[3] = {NULL};

    for (int i = 0; i < 3; i++) {
        const char *name = dry_recompute_name((enum dry_recompute)i);
        struct dry_limits l = limits;
        struct bench b;

        l.recompute = dry_recompute_find(name);
        tap_equal(l.recompute, i, "what is recomputed has a name");
        if (tap_ok(deep_open(&b, dir, lowest, bottom, &l) == 0, "recompute %s: engine", name)) {
            size_t bytes = (size_t)b.adapter->parameters * sizeof(float);
            g[i] = malloc(bytes);
            v[i] = malloc(bytes);
            tap_ok(deep_run(&b, g[i], v[i]) == 0, "recompute %s: steps", name);
            tap_ok(g[0] && memcmp(g[0], g[i], bytes) == 0 && memcmp(v[0], v[i], bytes) == 0 &&
                       memcmp(v[i], b.values, bytes) != 0,
                   "recompute %s, adapters from group %d of layer %d on: gradients and adapter as with norms",
                   name, (int)bottom, (int)lowest);
        }
        bench_close(&b);
    }
    for (int i = 0; i < 3; i++) {
        free(g[i]);
        free(v[i]);
    }
}

/* Bytes of the parts whose names begin so. */
static long long part_bytes(const struct dry_layout *l, const char *name)
{
    long long bytes = 0;

    for (int i = 0; i < l->parts; i++)
        if (strncmp(l->part[i].name, name, strlen(name)) == 0)
            bytes += (long long)l->part[i].bytes;
    return bytes;
}

static void recompute_layout(const char *dir)
{
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = 0x7f};
    struct dry_layout by[3], plain[3];
    struct dry_adapter *adapter = NULL;
    struct dry_base *base = NULL;
    const struct dry_backend_ops *ops;
    int good = dry_base_open(dir, &base) == DRY_OK && dry_backend_find("cpu", &ops) == DRY_OK &&
               dry_adapter_create(&base->arch, &request, &adapter) == DRY_OK;

    for (int i = 0; i < 3 && good; i++) {
        struct dry_limits l = limits;

        l.recompute = (enum dry_recompute)i;
        good = dry_engine_layout(ops, base, adapter, &l, &by[i]) == DRY_OK;
        l.training = 0;
        good = good && dry_engine_layout(ops, base, NULL, &l, &plain[i]) == DRY_OK;
    }
    if (tap_ok(good, "layouts by what is recomputed")) {
        const struct dry_layout *norms = &by[DRY_RECOMPUTE_NORMS], *none = &by[DRY_RECOMPUTE_NONE],
                                *full = &by[DRY_RECOMPUTE_FULL];
        const struct dry_arch *a = &base->arch;

        tap_equal(part_bytes(none, "kept:") - part_bytes(norms, "kept:"),
                  (long long)(DEEP * TOKENS * 2 * a->hidden * (int64_t)sizeof(float)),
                  "none keeps two norms of each layer more");
        tap_equal(part_bytes(none, "scratch: linear input"), 0, "and needs no scratch for them");
        tap_equal(part_bytes(full, "kept: residual stream") - part_bytes(full, "kept: residual stream, MLP"),
                  (long long)(DEEP * TOKENS * a->hidden * (int64_t)sizeof(float)),
                  "full keeps each layer's input");
        tap_equal(DEEP * part_bytes(full, "kept: gate, up"), part_bytes(norms, "kept: gate, up"),
                  "and one set of the rest");
        tap_equal(part_bytes(full, "gradient:"), part_bytes(norms, "gradient:"),
                  "gradients take the same memory");
        tap_ok(plain[0].arena == plain[1].arena && plain[0].arena == plain[2].arena,
               "an evaluation keeps nothing either way");
    }
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
    struct tiny_spec deep = {
        .family = "qwen3", .hidden = 64, .ffn = 96, .layers = DEEP, .vocab = VOCAB, .seed = 8};
    snprintf(dir, sizeof dir, "%s/deep", folder);
    if (tap_ok(tiny_base_write(dir, &deep) == DRY_OK, "deep: base written")) {
        recompute(dir, 0, DRY_GROUP_QKV);
        recompute(dir, 0, DRY_GROUP_DOWN);
        recompute(dir, 1, DRY_GROUP_GATE_UP);
        recompute(dir, DEEP - 1, DRY_GROUP_O);
        recompute_layout(dir);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        printf("# %s is left\n", folder);
    return tap_done();
}
