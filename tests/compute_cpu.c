/*
 * What holds for the CPU backend alone: the same bits for any number of threads, memory as footprint says,
 * flags. Owns nothing.
 */
#include "config.h"

#include "compute_case.h"
#include "tap.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"

#include <malloc.h>
#include <omp.h>
#include <stdlib.h>

/* Many tiles and blocks, none of them even. */
static const struct case_spec wide = {.name = "wide",
                                      .base = {.family = "qwen3",
                                               .hidden = 200,
                                               .ffn = 1100,
                                               .vocab = 700,
                                               .layers = 1,
                                               .heads = 6,
                                               .kv_heads = 2,
                                               .head_dim = 20},
                                      .targets = "all",
                                      .rank = 5,
                                      .alpha = 10,
                                      .dropout = 0.2,
                                      .length = {290, 131, 17, 64, 1},
                                      .padding = 9,
                                      .tolerance = 1e-5};

static void *random_rows(struct test_case *c, uint64_t stream, int64_t columns)
{
    int64_t n = c->batch.useful * columns;
    double *x = malloc((size_t)n * sizeof *x);

    if (!x)
        abort();
    for (int64_t i = 0; i < n; i++)
        x[i] = case_number(stream, (uint64_t)i);
    void *rows = case_upload(c, x, columns);
    free(x);
    return rows;
}

static void add(struct test_case *c, struct dry_hash *h, const void *rows, int64_t columns)
{
    dry_hash_add(h, rows, (size_t)(c->batch.tokens * columns) * sizeof(float));
}

/* Every operation once; the hash of all that they give. */
static void everything(struct test_case *c, char hex[DRY_HASH_HEX])
{
    const struct dry_backend_ops *ops = c->ops;
    const struct dry_arch *a = &c->base->arch;
    int64_t hidden = a->hidden, ffn = a->ffn, q = a->heads * a->head_dim, k = a->kv_heads * a->head_dim;
    int64_t *block;
    struct dry_backend *b = c->backend;
    struct dry_hash *h;
    size_t count;

    if (dry_hash_create(&h))
        abort();
    void *x = random_rows(c, 1, hidden), *y = case_buffer(c, hidden), *dx = random_rows(c, 2, hidden);
    ops->embed(b, y);
    add(c, h, y, hidden);
    ops->norm_forward(b, 0, DRY_NORM_INPUT, x, y);
    add(c, h, y, hidden);
    ops->norm_backward(b, 0, DRY_NORM_INPUT, x, y, dx);
    add(c, h, dx, hidden);
    for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
        int64_t in = dry_group_in(a, g), out = dry_group_out(a, g);
        void *from = random_rows(c, 3, in), *to = case_buffer(c, out), *back = case_buffer(c, in);
        ops->linear_forward(b, 0, g, from, NULL, to);
        add(c, h, to, out);
        ops->linear_backward(b, 0, g, from, to, back);
        add(c, h, back, in);
    }
    void *qkv = random_rows(c, 4, q + 2 * k), *raw = case_buffer(c, q + k), *o = case_buffer(c, q);
    void *lse = case_buffer(c, a->heads), *dqkv = case_buffer(c, q + 2 * k);
    ops->attention_forward(b, 0, qkv, raw, o, lse, NULL);
    add(c, h, o, q);
    add(c, h, lse, a->heads);
    ops->attention_backward(b, 0, qkv, raw, o, lse, random_rows(c, 5, q), dqkv, NULL);
    add(c, h, dqkv, q + 2 * k);
    void *gate_up = random_rows(c, 6, 2 * ffn), *act = case_buffer(c, ffn), *dy = random_rows(c, 7, hidden);
    ops->mlp_forward(b, 0, gate_up, x, act, y);
    add(c, h, act, ffn);
    add(c, h, y, hidden);
    struct dry_mlp mlp = {.x = x,
                          .normed = case_buffer(c, hidden),
                          .again = 1,
                          .gate_up = gate_up,
                          .act = act,
                          .dy = dy,
                          .dx = case_buffer(c, hidden)};
    ops->mlp_backward(b, 0, &mlp);
    add(c, h, gate_up, 2 * ffn);
    add(c, h, mlp.dx, hidden);
    ops->loss(b, x, dx, NULL);
    add(c, h, dx, hidden);
    ops->sums_block(b, &block, &count);
    dry_hash_add(h, block, count * sizeof *block);
    struct dry_adamw o1 = {1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 1};
    double norm = 0;
    tap_equal(ops->adamw(b, &o1, &norm), DRY_OK, "a step");
    float *values = calloc((size_t)c->adapter->parameters, sizeof *values);
    ops->state_get(b, values, NULL, NULL);
    dry_hash_add(h, values, (size_t)c->adapter->parameters * sizeof *values);
    dry_hash_add(h, &norm, sizeof norm);
    free(values);
    dry_hash_finish(h, hex);
}

static void test_threads(void)
{
    char first[DRY_HASH_HEX], again[DRY_HASH_HEX];

    for (int threads = 1; threads <= 5; threads++) {
        struct test_case c;
        char name[64];
        omp_set_num_threads(threads);
        if (!tap_ok(case_open(&c, &wide, "cpu") == 0, "loads with %d threads", threads))
            exit(tap_done());
        everything(&c, threads == 1 ? first : again);
        snprintf(name, sizeof name, "the same bits on %d threads", threads);
        if (threads > 1)
            tap_text(again, first, name);
        case_close(&c);
    }
    omp_set_num_threads(2);
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void test_footprint(int training, int adapted)
{
    struct test_case c;
    size_t weights, state, workspace, before, after;
    struct dry_scratch scratch;
    struct dry_backend_options options = {.seed = 1};
    struct dry_backend *b;

    if (case_open(&c, &wide, "cpu"))
        abort();
    struct dry_limits limits = c.limits;
    limits.training = training;
    const struct dry_adapter *adapter = adapted ? c.adapter : NULL;
    c.ops->footprint(c.base, adapter, &limits, &weights, &state, &workspace, &scratch);
    c.ops->create(&options, &b);
    before = allocated();
    c.ops->load(b, c.base, adapter, &limits);
    after = allocated();
    size_t said = weights + state + workspace;
    /* Three allocations: alignment, the allocator's own words, and a page each when they are maps. */
    if (after == before)
        tap_ok(1, "footprint # SKIP this allocator counts nothing");
    else if (!tap_ok(after - before >= said && after - before <= said + 3 * 4096 + 3 * 256,
                     "footprint is what load allocates, training %d, adapter %d", training, adapted))
        printf("# allocated %zu, said %zu\n", after - before, said);
    c.ops->destroy(b);
    case_close(&c);
}

static int64_t flags(struct test_case *c)
{
    int64_t words[DRY_SUMS];

    c->ops->sums_read(c->backend, words);
    return words[DRY_SUM_FLAGS];
}

static enum dry_status step(struct test_case *c)
{
    struct dry_adamw o = {1e-3, 0.9, 0.999, 1e-8, 0, 1.0, 1};
    enum dry_status status;
    double norm = -1;

    dry_log_defer(1);
    status = c->ops->adamw(c->backend, &o, &norm);
    dry_log_discard();
    dry_log_defer(0);
    return status;
}

static void test_flags(void)
{
    struct test_case c;

    if (case_open(&c, &wide, "cpu"))
        abort();
    int64_t hidden = c.base->arch.hidden, out = dry_group_out(&c.base->arch, DRY_GROUP_QKV);
    float *x = random_rows(&c, 1, hidden), *dy = random_rows(&c, 2, out);
    tap_equal(step(&c), DRY_ERR_NUMERIC, "no supervised token: no step");
    c.ops->loss(c.backend, x, NULL, NULL);
    c.ops->linear_backward(c.backend, 0, DRY_GROUP_QKV, x, dy, NULL);
    tap_equal(flags(&c), 0, "sane gradients raise no flag, whatever padding holds");
    dy[3] = NAN;
    c.ops->linear_backward(c.backend, 0, DRY_GROUP_QKV, x, dy, NULL);
    tap_equal(flags(&c), DRY_FLAG_NOT_FINITE, "not-a-number in a gradient raises its flag");
    tap_equal(step(&c), DRY_ERR_NUMERIC, "and stops the step");
    c.ops->sums_clear(c.backend);
    c.ops->loss(c.backend, x, NULL, NULL);
    dy[3] = 1e7f;
    c.ops->linear_backward(c.backend, 0, DRY_GROUP_QKV, x, dy, NULL);
    tap_equal(flags(&c), DRY_FLAG_RANGE, "a gradient of 10^7 raises the range's flag");
    tap_equal(step(&c), DRY_ERR_NUMERIC, "and stops the step");
    c.ops->sums_clear(c.backend);
    dy[3] = 0.75e6f;
    int64_t raised = 0;
    for (int i = 0; i < 16 && !raised; i++) {
        c.ops->linear_backward(c.backend, 0, DRY_GROUP_QKV, x, dy, NULL);
        raised = i ? flags(&c) : 0;
    }
    tap_equal(raised, DRY_FLAG_RANGE, "a sum that grows out of range raises the flag");
    c.ops->sums_clear(c.backend);
    for (int64_t i = 0; i < c.batch.useful * hidden; i++)
        x[i] = NAN;
    c.ops->loss(c.backend, x, NULL, NULL);
    tap_equal(flags(&c), DRY_FLAG_NOT_FINITE, "a loss that is not a number raises its flag");
    case_close(&c);
}

static void test_refusals(void)
{
    const struct dry_backend_ops *ops = NULL;
    struct test_case c;
    int32_t id;

    dry_log_defer(1);
    tap_equal(dry_backend_find("gpu", &ops), DRY_ERR_USAGE, "an unknown backend is a usage error");
    tap_ok(dry_backend_find("auto", &ops) == DRY_OK && ops, "auto finds one");
    if (case_open(&c, &wide, "cpu"))
        abort();
    id = c.id[2];
    c.id[2] = (int32_t)c.base->arch.vocab;
    tap_equal(c.ops->batch(c.backend, &c.batch, 0), DRY_ERR_INPUT, "an id beyond the vocabulary is refused");
    c.id[2] = id;
    c.batch.rows += 1;
    tap_equal(c.ops->batch(c.backend, &c.batch, 0), DRY_ERR_INTERNAL,
              "a micro-batch beyond the limits is refused");
    dry_log_discard();
    dry_log_defer(0);
    printf("# %s\n", c.ops->describe(c.backend));
    tap_ok(strncmp(c.ops->describe(c.backend), "cpu: ", 5) == 0, "it says what it is");
    case_close(&c);
}

static void test_series(void)
{
    uint32_t many[4 * 37], one[4];
    uint64_t first = UINT64_MAX - 20; /* over the end of a counter's low half, too */
    int equal = 1;

    dry_random_series(5, DRY_RANDOM_DROPOUT, 77, first, 37, many);
    for (int i = 0; i < 37; i++) {
        dry_random_words(5, DRY_RANDOM_DROPOUT, 77, first + (uint64_t)i, one);
        equal &= memcmp(one, many + 4 * i, sizeof one) == 0;
    }
    tap_ok(equal, "a series of random words is what single calls give");
}

int main(void)
{
    test_series();
    test_threads();
    test_footprint(1, 1);
    test_footprint(0, 1);
    test_footprint(0, 0);
    test_flags();
    test_refusals();
    return tap_done();
}
