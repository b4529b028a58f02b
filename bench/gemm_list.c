/*
 * Times every algorithm that cuBLASLt's heuristics offer for the large products of a Qwen2.5-7B layer, in the
 * layout of the backend: where a fixed choice comes from.  Owns its buffers.  Must not know of models.
 *
 *   cc -std=c11 -O2 -isystem /usr/local/cuda/include bench/gemm_list.c -lcublasLt -lcudart && ./a.out
 * [ROWS...]
 *
 * Each algorithm runs for a while on random data, since a hot card is a slower one.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASKED = 12, WORKSPACE = 64 << 20 };

static const struct shape {
    const char *name;
    int transposed, n, k, lda, ldb, ldc, add;
} shapes[] = {
    {"gate up forward", 1, 37888, 3648, 3648, 3648, 37952, 0},
    {"down forward", 1, 3584, 19008, 19008, 19008, 3648, 1},
    {"q k v forward", 1, 4608, 3648, 3648, 3648, 4672, 0},
    {"o forward", 1, 3584, 3648, 3648, 3648, 3648, 1},
    {"gate up backward", 0, 3584, 37952, 37952, 3648, 3648, 0},
    {"down backward", 0, 18944, 3648, 3648, 19008, 19008, 0},
    {"q k v backward", 0, 3584, 4672, 4672, 3648, 3648, 0},
    {"o backward", 0, 3584, 3648, 3648, 3648, 3648, 0},
    {"head forward", 1, 152064, 3584, 3584, 3584, 152064, 0},
    {"head backward", 0, 3584, 152064, 152064, 3584, 3584, 0},
};

static void must(int failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "%s failed: %d\n", what, failed);
        exit(1);
    }
}

static int attribute(const cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t name)
{
    uint64_t value = 0;
    size_t written = 0;

    if (cublasLtMatmulAlgoConfigGetAttribute(a, name, &value, sizeof value, &written) &&
        cublasLtMatmulAlgoConfigGetAttribute(a, name, &value, sizeof(uint32_t), &written) &&
        cublasLtMatmulAlgoConfigGetAttribute(a, name, &value, sizeof(uint16_t), &written))
        return -1;
    return (int)(written >= 4 ? (uint32_t)value : (uint16_t)value);
}

static void *filled(size_t elements, const uint16_t *noise, size_t count)
{
    char *p = NULL;

    must(cudaMalloc((void **)&p, elements * 2), "cudaMalloc");
    for (size_t at = 0; at < elements; at += count)
        must(cudaMemcpy(p + at * 2, noise, (elements - at < count ? elements - at : count) * 2,
                        cudaMemcpyDefault),
             "cudaMemcpy");
    return p;
}

static void time_shape(cublasLtHandle_t handle, const struct shape *s, int rows, void *a, void *b, void *c,
                       void *workspace)
{
    cublasLtMatmulHeuristicResult_t result[ASKED];
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t la, lb, lc;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasOperation_t first = s->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t most = WORKSPACE;
    float one = 1, beta = (float)s->add, ms;
    int results = 0;
    cudaEvent_t begin, end;

    must(cudaEventCreate(&begin) || cudaEventCreate(&end), "cudaEventCreate");
    must(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    must(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
         "transa");
    must(cublasLtMatrixLayoutInit(&la, CUDA_R_16BF, (uint64_t)(s->transposed ? s->k : s->n),
                                  (uint64_t)(s->transposed ? s->n : s->k), s->ldb),
         "la");
    must(cublasLtMatrixLayoutInit(&lb, CUDA_R_16BF, (uint64_t)s->k, (uint64_t)rows, s->lda), "lb");
    must(cublasLtMatrixLayoutInit(&lc, CUDA_R_16BF, (uint64_t)s->n, (uint64_t)rows, s->ldc), "lc");
    must(cublasLtMatmulPreferenceInit(&preference), "preference");
    must(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                              sizeof most),
         "workspace");
    must(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &reduction, sizeof reduction),
         "mask");
    must(cublasLtMatmulAlgoGetHeuristic(handle, &operation, &la, &lb, &lc, &lc, &preference, ASKED, result,
                                        &results),
         "heuristic");
    for (int i = 0; i < results; i++) {
        const cublasLtMatmulAlgo_t *algo = &result[i].algo;
        double work = 2.0 * rows * s->n * s->k;
        int calls = (int)(0.12 * 650e12 / work) + 1;
        for (int round = 0; round < 2; round++) {
            must(cudaEventRecord(begin, 0), "record");
            for (int k = 0; k < calls; k++)
                must(cublasLtMatmul(handle, &operation, &one, b, &la, a, &lb, &beta, c, &lc, c, &lc, algo,
                                    workspace, most, 0),
                     "matmul");
            must(cudaEventRecord(end, 0) || cudaEventSynchronize(end), "wait");
        }
        must(cudaEventElapsedTime(&ms, begin, end), "elapsed");
        printf("%-17s %5d %2d  id %d tile %4d stages %3d cluster %3d inner %2d custom %3d swizzle %d split "
               "%d  %8.1f us  %6.1f TFLOP/s\n",
               s->name, rows, i, attribute(algo, CUBLASLT_ALGO_CONFIG_ID),
               attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID), attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
               attribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
               attribute(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
               attribute(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
               attribute(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
               attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 1e3 * (double)ms / calls,
               work * calls / (double)ms / 1e9);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t count = 64 << 20;
    uint16_t *noise = malloc(count * 2);
    cublasLtHandle_t handle;
    void *a, *b, *c, *workspace;

    for (size_t i = 0; noise && i < count; i++) { /* about normal, deviation near 1: sums of four bytes */
        float x = ((float)(rand() & 255) + (float)(rand() & 255) + (float)(rand() & 255) +
                   (float)(rand() & 255) - 510) /
                  148;
        union {
            float f;
            uint32_t u;
        } bits = {x};
        noise[i] = (uint16_t)(bits.u >> 16);
    }
    must(cublasLtCreate(&handle), "cublasLtCreate");
    a = filled((size_t)8192 * 38000, noise, count);
    b = filled((size_t)152064 * 3648, noise, count);
    c = filled((size_t)8192 * 38000, noise, count);
    must(cudaMalloc(&workspace, WORKSPACE), "cudaMalloc");
    for (int i = 1; i < argc; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int head = shapes[s].n == 152064 || shapes[s].k == 152064;
            time_shape(handle, &shapes[s], head && atoi(argv[i]) > 1152 ? 1152 : atoi(argv[i]), a, b, c,
                       workspace);
        }
    return 0;
}
