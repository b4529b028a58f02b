/*
 * Gathers what a plan means: steps, shares of ranks, memory, checkpoints, traffic; and shows it.
 * Owns the report.
 * Must not know how a plan is made or how a step is computed.
 */
#include "config.h"

#include "command/plan_report.h"

#include "command/plan_fit.h"
#include "command/plan_measured.h"
#include "command/setup.h"
#include "compute/backend.h"
#include "data/shares.h"
#include "train/engine.h"
#include "train/room.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <inttypes.h>
#include <string.h>

enum { RANK_ROWS = 64, CUTS = 4, RECOMPUTES = DRY_RECOMPUTE_FULL + 1 };

/* A cut of the same steps: half as large, as the contract has it, twice and four times as large. */
struct cut {
    int64_t micro_records, micro_tokens;
    struct dry_plan_totals totals;
    struct dry_plan_share share; /* on the ranks of this call */
    size_t memory;
};

struct dry_plan_report {
    struct dry_plan_subject s;
    const struct dry_backend_ops *ops;
    struct dry_plan_bounds bounds; /* training and validation together */
    struct dry_plan_totals totals; /* the first epoch, or what of it is run */
    struct dry_layout layout;
    size_t with[RECOMPUTES]; /* total by --recompute */
    struct dry_plan_share share[RANK_ROWS];
    int shares;
    struct cut cut[CUTS];
    int cuts;
    int64_t room; /* bytes left on this host or its GPU, -1: unknown */
    int64_t checkpoints;
    double flops;                      /* of a mean step */
    struct dry_plan_measured measured; /* with --measured */
};

/* 4N operations a token (forward and the gradient of the activations; frozen weights get none), 6 more for
 * each adapter value, and causal attention: 2 layers Q squared length forward, twice that backward. */
static double step_flops(const struct dry_plan_subject *s, const struct dry_plan_totals *t)
{
    const struct dry_arch *a = &s->base->arch;
    double tokens = (double)t->useful / (double)t->steps, square = (double)t->square / (double)t->steps;

    return tokens * (4.0 * (double)dry_arch_matrix_parameters(a) + 6.0 * (double)s->adapter->parameters) +
           6.0 * square * (double)(a->layers * a->heads * a->head_dim);
}

static struct dry_limits limits_of(const struct dry_plan_report *r, const struct dry_plan_bounds *b)
{
    return (struct dry_limits){.tokens = b->tokens,
                               .records = b->records,
                               .rows = b->supervised,
                               .longest = b->longest,
                               .training = 1,
                               .recompute = dry_recompute_find(r->s.config->recompute)};
}

static void widen(struct dry_plan_bounds *b, const struct dry_plan_bounds *more)
{
    b->tokens = dry_larger(b->tokens, more->tokens);
    b->records = dry_larger(b->records, more->records);
    b->supervised = dry_larger(b->supervised, more->supervised);
    b->longest = dry_larger(b->longest, more->longest);
}

/* Steps that are walked for means: an epoch shows them all but for the order. */
static int64_t walked(const struct dry_plan *p)
{
    int64_t epoch = dry_plan_steps_per_epoch(p), all = dry_plan_steps(p);

    return epoch < all ? epoch : all;
}

/* Bounds of a plan made from `in` over a cache in file order. */
static enum dry_status validation_bounds(const struct dry_plan_input *training,
                                         const struct dry_cache_view *v, struct dry_plan_bounds *b)
{
    struct dry_plan_input in = *training;
    struct dry_plan *p = NULL;
    enum dry_status st;

    in.records = v->records;
    in.offset = v->offset;
    in.supervised = v->supervised_of;
    in.epochs = 1;
    in.max_steps = 0;
    in.ordered = 1;
    st = dry_plan_create(&in, &p);
    if (!st)
        st = dry_plan_bounds(p, b);
    dry_plan_destroy(p);
    return st;
}

/* The plan under another cut: what it needs, and how many micro-batches there are. */
static enum dry_status try_cut(const struct dry_plan_report *r, int64_t micro_records, int64_t micro_tokens,
                               struct cut *cut)
{
    const struct dry_contract *k = r->s.contract;
    const struct dry_cache_view *v = r->s.cache;
    struct dry_plan_input in = {.records = v->records,
                                .offset = v->offset,
                                .supervised = v->supervised_of,
                                .effective_batch = k->effective_batch,
                                .micro_records = micro_records,
                                .micro_tokens = micro_tokens,
                                .record_tokens = dry_contract_record_tokens(k),
                                .epochs = k->epochs,
                                .max_steps = k->steps,
                                .seed = (uint64_t)k->seed};
    struct dry_plan *p = NULL;
    struct dry_plan_bounds bounds, more;
    struct dry_layout layout;
    struct dry_limits limits;
    enum dry_status st = dry_plan_create(&in, &p);

    cut->micro_records = micro_records;
    cut->micro_tokens = micro_tokens;
    if (!st)
        st = dry_plan_bounds(p, &bounds);
    if (!st && r->s.validation) {
        st = validation_bounds(&in, r->s.validation, &more);
        if (!st)
            widen(&bounds, &more);
    }
    if (!st)
        st = dry_plan_total(p, walked(p), &cut->totals);
    if (!st)
        st = dry_plan_shares(p, walked(p), r->s.ranks, &cut->share);
    if (!st) {
        limits = limits_of(r, &bounds);
        st = dry_engine_layout(r->ops, r->s.base, r->s.adapter, &limits, &layout);
    }
    if (!st)
        cut->memory = layout.total;
    dry_plan_destroy(p);
    return st;
}

/* Half as large where the longest record still fits and a record is not cut in two, then up to four times. */
static enum dry_status try_cuts(struct dry_plan_report *r)
{
    const struct dry_contract *k = r->s.contract;
    enum dry_status st = DRY_OK;

    for (int twice = 1; twice <= 8 && !st; twice *= 2) {
        int64_t records = k->micro_records * twice / 2, tokens = k->micro_tokens * twice / 2;
        if (k->micro_records ? records < 1 : tokens < k->max_seq_length)
            continue;
        st = try_cut(r, records, tokens, &r->cut[r->cuts++]);
    }
    return st;
}

/* 1 to 8 ranks, then powers of two while there is work for more, and the ranks of this call. */
static enum dry_status share_ranks(struct dry_plan_report *r)
{
    int64_t most = r->totals.micros_most;
    int step = 1, mine = r->s.ranks;
    enum dry_status st = DRY_OK;

    for (int ranks = 1; r->shares < RANK_ROWS - 1 && !st; ranks += step) {
        if (ranks > 1 && ranks / 2 >= most && ranks > mine)
            break;
        if (mine < ranks && (r->shares == 0 || r->share[r->shares - 1].ranks < mine))
            st = dry_plan_shares(r->s.plan, r->totals.steps, mine, &r->share[r->shares++]);
        if (!st)
            st = dry_plan_shares(r->s.plan, r->totals.steps, ranks, &r->share[r->shares++]);
        if (ranks >= 8)
            step = ranks;
    }
    return st;
}

enum dry_status dry_plan_report_create(const struct dry_plan_subject *s, struct dry_plan_report **out)
{
    struct dry_plan_report *r = dry_alloc(1, sizeof *r, "the plan's report");
    int64_t interval = s->config->checkpoint_interval, steps = s->contract->steps;
    struct dry_plan_bounds more;
    struct dry_layout layout;
    struct dry_limits limits;
    enum dry_status st;

    if (!r)
        return DRY_ERR_MEMORY;
    r->s = *s;
    r->checkpoints = interval ? (steps - 1) / interval + 1 : 1;
    st = dry_setup_backend(s->config, &r->ops);
    if (!st)
        st = dry_setup_room(s->config, r->ops, &r->room);
    if (!st)
        st = dry_plan_bounds(s->plan, &r->bounds);
    if (!st && s->validation_plan) {
        st = dry_plan_bounds(s->validation_plan, &more);
        if (!st)
            widen(&r->bounds, &more);
    }
    if (!st)
        st = dry_plan_total(s->plan, walked(s->plan), &r->totals);
    if (!st) {
        limits = limits_of(r, &r->bounds);
        st = dry_engine_layout(r->ops, s->base, s->adapter, &limits, &r->layout);
    }
    for (int i = 0; i < RECOMPUTES && !st; i++) {
        limits.recompute = (enum dry_recompute)i;
        st = dry_engine_layout(r->ops, s->base, s->adapter, &limits, &layout);
        if (!st)
            r->with[i] = layout.total;
    }
    if (!st)
        st = try_cuts(r);
    if (!st)
        st = share_ranks(r);
    if (!st && s->config->measured)
        st = dry_plan_measured_make(s, &r->measured);
    if (st) {
        dry_plan_report_destroy(r);
        return st;
    }
    r->flops = step_flops(s, &r->totals);
    *out = r;
    return DRY_OK;
}

void dry_plan_report_destroy(struct dry_plan_report *r)
{
    dry_free(r);
}

int dry_plan_report_larger(const struct dry_plan_report *r, int together, struct dry_plan_larger *l)
{
    const struct dry_contract *k = r->s.contract;
    int shared = r->ops->devices == NULL;
    int64_t room = shared && together > 1 ? r->room / together : r->room;
    double now = 1;
    int found = 0;

    if (r->room < 0)
        return 0;
    for (int i = 0; i < r->cuts; i++) { /* rising */
        const struct cut *c = &r->cut[i];
        int own = c->micro_records == k->micro_records && c->micro_tokens == k->micro_tokens;

        if (own) {
            now = c->share.balance;
            l->micros_now = (double)c->totals.micros / (double)c->totals.steps;
        }
        if (own || (c->micro_records <= k->micro_records && c->micro_tokens <= k->micro_tokens) ||
            c->memory > (size_t)room || c->share.balance < now - 0.01 || c->share.idle > 0)
            continue;
        found = 1;
        l->micro_records = c->micro_records;
        l->micro_tokens = c->micro_tokens;
        l->micros = (double)c->totals.micros / (double)c->totals.steps;
        l->balance = c->share.balance;
        l->memory = c->memory;
        l->room = (size_t)room;
        l->room_is_shared = shared;
    }
    return found;
}

/* ---- shown ---- */

/* "1.50 GiB" */
static const char *bytes_text(double bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;

    while (bytes >= 1024 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, 32, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return text;
}

static const char *cut_text(int64_t records, int64_t tokens, char text[64])
{
    if (records)
        snprintf(text, 64, "%" PRId64 " record%s", records, records == 1 ? "" : "s");
    else
        snprintf(text, 64, "%" PRId64 " tokens", tokens);
    return text;
}

static double padding(const struct dry_plan_totals *t)
{
    return 100.0 * (double)(t->tokens - t->useful) / (double)t->tokens;
}

static size_t block_bytes(const struct dry_plan_report *r)
{
    return ((size_t)r->s.adapter->parameters + DRY_SUMS) * sizeof(int64_t);
}

static size_t checkpoint_bytes(const struct dry_plan_report *r)
{
    return (size_t)r->s.adapter->parameters * 3 * sizeof(float);
}

static void print_contract(FILE *out, const struct dry_plan_report *r)
{
    const struct dry_contract *k = r->s.contract;
    char text[64];

    fprintf(out, "contract\n");
    fprintf(out, "  %-26s %" PRId64 " records per step, on any number of ranks\n", "effective batch",
            k->effective_batch);
    fprintf(out, "  %-26s %s at most\n", "micro-batch", cut_text(k->micro_records, k->micro_tokens, text));
    if (dry_contract_record_tokens(k))
        fprintf(out, "  %-26s each record takes %" PRId64 " tokens of computing (--padding fixed)\n",
                "padding", dry_contract_record_tokens(k));
    fprintf(out, "  %-26s %" PRId64 "\n", "records", k->records);
    fprintf(out, "  %-26s %" PRId64 " (%" PRId64 " an epoch, %" PRId64 " epoch%s)\n", "steps", k->steps,
            k->steps_per_epoch, k->epochs, k->epochs == 1 ? "" : "s");
    fprintf(out, "  %-26s %g, %s, warm-up %" PRId64 " steps\n", "learning rate", k->learning_rate,
            k->schedule, k->warmup_steps);
    fprintf(out, "  %-26s %" PRId64 " parameters in %" PRId64 " projections, seed %" PRId64 "\n", "adapter",
            r->s.adapter->parameters, r->s.adapter->parts, k->seed);
}

static void print_steps(FILE *out, const struct dry_plan_report *r)
{
    const struct dry_plan_totals *t = &r->totals;
    double steps = (double)t->steps;

    fprintf(out, "a step\n");
    fprintf(out, "  %-26s min %" PRId64 ", mean %.2f, max %" PRId64 "\n", "micro-batches", t->micros_least,
            (double)t->micros / steps, t->micros_most);
    fprintf(out, "  %-26s mean %.0f, of them %.0f supervised; padding %.2f %%\n", "tokens",
            (double)t->useful / steps, (double)t->supervised / steps, padding(t));
    fprintf(out, "  %-26s %" PRId64 " tokens, %" PRId64 " records, longest record %" PRId64 "\n",
            "largest micro-batch", r->bounds.tokens, r->bounds.records, r->bounds.longest);
    fprintf(out, "  %-26s %.3g floating-point (4N per token, the adapter, attention)\n", "operations",
            r->flops);
}

static void print_ranks(FILE *out, const struct dry_plan_report *r)
{
    char text[32];

    fprintf(out, "ranks\n");
    fprintf(out, "  %-7s %-24s %-13s %-18s %-9s %s\n", "ranks", "micro-batches per rank", "accumulation",
            "idle ranks", "balance", "all-reduce per rank");
    for (int i = 0; i < r->shares; i++) {
        const struct dry_plan_share *s = &r->share[i];
        char per_rank[40], idle[40];
        snprintf(per_rank, sizeof per_rank, "%" PRId64 " to %" PRId64 ", mean %.2f", s->least, s->most,
                 s->mean);
        snprintf(idle, sizeof idle, s->idle_most ? "up to %" PRId64 ", mean %.2f" : "none", s->idle_most,
                 s->idle);
        fprintf(out, "%c %-7d %-24s %-13" PRId64 " %-18s %6.1f %%  %s\n", s->ranks == r->s.ranks ? '*' : ' ',
                s->ranks, per_rank, s->most, idle, 100 * s->balance,
                bytes_text(2.0 * (s->ranks - 1) / s->ranks * (double)block_bytes(r), text));
    }
    fprintf(out, "  * this call; accumulation is the most micro-batches that a rank computes in a step;\n"
                 "  balance is the share of time in which ranks do not wait for the costliest one\n");
    if (r->totals.micros_most < r->s.ranks)
        fprintf(out,
                "  %" PRId64
                " of %d ranks are idle in every step: a smaller %s or a larger --effective-batch "
                "would feed them\n",
                r->s.ranks - r->totals.micros_most, r->s.ranks,
                r->s.contract->micro_records ? "--per-device-batch-size" : "--micro-batch-tokens");
}

static void print_memory(FILE *out, const struct dry_plan_report *r)
{
    char text[32], line[40];

    fprintf(out, "memory of a rank, backend %s, --recompute %s\n", r->ops->name, r->s.config->recompute);
    for (int i = 0; i < r->layout.parts; i++)
        fprintf(out, "  %-32s %16zu%s\n", r->layout.part[i].name, r->layout.part[i].bytes,
                r->layout.part[i].in_arena ? "" : "  outside the arena");
    fprintf(out, "  %-32s %16zu\n", "arena", r->layout.arena);
    fprintf(out, "  %-32s %16zu  (%s)\n", "total", r->layout.total,
            bytes_text((double)r->layout.total, text));
    for (int i = 0; i < RECOMPUTES; i++) {
        if (i == (int)dry_recompute_find(r->s.config->recompute))
            continue;
        snprintf(line, sizeof line, "total with --recompute %s", dry_recompute_name((enum dry_recompute)i));
        fprintf(out, "  %-32s %16zu  (%s)\n", line, r->with[i], bytes_text((double)r->with[i], text));
    }
    if (r->room >= 0)
        fprintf(out, "  %-32s %16" PRId64 "  (%s)\n",
                r->ops->devices ? "left on this host's first GPU" : "left on this host, all ranks", r->room,
                bytes_text((double)r->room, text));
}

static void print_cuts(FILE *out, const struct dry_plan_report *r)
{
    char text[64], memory[32];

    fprintf(out, "other micro-batches: another contract, so choose before the first step\n");
    fprintf(out, "  %-18s %-21s %-18s %-9s %s\n", "at most", "micro-batches a step", "balance on ranks",
            "padding", "memory of a rank");
    for (int i = 0; i < r->cuts; i++) {
        const struct cut *c = &r->cut[i];
        int own = c->micro_records == r->s.contract->micro_records &&
                  c->micro_tokens == r->s.contract->micro_tokens;
        fprintf(out, "%c %-18s %-21.2f %6.1f %% on %-6d %6.2f %%  %s\n", own ? '*' : ' ',
                cut_text(c->micro_records, c->micro_tokens, text),
                (double)c->totals.micros / (double)c->totals.steps, 100 * c->share.balance, r->s.ranks,
                padding(&c->totals), bytes_text((double)c->memory, memory));
    }
}

enum dry_status dry_plan_report_print(FILE *out, const struct dry_plan_report *r)
{
    const struct dry_config *c = r->s.config;
    struct dry_plan_need need;
    char each[32], all[32];
    enum dry_status st;
    int64_t kept =
        c->keep_checkpoints && c->keep_checkpoints < r->checkpoints ? c->keep_checkpoints : r->checkpoints;

    print_contract(out, r);
    print_steps(out, r);
    print_ranks(out, r);
    fprintf(out, "checkpoints\n");
    if (c->checkpoint_interval)
        fprintf(out, "  every %" PRId64 " steps and at the end: ", c->checkpoint_interval);
    else
        fprintf(out, "  at the end: ");
    fprintf(out, "%" PRId64 " of %s, the newest %" PRId64 " kept: %s\n", r->checkpoints,
            bytes_text((double)checkpoint_bytes(r), each), kept,
            bytes_text((double)checkpoint_bytes(r) * (double)kept, all));
    print_memory(out, r);
    need = (struct dry_plan_need){
        .ops = r->ops, .limits = limits_of(r, &r->bounds), .total = r->layout.total, .room = r->room};
    st = dry_plan_fit_print(out, &r->s, &need);
    print_cuts(out, r);
    if (c->measured)
        dry_plan_measured_print(out, &r->s, &r->measured);
    return st;
}

static json_t *shares_json(const struct dry_plan_report *r)
{
    json_t *rows = json_array();

    for (int i = 0; i < r->shares; i++) {
        const struct dry_plan_share *s = &r->share[i];
        json_array_append_new(
            rows, json_pack("{s:i, s:I, s:I, s:f, s:I, s:f, s:f, s:I}", "ranks", s->ranks,
                            "micro_batches_min", (json_int_t)s->least, "accumulation", (json_int_t)s->most,
                            "micro_batches_mean", s->mean, "idle_ranks_max", (json_int_t)s->idle_most,
                            "idle_ranks_mean", s->idle, "balance", s->balance, "all_reduce_bytes",
                            (json_int_t)(2.0 * (s->ranks - 1) / s->ranks * (double)block_bytes(r))));
    }
    return rows;
}

static json_t *memory_json(const struct dry_plan_report *r)
{
    json_t *parts = json_array(), *with = json_object();

    for (int i = 0; i < RECOMPUTES; i++)
        json_object_set_new(with, dry_recompute_name((enum dry_recompute)i),
                            json_integer((json_int_t)r->with[i]));
    for (int i = 0; i < r->layout.parts; i++)
        json_array_append_new(parts, json_pack("{s:s, s:I, s:I, s:b}", "name", r->layout.part[i].name,
                                               "bytes", (json_int_t)r->layout.part[i].bytes, "offset",
                                               (json_int_t)r->layout.part[i].offset, "in_arena",
                                               r->layout.part[i].in_arena));
    return json_pack("{s:s, s:s, s:I, s:o, s:I, s:o}", "backend", r->ops->name, "recompute",
                     r->s.config->recompute, "total", (json_int_t)r->layout.total, "total_by_recompute", with,
                     "arena", (json_int_t)r->layout.arena, "parts", parts);
}

static json_t *cuts_json(const struct dry_plan_report *r)
{
    json_t *rows = json_array();

    for (int i = 0; i < r->cuts; i++) {
        const struct cut *c = &r->cut[i];
        json_array_append_new(
            rows, json_pack("{s:I, s:I, s:f, s:f, s:f, s:I}", "micro_records", (json_int_t)c->micro_records,
                            "micro_tokens", (json_int_t)c->micro_tokens, "micro_batches_mean",
                            (double)c->totals.micros / (double)c->totals.steps, "balance", c->share.balance,
                            "padding", padding(&c->totals) / 100, "memory", (json_int_t)c->memory));
    }
    return rows;
}

json_t *dry_plan_report_json(const struct dry_plan_report *r)
{
    const struct dry_plan_totals *t = &r->totals;
    double steps = (double)t->steps;
    json_t *step =
        json_pack("{s:I, s:f, s:I, s:f, s:f, s:f, s:f}", "micro_batches_min", (json_int_t)t->micros_least,
                  "micro_batches_mean", (double)t->micros / steps, "micro_batches_max",
                  (json_int_t)t->micros_most, "tokens_mean", (double)t->useful / steps, "supervised_mean",
                  (double)t->supervised / steps, "padding", padding(t) / 100, "operations", r->flops);
    json_t *largest = json_pack("{s:I, s:I, s:I, s:I}", "tokens", (json_int_t)r->bounds.tokens, "records",
                                (json_int_t)r->bounds.records, "supervised", (json_int_t)r->bounds.supervised,
                                "longest", (json_int_t)r->bounds.longest);
    json_t *checkpoints = json_pack("{s:I, s:I}", "count", (json_int_t)r->checkpoints, "bytes",
                                    (json_int_t)checkpoint_bytes(r));

    return json_pack("{s:o, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o*}", "contract",
                     dry_contract_json(r->s.contract), "ranks", r->s.ranks, "adapter_parameters",
                     (json_int_t)r->s.adapter->parameters, "step", step, "largest_micro_batch", largest,
                     "shares", shares_json(r), "checkpoints", checkpoints, "memory", memory_json(r),
                     "other_micro_batches", cuts_json(r), "time",
                     r->s.config->measured ? dry_plan_measured_json(&r->measured) : NULL);
}
