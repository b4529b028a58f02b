/*
 * SwiGLU on CPUs, and a layer's MLP around it, forward and backward.
 * Owns nothing.  Must not know how a linear is done.
 *
 * Backward has no need of SwiGLU's output before the gradient of that output has been used: the output then
 * takes its place, from the same exponentials, and down's sums come last.
 */
#include "config.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/vector.h"

/* silu(g) = g / (1 + exp(-g)) */
DRY_CPU_VECTOR static void swiglu_row(const float *gate, const float *up, int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + dry_cpu_exp(-gate[i])) * up[i];
}

/* In place, element by element: gate, up become their gradients, y, the output's gradient, the output. */
DRY_CPU_VECTOR static void swiglu_row_backward(float *gate, float *up, float *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float e = 1.0f + dry_cpu_exp(-gate[i]), s = 1.0f / e;
        float silu = gate[i] * s, act = gate[i] / e * up[i];
        float g = y[i] * up[i] * (s + silu * (1.0f - s));
        float u = y[i] * silu;
        gate[i] = g;
        up[i] = u;
        y[i] = act;
    }
}

void dry_cpu_swiglu_forward(const struct dry_cpu *cpu, const float *gate_up, float *y)
{
    int64_t ffn = cpu->arch->ffn;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++)
        swiglu_row(gate_up + t * 2 * ffn, gate_up + t * 2 * ffn + ffn, ffn, y + t * ffn);
    dry_cpu_zero_padding(cpu, y, ffn);
}

void dry_cpu_swiglu_backward(const struct dry_cpu *cpu, float *gate_up, float *y)
{
    int64_t ffn = cpu->arch->ffn;

#pragma omp parallel for schedule(static) num_threads(cpu->threads)
    for (int64_t t = 0; t < cpu->batch.useful; t++)
        swiglu_row_backward(gate_up + t * 2 * ffn, gate_up + t * 2 * ffn + ffn, y + t * ffn, ffn);
    dry_cpu_zero_padding(cpu, gate_up, 2 * ffn);
    dry_cpu_zero_padding(cpu, y, ffn);
}

enum dry_status dry_cpu_mlp_forward(struct dry_backend *b, int64_t layer, const void *gate_up,
                                    const void *residual, void *act, void *y)
{
    dry_cpu_swiglu_forward(dry_cpu_of(b), gate_up, act);
    return dry_cpu_linear_forward(b, layer, DRY_GROUP_DOWN, act, residual, y);
}

enum dry_status dry_cpu_mlp_backward(struct dry_backend *b, int64_t layer, const struct dry_mlp *m)
{
    struct dry_cpu *cpu = dry_cpu_of(b);

    if (m->down_only) {
        dry_cpu_swiglu_forward(cpu, m->gate_up, m->act);
        return dry_cpu_linear_backward(b, layer, DRY_GROUP_DOWN, m->act, m->dy, NULL);
    }
    dry_cpu_linear_input(cpu, layer, DRY_GROUP_DOWN, m->dy, m->act);
    dry_cpu_swiglu_backward(cpu, m->gate_up, m->act);
    dry_cpu_linear_sums(cpu, layer, DRY_GROUP_DOWN, m->act, m->dy);
    return dry_cpu_normed_backward(b, layer, DRY_NORM_POST, m->x, m->normed, m->again, m->gate_up, m->dx);
}
