/*
 * The adapter's shape: which projections have A and B, of what rank and scale, and where they lie in one flat
 * block. Owns the table of parts.  Must not know of files or of how the values are trained.
 */
#include "config.h"

#include "model/adapter.h"
#include "model/pattern.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "config/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Far above any use, and low enough that no count of parameters overflows. */
static const double most_rank = 65536;

void dry_module_name(int64_t layer, enum dry_proj p, char name[DRY_MODULE_NAME])
{
    snprintf(name, DRY_MODULE_NAME, "model.layers.%" PRId64 ".%s", layer, dry_proj_module(p));
}

/* "q_proj" or "q" of `size` bytes; -1: neither. */
static int find_projection(const char *text, size_t size)
{
    for (int p = 0; p < DRY_PROJS; p++) {
        const char *name = dry_proj_name((enum dry_proj)p);
        size_t whole = strlen(name), brief = whole - strlen("_proj");

        if ((size == whole || size == brief) && memcmp(text, name, size) == 0)
            return p;
    }
    return -1;
}

enum dry_status dry_adapter_targets(const char *text, unsigned *targets)
{
    const char *names[DRY_PROJS], *nearest;
    unsigned bits = 0;
    char word[32];

    if (strcmp(text, "all") == 0 || strcmp(text, "all-linear") == 0) {
        *targets = (1u << DRY_PROJS) - 1;
        return DRY_OK;
    }
    for (const char *c = text;; c++) {
        size_t size = strcspn(c, ",");
        int p = find_projection(c, size);

        if (p < 0) {
            for (int i = 0; i < DRY_PROJS; i++)
                names[i] = dry_proj_name((enum dry_proj)i);
            snprintf(word, sizeof word, "%.*s", (int)size, c);
            nearest = dry_nearest(word, names, DRY_PROJS);
            dry_error("--targets: \"%.*s\" is no projection%s%s%s; known: all, q_proj, k_proj, v_proj, "
                      "o_proj, gate_proj, "
                      "up_proj, down_proj",
                      (int)size, c, nearest ? ", did you mean " : "", nearest ? nearest : "",
                      nearest ? "?" : "");
            return DRY_ERR_USAGE;
        }
        bits |= 1u << p;
        c += size;
        if (!*c)
            break;
    }
    *targets = bits;
    return DRY_OK;
}

static enum dry_status choose_one(const struct dry_adapter_request *r, struct dry_patterns *ranks,
                                  struct dry_patterns *alphas, int64_t layer, enum dry_proj p,
                                  struct dry_adapter_choice *choice)
{
    double rank = (double)r->rank, alpha = r->alpha;
    char module[DRY_MODULE_NAME];
    enum dry_status s;

    dry_module_name(layer, p, module);
    if ((s = dry_patterns_find(ranks, module, &rank)) || (s = dry_patterns_find(alphas, module, &alpha)))
        return s;
    if (!(rank >= 1) || !(rank <= most_rank) || rank != floor(rank)) {
        dry_error("rank %g of %s is not a whole number from 1 to %g; see --rank and --rank-pattern", rank,
                  module, most_rank);
        return DRY_ERR_USAGE;
    }
    choice->rank = (int64_t)rank;
    choice->alpha = alpha;
    return DRY_OK;
}

static enum dry_status choose(const struct dry_arch *arch, const struct dry_adapter_request *r,
                              struct dry_adapter_choice *choice)
{
    struct dry_patterns *ranks = NULL, *alphas = NULL;
    const char *unused;
    enum dry_status s = dry_patterns_from_text(r->rank_pattern, "--rank-pattern", &ranks);

    if (!s)
        s = dry_patterns_from_text(r->alpha_pattern, "--alpha-pattern", &alphas);
    for (int64_t i = 0; i < arch->layers * DRY_PROJS && !s; i++)
        if (r->targets >> i % DRY_PROJS & 1)
            s = choose_one(r, ranks, alphas, i / DRY_PROJS, (enum dry_proj)(i % DRY_PROJS), &choice[i]);
    for (int i = 0; i < 2 && !s; i++) {
        unused = dry_patterns_unused(i ? alphas : ranks);
        if (unused) {
            dry_error("%s: \"%s\" matches no module of --targets (such as model.layers.0.self_attn.q_proj) "
                      "that an earlier "
                      "key has not taken",
                      i ? "--alpha-pattern" : "--rank-pattern", unused);
            s = DRY_ERR_USAGE;
        }
    }
    dry_patterns_destroy(alphas);
    dry_patterns_destroy(ranks);
    return s;
}

enum dry_status dry_adapter_create(const struct dry_arch *arch, const struct dry_adapter_request *request,
                                   struct dry_adapter **a)
{
    size_t modules = (size_t)(arch->layers * DRY_PROJS);
    struct dry_adapter_choice *choice = dry_alloc(modules, sizeof *choice, "adapter choice");
    enum dry_status s;

    if (!choice)
        return DRY_ERR_MEMORY;
    s = choose(arch, request, choice);
    if (!s)
        s = dry_adapter_create_chosen(arch, request, choice, a);
    dry_free(choice);
    return s == DRY_ERR_INPUT ? DRY_ERR_USAGE : s;
}

static void place(struct dry_adapter *a, const struct dry_arch *arch, int64_t module,
                  const struct dry_adapter_choice *choice)
{
    struct dry_adapter_part *part = &a->part[a->parts];
    double by = (double)choice->rank;

    part->layer = module / DRY_PROJS;
    part->proj = (enum dry_proj)(module % DRY_PROJS);
    part->in = dry_proj_in(arch, part->proj);
    part->out = dry_proj_out(arch, part->proj);
    part->rank = choice->rank;
    part->alpha = choice->alpha;
    part->scale = (float)(choice->alpha / (a->request.rslora ? sqrt(by) : by));
    part->a = a->parameters;
    part->b = part->a + part->rank * part->in;
    a->parameters = part->b + part->out * part->rank;
    a->max_rank = part->rank > a->max_rank ? part->rank : a->max_rank;
    a->request.targets |= 1u << part->proj;
    a->index[module] = a->parts++;
}

enum dry_status dry_adapter_create_chosen(const struct dry_arch *arch,
                                          const struct dry_adapter_request *request,
                                          const struct dry_adapter_choice *choice, struct dry_adapter **a)
{
    struct dry_adapter *made = dry_alloc(1, sizeof *made, "adapter");
    int64_t modules = arch->layers * DRY_PROJS, parts = 0;

    if (!made)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < modules; i++)
        parts += choice[i].rank > 0;
    if (!parts) {
        dry_error("the adapter has no module; name at least one projection to adapt");
        dry_free(made);
        return DRY_ERR_INPUT;
    }
    made->part = dry_alloc((size_t)parts, sizeof *made->part, "adapter parts");
    made->index = dry_alloc((size_t)modules, sizeof *made->index, "adapter index");
    if (!made->part || !made->index) {
        dry_adapter_destroy(made);
        return DRY_ERR_MEMORY;
    }
    made->layers = arch->layers;
    made->dropout = request->dropout;
    made->request.rank = request->rank;
    made->request.alpha = request->alpha;
    made->request.dropout = request->dropout;
    made->request.rslora = request->rslora;
    for (int64_t i = 0; i < modules; i++) {
        made->index[i] = -1;
        if (choice[i].rank > 0)
            place(made, arch, i, &choice[i]);
    }
    *a = made;
    return DRY_OK;
}

void dry_adapter_destroy(struct dry_adapter *a)
{
    if (!a)
        return;
    dry_free(a->index);
    dry_free(a->part);
    dry_free(a);
}

const struct dry_adapter_part *dry_adapter_at(const struct dry_adapter *a, int64_t layer, enum dry_proj p)
{
    int64_t part = a->index[layer * DRY_PROJS + p];

    return part < 0 ? NULL : &a->part[part];
}

void dry_adapter_init(const struct dry_adapter *a, uint64_t seed, float *values)
{
    for (int64_t i = 0; i < a->parts; i++) {
        const struct dry_adapter_part *p = &a->part[i];
        uint64_t module = (uint64_t)(p->layer * DRY_PROJS + (int64_t)p->proj);
        float bound = (float)(1 / sqrt((double)p->in)), *to = values + p->a;
        int64_t n = p->rank * p->in;
        uint32_t word[4];

        for (int64_t e = 0; e < n; e++) {
            if (e % 4 == 0)
                dry_random_words(seed, DRY_RANDOM_ADAPTER, module, (uint64_t)e / 4, word);
            to[e] = (2 * dry_random_unit(word[e % 4]) - 1) * bound;
        }
        memset(values + p->b, 0, (size_t)(p->out * p->rank) * sizeof *values);
    }
}

char *dry_adapter_tensor_name(const struct dry_adapter_part *part, int is_b)
{
    char module[DRY_MODULE_NAME];

    dry_module_name(part->layer, part->proj, module);
    return dry_format("base_model.model.%s.lora_%c.weight", module, is_b ? 'B' : 'A');
}

char *dry_adapter_module_name(const struct dry_adapter_part *part)
{
    char module[DRY_MODULE_NAME];

    dry_module_name(part->layer, part->proj, module);
    return dry_strdup(module);
}

void dry_adapter_hash(const struct dry_adapter *a, struct dry_hash *h)
{
    dry_hash_field(h, "dropout", &a->dropout, sizeof a->dropout);
    for (int64_t i = 0; i < a->parts; i++) {
        const struct dry_adapter_part *p = &a->part[i];
        int64_t shape[] = {p->layer, p->proj, p->in, p->out, p->rank};

        dry_hash_field(h, "part", shape, sizeof shape);
        dry_hash_field(h, "alpha", &p->alpha, sizeof p->alpha);
        dry_hash_field(h, "scale", &p->scale, sizeof p->scale);
    }
}
