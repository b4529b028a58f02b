/*
 * The way from options to base, adapter and contract, alike for every command that needs them.
 * Owns nothing that outlives a call but what it hands out.
 * Must not know of backends, nor of how records became tokens.
 */
#include "config.h"

#include "command/setup.h"

#include "base/log.h"
#include "base/memory.h"
#include "state/peft.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum dry_status dry_setup_base(const struct dry_call *call, const char *dir, struct dry_base **base)
{
    struct dry_base *opened = NULL;
    enum dry_status s;

    dry_log_defer(1);
    s = dry_comm_agree(call->comm, dry_base_open(dir, &opened));
    dry_log_defer(0);
    if (s) {
        dry_base_close(opened);
        return s;
    }
    *base = opened;
    return DRY_OK;
}

/* ---- the adapter */

static int is_given(const struct dry_config *c, const char *flag)
{
    return dry_config_origin(c, flag) != DRY_ORIGIN_DEFAULT;
}

/* What the options ask for; texts borrowed from them. */
static enum dry_status read_request(const struct dry_config *c, struct dry_adapter_request *r)
{
    struct dry_adapter_request asked = {.rank = c->rank,
                                        .alpha = c->alpha,
                                        .dropout = c->lora_dropout,
                                        .rslora = c->rslora,
                                        .rank_pattern = c->rank_pattern,
                                        .alpha_pattern = c->alpha_pattern};
    enum dry_status s = dry_adapter_targets(c->targets, &asked.targets);

    if (!s)
        *r = asked;
    return s;
}

static enum dry_status contradicts(const struct dry_config *c, const char *flag, const char *asked,
                                   const char *has)
{
    dry_error("%s: %s contradicts --init-adapter %s, which has %s; leave it out: the adapter's configuration "
              "decides",
              dry_config_place(c, flag), asked, c->init_adapter, has);
    return DRY_ERR_USAGE;
}

/* "q_proj,v_proj" */
static void show_targets(unsigned targets, char *text, size_t size)
{
    size_t at = 0;

    text[0] = 0;
    for (int p = 0; p < DRY_PROJS; p++)
        if (targets >> p & 1 && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? "," : "",
                                   dry_proj_name((enum dry_proj)p));
}

/* Patterns given beside an adapter must give its modules the ranks and alphas that they have. */
static enum dry_status compare_patterns(const struct dry_config *c, const struct dry_arch *arch,
                                        const struct dry_adapter *a)
{
    struct dry_adapter_request r = a->request;
    struct dry_adapter *asked = NULL;
    char want[96], have[96];
    enum dry_status s;

    if (!is_given(c, "rank-pattern") && !is_given(c, "alpha-pattern"))
        return DRY_OK;
    r.rank_pattern = c->rank_pattern;
    r.alpha_pattern = c->alpha_pattern;
    s = dry_adapter_create(arch, &r, &asked);
    for (int64_t i = 0; i < a->parts && !s; i++) {
        const struct dry_adapter_part *is = &a->part[i], *as = dry_adapter_at(asked, is->layer, is->proj);
        char module[DRY_MODULE_NAME];

        dry_module_name(is->layer, is->proj, module);
        if (is_given(c, "rank-pattern") && is->rank != as->rank) {
            snprintf(want, sizeof want, "rank %" PRId64 " of %s", as->rank, module);
            snprintf(have, sizeof have, "rank %" PRId64, is->rank);
            s = contradicts(c, "rank-pattern", want, have);
        } else if (is_given(c, "alpha-pattern") && is->alpha != as->alpha) {
            snprintf(want, sizeof want, "alpha %g of %s", as->alpha, module);
            snprintf(have, sizeof have, "alpha %g", is->alpha);
            s = contradicts(c, "alpha-pattern", want, have);
        }
    }
    dry_adapter_destroy(asked);
    return s;
}

static enum dry_status compare_flags(const struct dry_config *c, const struct dry_arch *arch,
                                     const struct dry_adapter *a)
{
    char want[96], have[96];
    unsigned targets;
    enum dry_status s;

    if (is_given(c, "rank") && c->rank != a->request.rank) {
        snprintf(want, sizeof want, "%" PRId64, c->rank);
        snprintf(have, sizeof have, "r %" PRId64, a->request.rank);
        return contradicts(c, "rank", want, have);
    }
    if (is_given(c, "alpha") && c->alpha != a->request.alpha) {
        snprintf(want, sizeof want, "%g", c->alpha);
        snprintf(have, sizeof have, "lora_alpha %g", a->request.alpha);
        return contradicts(c, "alpha", want, have);
    }
    if (is_given(c, "rslora") && !c->rslora != !a->request.rslora)
        return contradicts(c, "rslora", c->rslora ? "true" : "false",
                           a->request.rslora ? "use_rslora true" : "use_rslora false");
    if (is_given(c, "targets")) {
        s = dry_adapter_targets(c->targets, &targets);
        if (s)
            return s;
        if (targets != a->request.targets) {
            show_targets(targets, want, sizeof want);
            show_targets(a->request.targets, have, sizeof have);
            return contradicts(c, "targets", want, have);
        }
    }
    return compare_patterns(c, arch, a);
}

static enum dry_status make_values(const struct dry_adapter *a, float **values)
{
    *values = dry_alloc((size_t)a->parameters, sizeof **values, "adapter values");
    return *values ? DRY_OK : DRY_ERR_MEMORY;
}

/* Local. An adapter folder's shape and values. */
static enum dry_status read_peft(const char *dir, const struct dry_base *base, struct dry_adapter **a,
                                 float **values)
{
    enum dry_status s = dry_peft_open(dir, &base->arch, a);

    if (!s)
        s = make_values(*a, values);
    return s ? s : dry_peft_values(dir, *a, *values);
}

/* Local. From --init-adapter: everything but dropout, which is a matter of this training. */
static enum dry_status continue_adapter(const struct dry_config *c, const struct dry_base *base,
                                        struct dry_adapter **a, float **values)
{
    enum dry_status s = read_peft(c->init_adapter, base, a, values);

    if (s)
        return s;
    if ((*a)->dropout != c->lora_dropout)
        dry_info("adapter %s had dropout %g; this training has %g (--lora-dropout)", c->init_adapter,
                 (*a)->dropout, c->lora_dropout);
    (*a)->dropout = (*a)->request.dropout = c->lora_dropout;
    return compare_flags(c, &base->arch, *a);
}

/* Local. From the options alone. */
static enum dry_status new_adapter(const struct dry_config *c, const struct dry_base *base,
                                   struct dry_adapter **a, float **values)
{
    struct dry_adapter_request request;
    enum dry_status s = read_request(c, &request);

    if (!s)
        s = dry_adapter_create(&base->arch, &request, a);
    if (!s)
        s = make_values(*a, values);
    if (!s)
        dry_adapter_init(*a, (uint64_t)c->seed, *values);
    return s;
}

enum dry_status dry_setup_adapter(const struct dry_call *call, const struct dry_base *base,
                                  struct dry_adapter **adapter, float **values)
{
    const struct dry_config *c = call->config;
    struct dry_adapter *a = NULL;
    float *v = NULL;
    enum dry_status s;

    dry_log_defer(1);
    s = c->init_adapter ? continue_adapter(c, base, &a, &v) : new_adapter(c, base, &a, &v);
    s = dry_comm_agree(call->comm, s);
    dry_log_defer(0);
    if (s) {
        dry_free(v);
        dry_adapter_destroy(a);
        return s;
    }
    *adapter = a;
    *values = v;
    return DRY_OK;
}

enum dry_status dry_setup_peft(const struct dry_call *call, const char *dir, const struct dry_base *base,
                               struct dry_adapter **adapter, float **values)
{
    struct dry_adapter *a = NULL;
    float *v = NULL;
    enum dry_status s;

    dry_log_defer(1);
    s = dry_comm_agree(call->comm, read_peft(dir, base, &a, &v));
    dry_log_defer(0);
    if (s) {
        dry_free(v);
        dry_adapter_destroy(a);
        return s;
    }
    *adapter = a;
    *values = v;
    return DRY_OK;
}

/* ---- records and contract */

enum dry_status dry_setup_check_records(const struct dry_base *base, const struct dry_cache *cache)
{
    const struct dry_cache_view *v = dry_cache_view(cache);
    const struct dry_arch *arch = &base->arch;
    int64_t longest = 0, length;

    for (int64_t i = 1; i < v->records; i++)
        if (v->offset[i + 1] - v->offset[i] > v->offset[longest + 1] - v->offset[longest])
            longest = i;
    if (v->largest_id >= arch->vocab) {
        dry_error("%s: token id %" PRId32 " is over the base's vocabulary of %" PRId64
                  ": the tokenizer is another "
                  "model's",
                  v->data_path, v->largest_id, arch->vocab);
        return DRY_ERR_INPUT;
    }
    length = v->records ? v->offset[longest + 1] - v->offset[longest] : 0;
    if (arch->window && length > arch->window) {
        dry_error("%s:%" PRId64 ": a record of %" PRId64
                  " tokens is longer than the base's sliding window of %" PRId64
                  ", which is not computed; give --max-seq-length %" PRId64
                  " with --long-records drop or truncate",
                  v->data_path, v->line[longest], length, arch->window, arch->window);
        return DRY_ERR_INPUT;
    }
    if (length > arch->max_positions)
        dry_warn("%s:%" PRId64 ": a record of %" PRId64 " tokens is longer than the %" PRId64
                 " positions that the base is made for (max_position_embeddings)",
                 v->data_path, v->line[longest], length, arch->max_positions);
    return DRY_OK;
}

/* Shape, and with --init-adapter the values too; without it seed and shape give them. */
static enum dry_status hash_adapter(const struct dry_config *c, const struct dry_adapter *a,
                                    const float *values, char hex[DRY_HASH_HEX])
{
    struct dry_hash *h = NULL;
    enum dry_status s = dry_hash_create(&h);

    if (s)
        return s;
    dry_adapter_hash(a, h);
    if (c->init_adapter)
        dry_hash_field(h, "values", values, (size_t)a->parameters * sizeof *values);
    dry_hash_finish(h, hex);
    return DRY_OK;
}

enum dry_status dry_setup_contract(const struct dry_call *call, const struct dry_cache *cache,
                                   const struct dry_base *base, const struct dry_adapter *adapter,
                                   const float *values, struct dry_contract *k)
{
    const struct dry_cache_view *view = dry_cache_view(cache);
    struct dry_contract made = {0};
    enum dry_status s;

    dry_log_defer(1);
    s = dry_setup_check_records(base, cache);
    if (!s)
        s = dry_contract_resolve(call->config, dry_comm_size(call->comm), view->records, &made);
    if (!s)
        s = hash_adapter(call->config, adapter, values, made.adapter);
    s = dry_comm_agree(call->comm, s);
    if (!s) {
        snprintf(made.data, sizeof made.data, "%s", view->key);
        snprintf(made.base, sizeof made.base, "%s", base->hash);
        s = dry_comm_same(call->comm, "base (config.json and safetensors headers)", made.base);
    }
    if (!s)
        s = dry_comm_same(call->comm, "adapter to start from", made.adapter);
    dry_log_defer(0);
    if (!s)
        *k = made;
    return s;
}

/* Local. Whether base and adapter can be what the options say, from their configurations alone. */
static enum dry_status check_adapter(const struct dry_config *c)
{
    struct dry_adapter_request request;
    struct dry_adapter *a = NULL;
    struct dry_arch arch;
    char *dir = NULL;
    enum dry_status s = dry_base_locate(c->base, &dir);

    if (!s)
        s = dry_arch_read(dir, &arch);
    if (!s && c->init_adapter) {
        s = dry_peft_open(c->init_adapter, &arch, &a);
        if (!s)
            s = compare_flags(c, &arch, a);
    } else if (!s) {
        s = read_request(c, &request);
        if (!s)
            s = dry_adapter_create(&arch, &request, &a);
    }
    dry_adapter_destroy(a);
    dry_free(dir);
    return s;
}

enum dry_status dry_setup_early(const struct dry_call *call)
{
    return dry_setup_early_on(call->config, dry_comm_size(call->comm));
}

enum dry_status dry_setup_early_on(const struct dry_config *c, int ranks)
{
    struct dry_lines *lines = NULL;
    struct dry_contract unused;
    enum dry_status s = DRY_OK;

    if (c->data) {
        s = dry_lines_open(c->data, &lines);
        if (!s)
            s = dry_contract_resolve(c, ranks, dry_lines_count(lines), &unused);
        dry_lines_close(lines);
    }
    return s || !c->base ? s : check_adapter(c);
}
