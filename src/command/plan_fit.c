/*
 * Finds what would fit into memory when a plan does not: another --recompute, smaller micro-batches, shorter
 * records, fewer ranks of a host.
 * Owns nothing.
 * Must not know how memory is laid out.
 */
#include "config.h"

#include "command/plan_fit.h"

#include "measure/words.h"
#include "train/engine.h"
#include "train/room.h"

#include "base/log.h"

#include <inttypes.h>

/* Recomputation by falling need of memory; what it costs is in the option's own words. */
static const enum dry_recompute orders[] = {DRY_RECOMPUTE_NORMS, DRY_RECOMPUTE_FULL};

static enum dry_status print_recompute(FILE *out, const struct dry_plan_subject *s,
                                       const struct dry_plan_need *n, int64_t each, int *found)
{
    struct dry_limits limits = n->limits;
    struct dry_layout layout;

    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        enum dry_status st;

        limits.recompute = orders[i];
        if (limits.recompute == n->limits.recompute)
            continue;
        st = dry_engine_layout(n->ops, s->base, s->adapter, &limits, &layout);
        if (st)
            return st;
        if (layout.total > (size_t)each)
            continue;
        fprintf(out, "  --recompute %s: %s%s\n", dry_recompute_name(limits.recompute),
                dry_words_bytes((double)layout.total).text,
                limits.recompute == DRY_RECOMPUTE_FULL ? ", with the same bits and more time" : "");
        *found = 1;
        break;
    }
    return DRY_OK;
}

static enum dry_status print_tokens(FILE *out, const struct dry_plan_subject *s,
                                    const struct dry_plan_need *n, int64_t each, int *found)
{
    int64_t tokens = 0;
    enum dry_status st =
        dry_room_tokens(n->ops, s->base, s->adapter, &n->limits, (size_t)each, DRY_ROW_MULTIPLE, &tokens);

    if (st || tokens <= 0)
        return st;
    *found = 1;
    if (tokens >= s->contract->max_seq_length)
        fprintf(out,
                "  micro-batches of %" PRId64 " tokens: --micro-batch-tokens %" PRId64
                ", or fewer records each; it is another contract\n",
                tokens, tokens);
    else
        fprintf(out,
                "  records of %" PRId64 " tokens at most: --max-seq-length %" PRId64
                " with --micro-batch-tokens %" PRId64 "; longer records then are refused, dropped or cut "
                "(--long-records)\n",
                tokens, tokens, tokens);
    return DRY_OK;
}

enum dry_status dry_plan_fit_print(FILE *out, const struct dry_plan_subject *s, const struct dry_plan_need *n)
{
    int shared = n->ops->devices == NULL, sharers = shared ? s->ranks : 1, found = 0;
    int64_t each = n->room < 0 ? 0 : n->room / sharers, fit;
    enum dry_status st;

    if (n->room < 0 || n->total <= (size_t)each)
        return DRY_OK;
    fprintf(out, "this does not fit: %s needs %s, and %s are left%s; what would:\n",
            s->ranks == 1 ? "the rank" : "each rank", dry_words_bytes((double)n->total).text,
            dry_words_bytes((double)n->room).text, shared ? " for all ranks of this host" : " on its GPU");
    st = print_recompute(out, s, n, each, &found);
    if (!st)
        st = print_tokens(out, s, n, each, &found);
    if (st)
        return st;
    fit = n->room / (int64_t)n->total;
    if (shared && fit > 0) {
        fprintf(out, "  %" PRId64 " rank%s on this host, and the others on further hosts\n", fit,
                dry_plural(fit));
        found = 1;
    }
    if (!found)
        fprintf(out,
                "  nothing here: the base and the adapter alone take more than is left; give %s with more "
                "memory, or a smaller base\n",
                shared ? "a host" : "a GPU");
    return DRY_OK;
}
