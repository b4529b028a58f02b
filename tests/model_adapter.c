/*
 * The adapter's table: targets, patterns, scales, offsets, and initial values.
 */
#include "config.h"

#include "model/adapter.h"
#include "model/pattern.h"

#include "base/memory.h"
#include "capture.h"
#include "tap.h"

static const struct dry_arch arch = {.family = "llama",
                                     .hidden = 16,
                                     .layers = 12,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 4,
                                     .ffn = 24,
                                     .vocab = 32};

static struct dry_adapter *make(int64_t rank, const char *targets, const char *ranks, const char *alphas,
                                int rslora)
{
    struct dry_adapter_request r = {
        .rank = rank, .alpha = 8, .rslora = rslora, .rank_pattern = ranks, .alpha_pattern = alphas};
    struct dry_adapter *a = NULL;

    if (dry_adapter_targets(targets, &r.targets) || dry_adapter_create(&arch, &r, &a))
        return NULL;
    return a;
}

static void refused(const char *targets, const char *ranks, const char *wants, const char *name)
{
    struct dry_adapter *a;

    capture_begin();
    a = make(4, targets, ranks, NULL, 0);
    capture_end();
    if (!tap_ok(!a && strstr(capture_text, wants), "%s", name))
        printf("# %s\n", capture_text);
    dry_adapter_destroy(a);
}

static void targets(void)
{
    unsigned bits;

    tap_ok(!dry_adapter_targets("all", &bits) && bits == 127, "all is seven projections");
    tap_ok(!dry_adapter_targets("q_proj,v", &bits) && bits == (1u << DRY_PROJ_Q | 1u << DRY_PROJ_V),
           "names long and short");
    tap_ok(!dry_adapter_targets("down,up,gate,o", &bits) &&
               bits == (1u << DRY_PROJ_DOWN | 1u << DRY_PROJ_UP | 1u << DRY_PROJ_GATE | 1u << DRY_PROJ_O),
           "in any order");
    refused("q_poj", NULL, "did you mean q_proj?", "a slip is answered with the nearest name");
    refused("q_proj,,v_proj", NULL, "\"\" is no projection", "an empty name is refused");
    refused("q_proj,", NULL, "\"\" is no projection", "also at the end");
    refused("lm_head", NULL, "\"lm_head\" is no projection", "the head is no target");
}

static void layout(void)
{
    struct dry_adapter *a = make(4, "q,v", NULL, NULL, 0);
    int64_t at = 0;
    int good = a != NULL;

    for (int64_t i = 0; a && i < a->parts; i++) {
        const struct dry_adapter_part *p = &a->part[i];

        good &= p->a == at && p->b == at + 4 * p->in && p->layer == i / 2 && p->scale == 2.0f;
        good &= dry_adapter_at(a, p->layer, p->proj) == p;
        at = p->b + 4 * p->out;
    }
    tap_ok(good && a->parts == 24 && a->parameters == at && a->max_rank == 4,
           "parts lie one after another, A before B");
    tap_ok(a && !dry_adapter_at(a, 3, DRY_PROJ_K), "a projection that is no target has no part");
    if (a) {
        char *name = dry_adapter_tensor_name(&a->part[23], 1),
             *module = dry_adapter_module_name(&a->part[22]);

        tap_text(name, "base_model.model.model.layers.11.self_attn.v_proj.lora_B.weight",
                 "tensors have PEFT's names");
        tap_text(module, "model.layers.11.self_attn.q_proj", "modules too");
        dry_free(module);
        dry_free(name);
    }
    dry_adapter_destroy(a);
    a = make(4, "q", NULL, NULL, 1);
    tap_ok(a && a->part[0].scale == 4.0f, "rsLoRA divides by the root of the rank");
    dry_adapter_destroy(a);
}

static void patterns(void)
{
    struct dry_adapter *a = make(4, "all", "layers.1.self_attn.q_proj=8,down_proj=2",
                                 "k_proj=16,layers\\.[23]\\.mlp\\.up_proj=1.5", 0);
    struct dry_patterns *p = NULL;
    double value = 0;

    tap_ok(a && dry_adapter_at(a, 1, DRY_PROJ_Q)->rank == 8 && dry_adapter_at(a, 11, DRY_PROJ_Q)->rank == 4,
           "a key matches whole words from a dot on");
    tap_ok(a && dry_adapter_at(a, 7, DRY_PROJ_DOWN)->rank == 2 &&
               dry_adapter_at(a, 7, DRY_PROJ_DOWN)->scale == 4.0f && a->max_rank == 8,
           "a projection's name matches in all layers");
    tap_ok(a && dry_adapter_at(a, 0, DRY_PROJ_K)->alpha == 16 &&
               dry_adapter_at(a, 2, DRY_PROJ_UP)->alpha == 1.5 &&
               dry_adapter_at(a, 4, DRY_PROJ_UP)->alpha == 8,
           "keys are regular expressions");
    dry_adapter_destroy(a);
    a = make(4, "all", "layers.(1|2){1,1}.*.q_proj=2,q_proj=3", NULL, 0);
    tap_ok(a && dry_adapter_at(a, 2, DRY_PROJ_Q)->rank == 2 && dry_adapter_at(a, 3, DRY_PROJ_Q)->rank == 3,
           "the first key that matches counts; commas in brackets belong to the key");
    dry_adapter_destroy(a);
    refused("all", "x_proj=2", "\"x_proj\" matches no module", "a key that matches nothing is refused");
    refused("q", "v_proj=2", "\"v_proj\" matches no module", "a key of no target too");
    refused("all", "q_proj=0", "not a whole number", "rank 0 is refused");
    refused("all", "q_proj=1.5", "not a whole number", "rank 1.5 is refused");
    refused("all", "q_proj=x", "is not KEY=NUMBER", "a word for a number is refused");
    refused("all", "q_proj", "is not KEY=NUMBER", "a key without value is refused");
    refused("all", "q_(proj=2", "--rank-pattern", "an expression that is none is refused");
    tap_ok(!dry_patterns_from_text("roj=1,q_proj=2", "here", &p) &&
               !dry_patterns_find(p, "model.layers.0.self_attn.q_proj", &value) && value == 2 &&
               strcmp(dry_patterns_unused(p), "roj") == 0,
           "a key does not match the end of a word");
    dry_patterns_destroy(p);
}

static void chosen(void)
{
    struct dry_adapter_choice choice[12 * DRY_PROJS] = {[5 * DRY_PROJS + DRY_PROJ_O] = {3, 6.0}};
    struct dry_adapter_request r = {.rank = 4, .alpha = 8, .dropout = 0.5};
    struct dry_adapter *a = NULL;

    tap_ok(!dry_adapter_create_chosen(&arch, &r, choice, &a) && a->parts == 1 && a->part[0].layer == 5 &&
               a->part[0].scale == 2.0f && a->request.targets == 1u << DRY_PROJ_O && a->dropout == 0.5,
           "one module of one layer can be chosen");
    dry_adapter_destroy(a);
    memset(choice, 0, sizeof choice);
    capture_begin();
    tap_ok(dry_adapter_create_chosen(&arch, &r, choice, &a) == DRY_ERR_INPUT, "none is refused");
    capture_end();
}

static void initial(void)
{
    struct dry_adapter *all = make(4, "all", NULL, NULL, 0), *one = make(4, "v", NULL, NULL, 0);
    float *x = dry_alloc((size_t)all->parameters, sizeof *x, "values");
    float *y = dry_alloc((size_t)one->parameters, sizeof *y, "values");
    const struct dry_adapter_part *p = dry_adapter_at(all, 7, DRY_PROJ_V),
                                  *q = dry_adapter_at(one, 7, DRY_PROJ_V);
    double sum = 0, square = 0;
    int64_t outside = 0, nonzero = 0, n = 0;

    memset(x, 255, (size_t)all->parameters * sizeof *x);
    dry_adapter_init(all, 42, x);
    dry_adapter_init(one, 42, y);
    tap_ok(memcmp(x + p->a, y + q->a, (size_t)(p->rank * p->in) * sizeof *x) == 0,
           "a module's values do not depend on the other targets");
    for (int64_t i = 0; i < all->parts; i++) {
        const struct dry_adapter_part *at = &all->part[i];
        double bound = 1 / sqrt((double)at->in);

        for (int64_t k = 0; k < at->rank * at->in; k++) {
            double u = x[at->a + k] / bound;
            outside += !(u >= -1 && u < 1);
            sum += u;
            square += u * u;
            n++;
        }
        for (int64_t k = 0; k < at->rank * at->out; k++)
            nonzero += x[at->b + k] != 0;
    }
    tap_ok(outside == 0 && nonzero == 0, "A lies within 1 / sqrt(in), B is zero");
    tap_near(sum / (double)n, 0, 4 / sqrt(3.0 * (double)n), "A has mean 0");
    tap_near(square / (double)n, 1.0 / 3, 0.03, "and the variance of a uniform one");
    dry_adapter_init(one, 43, x);
    tap_ok(memcmp(x, y, 64) != 0, "another seed gives other values");
    dry_free(y);
    dry_free(x);
    dry_adapter_destroy(one);
    dry_adapter_destroy(all);
}

static void hash_of(const struct dry_adapter *a, char hex[DRY_HASH_HEX])
{
    struct dry_hash *h = NULL;

    if (!dry_hash_create(&h)) {
        dry_adapter_hash(a, h);
        dry_hash_finish(h, hex);
    }
}

static void hashes(void)
{
    struct dry_adapter *a[] = {make(4, "all", NULL, NULL, 0),       make(4, "all", "q_proj=4", NULL, 0),
                               make(5, "all", NULL, NULL, 0),       make(4, "q,v", NULL, NULL, 0),
                               make(4, "all", NULL, "q_proj=9", 0), make(4, "all", NULL, NULL, 1)};
    char hex[6][DRY_HASH_HEX];
    int differ = 1;

    for (int i = 0; i < 6; i++)
        hash_of(a[i], hex[i]);
    for (int i = 2; i < 6; i++)
        differ &= strcmp(hex[0], hex[i]) != 0;
    tap_ok(strcmp(hex[0], hex[1]) == 0 && differ,
           "the hash tells shapes apart, not the way they were asked for");
    for (int i = 0; i < 6; i++)
        dry_adapter_destroy(a[i]);
}

int main(void)
{
    targets();
    layout();
    patterns();
    chosen();
    initial();
    hashes();
    return tap_done();
}
