/*
 * Every operation of a backend against plain double precision, and its gradient against central differences
 * of that. Owns the table of cases; DRY_TEST_BACKEND names another backend than "cpu".  Must not know how a
 * backend computes.
 *
 * An error is relative to the largest entry of the array it is in.  Padding rows of every input hold huge
 * values: they must reach nothing, and every output's padding must be finite.
 */
#include "config.h"

#include "compute_case.h"
#include "tap.h"

#include "base/log.h"

#include <omp.h>
#include <stdlib.h>

/* float32 sums of up to some hundred terms */
#define TOLERANCE 1e-6

static const struct case_spec cases[] = {
    {.name = "llama, one record, padding",
     .base = {.hidden = 20, .ffn = 28, .vocab = 37, .layers = 2, .heads = 5, .kv_heads = 1},
     .targets = "all",
     .rank = 3,
     .alpha = 5,
     .length = {11},
     .padding = 5,
     .tolerance = TOLERANCE},
    {.name = "qwen2, biases, several records, rank 1, q and v only",
     .base = {.family = "qwen2", .vocab = 33, .heads = 4, .kv_heads = 2, .tied = 1, .dtype = DRY_BF16},
     .targets = "q_proj,v_proj",
     .rank = 1,
     .alpha = 2,
     .length = {1, 5, 4, 2},
     .padding = 4,
     .tolerance = TOLERANCE},
    {.name = "qwen3, q and k norm, own head_dim, dropout",
     .base = {.family = "qwen3", .hidden = 18, .ffn = 22, .heads = 4, .kv_heads = 2, .head_dim = 6},
     .targets = "all",
     .rank = 2,
     .alpha = 4,
     .dropout = 0.3,
     .length = {3, 6, 2},
     .padding = 1,
     .tolerance = TOLERANCE},
    {.name = "llama 3 rope, biases everywhere, every head its own key, dropout",
     .base = {.vocab = 41,
              .heads = 4,
              .kv_heads = 4,
              .qkv_bias = 1,
              .mlp_bias = 1,
              .llama3 = 1,
              .dtype = DRY_F16},
     .targets = "k_proj,o_proj,up_proj,down_proj",
     .rank = 4,
     .alpha = 2,
     .dropout = 0.5,
     .length = {9, 3},
     .padding = 0,
     .tolerance = TOLERANCE},
    {.name = "mistral, linear rope, no adapter",
     .base = {.family = "mistral", .hidden = 12, .heads = 3, .kv_heads = 3, .ffn = 17, .vocab = 29},
     .length = {7, 1},
     .padding = 2,
     .linear_rope = 4,
     .tolerance = TOLERANCE},
    /* float32 angles of positions up to 300 are wrong by some 1e-5, as Transformers' are */
    {.name = "long records, over block and tile edges, dropout",
     .base = {.hidden = 38, .ffn = 530, .vocab = 300, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 34},
     .targets = "all",
     .rank = 9,
     .alpha = 9,
     .dropout = 0.1,
     .length = {390, 40, 1},
     .padding = 3,
     .samples = 6,
     .tolerance = 3e-5},
    {.name = "widths of whole vectors, q and k norm",
     .base =
         {.family = "qwen3", .hidden = 64, .ffn = 96, .vocab = 88, .heads = 4, .kv_heads = 2, .head_dim = 32},
     .targets = "all",
     .rank = 8,
     .alpha = 16,
     .length = {9, 70, 3},
     .padding = 2,
     .samples = 4,
     .tolerance = 3e-6},
    {.name = "wide rows, heads of 96, dropout",
     .base = {.family = "qwen3",
              .hidden = 1040,
              .ffn = 4168,
              .vocab = 61,
              .layers = 1,
              .heads = 3,
              .kv_heads = 1,
              .head_dim = 96},
     .targets = "all",
     .rank = 16,
     .alpha = 16,
     .dropout = 0.2,
     .length = {1, 4},
     .padding = 1,
     .samples = 2,
     .tolerance = 1e-5},
    {.name = "many words, head of 128",
     .base =
         {.hidden = 8, .ffn = 16, .vocab = 33003, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 128},
     .targets = "all",
     .rank = 20,
     .alpha = 5,
     .length = {4, 2},
     .padding = 3,
     .samples = 3,
     .tolerance = 1e-5},
    {.name = "ranks that share no kernel, several runs of rows",
     .base =
         {.family = "qwen2", .hidden = 272, .ffn = 304, .vocab = 40, .layers = 1, .heads = 4, .kv_heads = 2},
     .targets = "all",
     .rank = 40,
     .alpha = 20,
     .length = {130, 47},
     .padding = 5,
     .samples = 2,
     .tolerance = 1e-5},
    {.name = "ranks beyond the thin kernels",
     .base = {.hidden = 96, .ffn = 128, .vocab = 40, .layers = 1, .heads = 4, .kv_heads = 2},
     .targets = "all",
     .rank = 72,
     .alpha = 36,
     .length = {30, 5},
     .padding = 2,
     .samples = 3,
     .tolerance = 1e-5},
};

static double *numbers(const struct test_case *c, uint64_t stream, int64_t n, double size)
{
    double *x = malloc(((size_t)n + 1) * sizeof *x);

    if (!x)
        abort();
    /* Rounded, so that both sides see the same input. */
    for (int64_t i = 0; i < n; i++)
        x[i] = case_rounded(c, size * case_number(stream, (uint64_t)i));
    return x;
}

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);

    if (!x)
        abort();
    return x;
}

static void check(struct test_case *c, double error, double tolerance, const char *what)
{
    if (!tap_ok(error <= tolerance, "%s: %s", c->spec->name, what))
        printf("# error %.3g, tolerance %.3g\n", error, tolerance);
}

/* The largest |got - want| over the largest |want|; not-a-number anywhere, or in got's padding, gives
 * infinity. */
static double difference(const struct test_case *c, const float *got, const double *want, int64_t columns)
{
    double worst = 0, most = 1e-30;
    int64_t useful = c->batch.useful * columns, all = c->batch.tokens * columns;

    for (int64_t i = 0; i < useful; i++) {
        double d = fabs((double)got[i] - want[i]);
        worst = d <= worst ? worst : d;
        if (!isfinite(d))
            return INFINITY;
        most = fmax(most, fabs(want[i]));
    }
    for (int64_t i = useful; i < all; i++)
        if (!isfinite(got[i]))
            return INFINITY;
    return worst / most;
}

static void check_output(struct test_case *c, const void *got, const double *want, int64_t columns,
                         const char *what)
{
    float *host = case_download(c, got, columns);

    check(c, difference(c, host, want, columns), c->tolerance, what);
    free(host);
}

/* Finite differences: value(context) is a scalar that depends on x[n]; got is what the backend says. */
typedef double (*scalar)(struct test_case *c, void *context);

static double gradient_error(struct test_case *c, scalar value, void *context, double *x, int64_t n,
                             const float *got)
{
    const double h = 1e-4;
    double worst = 0, most = 1e-30;
    int64_t samples = c->spec->samples && c->spec->samples < n ? c->spec->samples : n;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)got[i]));
    for (int64_t k = 0; k < samples; k++) {
        int64_t i = samples == n ? k : (k * 7919 + 13) * (n / samples) % n;
        double keep = x[i];
        x[i] = keep + h;
        double up = value(c, context);
        x[i] = keep - h;
        double down = value(c, context);
        x[i] = keep;
        double d = fabs((up - down) / (2 * h) - (double)got[i]);
        if (!isfinite(d))
            return INFINITY;
        worst = fmax(worst, d);
    }
    return worst / most;
}

static double weighted(const double *y, const double *w, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += y[i] * w[i];
    return sum;
}

/* What the scalars work on. */
struct trial {
    double *x, *w, *y; /* input, output's weights, room for the output */
    const double *weight;
    int64_t in, out, layer;
    enum dry_group group;
};

static void check_gradient(struct test_case *c, scalar value, struct trial *t, const void *dx,
                           const char *what)
{
    float *host = case_download(c, dx, t->in);

    check(c, gradient_error(c, value, t, t->x, c->batch.useful * t->in, host), c->gradient_tolerance, what);
    for (int64_t i = c->batch.useful * t->in; i < c->batch.tokens * t->in; i++)
        if (!isfinite(host[i])) {
            check(c, INFINITY, 0, "finite padding of the gradient");
            break;
        }
    free(host);
}

static void trial_make(struct test_case *c, struct trial *t, uint64_t stream, int64_t in, int64_t out)
{
    t->in = in;
    t->out = out;
    t->x = numbers(c, stream, c->batch.useful * in, 1);
    t->w = numbers(c, stream + 1, c->batch.useful * out, 1);
    t->y = zeros(c->batch.useful * out);
}

static void trial_free(struct trial *t)
{
    free(t->x);
    free(t->w);
    free(t->y);
}

static void test_embed(struct test_case *c)
{
    int64_t hidden = c->base->arch.hidden;
    double *want = zeros(c->batch.useful * hidden);
    void *y = case_buffer(c, hidden);

    reference_embed(&c->reference, want);
    c->ops->embed(c->backend, y);
    check_output(c, y, want, hidden, "embedding");
    free(want);
}

static double norm_value(struct test_case *c, void *context)
{
    struct trial *t = context;

    reference_norm(t->x, t->weight, c->batch.useful, t->in, c->base->arch.norm_eps, t->y);
    return weighted(t->y, t->w, c->batch.useful * t->out);
}

static void test_norm(struct test_case *c, enum dry_norm which)
{
    int64_t hidden = c->base->arch.hidden, layer = c->base->arch.layers - 1;
    const struct dry_base_layer *l = &c->base->layer[layer];
    const double *weight =
        reference_tensor(&c->reference, which == DRY_NORM_INPUT ? l->input_norm : l->post_norm);
    struct trial t = {.weight = weight};

    trial_make(c, &t, 10, hidden, hidden);
    void *x = case_upload(c, t.x, hidden), *dy = case_upload(c, t.w, hidden), *y = case_buffer(c, hidden);
    double *before = zeros(c->batch.useful * hidden);
    void *dx = case_upload(c, before, hidden);
    c->ops->norm_forward(c->backend, layer, which, x, y);
    norm_value(c, &t);
    check_output(c, y, t.y, hidden, which == DRY_NORM_INPUT ? "input norm" : "post norm");
    c->ops->norm_backward(c->backend, layer, which, x, dy, dx);
    check_gradient(c, norm_value, &t, dx, "norm's gradient");
    /* += */
    c->ops->norm_backward(c->backend, layer, which, x, dy, dx);
    float *twice = case_download(c, dx, hidden);
    for (int64_t i = 0; i < c->batch.useful * hidden; i++)
        twice[i] /= 2;
    check(c, gradient_error(c, norm_value, &t, t.x, c->batch.useful * hidden, twice), c->gradient_tolerance,
          "norm's gradient is added");
    free(twice);
    free(before);
    trial_free(&t);
}

static double linear_value(struct test_case *c, void *context)
{
    struct trial *t = context;

    reference_linear(&c->reference, t->layer, t->group, t->x, NULL, t->y);
    return weighted(t->y, t->w, c->batch.useful * t->out);
}

/* Gradients of A and B of each adapted member, and zero for all others. */
static void check_adapter_gradient(struct test_case *c, struct trial *t, const char *what)
{
    int64_t parameters = c->adapter->parameters;
    float *got = calloc((size_t)parameters, sizeof *got);
    enum dry_proj member[3];
    int members = dry_group_members(t->group, member);
    double worst = 0;
    char text[64];

    c->ops->gradient_get(c->backend, got);
    for (int m = 0; m < members; m++) {
        const struct dry_adapter_part *p = dry_adapter_at(c->adapter, t->layer, member[m]);
        if (!p)
            continue;
        double a =
            gradient_error(c, linear_value, t, c->reference.values + p->a, p->rank * p->in, got + p->a);
        double b =
            gradient_error(c, linear_value, t, c->reference.values + p->b, p->rank * p->out, got + p->b);
        worst = fmax(worst, fmax(a, b));
        memset(got + p->a, 0, (size_t)(p->rank * p->in) * sizeof *got);
        memset(got + p->b, 0, (size_t)(p->rank * p->out) * sizeof *got);
    }
    for (int64_t i = 0; i < parameters; i++)
        if (got[i] != 0)
            worst = INFINITY;
    snprintf(text, sizeof text, "%s: gradients of A and B", what);
    check(c, worst, c->gradient_tolerance, text);
    free(got);
}

static void test_linear(struct test_case *c, enum dry_group g)
{
    static const char *const names[] = {"q k v", "o", "gate and up", "down"};
    struct trial t = {.group = g, .layer = c->base->arch.layers - 1};
    char what[64];

    trial_make(c, &t, 20 + 4 * (uint64_t)g, dry_group_in(&c->base->arch, g),
               dry_group_out(&c->base->arch, g));
    double *residual = numbers(c, 90, c->batch.useful * t.out, 1);
    void *x = case_upload(c, t.x, t.in), *dy = case_upload(c, t.w, t.out),
         *add = case_upload(c, residual, t.out);
    void *y = case_buffer(c, t.out), *dx = case_buffer(c, t.in);
    c->ops->linear_forward(c->backend, t.layer, g, x, NULL, y);
    linear_value(c, &t);
    check_output(c, y, t.y, t.out, names[g]);
    c->ops->linear_forward(c->backend, t.layer, g, x, add, y);
    reference_linear(&c->reference, t.layer, g, t.x, residual, t.y);
    snprintf(what, sizeof what, "%s and residual", names[g]);
    check_output(c, y, t.y, t.out, what);
    c->ops->sums_clear(c->backend);
    c->ops->linear_backward(c->backend, t.layer, g, x, dy, dx);
    snprintf(what, sizeof what, "%s: gradient of the input", names[g]);
    check_gradient(c, linear_value, &t, dx, what);
    if (c->adapter)
        check_adapter_gradient(c, &t, names[g]);
    free(residual);
    trial_free(&t);
}

/* q k v's backward with the norm's output made again from its input: the same sums as from the output. */
static void test_normed(struct test_case *c)
{
    int64_t hidden = c->base->arch.hidden, layer = c->base->arch.layers - 1, useful = c->batch.useful;
    const double *weight = reference_tensor(&c->reference, c->base->layer[layer].input_norm);
    struct trial t = {.group = DRY_GROUP_QKV, .layer = layer};
    double *stream = numbers(c, 95, useful * hidden, 1);

    trial_make(c, &t, 96, hidden, dry_group_out(&c->base->arch, DRY_GROUP_QKV));
    reference_norm(stream, weight, useful, hidden, c->base->arch.norm_eps, t.x);
    void *x = case_upload(c, stream, hidden), *dy = case_upload(c, t.w, t.out), *y = case_buffer(c, t.out);
    void *normed = case_buffer(c, hidden), *room = case_buffer(c, hidden), *dx = case_buffer(c, hidden);
    for (int again = 0; again < 2; again++) {
        c->ops->norm_forward(c->backend, layer, DRY_NORM_INPUT, x, normed);
        c->ops->linear_forward(c->backend, layer, DRY_GROUP_QKV, normed, NULL, y);
        c->ops->sums_clear(c->backend);
        c->ops->normed_backward(c->backend, layer, DRY_NORM_INPUT, x, again ? room : normed, again, dy, dx);
        check_gradient(c, linear_value, &t, dx, "q k v behind its norm: gradient of the input");
        if (c->adapter)
            check_adapter_gradient(c, &t,
                                   again ? "q k v behind its norm, made again" : "q k v behind its norm");
    }
    free(stream);
    trial_free(&t);
}

static double attention_value(struct test_case *c, void *context)
{
    struct trial *t = context;

    reference_attention(&c->reference, t->layer, t->x, NULL, t->y, NULL);
    return weighted(t->y, t->w, c->batch.useful * t->out);
}

static void test_attention(struct test_case *c)
{
    const struct dry_arch *a = &c->base->arch;
    int64_t q = a->heads * a->head_dim, k = a->kv_heads * a->head_dim, tokens = c->batch.tokens;
    struct trial t = {.layer = a->layers - 1};

    trial_make(c, &t, 40, q + 2 * k, q);
    double *rotated = zeros(c->batch.useful * t.in), *lse = zeros(c->batch.useful * a->heads);
    void *qkv = case_upload(c, t.x, t.in), *d_o = case_upload(c, t.w, q), *o = case_buffer(c, q);
    void *raw = case_buffer(c, q + k), *sums = case_buffer(c, a->heads * 4);
    void *dqkv = case_buffer(c, t.in);
    c->ops->attention_forward(c->backend, t.layer, qkv, a->qk_norm ? raw : NULL, o, sums, c->scratch);
    reference_attention(&c->reference, t.layer, t.x, rotated, t.y, lse);
    check_output(c, o, t.y, q, "attention");
    float *got = case_download(c, qkv, t.in);
    for (int64_t i = c->batch.useful * t.in; i < tokens * t.in; i++)
        got[i] = 0; /* the input's padding may stay */
    check(c, difference(c, got, rotated, t.in), c->tolerance, "rotated q and k");
    free(got);
    c->ops->attention_backward(c->backend, t.layer, qkv, a->qk_norm ? raw : NULL, o, sums, d_o, dqkv,
                               c->scratch);
    check_gradient(c, attention_value, &t, dqkv, "attention's gradient");
    free(lse);
    free(rotated);
    trial_free(&t);
}

/* The MLP's output, weighted, from its norm's output. */
static double mlp_value(struct test_case *c, void *context)
{
    struct trial *t = context;
    int64_t ffn = c->base->arch.ffn;
    double *gate_up = zeros(c->batch.useful * 2 * ffn), *act = zeros(c->batch.useful * ffn);

    reference_linear(&c->reference, t->layer, DRY_GROUP_GATE_UP, t->x, NULL, gate_up);
    reference_swiglu(&c->reference, gate_up, act);
    reference_linear(&c->reference, t->layer, DRY_GROUP_DOWN, act, NULL, t->y);
    free(act);
    free(gate_up);
    return weighted(t->y, t->w, c->batch.useful * t->out);
}

/* An MLP's gradients of A and B, or those of down alone, and zero for all others. */
static void check_mlp_gradient(struct test_case *c, struct trial *t, int down_only, const char *what)
{
    static const enum dry_proj members[] = {DRY_PROJ_DOWN, DRY_PROJ_GATE, DRY_PROJ_UP};
    int64_t parameters = c->adapter->parameters, count = down_only ? 1 : 3;
    float *got = calloc((size_t)parameters, sizeof *got);
    double worst = 0;

    c->ops->gradient_get(c->backend, got);
    for (int64_t m = 0; m < count; m++) {
        const struct dry_adapter_part *p = dry_adapter_at(c->adapter, t->layer, members[m]);
        if (!p)
            continue;
        int64_t a = p->rank * dry_proj_in(&c->base->arch, members[m]),
                b = p->rank * dry_proj_out(&c->base->arch, members[m]);
        worst = fmax(worst, gradient_error(c, mlp_value, t, c->reference.values + p->a, a, got + p->a));
        worst = fmax(worst, gradient_error(c, mlp_value, t, c->reference.values + p->b, b, got + p->b));
        memset(got + p->a, 0, (size_t)a * sizeof *got);
        memset(got + p->b, 0, (size_t)b * sizeof *got);
    }
    for (int64_t i = 0; i < parameters; i++)
        if (got[i] != 0)
            worst = INFINITY;
    check(c, worst, c->gradient_tolerance, what);
    free(got);
}

enum mlp_way { MLP_KEPT, MLP_AGAIN, MLP_DOWN_ONLY, MLP_WAYS };

/* From the residual stream to the MLP's output and back. */
static void test_mlp(struct test_case *c)
{
    static const char *const names[] = {"mlp, norm kept: gradients of A and B", "mlp: gradients of A and B",
                                        "mlp: gradients of down's A and B alone"};
    const struct dry_arch *a = &c->base->arch;
    int64_t ffn = a->ffn, hidden = a->hidden, layer = a->layers - 1, useful = c->batch.useful;
    const double *weight = reference_tensor(&c->reference, c->base->layer[layer].post_norm);
    double *stream = numbers(c, 55, useful * hidden, 1), *act = zeros(useful * ffn),
           *gate_up = zeros(useful * 2 * ffn);
    struct trial t = {.layer = layer};

    trial_make(c, &t, 50, hidden, hidden);
    reference_norm(stream, weight, useful, hidden, a->norm_eps, t.x);
    reference_linear(&c->reference, layer, DRY_GROUP_GATE_UP, t.x, NULL, gate_up);
    reference_swiglu(&c->reference, gate_up, act);
    void *x = case_upload(c, stream, hidden), *dy = case_upload(c, t.w, hidden);
    void *normed = case_buffer(c, hidden), *room = case_buffer(c, hidden), *y = case_buffer(c, hidden);
    struct dry_mlp m = {.x = x, .dy = dy, .gate_up = case_buffer(c, 2 * ffn), .act = case_buffer(c, ffn)};
    void *dx = case_buffer(c, hidden);
    for (enum mlp_way way = 0; way < MLP_WAYS; way++) {
        c->ops->norm_forward(c->backend, layer, DRY_NORM_POST, x, normed);
        c->ops->linear_forward(c->backend, layer, DRY_GROUP_GATE_UP, normed, NULL, m.gate_up);
        c->ops->mlp_forward(c->backend, layer, m.gate_up, x, m.act, y);
        check_output(c, m.act, act, ffn, "swiglu");
        mlp_value(c, &t);
        for (int64_t i = 0; i < useful * hidden; i++)
            t.y[i] += stream[i];
        check_output(c, y, t.y, hidden, "mlp and residual");
        m.again = way == MLP_AGAIN;
        m.normed = m.again ? room : normed;
        m.down_only = way == MLP_DOWN_ONLY;
        m.dx = m.down_only ? NULL : dx;
        c->ops->sums_clear(c->backend);
        c->ops->mlp_backward(c->backend, layer, &m);
        if (m.dx)
            check_gradient(c, mlp_value, &t, dx, "mlp's gradient");
        if (c->adapter)
            check_mlp_gradient(c, &t, m.down_only, names[way]);
    }
    free(gate_up);
    free(act);
    free(stream);
    trial_free(&t);
}

static double loss_value(struct test_case *c, void *context)
{
    struct trial *t = context;

    return reference_loss(&c->reference, t->x);
}

static void test_loss(struct test_case *c)
{
    int64_t hidden = c->base->arch.hidden, words[DRY_SUMS];
    struct trial t = {.layer = 0};

    trial_make(c, &t, 60, hidden, hidden);
    void *x = case_upload(c, t.x, hidden), *dx = case_buffer(c, hidden);
    double want = loss_value(c, &t);
    c->ops->sums_clear(c->backend);
    c->ops->loss(c->backend, x, NULL, c->scratch);
    c->ops->loss(c->backend, x, dx, c->scratch);
    c->ops->sums_read(c->backend, words);
    double got = ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS) / 2;
    check(c, fabs(got - want) / fabs(want), c->tolerance, "loss, with and without gradient");
    check(c, (double)llabs(words[DRY_SUM_TOKENS] - 2 * c->batch.rows), 0, "supervised tokens");
    check(c, (double)words[DRY_SUM_FLAGS], 0, "no flag");
    check_gradient(c, loss_value, &t, dx, "loss's gradient");
    trial_free(&t);
}

/* PyTorch's AdamW in double on one parameter. */
static void adamw_one(const struct dry_adamw *o, double g, double *p, double *m, double *v)
{
    *p *= 1 - o->rate * o->decay;
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    *p -= o->rate / (1 - pow(o->beta1, (double)o->step)) * *m /
          (sqrt(*v) / sqrt(1 - pow(o->beta2, (double)o->step)) + o->epsilon);
}

static void test_adamw(struct test_case *c)
{
    int64_t n = c->adapter->parameters, hidden = c->base->arch.hidden,
            out = dry_group_out(&c->base->arch, DRY_GROUP_QKV);
    double *x = numbers(c, 70, c->batch.useful * hidden, 1), *w = numbers(c, 71, c->batch.useful * out, 1);
    void *in = case_upload(c, x, hidden), *dy = case_upload(c, w, out), *y = case_buffer(c, out);
    double *p = zeros(n), *m = zeros(n), *v = zeros(n), norm = 0, norm_error = 0, worst = 0;
    float *g = calloc((size_t)n, sizeof *g), *got = calloc((size_t)n, sizeof *got);

    for (int64_t i = 0; i < n; i++)
        p[i] = (double)c->values[i];
    for (int step = 1; step <= 3; step++) {
        struct dry_adamw o = {
            .rate = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = 0.1, .step = step};
        o.max_norm = step == 2 ? 0 : 0.05;
        c->ops->sums_clear(c->backend);
        c->ops->loss(c->backend, in, NULL, c->scratch);
        c->ops->linear_forward(c->backend, 0, DRY_GROUP_QKV, in, NULL, y);
        c->ops->linear_backward(c->backend, 0, DRY_GROUP_QKV, in, dy, NULL);
        c->ops->gradient_get(c->backend, g);
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)g[i] / (double)c->batch.rows * (double)g[i] / (double)c->batch.rows;
        double clip = o.max_norm > 0 ? fmin(1, o.max_norm / (sqrt(sum) + 1e-6)) : 1;
        for (int64_t i = 0; i < n; i++)
            adamw_one(&o, (double)g[i] / (double)c->batch.rows * clip, &p[i], &m[i], &v[i]);
        if (c->ops->adamw(c->backend, &o, &norm))
            norm = NAN;
        norm_error = fmax(norm_error, fabs(norm / sqrt(sum) - 1));
    }
    c->ops->state_get(c->backend, got, NULL, NULL);
    for (int64_t i = 0; i < n; i++)
        worst = fabs((double)got[i] - p[i]) <= worst ? worst : fabs((double)got[i] - p[i]);
    check(c, norm_error, 1e-6, "gradient norm");
    check(c, worst, 1e-6, "three steps of AdamW, with decay and clipping");
    c->ops->state_set(c->backend, c->values, NULL, NULL);
    free(got);
    free(g);
    free(v);
    free(m);
    free(p);
    free(w);
    free(x);
}

/* Base alone: as if there were no adapter, and no gradient sums. */
static void test_disabled(struct test_case *c)
{
    int64_t hidden = c->base->arch.hidden, out = dry_group_out(&c->base->arch, DRY_GROUP_QKV);
    const struct dry_adapter *adapter = c->reference.adapter;
    double *x = numbers(c, 80, c->batch.useful * hidden, 1), *want = zeros(c->batch.useful * out);
    void *in = case_upload(c, x, hidden), *y = case_buffer(c, out);

    c->ops->adapter_enable(c->backend, 0);
    c->reference.adapter = NULL;
    c->ops->linear_forward(c->backend, 0, DRY_GROUP_QKV, in, NULL, y);
    reference_linear(&c->reference, 0, DRY_GROUP_QKV, x, NULL, want);
    check_output(c, y, want, out, "adapter off");
    c->reference.adapter = adapter;
    c->ops->adapter_enable(c->backend, 1);
    c->ops->batch(c->backend, &c->batch, 0);
    c->reference.dropout = 0;
    c->ops->linear_forward(c->backend, 0, DRY_GROUP_QKV, in, NULL, y);
    reference_linear(&c->reference, 0, DRY_GROUP_QKV, x, NULL, want);
    check_output(c, y, want, out, "dropout off");
    free(want);
    free(x);
}

int main(void)
{
    const char *backend = getenv("DRY_TEST_BACKEND");

    omp_set_num_threads(1); /* threads are compute_cpu.c's subject */

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_case c;
        if (!tap_ok(case_open(&c, &cases[i], backend ? backend : "cpu") == 0, "%s: loads", cases[i].name)) {
            case_close(&c);
            continue;
        }
        test_embed(&c);
        test_norm(&c, DRY_NORM_INPUT);
        test_norm(&c, DRY_NORM_POST);
        for (enum dry_group g = 0; g < DRY_GROUPS; g++)
            test_linear(&c, g);
        test_normed(&c);
        test_attention(&c);
        test_mlp(&c);
        test_loss(&c);
        if (c.adapter) {
            test_adamw(&c);
            test_disabled(&c);
        }
        case_close(&c);
    }
    return tap_done();
}
