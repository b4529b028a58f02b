/*
 * The CPU backend's table: making, loading, the micro-batch, adapter state.
 * Owns the three blocks of memory and the arena.  Must not know how any operation computes.
 */
#include "config.h"

#include "compute/cpu/cpu.h"

#include "base/log.h"
#include "base/memory.h"
#include "compute/dropout.h"

#include <assert.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

static enum dry_status cpu_create(const struct dry_backend_options *o, struct dry_backend **b)
{
    struct dry_cpu *cpu = dry_alloc(1, sizeof *cpu, "the CPU backend");
    char blas[96];

    if (!cpu)
        return DRY_ERR_MEMORY;
    dry_cpu_blas_setup(blas, sizeof blas);
    cpu->backend.ops = &dry_cpu_ops;
    cpu->options = *o;
    cpu->threads = omp_get_max_threads();
    cpu->enabled = 1;
    snprintf(cpu->description, sizeof cpu->description, "cpu: %s, %d thread%s", blas, cpu->threads,
             cpu->threads == 1 ? "" : "s");
    *b = &cpu->backend;
    return DRY_OK;
}

static void cpu_destroy(struct dry_backend *b)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    if (!cpu)
        return;
    dry_free(cpu->arena);
    dry_free(cpu->workspace_block);
    dry_free(cpu->state_block);
    dry_free(cpu->weights_block);
    dry_free(cpu);
}

static const char *cpu_describe(struct dry_backend *b)
{
    return dry_cpu_of(b)->description;
}

static enum dry_status cpu_footprint(const struct dry_base *base, const struct dry_adapter *adapter,
                                     const struct dry_limits *limits, size_t *weights, size_t *state,
                                     size_t *workspace, struct dry_scratch *scratch)
{
    *scratch = (struct dry_scratch){0, 0}; /* its own workspace has it */
    struct dry_cpu cpu = {.threads = omp_get_max_threads(),
                          .base = base,
                          .adapter = adapter,
                          .arch = &base->arch,
                          .limits = *limits};

    return dry_cpu_layout(&cpu, weights, state, workspace);
}

static enum dry_status cpu_load(struct dry_backend *b, const struct dry_base *base,
                                const struct dry_adapter *adapter, const struct dry_limits *limits)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    size_t weights, state, workspace;
    enum dry_status status;

    assert(!cpu->weights_block);
    cpu->base = base;
    cpu->arch = &base->arch;
    cpu->adapter = adapter;
    cpu->limits = *limits;
    status = dry_cpu_layout(cpu, &weights, &state, &workspace);
    if (status)
        return status;
    cpu->weights_block = dry_alloc(1, weights, "the base's weights in float32");
    cpu->state_block = dry_alloc(1, state, "adapter, moments and gradient sums");
    cpu->workspace_block = dry_alloc(1, workspace, "the CPU backend's workspace");
    if (!cpu->weights_block || !cpu->state_block || !cpu->workspace_block)
        return DRY_ERR_MEMORY;
    status = dry_cpu_layout(cpu, &weights, &state, &workspace);
    if (status)
        return status;
    dry_cpu_fill_weights(cpu);
    return dry_cpu_rotary_tables(cpu);
}

static enum dry_status cpu_arena(struct dry_backend *b, size_t bytes, void **arena)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    assert(!cpu->arena);
    cpu->arena = dry_alloc(1, bytes, "the arena of activations");
    if (!cpu->arena)
        return DRY_ERR_MEMORY;
    *arena = cpu->arena;
    return DRY_OK;
}

static enum dry_status cpu_state_set(struct dry_backend *b, const float *values, const float *m,
                                     const float *v)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t parameters = cpu->adapter ? cpu->adapter->parameters : 0;

    assert(cpu->limits.training || (!m && !v));
    if (values)
        memcpy(cpu->values, values, dry_cpu_bytes(1, parameters));
    if (m)
        memcpy(cpu->m, m, dry_cpu_bytes(1, parameters));
    if (v)
        memcpy(cpu->v, v, dry_cpu_bytes(1, parameters));
    return DRY_OK;
}

static enum dry_status cpu_state_get(struct dry_backend *b, float *values, float *m, float *v)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    int64_t parameters = cpu->adapter ? cpu->adapter->parameters : 0;

    assert(cpu->limits.training || (!m && !v));
    if (values)
        memcpy(values, cpu->values, dry_cpu_bytes(1, parameters));
    if (m)
        memcpy(m, cpu->m, dry_cpu_bytes(1, parameters));
    if (v)
        memcpy(v, cpu->v, dry_cpu_bytes(1, parameters));
    return DRY_OK;
}

static void cpu_adapter_enable(struct dry_backend *b, int on)
{
    dry_cpu_of(b)->enabled = on;
}

static enum dry_status cpu_batch(struct dry_backend *b, const struct dry_batch *batch, int dropout)
{
    struct dry_cpu *cpu = dry_cpu_of(b);
    enum dry_status status = dry_batch_check(cpu->base, &cpu->limits, batch);

    if (status)
        return status;
    cpu->batch = *batch;
    memcpy(cpu->id, batch->id, (size_t)batch->useful * sizeof *cpu->id);
    memcpy(cpu->position, batch->position, (size_t)batch->useful * sizeof *cpu->position);
    memcpy(cpu->offset, batch->offset, ((size_t)batch->records + 1) * sizeof *cpu->offset);
    memcpy(cpu->row, batch->row, (size_t)batch->rows * sizeof *cpu->row);
    memcpy(cpu->label, batch->label, (size_t)batch->rows * sizeof *cpu->label);
    memcpy(cpu->record, batch->record, (size_t)batch->records * sizeof *cpu->record);
    cpu->batch.id = cpu->id;
    cpu->batch.position = cpu->position;
    cpu->batch.offset = cpu->offset;
    cpu->batch.row = cpu->row;
    cpu->batch.label = cpu->label;
    cpu->batch.record = cpu->record;
    cpu->dropout = dropout && cpu->limits.training && cpu->adapter && cpu->adapter->dropout > 0;
    cpu->blocks = 0;
    for (int64_t r = 0; r < batch->records; r++) {
        int64_t length = batch->offset[r + 1] - batch->offset[r];
        for (int64_t t = batch->offset[r]; t < batch->offset[r + 1]; t++)
            cpu->row_key[t] = dry_dropout_row(batch->step, batch->record[r]);
        for (int64_t first = 0; first < length; first += DRY_CPU_ROWS)
            cpu->block[cpu->blocks++] = (struct dry_cpu_block){(int32_t)r, (int32_t)first};
    }
    return DRY_OK;
}

static int64_t cpu_row_pad(const struct dry_adapter *adapter)
{
    (void)adapter;
    return 0;
}

static enum dry_status cpu_put(struct dry_backend *b, const float *host, int64_t rows, int64_t width,
                               void *to)
{
    (void)b;
    memcpy(to, host, dry_cpu_bytes(rows, width));
    return DRY_OK;
}

static enum dry_status cpu_get(struct dry_backend *b, const void *from, int64_t rows, int64_t width,
                               float *host)
{
    (void)b;
    memcpy(host, from, dry_cpu_bytes(rows, width));
    return DRY_OK;
}

static enum dry_status cpu_sync(struct dry_backend *b)
{
    (void)b;
    return DRY_OK;
}

const struct dry_backend_ops dry_cpu_ops = {
    .name = "cpu",
    .act_bytes = sizeof(float),
    .row_pad = cpu_row_pad,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .describe = cpu_describe,
    .footprint = cpu_footprint,
    .load = cpu_load,
    .arena = cpu_arena,
    .state_set = cpu_state_set,
    .state_get = cpu_state_get,
    .adapter_enable = cpu_adapter_enable,
    .batch = cpu_batch,
    .embed = dry_cpu_embed,
    .norm_forward = dry_cpu_norm_forward,
    .norm_backward = dry_cpu_norm_backward,
    .linear_forward = dry_cpu_linear_forward,
    .linear_backward = dry_cpu_linear_backward,
    .attention_forward = dry_cpu_attention_forward,
    .attention_backward = dry_cpu_attention_backward,
    .normed_backward = dry_cpu_normed_backward,
    .mlp_forward = dry_cpu_mlp_forward,
    .mlp_backward = dry_cpu_mlp_backward,
    .loss = dry_cpu_loss,
    .sums_clear = dry_cpu_sums_clear,
    .sums_block = dry_cpu_sums_block,
    .sums_fetch = dry_cpu_sums_fetch,
    .sums_store = dry_cpu_sums_store,
    .sums_read = dry_cpu_sums_read,
    .adamw = dry_cpu_adamw,
    .gradient_get = dry_cpu_gradient_get,
    .put = cpu_put,
    .get = cpu_get,
    .sync = cpu_sync,
};
