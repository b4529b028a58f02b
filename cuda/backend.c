/*
 * The CUDA backend's table: making, loading, the micro-batch, adapter state, sums in and out.
 * Owns the blocks of device memory, the pinned staging and the stream.  Must not know how any operation
 * computes.
 */
#include "config.h"

#include "cuda/cuda.h"
#include "cuda/entry.h"
#include "cuda/rotary.h"
#include "cuda/stray.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "compute/dropout.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_MAJOR = 8, /* compute capability: bfloat16 in the matrix units */
    LIBRARY_BYTES =
        560 << 20, /* that CUDA's context and libraries took on an H200 (CUDA 13.0, cuBLASLt 13.1, cuDNN 9.14)
                    */
    EMBED_PIECE = 512 /* elements converted at once */
};

static int visible_devices(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError(); /* no driver, or none that this runtime can use */
        return 0;
    }
    return n;
}

/* Why CUDA finds no device: its own sentence, or which driver is missing. */
static void why_none(cudaError_t e, char *text, size_t bytes)
{
    int driver = 0, runtime = 0;

    if (e == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&driver) && driver > 0 &&
        !cudaRuntimeGetVersion(&runtime))
        snprintf(text, bytes,
                 "the driver is for CUDA %d.%d and this build for %d.%d; update the driver, or build with "
                 "the older "
                 "toolkit",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(text, bytes, "%s; nvidia-smi shows whether there is one", cudaGetErrorString(e));
}

/* A GPU that is there and cannot be used is no reason to compute on the CPU without a word. */
static void warn_unusable(int n, cudaError_t e)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int driver = 0;
    char why[256];

    if (n == 0 &&
        (e == cudaSuccess || e == cudaErrorNoDevice || cudaDriverGetVersion(&driver) || driver == 0))
        return; /* there is none */
    if (atomic_flag_test_and_set(&said))
        return;
    if (n > 0)
        dry_warn("no GPU of this host has compute capability 8.0 or newer (bfloat16): computing on the CPU");
    else {
        why_none(e, why, sizeof why);
        dry_warn("no GPU can be used: %s: computing on the CPU", why);
    }
}

int dry_cuda_usable(void)
{
    int n = 0, usable = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e) {
        (void)cudaGetLastError();
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        int major = 0;
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) == cudaSuccess)
            usable += major >= LEAST_MAJOR;
    }
    if (usable == 0)
        warn_unusable(n, e);
    return usable;
}

/* The device's properties, or a sentence why it cannot be used. */
static enum dry_status look_at(int index, struct cudaDeviceProp *p)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e) {
        char why[256];

        why_none(e, why, sizeof why);
        dry_error("no GPU can be used on this host: %s; --backend cpu needs none", why);
        (void)cudaGetLastError();
        return DRY_ERR_DEVICE;
    }
    if (index < 0 || index >= n) {
        dry_error("GPU %d is not there: this host shows %d (CUDA_VISIBLE_DEVICES hides others); name one of "
                  "them with "
                  "--devices, or start fewer ranks here",
                  index, n);
        return DRY_ERR_DEVICE;
    }
    e = cudaGetDeviceProperties(p, index);
    if (e) {
        dry_error("GPU %d: cudaGetDeviceProperties failed: %s", index, cudaGetErrorString(e));
        return DRY_ERR_DEVICE;
    }
    if (p->major < LEAST_MAJOR) {
        dry_error(
            "GPU %d, %s, has compute capability %d.%d; drydock needs 8.0 or newer (bfloat16); --backend cpu "
            "needs no GPU",
            index, p->name, p->major, p->minor);
        return DRY_ERR_DEVICE;
    }
    return DRY_OK;
}

static enum dry_status cuda_device(int index, unsigned char id[DRY_DEVICE_ID], size_t *room)
{
    struct cudaDeviceProp p;
    enum dry_status status = look_at(index, &p);
    struct dry_cuda c = {.device = index};
    size_t free_bytes = 0, all = 0;

    _Static_assert(sizeof p.uuid == DRY_DEVICE_ID, "the id is CUDA's");
    if (!status)
        status = dry_cuda_check(&c, cudaSetDevice(index), "cudaSetDevice");
    if (!status)
        status = dry_cuda_check(&c, cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
    if (status)
        return status;
    memcpy(id, &p.uuid, DRY_DEVICE_ID);
    *room = free_bytes; /* the context is there, what libraries load later is planned for */
    return DRY_OK;
}

static void describe(struct dry_cuda *c, const struct cudaDeviceProp *p)
{
    int runtime = 0, driver = 0;
    size_t blas = cublasLtGetVersion();

    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    snprintf(c->description, sizeof c->description,
             "cuda: %s (GPU %d, compute capability %d.%d, %d multiprocessors), CUDA %d.%d, driver for %d.%d, "
             "cuBLASLt "
             "%zu.%zu.%zu",
             p->name, c->device, p->major, p->minor, c->sms, runtime / 1000, runtime % 1000 / 10,
             driver / 1000, driver % 1000 / 10, blas / 10000, blas / 100 % 100, blas % 100);
}

static enum dry_status cuda_create(const struct dry_backend_options *o, struct dry_backend **b)
{
    struct cudaDeviceProp p;
    enum dry_status status = look_at(o->device, &p);
    struct dry_cuda *c;

    if (status)
        return status;
    c = dry_alloc(1, sizeof *c, "the CUDA backend");
    if (!c)
        return DRY_ERR_MEMORY;
    c->backend.ops = &dry_cuda_ops;
    c->options = *o;
    c->device = o->device;
    c->sms = p.multiProcessorCount;
    c->faults = getenv("DRY_FAULT") != NULL;
    c->enabled = 1;
    describe(c, &p);
    *b = &c->backend;
    status = dry_cuda_check(c, cudaSetDevice(c->device), "cudaSetDevice");
    if (!status)
        status = dry_cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                                "cudaStreamCreate");
    for (int i = 0; i < 2 && !status; i++)
        status = dry_cuda_check(c, cudaEventCreateWithFlags(&c->staged[i], cudaEventDisableTiming),
                                "cudaEventCreate");
    return status ? status : dry_cuda_marks_create(c);
}

/* What fails here has been said where it failed. */
static void cuda_destroy(struct dry_backend *b)
{
    struct dry_cuda *c = dry_cuda_of(b);

    if (!c)
        return;
    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    dry_cuda_marks_destroy(c);
    dry_cuda_attention_destroy(c);
    dry_cuda_linear_destroy(c);
    dry_cuda_gemm_destroy(c);
    (void)cudaFree(c->arena);
    (void)cudaFree(c->workspace_block);
    (void)cudaFree(c->state_block);
    (void)cudaFree(c->weights_block);
    if (c->staging)
        (void)cudaFreeHost(c->staging);
    for (int i = 0; i < 2; i++)
        if (c->staged[i])
            (void)cudaEventDestroy(c->staged[i]);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    dry_free(c->layer);
    dry_free(c);
}

static const char *cuda_describe(struct dry_backend *b)
{
    return dry_cuda_of(b)->description;
}

static char *cuda_algorithms(struct dry_backend *b)
{
    return dry_cuda_gemm_algorithms(dry_cuda_of(b));
}

static enum dry_status cuda_footprint(const struct dry_base *base, const struct dry_adapter *adapter,
                                      const struct dry_limits *limits, size_t *weights, size_t *state,
                                      size_t *workspace, struct dry_scratch *scratch)
{
    struct dry_cuda c = {.base = base,
                         .adapter = adapter,
                         .arch = &base->arch,
                         .limits = *limits,
                         .pad = (int)dry_cuda_row_pad(adapter)};

    dry_cuda_scratch(&c, scratch);
    return dry_cuda_layout(&c, weights, state, workspace);
}

static enum dry_status allocate(struct dry_cuda *c)
{
    size_t weights, state, workspace;
    enum dry_status status;

    c->layer = dry_alloc((size_t)c->arch->layers, sizeof *c->layer, "the list of layers");
    if (!c->layer)
        return DRY_ERR_MEMORY;
    status = dry_cuda_layout(c, &weights, &state, &workspace);
    if (status)
        return status;
    c->weights_block = dry_cuda_alloc(c, weights, "the base's weights");
    c->state_block = c->weights_block ? dry_cuda_alloc(c, state, "adapter, moments and gradient sums") : NULL;
    c->workspace_block = c->state_block ? dry_cuda_alloc(c, workspace, "the workspace of operations") : NULL;
    if (!c->workspace_block)
        return DRY_ERR_MEMORY;
    status = dry_cuda_layout(c, &weights, &state, &workspace);
    if (!status)
        status =
            dry_cuda_check(c,
                           cudaHostAlloc(&c->staging, 2 * c->staged_bytes + DRY_CUDA_PIECE * sizeof *c->piece,
                                         cudaHostAllocDefault),
                           "cudaHostAlloc");
    if (!status)
        c->piece = (int64_t *)(void *)((char *)c->staging + 2 * c->staged_bytes);
    return status;
}

static enum dry_status cuda_load(struct dry_backend *b, const struct dry_base *base,
                                 const struct dry_adapter *adapter, const struct dry_limits *limits)
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status;

    assert(!c->weights_block);
    c->base = base;
    c->arch = &base->arch;
    c->adapter = adapter;
    c->limits = *limits;
    c->pad = (int)dry_cuda_row_pad(adapter);
    status = allocate(c);
    if (!status)
        status = dry_cuda_gemm_create(c);
    if (!status)
        status = dry_cuda_linear_create(c);
    if (!status)
        status = dry_cuda_attention_create(c);
    if (!status)
        status = dry_cuda_fill_weights(c);
    return status ? status : dry_cuda_rotary_tables(c);
}

static enum dry_status cuda_arena(struct dry_backend *b, size_t bytes, void **arena)
{
    struct dry_cuda *c = dry_cuda_of(b);

    assert(!c->arena);
    c->arena = dry_cuda_alloc(c, bytes, "the arena of activations");
    if (!c->arena)
        return DRY_ERR_MEMORY;
    *arena = c->arena;
    return DRY_OK;
}

/* To the device and back, done on return. NULL on the host: nothing. */
static enum dry_status copy_in(struct dry_cuda *c, const void *host, size_t bytes, void *to)
{
    enum dry_status status;

    if (!host || bytes == 0)
        return DRY_OK;
    status = dry_cuda_check(c, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, c->stream),
                            "cudaMemcpyAsync");
    return status ? status : dry_cuda_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
}

static enum dry_status copy_out(struct dry_cuda *c, const void *from, size_t bytes, void *host)
{
    enum dry_status status;

    if (!host || bytes == 0)
        return DRY_OK;
    status = dry_cuda_check(c, cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, c->stream),
                            "cudaMemcpyAsync");
    return status ? status : dry_cuda_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
}

static enum dry_status cuda_state_set(struct dry_backend *b, const float *values, const float *m,
                                      const float *v)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t bytes = (c->adapter ? (size_t)c->adapter->parameters : 0) * sizeof(float);
    enum dry_status status;

    assert(c->limits.training || (!m && !v));
    status = copy_in(c, values, bytes, c->values);
    if (!status)
        status = copy_in(c, m, bytes, c->m);
    if (!status)
        status = copy_in(c, v, bytes, c->v);
    return !status && values && c->adapter ? dry_cuda_adapter_refresh(c) : status;
}

static enum dry_status cuda_state_get(struct dry_backend *b, float *values, float *m, float *v)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t bytes = (c->adapter ? (size_t)c->adapter->parameters : 0) * sizeof(float);
    enum dry_status status;

    assert(c->limits.training || (!m && !v));
    status = copy_out(c, c->values, bytes, values);
    if (!status)
        status = copy_out(c, c->m, bytes, m);
    return status ? status : copy_out(c, c->v, bytes, v);
}

static void cuda_adapter_enable(struct dry_backend *b, int on)
{
    dry_cuda_of(b)->enabled = on;
}

/* Where a device array's copy lies in a half of the staging. */
static void *staged(const struct dry_cuda *c, const void *array)
{
    size_t at = (size_t)((const char *)array - (const char *)c->batch_block);

    return (char *)c->staging + (size_t)c->half * c->staged_bytes + at;
}

/* Where embedding rows lie in the half, [T, H]. */
static dry_bf16 *staged_rows(const struct dry_cuda *c)
{
    return (dry_bf16 *)(void *)((char *)c->staging + (size_t)c->half * c->staged_bytes + c->batch_bytes);
}

static void stage_rows(struct dry_cuda *c, const struct dry_batch *batch)
{
    const struct dry_tensor *table = c->base->embed;
    int64_t hidden = c->arch->hidden;
    size_t row = (size_t)hidden * dry_dtype_size(table->dtype);
    float wide[EMBED_PIECE];

    for (int64_t t = 0; t < batch->useful; t++) {
        const char *from = (const char *)table->data + (size_t)batch->id[t] * row;
        dry_bf16 *to = staged_rows(c) + t * hidden;
        if (table->dtype == DRY_BF16) {
            memcpy(to, from, row);
            continue;
        }
        for (int64_t i = 0; i < hidden; i += EMBED_PIECE) {
            int64_t some = hidden - i < EMBED_PIECE ? hidden - i : EMBED_PIECE;
            dry_to_f32(table->dtype, from + (size_t)i * dry_dtype_size(table->dtype), some, wide);
            dry_from_f32(DRY_BF16, wide, some, to + i);
        }
    }
    memset(staged_rows(c) + batch->useful * hidden, 0,
           (size_t)((batch->tokens - batch->useful) * hidden) * sizeof(dry_bf16));
}

enum dry_status dry_cuda_embed_staged(struct dry_cuda *c, void *y)
{
    size_t row = (size_t)c->arch->hidden * sizeof(dry_bf16);
    enum dry_status status = dry_cuda_check(
        c,
        cudaMemcpy2DAsync(y, (size_t)dry_cuda_pitch(c, c->arch->hidden) * sizeof(dry_bf16), staged_rows(c),
                          row, row, (size_t)c->batch.tokens, cudaMemcpyHostToDevice, c->stream),
        "cudaMemcpy2DAsync");

    return status ? status
                  : dry_cuda_check(c, cudaEventRecord(c->staged[c->half], c->stream), "cudaEventRecord");
}

/* Fills the half; rows behind the records are in none. */
static void stage(struct dry_cuda *c, const struct dry_batch *batch)
{
    int32_t *id = staged(c, c->id), *position = staged(c, c->position), *record_of = staged(c, c->record_of);
    uint64_t *row_key = staged(c, c->row_key);
    size_t useful = (size_t)batch->useful;

    memcpy(id, batch->id, useful * sizeof *id);
    memcpy(position, batch->position, useful * sizeof *position);
    memcpy(staged(c, c->offset), batch->offset, ((size_t)batch->records + 1) * sizeof *batch->offset);
    memcpy(staged(c, c->row), batch->row, (size_t)batch->rows * sizeof *batch->row);
    memcpy(staged(c, c->label), batch->label, (size_t)batch->rows * sizeof *batch->label);
    memcpy(staged(c, c->record), batch->record, (size_t)batch->records * sizeof *batch->record);
    for (int64_t r = 0; r < batch->records; r++)
        for (int64_t t = batch->offset[r]; t < batch->offset[r + 1]; t++) {
            row_key[t] = dry_dropout_row(batch->step, batch->record[r]);
            record_of[t] = (int32_t)r;
        }
    for (int64_t t = batch->useful; t < batch->tokens; t++) {
        id[t] = position[t] = 0;
        record_of[t] = -1;
        row_key[t] = 0;
    }
}

static enum dry_status cuda_batch(struct dry_backend *b, const struct dry_batch *batch, int dropout)
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status = dry_batch_check(c->base, &c->limits, batch);

    if (status)
        return status;
    c->half = !c->half;
    status = dry_cuda_check(c, cudaEventSynchronize(c->staged[c->half]), "a kernel or copy before");
    if (status)
        return status;
    stage(c, batch);
    if (!c->embed)
        stage_rows(c, batch);
    status = dry_cuda_attention_batch(c, batch, staged(c, c->sequences));
    if (status)
        return status;
    c->batch = *batch;
    c->batch.id = c->id;
    c->batch.position = c->position;
    c->batch.offset = c->offset;
    c->batch.row = c->row;
    c->batch.label = c->label;
    c->batch.record = c->record;
    c->dropout = dropout && c->limits.training && c->adapter && c->adapter->dropout > 0;
    status = dry_cuda_check(c,
                            cudaMemcpyAsync(c->batch_block, staged(c, c->batch_block), c->batch_bytes,
                                            cudaMemcpyHostToDevice, c->stream),
                            "cudaMemcpyAsync");
    if (!status && c->faults && dry_fault_at("stray", batch->step))
        status = dry_cuda_check(c, dry_cuda_stray_launch(c->stream), "stray");
    return status ? status
                  : dry_cuda_check(c, cudaEventRecord(c->staged[c->half], c->stream), "cudaEventRecord");
}

static enum dry_status cuda_sums_clear(struct dry_backend *b)
{
    struct dry_cuda *c = dry_cuda_of(b);

    return dry_cuda_check(
        c, cudaMemsetAsync(c->sums, 0, ((size_t)c->gradients + DRY_SUMS) * sizeof *c->sums, c->stream),
        "cudaMemsetAsync");
}

static enum dry_status cuda_sync(struct dry_backend *b)
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status = dry_cuda_marks_end(c);

    return status ? status : dry_cuda_check(c, cudaStreamSynchronize(c->stream), "a kernel or copy before");
}

static enum dry_status cuda_sums_block(struct dry_backend *b, int64_t **block, size_t *count)
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status = cuda_sync(b);

    if (status)
        return status;
    *block = c->sums;
    *count = (size_t)c->gradients + DRY_SUMS;
    return DRY_OK;
}

static enum dry_status cuda_sums_fetch(struct dry_backend *b, size_t first, int64_t **host, size_t *count)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t left = (size_t)c->gradients + DRY_SUMS - first,
           some = left < DRY_CUDA_PIECE ? left : DRY_CUDA_PIECE;
    enum dry_status status = copy_out(c, c->sums + first, some * sizeof *c->piece, c->piece);

    if (status)
        return status;
    *host = c->piece;
    *count = some;
    return DRY_OK;
}

static enum dry_status cuda_sums_store(struct dry_backend *b, size_t first, size_t count)
{
    struct dry_cuda *c = dry_cuda_of(b);

    return copy_in(c, c->piece, count * sizeof *c->piece, c->sums + first);
}

static enum dry_status cuda_sums_read(struct dry_backend *b, int64_t words[DRY_SUMS])
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status = copy_out(c, c->sums + c->gradients, DRY_SUMS * sizeof *words, c->piece);

    if (status)
        return status;
    memcpy(words, c->piece, DRY_SUMS * sizeof *words);
    return DRY_OK;
}

static enum dry_status cuda_gradient_get(struct dry_backend *b, float *gradient)
{
    struct dry_cuda *c = dry_cuda_of(b);

    for (size_t done = 0; done < (size_t)c->gradients; done += DRY_CUDA_PIECE) {
        size_t count = 0;
        int64_t *host = NULL;
        enum dry_status status = cuda_sums_fetch(b, done, &host, &count);
        if (status)
            return status;
        for (size_t i = 0; i < count && done + i < (size_t)c->gradients; i++)
            gradient[done + i] = (float)ldexp((double)host[i], -DRY_GRAD_BITS);
    }
    return DRY_OK;
}

static enum dry_status cuda_put(struct dry_backend *b, const float *host, int64_t rows, int64_t width,
                                void *to)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t bytes = (size_t)width * sizeof(dry_bf16),
           pitch = (size_t)dry_cuda_pitch(c, width) * sizeof(dry_bf16);
    dry_bf16 *narrow = dry_alloc((size_t)(rows * width), sizeof *narrow, "values for the GPU");
    enum dry_status status;

    if (!narrow)
        return DRY_ERR_MEMORY;
    dry_from_f32(DRY_BF16, host, rows * width, narrow);
    status = dry_cuda_check(
        c,
        cudaMemcpy2DAsync(to, pitch, narrow, bytes, bytes, (size_t)rows, cudaMemcpyHostToDevice, c->stream),
        "cudaMemcpy2DAsync");
    if (!status)
        status = cuda_sync(b);
    dry_free(narrow);
    return status;
}

static enum dry_status cuda_get(struct dry_backend *b, const void *from, int64_t rows, int64_t width,
                                float *host)
{
    struct dry_cuda *c = dry_cuda_of(b);
    size_t bytes = (size_t)width * sizeof(dry_bf16),
           pitch = (size_t)dry_cuda_pitch(c, width) * sizeof(dry_bf16);
    dry_bf16 *narrow = dry_alloc((size_t)(rows * width), sizeof *narrow, "values of the GPU");
    enum dry_status status;

    if (!narrow)
        return DRY_ERR_MEMORY;
    status = dry_cuda_check(
        c,
        cudaMemcpy2DAsync(narrow, bytes, from, pitch, bytes, (size_t)rows, cudaMemcpyDeviceToHost, c->stream),
        "cudaMemcpy2DAsync");
    if (!status)
        status = cuda_sync(b);
    if (!status)
        dry_to_f32(DRY_BF16, narrow, rows * width, host);
    dry_free(narrow);
    return status;
}

const struct dry_backend_ops dry_cuda_ops = {
    .name = "cuda",
    .act_bytes = sizeof(dry_bf16),
    .library_bytes = LIBRARY_BYTES,
    .devices = visible_devices,
    .device = cuda_device,
    .row_pad = dry_cuda_row_pad,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .describe = cuda_describe,
    .algorithms = cuda_algorithms,
    .footprint = cuda_footprint,
    .load = cuda_load,
    .arena = cuda_arena,
    .state_set = cuda_state_set,
    .state_get = cuda_state_get,
    .adapter_enable = cuda_adapter_enable,
    .batch = cuda_batch,
    .embed = dry_cuda_embed,
    .norm_forward = dry_cuda_norm_forward,
    .norm_backward = dry_cuda_norm_backward,
    .linear_forward = dry_cuda_linear_forward,
    .linear_backward = dry_cuda_linear_backward,
    .attention_forward = dry_cuda_attention_forward,
    .attention_backward = dry_cuda_attention_backward,
    .normed_backward = dry_cuda_normed_backward,
    .mlp_forward = dry_cuda_mlp_forward,
    .mlp_backward = dry_cuda_mlp_backward,
    .loss = dry_cuda_loss,
    .sums_clear = cuda_sums_clear,
    .sums_block = cuda_sums_block,
    .sums_fetch = cuda_sums_fetch,
    .sums_store = cuda_sums_store,
    .sums_read = cuda_sums_read,
    .adamw = dry_cuda_adamw,
    .gradient_get = cuda_gradient_get,
    .put = cuda_put,
    .get = cuda_get,
    .sync = cuda_sync,
    .mark = dry_cuda_mark,
    .marks = dry_cuda_marks_read,
};
