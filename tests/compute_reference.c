/*
 * The operations in double precision, one plain loop each.
 * Owns nothing.  Must not use any code of the backends but the dropout mask's definition.
 */
#include "config.h"

#include "compute_reference.h"

#include "base/memory.h"
#include "compute/dropout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double *reference_tensor(const struct reference *r, const struct dry_tensor *t)
{
    struct reference_cache *cache = r->cache;

    for (int i = 0; i < cache->count; i++)
        if (cache->entry[i].tensor == t)
            return cache->entry[i].values;
    float *narrow = malloc((size_t)t->elements * sizeof *narrow);
    double *wide = malloc((size_t)t->elements * sizeof *wide);
    if (!narrow || !wide || cache->count == REFERENCE_TENSORS)
        abort();
    dry_to_f32(t->dtype, t->data, t->elements, narrow);
    for (int64_t i = 0; i < t->elements; i++)
        wide[i] = (double)narrow[i];
    free(narrow);
    cache->entry[cache->count].tensor = t;
    cache->entry[cache->count++].values = wide;
    return wide;
}

void reference_clear(struct reference_cache *cache)
{
    for (int i = 0; i < cache->count; i++)
        free(cache->entry[i].values);
    cache->count = 0;
}

static double *doubles(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);

    if (!p)
        abort();
    return p;
}

void reference_embed(const struct reference *r, double *y)
{
    const double *w = reference_tensor(r, r->base->embed);
    int64_t hidden = r->arch->hidden;

    for (int64_t t = 0; t < r->batch->useful; t++)
        memcpy(y + t * hidden, w + r->batch->id[t] * hidden, (size_t)hidden * sizeof *y);
}

void reference_norm(const double *x, const double *weight, int64_t rows, int64_t n, double eps, double *y)
{
    for (int64_t t = 0; t < rows; t++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[t * n + i] * x[t * n + i];
        double s = 1 / sqrt(sum / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            y[t * n + i] = x[t * n + i] * s * weight[i];
    }
}

static int64_t record_of(const struct dry_batch *b, int64_t t)
{
    int64_t r = 0;

    while (t >= b->offset[r + 1])
        r++;
    return r;
}

static double mask(const struct reference *r, int64_t layer, enum dry_proj proj, int64_t t, int64_t column)
{
    uint32_t word[4];

    if (!r->dropout || r->adapter->dropout <= 0)
        return 1;
    dry_random_words(r->seed, DRY_RANDOM_DROPOUT,
                     dry_dropout_row(r->batch->step, r->batch->record[record_of(r->batch, t)]),
                     dry_dropout_column(r->batch->position[t], layer, proj, column), word);
    return word[column % 4] < dry_dropout_threshold(r->adapter->dropout) ? 0 : 1 / (1 - r->adapter->dropout);
}

static void add_lora(const struct reference *r, const struct dry_adapter_part *part, const double *x,
                     int64_t first, int64_t out, double *y)
{
    double *dropped = doubles(part->in);

    for (int64_t t = 0; t < r->batch->useful; t++) {
        for (int64_t i = 0; i < part->in; i++)
            dropped[i] = x[t * part->in + i] * mask(r, part->layer, part->proj, t, i);
        for (int64_t k = 0; k < part->rank; k++) {
            double xa = 0;
            for (int64_t i = 0; i < part->in; i++)
                xa += dropped[i] * r->values[part->a + k * part->in + i];
            for (int64_t j = 0; j < part->out; j++)
                y[t * out + first + j] += (double)part->scale * xa * r->values[part->b + j * part->rank + k];
        }
    }
    free(dropped);
}

void reference_linear(const struct reference *r, int64_t layer, enum dry_group g, const double *x,
                      const double *residual, double *y)
{
    int64_t in = dry_group_in(r->arch, g), out = dry_group_out(r->arch, g), first = 0;
    enum dry_proj member[3];
    int members = dry_group_members(g, member);

    for (int m = 0; m < members; m++) {
        const struct dry_base_layer *l = &r->base->layer[layer];
        int64_t width = dry_proj_out(r->arch, member[m]);
        const double *w = reference_tensor(r, l->weight[member[m]]);
        const double *bias = l->bias[member[m]] ? reference_tensor(r, l->bias[member[m]]) : NULL;
        for (int64_t t = 0; t < r->batch->useful; t++)
            for (int64_t j = 0; j < width; j++) {
                double sum = (bias ? bias[j] : 0) + (residual ? residual[t * out + first + j] : 0);
                for (int64_t i = 0; i < in; i++)
                    sum += x[t * in + i] * w[j * in + i];
                y[t * out + first + j] = sum;
            }
        const struct dry_adapter_part *part =
            r->adapter ? dry_adapter_at(r->adapter, layer, member[m]) : NULL;
        if (part)
            add_lora(r, part, x, first, out, y);
        first += width;
    }
}

static void rotate(const struct reference *r, const double *inverse, int64_t position, double *x)
{
    int64_t half = r->arch->head_dim / 2;

    for (int64_t i = 0; i < half; i++) {
        double angle = (double)position * inverse[i], a = x[i], b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = b * cos(angle) + a * sin(angle);
    }
}

/* One query row against the keys of its record up to itself. */
static void attend(const struct reference *r, const double *qkv, int64_t t, int64_t h, double *o, double *lse)
{
    const struct dry_arch *a = r->arch;
    int64_t dim = a->head_dim, pitch = (a->heads + 2 * a->kv_heads) * dim, kv = h / (a->heads / a->kv_heads);
    int64_t begin = r->batch->offset[record_of(r->batch, t)];
    double *p = doubles(t - begin + 1), sum = 0, most = -INFINITY;

    for (int64_t s = begin; s <= t; s++) {
        double score = 0;
        for (int64_t i = 0; i < dim; i++)
            score += qkv[t * pitch + h * dim + i] * qkv[s * pitch + (a->heads + kv) * dim + i];
        p[s - begin] = score / sqrt((double)dim);
        most = fmax(most, p[s - begin]);
    }
    for (int64_t s = begin; s <= t; s++)
        sum += p[s - begin] = exp(p[s - begin] - most);
    for (int64_t i = 0; i < dim; i++)
        o[i] = 0;
    for (int64_t s = begin; s <= t; s++)
        for (int64_t i = 0; i < dim; i++)
            o[i] += p[s - begin] / sum * qkv[s * pitch + (a->heads + a->kv_heads + kv) * dim + i];
    if (lse)
        *lse = most + log(sum);
    free(p);
}

void reference_attention(const struct reference *r, int64_t layer, const double *qkv, double *rotated,
                         double *o, double *lse)
{
    const struct dry_arch *a = r->arch;
    int64_t dim = a->head_dim, pitch = (a->heads + 2 * a->kv_heads) * dim;
    double *work = doubles(r->batch->useful * pitch), *inverse = doubles(dim / 2);
    const double *norm[2] = {NULL, NULL};

    memcpy(work, qkv, (size_t)(r->batch->useful * pitch) * sizeof *work);
    dry_arch_inv_freq(a, inverse);
    if (a->qk_norm) {
        norm[0] = reference_tensor(r, r->base->layer[layer].q_norm);
        norm[1] = reference_tensor(r, r->base->layer[layer].k_norm);
    }
    for (int64_t t = 0; t < r->batch->useful; t++)
        for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
            double *x = work + t * pitch + h * dim;
            if (a->qk_norm)
                reference_norm(x, norm[h >= a->heads], 1, dim, a->norm_eps, x);
            rotate(r, inverse, r->batch->position[t], x);
        }
    for (int64_t t = 0; t < r->batch->useful; t++)
        for (int64_t h = 0; h < a->heads; h++)
            attend(r, work, t, h, o + (t * a->heads + h) * dim, lse ? lse + t * a->heads + h : NULL);
    if (rotated)
        memcpy(rotated, work, (size_t)(r->batch->useful * pitch) * sizeof *work);
    free(inverse);
    free(work);
}

void reference_swiglu(const struct reference *r, const double *gate_up, double *y)
{
    int64_t ffn = r->arch->ffn;

    for (int64_t t = 0; t < r->batch->useful; t++)
        for (int64_t i = 0; i < ffn; i++) {
            double gate = gate_up[t * 2 * ffn + i], up = gate_up[t * 2 * ffn + ffn + i];
            y[t * ffn + i] = gate / (1 + exp(-gate)) * up;
        }
}

double reference_loss(const struct reference *r, const double *x)
{
    const struct dry_arch *a = r->arch;
    const double *norm = reference_tensor(r, r->base->norm), *head = reference_tensor(r, r->base->head);
    double *y = doubles(a->hidden), *z = doubles(a->vocab), total = 0;

    for (int64_t k = 0; k < r->batch->rows; k++) {
        double most = -INFINITY, sum = 0;
        reference_norm(x + r->batch->row[k] * a->hidden, norm, 1, a->hidden, a->norm_eps, y);
        for (int64_t v = 0; v < a->vocab; v++) {
            z[v] = 0;
            for (int64_t i = 0; i < a->hidden; i++)
                z[v] += y[i] * head[v * a->hidden + i];
            most = fmax(most, z[v]);
        }
        for (int64_t v = 0; v < a->vocab; v++)
            sum += exp(z[v] - most);
        total += most + log(sum) - z[r->batch->label[k]];
    }
    free(z);
    free(y);
    return total;
}
