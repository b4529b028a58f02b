/*
 * Linears with LoRA on a GPU: one product does base and adapter, thin kernels make and use its extra columns.
 * Owns the table of adapter copies and the choice of kernels. Must not know what a group is for.
 *
 *   forward   x's pad = scale dropout(x) A^T                y = [x | pad] [W | B]^T (+ bias) (+ residual)
 *   backward  dy's pad = u = scale dy B, dB += dy^T x's pad   dx = [dy | u] [W ; A],  dA += u^T dropout(x)
 *
 * With dropout the last product is split: dx = dy W + mask (u A), member by member, as each has its own mask.
 * Thin products go through skinny.cu up to 64 ranks and for widths that are multiples of 8; others through
 * general products.
 */
#include "config.h"

#include "cuda/linear.h"

#include "cuda/elementwise.h"
#include "cuda/gemm.h"

#include "base/memory.h"
#include "compute/dropout.h"

#include <assert.h>
#include <string.h>

enum { COLUMN_MULTIPLE = 64, EIGHT = 8, MOST_RUNS = 1024 };

/* Members first..last whose thin products are done in one pass over x: all columns within reach of one
 * kernel; with dropout one member. */
struct run {
    int first, last;
    int pad_first, units; /* the kernel's columns: pad_first .. pad_first + 16 units - 1 */
    int begin, end;       /* columns of the pad that the run is to write */
};

static int rounded(int64_t n, int multiple)
{
    return (int)((n + multiple - 1) / multiple * multiple);
}

void dry_cuda_group_make(struct dry_cuda *c, int64_t layer, enum dry_group which, struct dry_cuda_group *g)
{
    memset(g, 0, sizeof *g);
    g->c = c;
    g->layer = layer;
    g->in = (int)dry_group_in(c->arch, which);
    g->out = (int)dry_group_out(c->arch, which);
    g->tokens = (int)c->batch.tokens;
    g->useful = (int)c->batch.useful;
    g->x_pitch = g->w_pitch = dry_cuda_pitch(c, g->in);
    g->y_pitch = dry_cuda_pitch(c, g->out);
    if (c->layer) {
        g->weight = c->layer[layer].weight[which];
        g->bias = c->layer[layer].bias[which];
    }
    if (c->kept)
        g->kept = c->kept + dry_cuda_kept_at(c, layer, which) * c->limits.tokens * c->pad;
    g->members = dry_cuda_members(c, layer, which, g->member, &g->ranks);
    if (!c->enabled) {
        g->ranks = 0;
        for (int i = 0; i < g->members; i++)
            g->member[i].rank = 0;
    }
    g->columns = rounded(g->ranks, COLUMN_MULTIPLE);
    g->drops = c->adapter && c->dropout && c->adapter->dropout > 0;
    g->aligned = g->in % EIGHT == 0;
    for (int i = 0; i < g->members; i++)
        g->aligned = g->aligned && g->member[i].out % EIGHT == 0;
}

static float dropout_factor(const struct dry_cuda_group *g)
{
    return g->drops ? (float)(1 / (1 - g->c->adapter->dropout)) : 1;
}

static int units_of(int pad_first, int end)
{
    return (end - pad_first + DRY_SKINNY_UNIT - 1) / DRY_SKINNY_UNIT;
}

static const struct dry_cuda_thin_plan *plan_of(const struct dry_cuda_group *g, enum dry_skinny kind,
                                                int units)
{
    const struct dry_cuda_thin_plan *p;

    if (!g->aligned || units > DRY_SKINNY_UNITS)
        return NULL;
    p = &g->c->linear->plan[kind][units - 1];
    return p->columns ? p : NULL;
}

/* Whether columns up to `end` of the pad may join a run: general products take one member. Without plans only
 * sizes are asked for, and joining needs most. */
static int run_takes(const struct dry_cuda_group *g, const struct run *r, int end)
{
    int units = units_of(r->pad_first, end);

    if (g->drops)
        return 0;
    if (!g->c->linear)
        return units <= DRY_SKINNY_UNITS;
    return plan_of(g, DRY_SKINNY_XA, units) && plan_of(g, DRY_SKINNY_DA, units);
}

/* The runs of a group that has ranks. */
static int runs_make(const struct dry_cuda_group *g, struct run run[3])
{
    int runs = 0;

    for (int i = 0; i < g->members; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        struct run *r = runs ? &run[runs - 1] : NULL;
        if (m->rank == 0)
            continue;
        if (!r || !run_takes(g, r, m->rank_first + m->rank)) {
            if (r)
                r->end = m->rank_first;
            r = &run[runs++];
            r->first = i;
            r->begin = m->rank_first;
            r->pad_first = m->rank_first / DRY_SKINNY_UNIT * DRY_SKINNY_UNIT;
        }
        r->last = i;
        r->units = units_of(r->pad_first, m->rank_first + m->rank);
    }
    if (runs)
        run[runs - 1].end = g->columns;
    return runs;
}

static int slices_of(int columns, int slice)
{
    return (columns + slice - 1) / slice;
}

int dry_cuda_thin_chunk(int64_t tokens, int rows, int slices, int64_t room, int64_t extra)
{
    int64_t steps = (tokens + rows - 1) / rows, best = INT64_MAX, chunk = steps;

    for (int64_t runs = 1; runs <= steps && runs <= MOST_RUNS; runs++) {
        int64_t each = (steps + runs - 1) / runs, blocks = slices * ((steps + each - 1) / each);
        int64_t cost = (blocks + room - 1) / room * (each + extra);
        if (cost < best) {
            best = cost;
            chunk = each;
        }
    }
    return (int)chunk * rows;
}

static int chunk_rows(const struct dry_cuda_group *g, enum dry_skinny kind, int slices,
                      const struct dry_cuda_thin_plan *p)
{
    return dry_cuda_thin_chunk(g->tokens, DRY_SKINNY_ROWS, slices,
                               (int64_t)g->c->sms * (p->resident > 0 ? p->resident : 1),
                               kind == DRY_SKINNY_XA ? 2 : 4);
}

static struct dry_skinny_job job_make(const struct dry_cuda_group *g, const dry_bf16 *z, int64_t z_pitch)
{
    struct dry_cuda *c = g->c;
    struct dry_skinny_job j = {
        .z = z, .z_pitch = z_pitch, .tokens = g->tokens, .useful = g->useful, .factor = 1};

    j.m_pitch = g->w_pitch;
    j.partial = c->reduce;
    j.sums = c->sums;
    j.words = c->sums + c->gradients;
    return j;
}

/* Columns first..end-1 of the pad of padding rows, and columns from..end-1 of all rows, = 0. */
static enum dry_status pad_clear(const struct dry_cuda_group *g, dry_bf16 *pad, int64_t pitch, int first,
                                 int from, int end)
{
    struct dry_cuda *c = g->c;
    size_t row = (size_t)pitch * sizeof *pad;
    enum dry_status status = DRY_OK;

    if (g->tokens > g->useful)
        status = dry_cuda_check(c,
                                cudaMemset2DAsync(pad + g->useful * pitch + first, row, 0,
                                                  (size_t)(end - first) * sizeof *pad,
                                                  (size_t)(g->tokens - g->useful), c->stream),
                                "cudaMemset2DAsync");
    if (!status && end > from)
        status = dry_cuda_check(c,
                                cudaMemset2DAsync(pad + from, row, 0, (size_t)(end - from) * sizeof *pad,
                                                  (size_t)g->tokens, c->stream),
                                "cudaMemset2DAsync");
    return status;
}

/* Columns begin..end-1 of x's pad, kept for backward. */
static enum dry_status pad_keep(const struct dry_cuda_group *g, const dry_bf16 *pad, int begin, int end)
{
    struct dry_cuda *c = g->c;

    if (!g->kept || end <= begin)
        return DRY_OK;
    return dry_cuda_check(c,
                          cudaMemcpy2DAsync(g->kept + begin, (size_t)c->pad * sizeof *pad, pad + begin,
                                            (size_t)g->x_pitch * sizeof *pad,
                                            (size_t)(end - begin) * sizeof *pad, (size_t)g->tokens,
                                            cudaMemcpyDeviceToDevice, c->stream),
                          "cudaMemcpy2DAsync");
}

/* A run's columns of x's pad = scale z A^T. */
static enum dry_status run_xa(const struct dry_cuda_group *g, const struct run *r, const dry_bf16 *z,
                              dry_bf16 *pad)
{
    const struct dry_cuda_thin_plan *p = plan_of(g, DRY_SKINNY_XA, r->units);
    struct dry_cuda *c = g->c;
    struct dry_skinny_finish f = {
        .tokens = g->tokens, .useful = g->useful, .first = r->begin, .end = r->end, .pad = pad};
    struct dry_skinny_job j = job_make(g, z, g->x_pitch);
    enum dry_status status;

    if (!p) {
        const struct dry_cuda_member *m = &g->member[r->first];
        struct dry_cuda_product product = {.transpose_b = 1, .m = g->tokens, .n = m->rank, .k = g->in};
        product.a = z;
        product.lda = g->x_pitch;
        product.b = dry_cuda_group_a(g) + m->rank_first * g->w_pitch;
        product.ldb = g->w_pitch;
        product.alpha = m->scale * dropout_factor(g);
        product.out = pad + m->rank_first;
        product.ldc = g->x_pitch;
        status = dry_cuda_product(c, &product);
        if (!status)
            status = pad_clear(g, pad, g->x_pitch, r->begin, m->rank_first + m->rank, r->end);
        return status ? status : pad_keep(g, pad, r->begin, r->end);
    }
    j.m = dry_cuda_group_a(g);
    j.segments = 1;
    j.slices = slices_of(g->in, p->columns);
    j.segment[0] = (struct dry_skinny_segment){.columns = g->in, .pad_first = r->pad_first};
    j.chunk = chunk_rows(g, DRY_SKINNY_XA, j.slices, p);
    for (int i = r->first; i <= r->last; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        if (m->rank)
            f.part[f.parts++] = (struct dry_skinny_part){.first = m->rank_first,
                                                         .end = m->rank_first + m->rank,
                                                         .pad_first = r->pad_first,
                                                         .slices = j.slices,
                                                         .scale = m->scale * dropout_factor(g)};
    }
    f.partial = j.partial;
    f.width = r->units * DRY_SKINNY_UNIT;
    f.pitch = g->x_pitch;
    f.kept = g->kept;
    f.kept_pitch = c->pad;
    status =
        dry_cuda_check(c, dry_cuda_skinny_launch(DRY_SKINNY_XA, r->units, p->columns, &j, c->stream), "x A");
    return status ? status : dry_cuda_check(c, dry_cuda_skinny_finish_launch(&f, c->stream), "x A's sum");
}

static struct dry_skinny_mask mask_of(const struct dry_cuda_group *g, const struct dry_cuda_member *m)
{
    struct dry_cuda *c = g->c;

    return (struct dry_skinny_mask){.seed = c->options.seed,
                                    .layer = g->layer,
                                    .proj = (enum dry_proj)m->proj,
                                    .row_key = c->row_key,
                                    .position = c->position,
                                    .threshold = dry_dropout_threshold(c->adapter->dropout),
                                    .tokens = g->tokens,
                                    .useful = g->useful,
                                    .columns = g->in};
}

/* What a run sees of x: x, or its member's kept elements in c->dropped. */
static enum dry_status run_input(const struct dry_cuda_group *g, const struct run *r, const dry_bf16 *x,
                                 const dry_bf16 **z)
{
    struct dry_cuda *c = g->c;
    struct dry_skinny_mask mask;

    *z = x;
    if (!g->drops)
        return DRY_OK;
    mask = mask_of(g, &g->member[r->first]);
    *z = c->dropped;
    return dry_cuda_check(c, dry_cuda_drop_launch(&mask, x, g->x_pitch, c->dropped, g->x_pitch, c->stream),
                          "dropout");
}

enum dry_status dry_cuda_group_xa(const struct dry_cuda_group *g, dry_bf16 *x)
{
    struct run run[3];
    int runs = runs_make(g, run);
    enum dry_status status = DRY_OK;
    const dry_bf16 *z = NULL;

    for (int i = 0; i < runs && !status; i++) {
        /* In order of the pad, as a run's kernel may read past its own columns, never write. */
        if (!(status = run_input(g, &run[i], x, &z)))
            status = run_xa(g, &run[i], z, x + g->in);
    }
    return status;
}

enum dry_status dry_cuda_group_output(const struct dry_cuda_group *g, const dry_bf16 *x, const void *residual,
                                      dry_bf16 *y)
{
    return dry_cuda_gemm(g->c, 1, g->tokens, g->out, g->in + g->columns, x, g->x_pitch, g->weight, g->w_pitch,
                         residual ? 1 : 0, residual, g->y_pitch, g->bias, y, g->y_pitch);
}

enum dry_status dry_cuda_linear_forward(struct dry_backend *b, int64_t layer, enum dry_group which,
                                        const void *x, const void *residual, void *y)
{
    enum dry_status status;
    struct dry_cuda_group g;

    dry_cuda_group_make(dry_cuda_of(b), layer, which, &g);
    status = dry_cuda_group_xa(&g, (dry_bf16 *)x); /* what is behind a row's width is the backend's */
    return status ? status : dry_cuda_group_output(&g, x, residual, y);
}

int dry_cuda_group_units(const struct dry_cuda_group *g)
{
    int units = 0;

    for (int i = 0; i < g->members; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        int pad_first = m->rank_first / DRY_SKINNY_UNIT * DRY_SKINNY_UNIT;
        int own = m->rank ? units_of(pad_first, m->rank_first + m->rank) : 0;
        units = own > units ? own : units;
    }
    return units;
}

int dry_cuda_group_unit_first(const struct dry_cuda_group *g, const struct dry_cuda_member *m, int units)
{
    int first = m->rank_first / DRY_SKINNY_UNIT * DRY_SKINNY_UNIT,
        last = g->columns - units * DRY_SKINNY_UNIT;

    if (last < 0) /* no ranks: any columns of the pad */
        last = 0;
    return first < last ? first : last;
}

/* u and dB of all members in one pass over dy. */
static enum dry_status fused_dy(const struct dry_cuda_group *g, const struct dry_cuda_thin_plan *p, int units,
                                dry_bf16 *dy)
{
    struct dry_cuda *c = g->c;
    struct dry_skinny_job j = job_make(g, dy, g->y_pitch);
    struct dry_skinny_finish f = {
        .tokens = g->tokens, .useful = g->useful, .end = g->columns, .partial = j.partial};
    enum dry_status status;

    for (int i = 0; i < g->members; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        int pad_first = dry_cuda_group_unit_first(g, m, units), n = j.segments;
        int slices = slices_of(m->out, p->columns);
        if (m->rank == 0)
            continue;
        j.segment[n] = (struct dry_skinny_segment){m->out_first, m->out, j.slices, pad_first, n};
        j.target[n] = (struct dry_skinny_target){m->rank_first, m->rank, m->b};
        f.part[n] = (struct dry_skinny_part){
            m->rank_first, m->rank_first + m->rank, pad_first, j.slices, slices, m->scale};
        j.slices += slices;
        f.parts = j.targets = ++j.segments;
    }
    j.m = g->weight + g->in;
    j.v = g->kept;
    j.v_pitch = c->pad;
    j.chunk = chunk_rows(g, DRY_SKINNY_DY, j.slices, p);
    f.width = units * DRY_SKINNY_UNIT;
    f.pad = dy + g->out;
    f.pitch = g->y_pitch;
    status =
        dry_cuda_check(c, dry_cuda_skinny_launch(DRY_SKINNY_DY, units, p->columns, &j, c->stream), "dy B");
    return status ? status : dry_cuda_check(c, dry_cuda_skinny_finish_launch(&f, c->stream), "dy B's sum");
}

/* The scratch's product [n elements] to the sums. */
static enum dry_status gradient_add(struct dry_cuda *c, int64_t n, float factor, int64_t at)
{
    return dry_cuda_check(
        c, dry_cuda_gradient_launch(c->reduce, n, factor, c->sums + at, c->sums + c->gradients, c->stream),
        "a gradient's sum");
}

/* The same for one member by general products. */
static enum dry_status general_dy(const struct dry_cuda_group *g, const struct dry_cuda_member *m,
                                  dry_bf16 *dy)
{
    struct dry_cuda *c = g->c;
    struct dry_cuda_product u = {.m = g->tokens, .n = m->rank, .k = m->out, .alpha = m->scale};
    struct dry_cuda_product db = {
        .transpose_a = 1, .wide = 1, .m = m->out, .n = m->rank, .k = g->tokens, .alpha = 1};
    enum dry_status status;

    u.a = db.a = dy + m->out_first;
    u.lda = db.lda = g->y_pitch;
    u.b = g->weight + m->out_first * g->w_pitch + g->in + m->rank_first;
    u.ldb = g->w_pitch;
    u.out = dy + g->out + m->rank_first;
    u.ldc = g->y_pitch;
    db.b = g->kept + m->rank_first;
    db.ldb = c->pad;
    db.out = c->reduce;
    db.ldc = m->rank;
    status = dry_cuda_product(c, &u);
    if (!status)
        status = dry_cuda_product(c, &db);
    return status ? status : gradient_add(c, (int64_t)m->out * m->rank, 1, m->b);
}

enum dry_status dry_cuda_group_dy(const struct dry_cuda_group *g, dry_bf16 *dy)
{
    int units = dry_cuda_group_units(g);
    const struct dry_cuda_thin_plan *p = plan_of(g, DRY_SKINNY_DY, units);
    enum dry_status status = DRY_OK;

    if (p)
        return fused_dy(g, p, units, dy);
    for (int i = 0; i < g->members && !status; i++)
        if (g->member[i].rank)
            status = general_dy(g, &g->member[i], dy);
    return status ? status : pad_clear(g, dy + g->out, g->y_pitch, 0, g->ranks, g->columns);
}

/* Sums of A of a run's members += u^T z, or with a norm += u^T RMSNorm(z): only where there is a plan. */
static enum dry_status run_da(const struct dry_cuda_group *g, const struct run *r, const enum dry_norm *n,
                              const dry_bf16 *z, const dry_bf16 *u)
{
    enum dry_skinny kind = n ? DRY_SKINNY_NORMED_DA : DRY_SKINNY_DA;
    const struct dry_cuda_thin_plan *p = plan_of(g, kind, r->units);
    struct dry_cuda *c = g->c;
    struct dry_skinny_job j = job_make(g, z, g->x_pitch);

    if (!p) {
        const struct dry_cuda_member *m = &g->member[r->first];
        struct dry_cuda_product product = {
            .transpose_a = 1, .wide = 1, .m = m->rank, .n = g->in, .k = g->tokens, .alpha = 1};
        product.a = u + m->rank_first;
        product.lda = g->y_pitch;
        product.b = z;
        product.ldb = g->x_pitch;
        product.out = c->reduce;
        product.ldc = g->in;
        enum dry_status status = dry_cuda_product(c, &product);
        return status ? status : gradient_add(c, (int64_t)m->rank * g->in, dropout_factor(g), m->a);
    }
    j.v = u;
    j.v_pitch = g->y_pitch;
    j.factor = dropout_factor(g);
    j.segments = 1;
    j.slices = slices_of(g->in, p->columns);
    j.segment[0] = (struct dry_skinny_segment){.columns = g->in, .pad_first = r->pad_first};
    for (int i = r->first; i <= r->last; i++)
        if (g->member[i].rank)
            j.target[j.targets++] =
                (struct dry_skinny_target){g->member[i].rank_first, g->member[i].rank, g->member[i].a};
    if (n) {
        j.inverse = dry_cuda_inverse(c, g->layer, *n);
        j.weight = c->layer[g->layer].norm[*n];
    }
    j.chunk = chunk_rows(g, kind, j.slices, p);
    return dry_cuda_check(c, dry_cuda_skinny_launch(kind, r->units, p->columns, &j, c->stream), "u^T x");
}

enum dry_status dry_cuda_group_da(const struct dry_cuda_group *g, const dry_bf16 *x, const dry_bf16 *dy)
{
    struct run run[3];
    int runs = runs_make(g, run);
    enum dry_status status = DRY_OK;
    const dry_bf16 *z = NULL;

    for (int i = 0; i < runs && !status; i++)
        if (!(status = run_input(g, &run[i], x, &z)))
            status = run_da(g, &run[i], NULL, z, dy + g->out);
    return status;
}

enum dry_status dry_cuda_group_normed_da(const struct dry_cuda_group *g, enum dry_norm n, const dry_bf16 *x,
                                         dry_bf16 *normed, int again, const dry_bf16 *dy)
{
    struct run run[3];
    int runs = runs_make(g, run), fits = !g->drops;
    enum dry_status status = DRY_OK;

    for (int i = 0; i < runs; i++)
        fits = fits && plan_of(g, DRY_SKINNY_NORMED_DA, run[i].units);
    if (!fits) {
        if (again)
            status = dry_cuda_norm_forward(&g->c->backend, g->layer, n, x, normed);
        return status ? status : dry_cuda_group_da(g, normed, dy);
    }
    for (int i = 0; i < runs && !status; i++)
        status = run_da(g, &run[i], &n, x, dy + g->out);
    return status;
}

/* dx += mask (u A) of each member, through c->dropped. */
static enum dry_status masked_input(const struct dry_cuda_group *g, const dry_bf16 *u, dry_bf16 *dx)
{
    struct dry_cuda *c = g->c;
    enum dry_status status = DRY_OK;

    for (int i = 0; i < g->members && !status; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        struct dry_skinny_mask mask = mask_of(g, m);
        if (m->rank == 0)
            continue;
        status = dry_cuda_gemm(c, 0, g->tokens, g->in, m->rank, u + m->rank_first, g->y_pitch,
                               dry_cuda_group_a(g) + m->rank_first * g->w_pitch, g->w_pitch, 0, NULL, 0, NULL,
                               c->dropped, g->x_pitch);
        if (!status)
            status = dry_cuda_check(c,
                                    dry_cuda_drop_add_launch(&mask, c->dropped, g->x_pitch, dropout_factor(g),
                                                             dx, g->x_pitch, c->stream),
                                    "dropout's gradient");
    }
    return status;
}

enum dry_status dry_cuda_group_input(const struct dry_cuda_group *g, const dry_bf16 *dy, dry_bf16 *dx)
{
    int columns = g->drops ? 0 : g->columns;
    enum dry_status status = dry_cuda_gemm(g->c, 0, g->tokens, g->in, g->out + columns, dy, g->y_pitch,
                                           g->weight, g->w_pitch, 0, NULL, 0, NULL, dx, g->x_pitch);

    return !status && g->drops && g->ranks ? masked_input(g, dy + g->out, dx) : status;
}

enum dry_status dry_cuda_linear_backward(struct dry_backend *b, int64_t layer, enum dry_group which,
                                         const void *x, const void *dy, void *dx)
{
    enum dry_status status = DRY_OK;
    struct dry_cuda_group g;

    dry_cuda_group_make(dry_cuda_of(b), layer, which, &g);
    if (g.ranks) {
        assert(g.kept);
        status = dry_cuda_group_dy(&g, (dry_bf16 *)dy);
        if (!status)
            status = dry_cuda_group_da(&g, x, dy);
    }
    return status || !dx ? status : dry_cuda_group_input(&g, dy, dx);
}

enum dry_status dry_cuda_normed_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                         void *normed, int again, const void *dy, void *dx)
{
    enum dry_status status = DRY_OK;
    struct dry_cuda_group g;

    dry_cuda_group_make(dry_cuda_of(b), layer, n == DRY_NORM_INPUT ? DRY_GROUP_QKV : DRY_GROUP_GATE_UP, &g);
    if (g.ranks) {
        assert(g.kept);
        status = dry_cuda_group_dy(&g, (dry_bf16 *)dy);
        if (!status)
            status = dry_cuda_group_normed_da(&g, n, x, normed, again, dy);
    }
    return status || !dx ? status : dry_cuda_group_input(&g, dy, dx);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch of one group's thin products: partial products with the narrowest slices, or one member's gradient.
 */
static size_t group_bytes(const struct dry_cuda_group *g)
{
    size_t tokens = (size_t)g->c->limits.tokens, most = 0, slices = 0;
    int units = dry_cuda_group_units(g);
    struct run run[3];
    int runs = runs_make(g, run);

    for (int i = 0; i < runs; i++)
        if (run[i].units <= DRY_SKINNY_UNITS)
            most = larger(most, (size_t)slices_of(g->in, DRY_SKINNY_SLICE) * tokens *
                                    (size_t)(run[i].units * DRY_SKINNY_UNIT));
    for (int i = 0; i < g->members && g->c->limits.training; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        most = larger(most, (size_t)m->rank * (size_t)(m->out > g->in ? m->out : g->in));
        slices += g->ranks ? (size_t)slices_of(m->out, DRY_SKINNY_SLICE) : 0; /* SwiGLU's backward has both */
    }
    if (units <= DRY_SKINNY_UNITS)
        most = larger(most, slices * tokens * (size_t)(units * DRY_SKINNY_UNIT));
    return most * sizeof(float);
}

/* Where the table of copies begins. */
static size_t partial_bytes(const struct dry_cuda *c)
{
    struct dry_cuda on = *c; /* as with the adapter on */
    size_t most = 2 * (size_t)dry_cuda_loss_elements(c) * sizeof(dry_bf16);

    if (!c->adapter)
        return most;
    on.enabled = 1;
    for (int64_t l = 0; l < c->arch->layers; l++)
        for (int which = 0; which < DRY_GROUPS; which++)
            for (on.dropout = 0; on.dropout < 2; on.dropout++) {
                struct dry_cuda_group g;
                dry_cuda_group_make(&on, l, (enum dry_group)which, &g);
                most = larger(most, group_bytes(&g));
            }
    return (most + 255) / 256 * 256;
}

size_t dry_cuda_reduce_bytes(const struct dry_cuda *c)
{
    size_t copies = c->adapter ? (size_t)c->adapter->parts * sizeof(struct dry_skinny_copy) : 0;

    return partial_bytes(c) + copies;
}

/* One row for each part, from the groups that the parts are members of. */
static int copies_fill(struct dry_cuda *c, struct dry_skinny_copy *copy)
{
    int copies = 0;

    for (int64_t l = 0; l < c->arch->layers; l++)
        for (int which = 0; which < DRY_GROUPS; which++) {
            struct dry_cuda_group g;
            dry_cuda_group_make(c, l, (enum dry_group)which, &g);
            dry_bf16 *weight = c->layer[l].weight[which];
            for (int i = 0; i < g.members; i++) {
                const struct dry_cuda_member *m = &g.member[i];
                if (m->rank == 0)
                    continue;
                copy[copies++] = (struct dry_skinny_copy){
                    .a = m->a,
                    .b = m->b,
                    .pitch = g.w_pitch,
                    .in = g.in,
                    .out = m->out,
                    .rank = m->rank,
                    .to_a = weight + (g.out + m->rank_first) * g.w_pitch,
                    .to_b = weight + m->out_first * g.w_pitch + g.in + m->rank_first,
                };
            }
        }
    return copies;
}

enum dry_status dry_cuda_linear_create(struct dry_cuda *c)
{
    struct dry_skinny_copy *copy = NULL;
    struct dry_cuda_linear *o;
    enum dry_status status = DRY_OK;

    if (!c->adapter)
        return DRY_OK;
    o = dry_alloc(1, sizeof *o, "the adapter's products");
    copy = dry_alloc((size_t)c->adapter->parts, sizeof *copy, "the adapter's products");
    c->linear = o;
    if (!o || !copy) {
        status = DRY_ERR_MEMORY;
        goto out;
    }
    for (int kind = 0; kind < DRY_SKINNY_KINDS && !status; kind++)
        for (int units = 1; units <= DRY_SKINNY_UNITS && !status; units++) {
            struct dry_cuda_thin_plan *p = &o->plan[kind][units - 1];
            status = dry_cuda_check(
                c, dry_cuda_skinny_setup((enum dry_skinny)kind, units, &p->columns, &p->resident),
                "cudaFuncSetAttribute");
        }
    if (!status)
        status = dry_cuda_check(c, dry_cuda_swiglu_setup(&o->swiglu), "cudaFuncSetAttribute");
    if (status)
        goto out;
    o->copies = copies_fill(c, copy);
    o->copy = (struct dry_skinny_copy *)(void *)((char *)c->reduce + partial_bytes(c));
    status = dry_cuda_check(
        c,
        cudaMemcpyAsync(o->copy, copy, (size_t)o->copies * sizeof *copy, cudaMemcpyHostToDevice, c->stream),
        "cudaMemcpyAsync");
    if (!status)
        status = dry_cuda_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
out:
    dry_free(copy);
    return status;
}

void dry_cuda_linear_destroy(struct dry_cuda *c)
{
    dry_free(c->linear);
    c->linear = NULL;
}

enum dry_status dry_cuda_adapter_refresh(struct dry_cuda *c)
{
    struct dry_cuda_linear *o = c->linear;

    return dry_cuda_check(c, dry_cuda_copies_launch(o->copy, o->copies, c->values, c->stream),
                          "copies of the adapter");
}
