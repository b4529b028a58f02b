/*
 * Linears with LoRA: a group of frozen matrices that share an input, each with its adapter, forward and
 * backward. Owns the order of the products and the dropout mask's use.  Must not know what a group is for.
 *
 * Tiles never cross members, so that a tile gets its member's B while it is in cache. Gradients of A and B go
 * to the exact sums tile by tile; no gradient is ever stored whole.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/vector.h"
#include "compute/dropout.h"
#include "base/number.h"

#include <string.h>

/* A member of the group at work. */
struct member {
    enum dry_proj proj;
    const struct dry_adapter_part *part; /* NULL: not adapted, or the adapter is off */
    int64_t first, out;                  /* columns in the group's output */
    int64_t rank, rank_first;            /* columns in xa and u */
    struct dry_cpu_grid grid;
};

struct group {
    struct dry_cpu *cpu;
    const struct dry_cpu_layer *weights;
    int64_t layer;
    enum dry_group which;
    int64_t in, out, ranks, useful;
    int members;
    struct member member[3];
};

static void group_make(struct dry_cpu *cpu, int64_t layer, enum dry_group which, struct group *g)
{
    enum dry_proj proj[3];

    memset(g, 0, sizeof *g);
    g->cpu = cpu;
    g->weights = &cpu->layer[layer];
    g->layer = layer;
    g->which = which;
    g->in = dry_group_in(cpu->arch, which);
    g->out = dry_group_out(cpu->arch, which);
    g->useful = cpu->batch.useful;
    g->members = dry_group_members(which, proj);
    for (int i = 0; i < g->members; i++) {
        struct member *m = &g->member[i];
        m->proj = proj[i];
        m->first = i ? m[-1].first + m[-1].out : 0;
        m->out = dry_proj_out(cpu->arch, proj[i]);
        if (cpu->enabled && cpu->adapter)
            m->part = dry_adapter_at(cpu->adapter, layer, proj[i]);
        m->rank = m->part ? m->part->rank : 0;
        m->rank_first = g->ranks;
        g->ranks += m->rank;
        m->grid = dry_cpu_grid_make(g->useful, m->out);
    }
}

static float dropout_scale(const struct group *g)
{
    return (float)(1 / (1 - g->cpu->adapter->dropout));
}

/* The words of one row's columns from `column`, a multiple of 4; at most DRY_CPU_COLUMNS of them. */
static void mask_words(const struct group *g, const struct member *m, int64_t row, int64_t column,
                       int64_t columns, uint32_t *word)
{
    dry_random_series(g->cpu->options.seed, DRY_RANDOM_DROPOUT, g->cpu->row_key[row],
                      dry_dropout_column(g->cpu->position[row], g->layer, m->proj, column), (columns + 3) / 4,
                      word);
}

DRY_CPU_VECTOR static void drop_row(const uint32_t *word, uint32_t threshold, float scale, const float *x,
                                    int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * (word[i] < threshold ? 0.0f : scale);
}

DRY_CPU_VECTOR static void add_row(const uint32_t *word, uint32_t threshold, float scale, const float *x,
                                   int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i] * (word[i] < threshold ? 0.0f : scale);
}

/* y [rows, columns] (dense) = dropout(x), the part of x [T, in] from row and column. */
static void drop_tile(const struct group *g, const struct member *m, const float *x, int64_t row,
                      int64_t rows, int64_t column, int64_t columns, float *y)
{
    uint32_t word[DRY_CPU_COLUMNS + 4], threshold = dry_dropout_threshold(g->cpu->adapter->dropout);

    for (int64_t i = 0; i < rows; i++) {
        mask_words(g, m, row + i, column, columns, word);
        drop_row(word, threshold, dropout_scale(g), x + (row + i) * g->in + column, columns, y + i * columns);
    }
}

/* dx [T, in] += mask of the same element times t [rows, columns] (dense). */
static void add_masked(const struct group *g, const struct member *m, const float *t, int64_t row,
                       int64_t rows, int64_t column, int64_t columns, float *dx)
{
    uint32_t word[DRY_CPU_COLUMNS + 4], threshold = dry_dropout_threshold(g->cpu->adapter->dropout);

    for (int64_t i = 0; i < rows; i++) {
        mask_words(g, m, row + i, column, columns, word);
        add_row(word, threshold, dropout_scale(g), t + i * columns, columns, dx + (row + i) * g->in + column);
    }
}

/* xa [rows, rank] = dropout(x) A^T for one block of rows. */
static void product_xa(const struct group *g, const struct member *m, const float *x, int64_t row,
                       int64_t rows)
{
    struct dry_cpu *cpu = g->cpu;
    float *xa = cpu->xa + row * g->ranks + m->rank_first;
    const float *a = cpu->values + m->part->a;

    if (!cpu->dropout) {
        dry_cpu_gemm(0, 1, rows, m->rank, g->in, 1, x + row * g->in, g->in, a, g->in, 0, xa, g->ranks);
        return;
    }
    float *dropped = dry_cpu_scratch(cpu);
    for (int64_t c = 0; c < g->in; c += DRY_CPU_COLUMNS) {
        int64_t columns = dry_smaller(DRY_CPU_COLUMNS, g->in - c);
        drop_tile(g, m, x, row, rows, c, columns, dropped);
        dry_cpu_gemm(0, 1, rows, m->rank, columns, 1, dropped, columns, a + c, g->in, c ? 1 : 0, xa,
                     g->ranks);
    }
}

/* xa = dropout(x) A^T of every member (x not NULL), u [T, ranks] = scale dy B (dy not NULL). */
static void low_rank_products(const struct group *g, const float *x, const float *dy)
{
    struct dry_cpu *cpu = g->cpu;
    int64_t blocks = dry_pieces(g->useful, DRY_CPU_ROWS), tasks = blocks * g->members;

    if (!g->ranks)
        return;
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (int64_t k = 0; k < tasks; k++) {
        const struct member *m = &g->member[k % g->members];
        int64_t row = k / g->members * DRY_CPU_ROWS, rows = dry_smaller(DRY_CPU_ROWS, g->useful - row);
        if (!m->part)
            continue;
        if (x)
            product_xa(g, m, x, row, rows);
        if (dy)
            dry_cpu_gemm(0, 0, rows, m->rank, m->out, m->part->scale, dy + row * g->out + m->first, g->out,
                         cpu->values + m->part->b, m->rank, 0, cpu->u + row * g->ranks + m->rank_first,
                         g->ranks);
    }
}

static void forward_tile(const struct group *g, const struct member *m, struct dry_cpu_tile t, const float *x,
                         const float *residual, float *y)
{
    const struct dry_cpu *cpu = g->cpu;
    const float *w = g->weights->weight[g->which] + (m->first + t.column) * g->in;
    const float *bias = g->weights->bias[g->which];
    float *out = y + t.row * g->out + m->first + t.column;

    dry_cpu_gemm(0, 1, t.rows, t.columns, g->in, 1, x + t.row * g->in, g->in, w, g->in, 0, out, g->out);
    if (m->part)
        dry_cpu_gemm(0, 1, t.rows, t.columns, m->rank, m->part->scale,
                     cpu->xa + t.row * g->ranks + m->rank_first, g->ranks,
                     cpu->values + m->part->b + t.column * m->rank, m->rank, 1, out, g->out);
    if (bias)
        for (int64_t i = 0; i < t.rows; i++)
            for (int64_t j = 0; j < t.columns; j++)
                out[i * g->out + j] += bias[m->first + t.column + j];
    if (residual)
        for (int64_t i = 0; i < t.rows; i++) {
            const float *add = residual + (t.row + i) * g->out + m->first + t.column;
            for (int64_t j = 0; j < t.columns; j++)
                out[i * g->out + j] += add[j];
        }
}

enum dry_status dry_cpu_linear_forward(struct dry_backend *b, int64_t layer, enum dry_group which,
                                       const void *x, const void *residual, void *y)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    struct group g;
    int64_t tiles = 0;

    group_make(cpu, layer, which, &g);
    for (int i = 0; i < g.members; i++)
        tiles += g.member[i].grid.tiles;
    low_rank_products(&g, x, NULL);
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (int64_t k = 0; k < tiles; k++) {
        const struct member *m = g.member;
        int64_t index = k;
        for (; index >= m->grid.tiles; m++)
            index -= m->grid.tiles;
        forward_tile(&g, m, dry_cpu_grid_tile(&m->grid, index), x, residual, y);
    }
    dry_cpu_zero_padding(cpu, y, g.out);
    return DRY_OK;
}

/* Tasks of the gradients of one member: column tiles of A, then row tiles of B. */
static int64_t tasks_a(const struct group *g)
{
    return dry_pieces(g->in, DRY_CPU_COLUMNS / 2);
}

static int64_t tasks_b(const struct member *m)
{
    return dry_pieces(m->out, DRY_CPU_COLUMNS / 2);
}

/* dA [rank, columns] = u^T dropout(x) to the sums. */
static int64_t gradient_a(const struct group *g, const struct member *m, const float *x, int64_t index)
{
    struct dry_cpu *cpu = g->cpu;
    int64_t c = index * (DRY_CPU_COLUMNS / 2), columns = dry_smaller(DRY_CPU_COLUMNS / 2, g->in - c);
    const float *u = cpu->u + m->rank_first;
    float *tile = dry_cpu_scratch(cpu), *dropped = tile + m->rank * columns;

    if (!cpu->dropout)
        dry_cpu_gemm(1, 0, m->rank, columns, g->useful, 1, u, g->ranks, x + c, g->in, 0, tile, columns);
    else
        for (int64_t row = 0; row < g->useful; row += DRY_CPU_ROWS) {
            int64_t rows = dry_smaller(DRY_CPU_ROWS, g->useful - row);
            drop_tile(g, m, x, row, rows, c, columns, dropped);
            dry_cpu_gemm(1, 0, m->rank, columns, rows, 1, u + row * g->ranks, g->ranks, dropped, columns,
                         row ? 1 : 0, tile, columns);
        }
    return dry_cpu_gradient_add(tile, m->rank, columns, columns, cpu->sums + m->part->a + c, g->in);
}

/* dB [rows, rank] = scale dy^T xa to the sums. */
static int64_t gradient_b(const struct group *g, const struct member *m, const float *dy, int64_t index)
{
    struct dry_cpu *cpu = g->cpu;
    int64_t r = index * (DRY_CPU_COLUMNS / 2), rows = dry_smaller(DRY_CPU_COLUMNS / 2, m->out - r);
    float *tile = dry_cpu_scratch(cpu);

    dry_cpu_gemm(1, 0, rows, m->rank, g->useful, m->part->scale, dy + m->first + r, g->out,
                 cpu->xa + m->rank_first, g->ranks, 0, tile, m->rank);
    return dry_cpu_gradient_add(tile, rows, m->rank, m->rank, cpu->sums + m->part->b + r * m->rank, m->rank);
}

static void gradients(const struct group *g, const float *x, const float *dy)
{
    struct dry_cpu *cpu = g->cpu;
    int64_t tasks = 0, flags = 0;

    for (int i = 0; i < g->members && g->useful; i++)
        tasks += g->member[i].part ? tasks_a(g) + tasks_b(&g->member[i]) : 0;
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads) reduction(| : flags)
    for (int64_t k = 0; k < tasks; k++) {
        const struct member *m = g->member;
        int64_t index = k;
        for (;; m++) {
            int64_t own = m->part ? tasks_a(g) + tasks_b(m) : 0;
            if (index < own)
                break;
            index -= own;
        }
        flags |= index < tasks_a(g) ? gradient_a(g, m, x, index) : gradient_b(g, m, dy, index - tasks_a(g));
    }
    dry_cpu_words(cpu)[DRY_SUM_FLAGS] |= flags;
}

static void input_tile(const struct group *g, struct dry_cpu_tile t, const float *dy, float *dx)
{
    struct dry_cpu *cpu = g->cpu;

    dry_cpu_gemm(0, 0, t.rows, t.columns, g->out, 1, dy + t.row * g->out, g->out,
                 g->weights->weight[g->which] + t.column, g->in, 0, dx + t.row * g->in + t.column, g->in);
    for (int i = 0; i < g->members; i++) {
        const struct member *m = &g->member[i];
        if (!m->part)
            continue;
        const float *a = cpu->values + m->part->a + t.column;
        if (!cpu->dropout) {
            dry_cpu_gemm(0, 0, t.rows, t.columns, m->rank, 1, cpu->u + t.row * g->ranks + m->rank_first,
                         g->ranks, a, g->in, 1, dx + t.row * g->in + t.column, g->in);
            continue;
        }
        float *part = dry_cpu_scratch(cpu);
        for (int64_t row = t.row; row < t.row + t.rows; row += DRY_CPU_ROWS) {
            int64_t rows = dry_smaller(DRY_CPU_ROWS, t.row + t.rows - row);
            dry_cpu_gemm(0, 0, rows, t.columns, m->rank, 1, cpu->u + row * g->ranks + m->rank_first, g->ranks,
                         a, g->in, 0, part, t.columns);
            add_masked(g, m, part, row, rows, t.column, t.columns, dx);
        }
    }
}

/* dx from dy and u. */
static void input(const struct group *g, const float *dy, float *dx)
{
    struct dry_cpu_grid grid = dry_cpu_grid_make(g->useful, g->in);

#pragma omp parallel for schedule(dynamic) num_threads(g->cpu->threads)
    for (int64_t k = 0; k < grid.tiles; k++)
        input_tile(g, dry_cpu_grid_tile(&grid, k), dy, dx);
    dry_cpu_zero_padding(g->cpu, dx, g->in);
}

enum dry_status dry_cpu_linear_backward(struct dry_backend *b, int64_t layer, enum dry_group which,
                                        const void *x, const void *dy, void *dx)
{
    struct group g;

    group_make(dry_cpu_of(b), layer, which, &g);
    low_rank_products(&g, x, dy);
    gradients(&g, x, dy);
    if (dx)
        input(&g, dy, dx);
    return DRY_OK;
}

void dry_cpu_linear_input(struct dry_cpu *cpu, int64_t layer, enum dry_group which, const float *dy,
                          float *dx)
{
    struct group g;

    group_make(cpu, layer, which, &g);
    low_rank_products(&g, NULL, dy);
    input(&g, dy, dx);
}

void dry_cpu_linear_sums(struct dry_cpu *cpu, int64_t layer, enum dry_group which, const float *x,
                         const float *dy)
{
    struct group g;

    group_make(cpu, layer, which, &g);
    low_rank_products(&g, x, NULL); /* u is there */
    gradients(&g, x, dy);
}

enum dry_status dry_cpu_normed_backward(struct dry_backend *b, int64_t layer, enum dry_norm n, const void *x,
                                        void *normed, int again, const void *dy, void *dx)
{
    enum dry_group which = n == DRY_NORM_INPUT ? DRY_GROUP_QKV : DRY_GROUP_GATE_UP;
    enum dry_status status = again ? dry_cpu_norm_forward(b, layer, n, x, normed) : DRY_OK;

    return status ? status : dry_cpu_linear_backward(b, layer, which, normed, dy, dx);
}
