/*
 * The loss head: final norm, logits and -log p on supervised rows only, in chunks, with the gradient at once.
 * Owns the chunks.  Must not know what made the hidden rows.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/vector.h"

#include <math.h>
#include <string.h>

/* Elements of one float32 partial sum of exponentials; partial sums are added in double. */
enum { SUM_BLOCK = 512 };
/* No loss of a row reaches 2^16; a chunk of them stays far from the limit of the sum. */
#define ROW_LIMIT (INT64_C(1) << (DRY_LOSS_BITS + 16))

/* -log p of the label; z becomes softmax - onehot when `gradient`. */
static double row_loss(float *z, int64_t vocab, int32_t label, int gradient)
{
    double at = (double)z[label], m = (double)dry_cpu_largest(z, vocab, z[0]), sum = 0;

    for (int64_t i = 0; i < vocab; i += SUM_BLOCK)
        sum += (double)dry_cpu_exponentials(z + i, vocab - i < SUM_BLOCK ? vocab - i : SUM_BLOCK, (float)m);
    if (gradient) {
        dry_cpu_multiply(z, vocab, (float)(1 / sum));
        z[label] -= 1.0f;
    }
    return m + log(sum) - at;
}

static void gemm_tiled(struct dry_cpu *cpu, int transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                       const float *b, float *c)
{
    struct dry_cpu_grid grid = dry_cpu_grid_make(m, n);

#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (int64_t i = 0; i < grid.tiles; i++) {
        struct dry_cpu_tile t = dry_cpu_grid_tile(&grid, i);
        dry_cpu_gemm(0, transpose_b, t.rows, t.columns, k, 1, a + t.row * k, k,
                     transpose_b ? b + t.column * k : b + t.column, transpose_b ? k : n, 0,
                     c + t.row * n + t.column, n);
    }
}

/* Rows first .. first + rows - 1 of the supervised ones. */
static void chunk_loss(struct dry_cpu *cpu, int64_t first, int64_t rows, const float *x, float *dx)
{
    const double scale = ldexp(1, DRY_LOSS_BITS), eps = cpu->arch->norm_eps;
    int64_t hidden = cpu->arch->hidden, vocab = cpu->arch->vocab, flags = 0, total = 0;
    const int32_t *row = cpu->row + first, *label = cpu->label + first;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t i = 0; i < rows; i++)
        dry_cpu_rms_row(x + row[i] * hidden, cpu->norm, hidden, eps, cpu->hidden + i * hidden);
    gemm_tiled(cpu, 1, rows, vocab, hidden, cpu->hidden, cpu->head, cpu->logits);
#pragma omp parallel for schedule(static) num_threads(cpu->threads) reduction(| : flags) reduction(+ : total)
    for (int64_t i = 0; i < rows; i++) {
        int64_t fixed = 0;
        double loss = row_loss(cpu->logits + i * vocab, vocab, label[i], dx != NULL);
        flags |= dry_cpu_sum_add(&fixed, loss, scale, ROW_LIMIT);
        total += fixed;
    }
    int64_t *words = dry_cpu_words(cpu);
    int64_t sum = words[DRY_SUM_LOSS] + total;
    if (sum >= DRY_LOSS_LIMIT || sum <= -DRY_LOSS_LIMIT)
        flags |= DRY_FLAG_RANGE;
    else
        words[DRY_SUM_LOSS] = sum;
    words[DRY_SUM_TOKENS] += rows;
    words[DRY_SUM_FLAGS] |= flags;
    if (!dx)
        return;
    gemm_tiled(cpu, 0, rows, hidden, vocab, cpu->logits, cpu->head, cpu->dhidden);
#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t i = 0; i < rows; i++)
        dry_cpu_rms_row_backward(x + row[i] * hidden, cpu->norm, cpu->dhidden + i * hidden, hidden, eps, 0,
                                 dx + row[i] * hidden);
}

enum dry_status dry_cpu_loss(struct dry_backend *b, const void *x, void *dx, void *scratch)
{
    (void)scratch;
    struct dry_cpu *cpu = dry_cpu_of(b);

    if (dx)
        memset(dx, 0, dry_cpu_bytes(cpu->batch.tokens, cpu->arch->hidden));
    for (int64_t first = 0; first < cpu->batch.rows; first += cpu->chunk) {
        int64_t left = cpu->batch.rows - first;
        chunk_loss(cpu, first, left < cpu->chunk ? left : cpu->chunk, x, dx);
    }
    return DRY_OK;
}
