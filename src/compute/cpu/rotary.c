/*
 * What happens to q and k between the linear and attention: RMSNorm per head (Qwen3) and rotary embedding,
 * and the gradient of both. Owns the cosine and sine tables' content.  Must not know of the attention itself.
 *
 * Rotary as Transformers has it ("rotate half"): y[i] = x[i] cos - x[i + D/2] sin; y[i + D/2] = x[i + D/2]
 * cos + x[i] sin, angle = position * inv_freq[i], a float32 product of float32 factors.
 */
#include "config.h"

#include "compute/cpu/cpu.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum dry_status dry_cpu_rotary_tables(struct dry_cpu *cpu)
{
    int64_t half = cpu->arch->head_dim / 2;
    double *inverse = dry_alloc((size_t)half, sizeof *inverse, "rotary frequencies");

    if (!inverse)
        return DRY_ERR_MEMORY;
    dry_arch_inv_freq(cpu->arch, inverse);
#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t p = 0; p < cpu->limits.longest; p++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)p * (float)inverse[i];
            cpu->cosine[p * half + i] = (float)cos((double)angle);
            cpu->sine[p * half + i] = (float)sin((double)angle);
        }
    dry_free(inverse);
    return DRY_OK;
}

static void rotate(const float *cosine, const float *sine, int64_t half, float sign, float *x)
{
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], s = sign * sine[i];
        x[i] = a * cosine[i] - b * s;
        x[i + half] = b * cosine[i] + a * s;
    }
}

void dry_cpu_rotary_forward(struct dry_cpu *cpu, const struct dry_cpu_layer *layer, float *qkv, float *raw)
{
    const struct dry_arch *a = cpu->arch;
    int64_t dim = a->head_dim, heads = a->heads + a->kv_heads;
    int64_t pitch = dry_group_out(a, DRY_GROUP_QKV);

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++) {
        float *row = qkv + t * pitch;
        int64_t angle = cpu->position[t] * (dim / 2);
        if (a->qk_norm && raw)
            memcpy(raw + t * heads * dim, row, dry_cpu_bytes(heads, dim));
        for (int64_t h = 0; h < heads; h++) {
            if (a->qk_norm)
                dry_cpu_rms_row(row + h * dim, h < a->heads ? layer->q_norm : layer->k_norm, dim, a->norm_eps,
                                row + h * dim);
            rotate(cpu->cosine + angle, cpu->sine + angle, dim / 2, 1, row + h * dim);
        }
    }
    if (a->qk_norm && raw)
        dry_cpu_zero_padding(cpu, raw, heads * dim);
}

void dry_cpu_rotary_backward(struct dry_cpu *cpu, const struct dry_cpu_layer *layer, const float *raw,
                             float *dqkv)
{
    const struct dry_arch *a = cpu->arch;
    int64_t dim = a->head_dim, heads = a->heads + a->kv_heads;
    int64_t pitch = dry_group_out(a, DRY_GROUP_QKV);

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++) {
        float *row = dqkv + t * pitch;
        int64_t angle = cpu->position[t] * (dim / 2);
        for (int64_t h = 0; h < heads; h++) {
            rotate(cpu->cosine + angle, cpu->sine + angle, dim / 2, -1, row + h * dim);
            if (a->qk_norm)
                dry_cpu_rms_row_backward(raw + (t * heads + h) * dim,
                                         h < a->heads ? layer->q_norm : layer->k_norm, row + h * dim, dim,
                                         a->norm_eps, 0, row + h * dim);
        }
    }
}
