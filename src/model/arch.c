/*
 * The architecture as plain values: names and shapes of the seven projections, parameter counts, rotary
 * frequencies. Owns nothing.  Must not know of weights or of config.json (arch_read.c reads it).
 */
#include "config.h"

#include "model/arch.h"

#include <math.h>

static const struct {
    const char *name, *module;
} projections[] = {
    [DRY_PROJ_Q] = {"q_proj", "self_attn.q_proj"},    [DRY_PROJ_K] = {"k_proj", "self_attn.k_proj"},
    [DRY_PROJ_V] = {"v_proj", "self_attn.v_proj"},    [DRY_PROJ_O] = {"o_proj", "self_attn.o_proj"},
    [DRY_PROJ_GATE] = {"gate_proj", "mlp.gate_proj"}, [DRY_PROJ_UP] = {"up_proj", "mlp.up_proj"},
    [DRY_PROJ_DOWN] = {"down_proj", "mlp.down_proj"},
};
_Static_assert(sizeof projections / sizeof *projections == DRY_PROJS, "a name for each projection");

const char *dry_proj_name(enum dry_proj p)
{
    return projections[p].name;
}

const char *dry_proj_module(enum dry_proj p)
{
    return projections[p].module;
}

int64_t dry_proj_in(const struct dry_arch *a, enum dry_proj p)
{
    switch (p) {
    case DRY_PROJ_O:
        return a->heads * a->head_dim;
    case DRY_PROJ_DOWN:
        return a->ffn;
    default:
        return a->hidden;
    }
}

int64_t dry_proj_out(const struct dry_arch *a, enum dry_proj p)
{
    switch (p) {
    case DRY_PROJ_Q:
        return a->heads * a->head_dim;
    case DRY_PROJ_K:
    case DRY_PROJ_V:
        return a->kv_heads * a->head_dim;
    case DRY_PROJ_GATE:
    case DRY_PROJ_UP:
        return a->ffn;
    default:
        return a->hidden;
    }
}

int dry_proj_has_bias(const struct dry_arch *a, enum dry_proj p)
{
    switch (p) {
    case DRY_PROJ_Q:
    case DRY_PROJ_K:
    case DRY_PROJ_V:
        return a->qkv_bias;
    case DRY_PROJ_O:
        return a->o_bias;
    default:
        return a->mlp_bias;
    }
}

/* Llama 3: wavelengths over original / low are divided by factor, those under original / high are kept, and
 * between the two the frequency is a mean of both, weighted by how often the wave fits into the original
 * context. */
static double scale_llama3(const struct dry_arch *a, double frequency)
{
    double wavelength = 2 * M_PI / frequency, original = (double)a->rope_original, kept;

    if (wavelength < original / a->rope_high)
        return frequency;
    if (wavelength > original / a->rope_low)
        return frequency / a->rope_factor;
    kept = (original / wavelength - a->rope_low) / (a->rope_high - a->rope_low);
    return (1 - kept) * frequency / a->rope_factor + kept * frequency;
}

void dry_arch_inv_freq(const struct dry_arch *a, double *inv_freq)
{
    for (int64_t i = 0; i < a->head_dim / 2; i++) {
        double frequency = pow(a->rope_theta, -2.0 * (double)i / (double)a->head_dim);

        switch (a->rope) {
        case DRY_ROPE_LINEAR:
            frequency /= a->rope_factor;
            break;
        case DRY_ROPE_LLAMA3:
            frequency = scale_llama3(a, frequency);
            break;
        case DRY_ROPE_DEFAULT:
            break;
        }
        inv_freq[i] = frequency;
    }
}

int64_t dry_arch_parameters(const struct dry_arch *a)
{
    int64_t layer = 2 * a->hidden + (a->qk_norm ? 2 * a->head_dim : 0);

    for (int p = 0; p < DRY_PROJS; p++) {
        int64_t out = dry_proj_out(a, (enum dry_proj)p);
        layer += out * dry_proj_in(a, (enum dry_proj)p) + (dry_proj_has_bias(a, (enum dry_proj)p) ? out : 0);
    }
    return a->layers * layer + a->hidden + (a->tied ? 1 : 2) * a->vocab * a->hidden;
}

int64_t dry_arch_matrix_parameters(const struct dry_arch *a)
{
    int64_t layer = 0;

    for (int p = 0; p < DRY_PROJS; p++)
        layer += dry_proj_out(a, (enum dry_proj)p) * dry_proj_in(a, (enum dry_proj)p);
    return a->layers * layer + a->vocab * a->hidden;
}
