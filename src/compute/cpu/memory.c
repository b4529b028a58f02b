/*
 * The CPU backend's memory: one function lays out weights, state and workspace, for sizes and for pointers
 * alike. Owns nothing; the three blocks belong to backend.c.  Must not know of operations beyond their
 * buffers.
 */
#include "config.h"

#include "compute/cpu/cpu.h"

#include "base/log.h"
#include "compute/carve.h"

#include <omp.h>

enum {
    LOGITS_BYTES = 64 << 20, /* of one chunk of the loss head */
    CHUNK_ROWS = 512,        /* and its most rows */

    CONVERT = 1 << 16 /* elements that one task converts */
};

static float *floats(struct dry_carve *c, int64_t rows, int64_t columns)
{
    return dry_carve(c, rows, columns, sizeof(float));
}

static void weights_layout(struct dry_cpu *cpu, struct dry_carve *c)
{
    const struct dry_arch *a = cpu->arch;

    cpu->layer = dry_carve(c, a->layers, 1, sizeof *cpu->layer);
    cpu->embed = floats(c, a->vocab, a->hidden);
    cpu->head = cpu->base->head == cpu->base->embed ? cpu->embed : floats(c, a->vocab, a->hidden);
    cpu->norm = floats(c, 1, a->hidden);
    for (int64_t l = 0; l < a->layers; l++) {
        const struct dry_base_layer *from = &cpu->base->layer[l];
        struct dry_cpu_layer to = {.q_norm = NULL};
        for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
            to.weight[g] = floats(c, dry_group_out(a, g), dry_group_in(a, g));
            to.bias[g] = dry_group_has_bias(from, g) ? floats(c, 1, dry_group_out(a, g)) : NULL;
        }
        to.norm[DRY_NORM_INPUT] = floats(c, 1, a->hidden);
        to.norm[DRY_NORM_POST] = floats(c, 1, a->hidden);
        if (a->qk_norm) {
            to.q_norm = floats(c, 1, a->head_dim);
            to.k_norm = floats(c, 1, a->head_dim);
        }
        if (c->base)
            cpu->layer[l] = to;
    }
}

static void state_layout(struct dry_cpu *cpu, struct dry_carve *c)
{
    int64_t parameters = cpu->adapter ? cpu->adapter->parameters : 0;

    cpu->gradients = cpu->limits.training ? parameters : 0;
    cpu->values = floats(c, 1, parameters);
    cpu->m = floats(c, 1, cpu->gradients);
    cpu->v = floats(c, 1, cpu->gradients);
    cpu->sums = dry_carve(c, 1, cpu->gradients + DRY_SUMS, sizeof *cpu->sums);
}

static int64_t chunk_rows(const struct dry_cpu *cpu)
{
    int64_t rows = LOGITS_BYTES / ((int64_t)sizeof(float) * cpu->arch->vocab);

    if (rows > 64)
        rows -= rows % 64;
    if (rows > CHUNK_ROWS)
        rows = CHUNK_ROWS;
    if (rows > cpu->limits.rows)
        rows = cpu->limits.rows;
    return rows > 1 ? rows : 1;
}

/* Each thread's scratch: attention's scores; dropped inputs and gradient tiles. */
static size_t scratch_floats(const struct dry_cpu *cpu)
{
    size_t half = DRY_CPU_COLUMNS / 2, rows = DRY_CPU_ROWS, floats = rows * half;
    size_t rank = cpu->adapter ? (size_t)cpu->adapter->max_rank : 0;

    if (cpu->limits.training) {
        floats = rows * DRY_CPU_COLUMNS;
        if (floats < rank * half + rows * half)
            floats = rank * half + rows * half;
    }
    return floats;
}

static void workspace_layout(struct dry_cpu *cpu, struct dry_carve *c)
{
    const struct dry_arch *a = cpu->arch;
    const struct dry_limits *l = &cpu->limits;
    int64_t ranks = dry_group_most_ranks(cpu->adapter), half = a->head_dim / 2,
            trained = l->training ? l->tokens : 0;

    cpu->id = dry_carve(c, l->tokens, 1, sizeof *cpu->id);
    cpu->position = dry_carve(c, l->tokens, 1, sizeof *cpu->position);
    cpu->offset = dry_carve(c, l->records + 1, 1, sizeof *cpu->offset);
    cpu->row = dry_carve(c, l->rows, 1, sizeof *cpu->row);
    cpu->label = dry_carve(c, l->rows, 1, sizeof *cpu->label);
    cpu->record = dry_carve(c, l->records, 1, sizeof *cpu->record);
    cpu->row_key = dry_carve(c, l->tokens, 1, sizeof *cpu->row_key);
    cpu->block = dry_carve(c, l->tokens / DRY_CPU_ROWS + l->records, 1, sizeof *cpu->block);
    cpu->cosine = floats(c, l->longest, half);
    cpu->sine = floats(c, l->longest, half);
    cpu->xa = floats(c, l->tokens, ranks);
    cpu->u = floats(c, trained, ranks);
    cpu->dk = floats(c, trained, a->heads * a->head_dim);
    cpu->dv = floats(c, trained, a->heads * a->head_dim);
    cpu->chunk = chunk_rows(cpu);
    cpu->hidden = floats(c, cpu->chunk, a->hidden);
    cpu->dhidden = floats(c, l->training ? cpu->chunk : 0, a->hidden);
    cpu->logits = floats(c, cpu->chunk, a->vocab);
    cpu->partial = dry_carve(c, cpu->gradients / DRY_CPU_NORM_BLOCK + 1, 1, sizeof *cpu->partial);
    cpu->scratch_floats = scratch_floats(cpu);
    cpu->scratch = floats(c, cpu->threads, (int64_t)cpu->scratch_floats);
}

enum dry_status dry_cpu_layout(struct dry_cpu *cpu, size_t *weights, size_t *state, size_t *workspace)
{
    struct dry_carve w = {.alignment = 64, .base = cpu->weights_block},
                     s = {.alignment = 64, .base = cpu->state_block},
                     k = {.alignment = 64, .base = cpu->workspace_block};

    weights_layout(cpu, &w);
    state_layout(cpu, &s);
    workspace_layout(cpu, &k);
    if (w.overflow || s.overflow || k.overflow) {
        dry_error("%s: the model and micro-batch need more memory than can be addressed; use a smaller "
                  "--micro-batch-tokens",
                  cpu->base->dir);
        return DRY_ERR_MEMORY;
    }
    *weights = w.used;
    *state = s.used;
    *workspace = k.used;
    return DRY_OK;
}

static void convert(struct dry_cpu *cpu, const struct dry_tensor *from, float *to)
{
    size_t size = dry_dtype_size(from->dtype);

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t i = 0; i < from->elements; i += CONVERT) {
        int64_t n = from->elements - i < CONVERT ? from->elements - i : CONVERT;
        dry_to_f32(from->dtype, (const char *)from->data + (size_t)i * size, n, to + i);
    }
}

static void fill_layer(struct dry_cpu *cpu, const struct dry_base_layer *from, const struct dry_cpu_layer *to)
{
    const struct dry_arch *a = cpu->arch;

    for (enum dry_group g = 0; g < DRY_GROUPS; g++) {
        enum dry_proj member[3];
        int members = dry_group_members(g, member);
        int64_t row = 0;
        for (int i = 0; i < members; i++) {
            convert(cpu, from->weight[member[i]], to->weight[g] + row * dry_group_in(a, g));
            if (from->bias[member[i]])
                convert(cpu, from->bias[member[i]], to->bias[g] + row);
            row += dry_proj_out(a, member[i]);
        }
    }
    convert(cpu, from->input_norm, to->norm[DRY_NORM_INPUT]);
    convert(cpu, from->post_norm, to->norm[DRY_NORM_POST]);
    if (a->qk_norm) {
        convert(cpu, from->q_norm, to->q_norm);
        convert(cpu, from->k_norm, to->k_norm);
    }
}

void dry_cpu_fill_weights(struct dry_cpu *cpu)
{
    convert(cpu, cpu->base->embed, cpu->embed);
    if (cpu->head != cpu->embed)
        convert(cpu, cpu->base->head, cpu->head);
    convert(cpu, cpu->base->norm, cpu->norm);
    for (int64_t l = 0; l < cpu->arch->layers; l++)
        fill_layer(cpu, &cpu->base->layer[l], &cpu->layer[l]);
}

float *dry_cpu_scratch(struct dry_cpu *cpu)
{
    return cpu->scratch + (size_t)omp_get_thread_num() * cpu->scratch_floats;
}
