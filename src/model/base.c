/*
 * The base: a Hugging Face folder's architecture and weights, found, named and checked, not yet anywhere but
 * in the file. Owns the safetensors maps.  Must not know of backends.
 */
#include "config.h"

#include "model/base.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 96, SHAPE = 96 };

/* The base under construction, and which of its tensors have been taken. */
struct finder {
    struct dry_base *base;
    unsigned char *taken; /* by index of the tensor */
};

static void show_shape(int dims, const int64_t *shape, char text[SHAPE])
{
    int at = snprintf(text, SHAPE, "[");

    for (int d = 0; d < dims; d++)
        at += snprintf(text + at, (size_t)(SHAPE - at), "%s%" PRId64, d ? ", " : "", shape[d]);
    snprintf(text + at, (size_t)(SHAPE - at), "]");
}

/* Whether tensors carry other prefixes than Transformers' causal models write: said in the message of a
 * missing one. */
static const char *other_prefix(const struct dry_tensors *t)
{
    if (dry_tensors_find(t, "embed_tokens.weight"))
        return "; the names lack their \"model.\": save the model as a causal language model "
               "(AutoModelForCausalLM)";
    if (dry_tensors_find(t, "model.language_model.embed_tokens.weight"))
        return "; the file holds a model with other parts around the language model: save the language model "
               "alone";
    if (dry_tensors_find(t, "tok_embeddings.weight"))
        return "; the file has the names of the model's makers: take the Hugging Face version of the model";
    return "; download the model again, whole";
}

/* The tensor of that name, checked; columns 0: a vector. */
static enum dry_status take(struct finder *f, const char *name, int64_t rows, int64_t columns,
                            const struct dry_tensor **found)
{
    const struct dry_tensors *tensors = f->base->tensors;
    const struct dry_tensor *t = dry_tensors_find(tensors, name);
    int64_t want[2] = {rows, columns};
    int dims = columns ? 2 : 1;
    char is[SHAPE], should[SHAPE];

    if (!t) {
        dry_error("%s: tensor \"%s\" is missing%s", f->base->dir, name, other_prefix(tensors));
        return DRY_ERR_INPUT;
    }
    if (t->dims != dims || memcmp(t->shape, want, (size_t)dims * sizeof *want) != 0) {
        show_shape(t->dims, t->shape, is);
        show_shape(dims, want, should);
        dry_error("%s: tensor \"%s\" is %s, but config.json makes it %s; the folder mixes two models",
                  dry_tensors_file(tensors, t->file), name, is, should);
        return DRY_ERR_INPUT;
    }
    if (t->dtype == DRY_OTHER) {
        dry_error("%s: tensor \"%s\" is of type %s; give the base in float32, bfloat16 or float16",
                  dry_tensors_file(tensors, t->file), name, t->dtype_text);
        return DRY_ERR_INPUT;
    }
    f->taken[t - dry_tensors_at(tensors, 0)] = 1;
    *found = t;
    return DRY_OK;
}

static enum dry_status take_in_layer(struct finder *f, int64_t layer, const char *what, int64_t rows,
                                     int64_t columns, const struct dry_tensor **found)
{
    char name[NAME + 40];

    snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s", layer, what);
    return take(f, name, rows, columns, found);
}

static enum dry_status take_layer(struct finder *f, int64_t i)
{
    struct dry_base_layer *l = &f->base->layer[i];
    const struct dry_arch *a = &f->base->arch;
    char what[NAME];
    enum dry_status s;

    for (int p = 0; p < DRY_PROJS; p++) {
        enum dry_proj proj = (enum dry_proj)p;

        snprintf(what, sizeof what, "%s.weight", dry_proj_module(proj));
        if ((s = take_in_layer(f, i, what, dry_proj_out(a, proj), dry_proj_in(a, proj), &l->weight[p])))
            return s;
        snprintf(what, sizeof what, "%s.bias", dry_proj_module(proj));
        if (dry_proj_has_bias(a, proj) &&
            (s = take_in_layer(f, i, what, dry_proj_out(a, proj), 0, &l->bias[p])))
            return s;
    }
    if ((s = take_in_layer(f, i, "input_layernorm.weight", a->hidden, 0, &l->input_norm)) ||
        (s = take_in_layer(f, i, "post_attention_layernorm.weight", a->hidden, 0, &l->post_norm)))
        return s;
    if (a->qk_norm && ((s = take_in_layer(f, i, "self_attn.q_norm.weight", a->head_dim, 0, &l->q_norm)) ||
                       (s = take_in_layer(f, i, "self_attn.k_norm.weight", a->head_dim, 0, &l->k_norm))))
        return s;
    return DRY_OK;
}

/* A tied model's file may hold the head all the same; then it must be the embedding, since only that is used.
 */
static enum dry_status take_head(struct finder *f)
{
    static const char name[] = "lm_head.weight";
    struct dry_base *b = f->base;
    const struct dry_tensor *spare = NULL;
    enum dry_status s;

    if (!b->arch.tied)
        return take(f, name, b->arch.vocab, b->arch.hidden, &b->head);
    b->head = b->embed;
    if (!dry_tensors_find(b->tensors, name))
        return DRY_OK;
    if ((s = take(f, name, b->arch.vocab, b->arch.hidden, &spare)))
        return s;
    if (spare->bytes != b->embed->bytes || memcmp(spare->data, b->embed->data, spare->bytes) != 0) {
        dry_error("%s: lm_head.weight differs from the embedding, but config.json ties them; if the head is "
                  "right, set "
                  "tie_word_embeddings to false",
                  dry_tensors_file(b->tensors, spare->file));
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

/* A weight that nothing computes with would be left out silently. */
static enum dry_status check_rest(const struct finder *f)
{
    const struct dry_tensors *tensors = f->base->tensors;

    for (size_t i = 0; i < dry_tensors_count(tensors); i++) {
        const struct dry_tensor *t = dry_tensors_at(tensors, i);

        if (f->taken[i] || ends_with(t->name, "rotary_emb.inv_freq"))
            continue;
        dry_error("%s: tensor \"%s\" is unknown: a %s with the keys of config.json has none of that name; "
                  "config.json and "
                  "weights do not belong together, or the model has parts that are not computed",
                  dry_tensors_file(tensors, t->file), t->name, f->base->arch.family);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

static enum dry_status find_tensors(struct dry_base *b)
{
    const struct dry_arch *a = &b->arch;
    struct finder f = {.base = b, .taken = dry_alloc(dry_tensors_count(b->tensors), 1, "tensor marks")};
    enum dry_status s = DRY_ERR_MEMORY;

    if (!f.taken)
        return s;
    if ((s = take(&f, "model.embed_tokens.weight", a->vocab, a->hidden, &b->embed)) ||
        (s = take(&f, "model.norm.weight", a->hidden, 0, &b->norm)) || (s = take_head(&f)))
        goto out;
    for (int64_t i = 0; i < a->layers && !s; i++)
        s = take_layer(&f, i);
    if (!s)
        s = check_rest(&f);
out:
    dry_free(f.taken);
    return s;
}

static enum dry_status hash_base(struct dry_base *b)
{
    char *path = dry_path_join(b->dir, "config.json"), *config = NULL;
    struct dry_hash *h = NULL;
    size_t size;
    enum dry_status s = path ? dry_file_read(path, &config, &size) : DRY_ERR_MEMORY;

    if (!s)
        s = dry_hash_create(&h);
    if (!s) {
        dry_hash_field(h, "config.json", config, size);
        dry_tensors_hash(b->tensors, h);
        dry_hash_finish(h, b->hash);
    }
    dry_free(config);
    dry_free(path);
    return s;
}

enum dry_status dry_base_open(const char *dir, struct dry_base **b)
{
    struct dry_base *made = dry_alloc(1, sizeof *made, "base");
    enum dry_status s = DRY_ERR_MEMORY;

    if (!made)
        return s;
    made->dir = dry_strdup(dir);
    if (!made->dir)
        goto out;
    if ((s = dry_arch_read(dir, &made->arch)) || (s = dry_tensors_open_dir(dir, &made->tensors)))
        goto out;
    made->layer = dry_alloc((size_t)made->arch.layers, sizeof *made->layer, "base layers");
    s = made->layer ? find_tensors(made) : DRY_ERR_MEMORY;
    if (!s)
        s = hash_base(made);
out:
    if (s) {
        dry_base_close(made);
        return s;
    }
    *b = made;
    return DRY_OK;
}

void dry_base_close(struct dry_base *b)
{
    if (!b)
        return;
    dry_free(b->layer);
    dry_tensors_close(b->tensors);
    dry_free(b->dir);
    dry_free(b);
}
