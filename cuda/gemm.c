/*
 * Matrix products through cuBLASLt: row-major operands, one algorithm per shape, kept.
 * Owns the handle and the table of algorithms.  Must not know what is multiplied.
 *
 * The choice is a fixed rule: of the heuristics' list that neither splits k nor needs a reduction the first,
 * or for large products on Hopper the one of the preferred tile, so that a product's bits depend on its
 * shape, strides and alignment alone.  Nothing is timed here.
 */
#include "config.h"

#include "cuda/gemm.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    ASKED = 32,         /* algorithms asked for */
    FIRST_SHAPES = 256, /* room of the table at first, a power of two */
    ALIGNED = 256,      /* larger alignment of an address makes no difference */
    HOPPER = 9,         /* compute capability that the preference was measured on */
    LARGE_ROWS = 1024,  /* products of fewer rows, columns or terms are left to the heuristics */
    TALL_ROWS = 2048,
    TILE_176X128 = 201 /* as cublasLt.h numbers it; 12.4 has no name for it */
};

/* Everything that the choice depends on; compared as bytes, so made from zeroed memory. */
struct key {
    int64_t m, n, k, lda, ldb, ldc0, ldc;
    int32_t transpose_a, transpose_b, wide, add, bias;
    int32_t align_a, align_b, align_c0, align_out;
    int32_t unused;
};
_Static_assert(sizeof(struct key) == 7 * 8 + 10 * 4, "no holes in a key");

struct choice {
    struct key key;
    int used, found; /* found 0: cuBLASLt has none */
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c0, out;
    cublasLtMatmulAlgo_t algorithm;
};

struct dry_cuda_gemm {
    cublasLtHandle_t handle;
    struct choice *table; /* open addressing */
    size_t room, used;
    int major; /* compute capability */
};

enum dry_status dry_cuda_gemm_create(struct dry_cuda *c)
{
    struct dry_cuda_gemm *g = dry_alloc(1, sizeof *g, "the matrix products");
    enum dry_status status;

    if (!g)
        return DRY_ERR_MEMORY;
    c->gemm = g;
    g->table = dry_alloc(FIRST_SHAPES, sizeof *g->table, "the matrix products");
    if (!g->table)
        return DRY_ERR_MEMORY;
    g->room = FIRST_SHAPES;
    if (cudaDeviceGetAttribute(&g->major, cudaDevAttrComputeCapabilityMajor, c->device))
        g->major = 0;
    status = dry_cuda_check_blas(c, cublasLtCreate(&g->handle), "cublasLtCreate");
    if (status)
        g->handle = NULL;
    return status;
}

void dry_cuda_gemm_destroy(struct dry_cuda *c)
{
    if (!c->gemm)
        return;
    if (c->gemm->handle)
        (void)cublasLtDestroy(c->gemm->handle);
    dry_free(c->gemm->table);
    dry_free(c->gemm);
    c->gemm = NULL;
}

static int32_t alignment(const void *p)
{
    uintptr_t address = (uintptr_t)p, most = ALIGNED;

    while (address % most)
        most /= 2;
    return (int32_t)most;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static struct key key_of(const struct dry_cuda_product *p)
{
    struct key k;

    memset(&k, 0, sizeof k);
    k.m = p->m;
    k.n = p->n;
    k.k = p->k;
    k.lda = p->lda;
    k.ldb = p->ldb;
    k.ldc = p->ldc;
    k.add = p->beta != 0;
    k.ldc0 = k.add ? p->ldc0 : p->ldc;
    k.transpose_a = p->transpose_a;
    k.transpose_b = p->transpose_b;
    k.wide = p->wide;
    k.bias = p->bias != NULL;
    k.align_a = alignment(p->a);
    k.align_b = alignment(p->b);
    k.align_out = least(alignment(p->out), p->bias ? alignment(p->bias) : ALIGNED);
    k.align_c0 = k.add ? alignment(p->c0) : k.align_out;
    return k;
}

static size_t slot_of(const struct choice *table, size_t room, const struct key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    size_t at;

    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    for (at = (size_t)hash & (room - 1); table[at].used; at = (at + 1) & (room - 1))
        if (memcmp(&table[at].key, key, sizeof *key) == 0)
            break;
    return at;
}

/* Shapes come as micro-batches of new sizes do; at most half of the table is in use. */
static enum dry_status table_grow(struct dry_cuda_gemm *g)
{
    size_t room = 2 * g->room;
    struct choice *table = dry_alloc(room, sizeof *table, "the matrix products");

    if (!table)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < g->room; i++)
        if (g->table[i].used)
            table[slot_of(table, room, &g->table[i].key)] = g->table[i];
    dry_free(g->table);
    g->table = table;
    g->room = room;
    return DRY_OK;
}

/* cuBLASLt counts columns first: a row-major matrix is its transpose. So out^T [n, m] = op(B)^T op(A)^T: its
 * "A" is B. */
static cublasStatus_t describe(struct choice *o, const dry_bf16 *bias)
{
    const struct key *k = &o->key;
    cublasOperation_t first = k->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = k->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t type = k->wide ? CUDA_R_32F : CUDA_R_16BF, half = CUDA_R_16BF;
    uint64_t kk = (uint64_t)k->k, m = (uint64_t)k->m, n = (uint64_t)k->n;
    cublasStatus_t e = cublasLtMatmulDescInit(&o->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (!e)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (!e)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                           sizeof second);
    if (!e && k->bias)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue);
    if (!e && k->bias)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &half,
                                           sizeof half);
    if (!e && k->bias)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof bias);
    if (!e)
        e = cublasLtMatrixLayoutInit(&o->a, CUDA_R_16BF, k->transpose_b ? kk : n, k->transpose_b ? n : kk,
                                     k->ldb);
    if (!e)
        e = cublasLtMatrixLayoutInit(&o->b, CUDA_R_16BF, k->transpose_a ? m : kk, k->transpose_a ? kk : m,
                                     k->lda);
    if (!e)
        e = cublasLtMatrixLayoutInit(&o->c0, type, n, m, k->ldc0);
    if (!e)
        e = cublasLtMatrixLayoutInit(&o->out, type, n, m, k->ldc);
    return e;
}

static cublasStatus_t prefer(const struct key *k, size_t workspace, cublasLtMatmulPreferenceOpaque_t *p)
{
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)k->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)k->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)k->align_c0},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)k->align_out},
    };
    cublasStatus_t e = cublasLtMatmulPreferenceInit(p);

    if (!e)
        e = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                 sizeof workspace);
    if (!e)
        e = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                                 sizeof reduction);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && !e; i++)
        e = cublasLtMatmulPreferenceSetAttribute(p, alignments[i].name, &alignments[i].bytes,
                                                 sizeof alignments[i].bytes);
    return e;
}

/* Neither k split over blocks nor a reduction: each output is summed by one block in one order. */
static int in_one_piece(const cublasLtMatmulAlgo_t *a)
{
    int32_t pieces = 0;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    size_t written;

    if (cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pieces, sizeof pieces,
                                             &written) ||
        cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                             sizeof reduction, &written))
        return 0;
    return pieces <= 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static uint32_t attribute(const cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t name)
{
    uint32_t value = 0;
    size_t written;

    return cublasLtMatmulAlgoConfigGetAttribute(a, name, &value, sizeof value, &written) ? 0 : value;
}

static unsigned cluster_of(const cublasLtMatmulAlgo_t *a)
{
    uint16_t cluster = 0;
    size_t written;

    return cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                                sizeof cluster, &written)
               ? 0
               : cluster;
}

/* The lower the sooner. A hot card is bound by its power, which the heuristics do not know: for forward
 * products of many rows 176 x 128 tiles, and else 256 x 128 in clusters of 1 x 2, take 3 to 6 % less time
 * (bench/gemm_list.c). Other clusters of the latter were no gain in a layer. */
static int preference_of(const struct dry_cuda_gemm *g, const struct key *k, const cublasLtMatmulAlgo_t *a)
{
    uint32_t tile = attribute(a, CUBLASLT_ALGO_CONFIG_TILE_ID);
    if (g->major != HOPPER || k->m < LARGE_ROWS || k->n < LARGE_ROWS || k->k < LARGE_ROWS)
        return 0;
    if (tile == TILE_176X128 && k->m >= TALL_ROWS && k->transpose_b && !k->add)
        return -2;
    return tile == CUBLASLT_MATMUL_TILE_256x128 && cluster_of(a) == CUBLASLT_CLUSTER_SHAPE_1x2x1 ? -1 : 0;
}

static enum dry_status choose(struct dry_cuda *c, struct choice *o, const dry_bf16 *bias)
{
    cublasLtMatmulHeuristicResult_t result[ASKED];
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasStatus_t e = describe(o, bias);
    int results = 0, best = 0;

    if (e)
        return dry_cuda_check_blas(c, e, "cublasLtMatrixLayoutInit");
    e = prefer(&o->key, c->gemm_bytes, &preference);
    if (e)
        return dry_cuda_check_blas(c, e, "cublasLtMatmulPreferenceSetAttribute");
    e = cublasLtMatmulAlgoGetHeuristic(c->gemm->handle, &o->operation, &o->a, &o->b, &o->c0, &o->out,
                                       &preference, ASKED, result, &results);
    if (e && e != CUBLAS_STATUS_NOT_SUPPORTED && e != CUBLAS_STATUS_INVALID_VALUE)
        return dry_cuda_check_blas(c, e, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; !e && i < results; i++) {
        int preferred = preference_of(c->gemm, &o->key, &result[i].algo);
        if (result[i].state == CUBLAS_STATUS_SUCCESS && result[i].workspaceSize <= c->gemm_bytes &&
            in_one_piece(&result[i].algo) && (!o->found || preferred < best)) {
            o->algorithm = result[i].algo;
            o->found = 1;
            best = preferred;
        }
    }
    dry_debug("product %lld x %lld x %lld: algorithm %s", (long long)o->key.m, (long long)o->key.n,
              (long long)o->key.k, o->found ? "of cuBLASLt" : "without matrix units");
    return DRY_OK;
}

/* The same product with the same algorithm, whatever its rows. */
static int alike(const struct choice *a, const struct choice *b)
{
    static const cublasLtMatmulAlgoConfigAttributes_t looked_at[] = {
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING};

    if (a->key.n != b->key.n || a->key.k != b->key.k || a->key.transpose_a != b->key.transpose_a ||
        a->key.transpose_b != b->key.transpose_b || a->key.add != b->key.add || a->key.bias != b->key.bias ||
        a->key.wide != b->key.wide || a->found != b->found)
        return 0;
    for (size_t i = 0; i < sizeof looked_at / sizeof *looked_at && a->found; i++)
        if (attribute(&a->algorithm, looked_at[i]) != attribute(&b->algorithm, looked_at[i]))
            return 0;
    return !a->found || cluster_of(&a->algorithm) == cluster_of(&b->algorithm);
}

enum { ALGORITHM_TEXT = 320 }; /* bytes of one as JSON, at most */

char *dry_cuda_gemm_algorithms(const struct dry_cuda *c)
{
    const struct dry_cuda_gemm *g = c->gemm;
    char *text = dry_alloc((g ? g->used : 0) + 1, ALGORITHM_TEXT, "the list of algorithms"), *to = text;

    if (!text)
        return NULL;
    *to++ = '[';
    for (size_t i = 0; g && i < g->room; i++) {
        const struct choice *o = &g->table[i];
        int64_t least = o->key.m, most = o->key.m;
        int first = o->used;
        for (size_t k = 0; first && k < g->room; k++) {
            const struct choice *other = &g->table[k];
            if (!other->used || !alike(o, other))
                continue;
            first = k >= i;
            least = other->key.m < least ? other->key.m : least;
            most = other->key.m > most ? other->key.m : most;
        }
        if (!first)
            continue;
        to += snprintf(
            to, ALGORITHM_TEXT,
            "%s{\"rows\": [%lld, %lld], \"columns\": %lld, \"terms\": %lld, \"transposed\": [%d, %d], "
            "\"added\": %d, \"bias\": %d",
            to > text + 1 ? ", " : "", (long long)least, (long long)most, (long long)o->key.n,
            (long long)o->key.k, o->key.transpose_a, o->key.transpose_b, o->key.add, o->key.bias);
        if (o->found)
            to +=
                snprintf(to, ALGORITHM_TEXT, ", \"id\": %u, \"tile\": %u, \"stages\": %u, \"cluster\": %u",
                         attribute(&o->algorithm, CUBLASLT_ALGO_CONFIG_ID),
                         attribute(&o->algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
                         attribute(&o->algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID), cluster_of(&o->algorithm));
        *to++ = '}';
    }
    *to++ = ']';
    *to = 0;
    return text;
}

static enum dry_status find(struct dry_cuda *c, const struct key *key, const dry_bf16 *bias,
                            struct choice **choice)
{
    struct dry_cuda_gemm *g = c->gemm;
    enum dry_status status = DRY_OK;
    struct choice *o = &g->table[slot_of(g->table, g->room, key)];

    if (!o->used) {
        if (2 * (g->used + 1) > g->room) {
            if ((status = table_grow(g)))
                return status;
            o = &g->table[slot_of(g->table, g->room, key)];
        }
        memset(o, 0, sizeof *o);
        o->key = *key;
        if ((status = choose(c, o, bias)))
            return status;
        o->used = 1;
        g->used++;
    }
    *choice = o;
    return DRY_OK;
}

enum dry_status dry_cuda_product(struct dry_cuda *c, const struct dry_cuda_product *p)
{
    struct key key = key_of(p);
    struct choice *o = NULL;
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    enum dry_status status;

    if (p->m == 0 || p->n == 0)
        return DRY_OK;
    status = find(c, &key, p->bias, &o);
    if (status)
        return status;
    if (!o->found)
        return dry_cuda_check(c, dry_cuda_plain_launch(p, c->stream), "the plain product");
    if (p->bias)
        e = cublasLtMatmulDescSetAttribute(&o->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                                           sizeof p->bias);
    if (!e)
        e = cublasLtMatmul(c->gemm->handle, &o->operation, &p->alpha, p->b, &o->a, p->a, &o->b, &p->beta,
                           p->beta != 0 ? p->c0 : p->out, &o->c0, p->out, &o->out, &o->algorithm,
                           c->gemm_workspace, c->gemm_bytes, c->stream);
    return dry_cuda_check_blas(c, e, "cublasLtMatmul");
}

enum dry_status dry_cuda_gemm(struct dry_cuda *c, int transpose_b, int64_t m, int64_t n, int64_t k,
                              const dry_bf16 *a, int64_t lda, const dry_bf16 *b, int64_t ldb, float beta,
                              const dry_bf16 *c0, int64_t ldc0, const dry_bf16 *bias, dry_bf16 *out,
                              int64_t ldc)
{
    struct dry_cuda_product p = {.transpose_b = transpose_b,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .lda = lda,
                                 .b = b,
                                 .ldb = ldb,
                                 .alpha = 1,
                                 .beta = beta,
                                 .c0 = c0,
                                 .ldc0 = ldc0,
                                 .bias = bias,
                                 .out = out,
                                 .ldc = ldc};

    return dry_cuda_product(c, &p);
}
