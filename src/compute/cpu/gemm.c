/*
 * Matrix products: one-threaded BLAS calls on a fixed grid of tiles.
 * Owns the choice of tile sizes and the way in which foreign BLAS libraries are kept to one thread.  Must not
 * know what the matrices mean.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "base/number.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <omp.h>
#include <stdio.h>

#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
extern void openblas_set_num_threads(int threads);
#endif
#ifdef HAVE_OPENBLAS_GET_CONFIG
extern char *openblas_get_config(void);
#endif
#ifdef HAVE_OPENBLAS_GET_CORENAME
extern char *openblas_get_corename(void);
#endif
#ifdef HAVE_MKL_SET_NUM_THREADS
extern void MKL_Set_Num_Threads(int threads);
#endif
#ifdef HAVE_BLI_THREAD_SET_NUM_THREADS
extern void bli_thread_set_num_threads(int64_t threads);
#endif

/* Measured with OpenBLAS 0.3.21 (bench/cpu_step.c): below 128 rows or 192 columns packing costs more than a
 * tenth; above 256 x 512 nothing is gained. Small results are cut finer, so that threads have work. */
enum { TILE_ROWS = 256, TILE_COLUMNS = 512, TILES_WANTED = 8, LEAST_ROWS = 64, LEAST_COLUMNS = 128 };

void dry_cpu_blas_setup(char *text, size_t size)
{
    /* An OpenMP build of OpenBLAS sets our team's size too: keep it. */
    int threads = omp_get_max_threads();
    const char *name = "CBLAS", *version = "", *core = "";

#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    openblas_set_num_threads(1);
    name = "OpenBLAS";
#endif
#ifdef HAVE_OPENBLAS_GET_CONFIG
    version = openblas_get_config();
    name = "";
#endif
#ifdef HAVE_OPENBLAS_GET_CORENAME
    core = openblas_get_corename();
#endif
#ifdef HAVE_MKL_SET_NUM_THREADS
    MKL_Set_Num_Threads(1);
    name = "MKL";
#endif
#ifdef HAVE_BLI_THREAD_SET_NUM_THREADS
    bli_thread_set_num_threads(1);
    name = "BLIS";
#endif
    omp_set_num_threads(threads);
    /* OpenBLAS's text starts with its name and version; build options follow. */
    int words = 0;
    size_t length = 0;
    while (version[length] && !(version[length] == ' ' && ++words == 2))
        length++;
    snprintf(text, size, "%s%.*s%s%s", name, (int)length, version, *core ? " " : "", core);
}

void dry_cpu_gemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
                  const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX &&
           ldc <= INT_MAX);
    if (m <= 0 || n <= 0)
        return;
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda, b,
                (int)ldb, beta, c, (int)ldc);
}

/* About equal pieces of at most `most`, multiples of 16. */
static int64_t even(int64_t n, int64_t most)
{
    int64_t size = dry_pieces(n, dry_pieces(n, most));

    return dry_pieces(size, 16) * 16;
}

struct dry_cpu_grid dry_cpu_grid_make(int64_t m, int64_t n)
{
    int64_t rows = TILE_ROWS, columns = TILE_COLUMNS;
    struct dry_cpu_grid g = {.m = m, .n = n};

    if (m <= 0 || n <= 0)
        return g;
    for (;;) {
        g.rows = even(m, rows);
        g.columns = even(n, columns);
        g.down = dry_pieces(m, g.rows);
        g.across = dry_pieces(n, g.columns);
        g.tiles = g.down * g.across;
        if (g.tiles >= TILES_WANTED || (rows <= LEAST_ROWS && columns <= LEAST_COLUMNS))
            return g;
        if (rows > LEAST_ROWS && (rows > 128 || columns <= LEAST_COLUMNS))
            rows /= 2;
        else
            columns /= 2;
    }
}

struct dry_cpu_tile dry_cpu_grid_tile(const struct dry_cpu_grid *grid, int64_t index)
{
    int64_t row = index % grid->down * grid->rows, column = index / grid->down * grid->columns;
    struct dry_cpu_tile t = {row, grid->rows, column, grid->columns};

    if (t.rows > grid->m - row)
        t.rows = grid->m - row;
    if (t.columns > grid->n - column)
        t.columns = grid->n - column;
    return t;
}
