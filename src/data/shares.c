/*
 * Walks a plan and counts what its steps hold and how ranks would share them.
 * Owns nothing that outlives a call.
 * Must not know what the counts are shown for.
 */
#include "config.h"

#include "data/shares.h"

#include "base/memory.h"

#include <string.h>

enum dry_status dry_plan_total(struct dry_plan *p, int64_t steps, struct dry_plan_totals *out)
{
    struct dry_plan_totals t = {.steps = steps, .micros_least = INT64_MAX};

    for (int64_t step = 1; step <= steps; step++) {
        struct dry_plan_step s;
        enum dry_status st = dry_plan_step(p, step, &s);
        if (st)
            return st;
        t.records += s.records;
        t.useful += s.useful;
        t.tokens += s.tokens;
        t.supervised += s.supervised;
        t.micros += s.micros;
        for (int64_t m = 0; m < s.micros; m++)
            t.square += s.micro[m].square;
        if (s.micros < t.micros_least)
            t.micros_least = s.micros;
        if (s.micros > t.micros_most)
            t.micros_most = s.micros;
    }
    *out = t;
    return DRY_OK;
}

struct rank_load {
    int64_t micros, cost;
};

/* Adds one step's shares. */
static void add_step(const struct dry_plan_step *s, const int *owner, struct rank_load *load,
                     struct dry_plan_share *share, double *all, double *most)
{
    int64_t idle = 0, heaviest = 0;

    memset(load, 0, (size_t)share->ranks * sizeof *load);
    for (int64_t m = 0; m < s->micros; m++) {
        load[owner[m]].micros++;
        load[owner[m]].cost += dry_plan_cost(&s->micro[m]);
    }
    for (int r = 0; r < share->ranks; r++) {
        idle += load[r].micros == 0;
        *all += (double)load[r].cost;
        if (load[r].cost > heaviest)
            heaviest = load[r].cost;
        if (load[r].micros < share->least)
            share->least = load[r].micros;
        if (load[r].micros > share->most)
            share->most = load[r].micros;
    }
    *most += (double)heaviest * share->ranks;
    share->idle += (double)idle;
    share->mean += (double)s->micros / share->ranks;
    if (idle > share->idle_most)
        share->idle_most = idle;
}

enum dry_status dry_plan_shares(struct dry_plan *p, int64_t steps, int ranks, struct dry_plan_share *out)
{
    return dry_plan_shares_of(p, 1, steps, ranks, out);
}

enum dry_status dry_plan_shares_of(struct dry_plan *p, int64_t first, int64_t last, int ranks,
                                   struct dry_plan_share *out)
{
    double steps = (double)(last - first + 1);
    struct dry_plan_share share = {.ranks = ranks, .least = INT64_MAX};
    struct dry_plan_bounds b;
    struct rank_load *load = NULL;
    int *owner = NULL;
    double all = 0, most = 0;
    enum dry_status st = dry_plan_bounds(p, &b);

    if (st)
        return st;
    load = dry_alloc((size_t)ranks, sizeof *load, "loads of the ranks");
    owner = dry_alloc((size_t)b.micros, sizeof *owner, "owners of micro-batches");
    st = load && owner ? DRY_OK : DRY_ERR_MEMORY;
    for (int64_t step = first; step <= last && !st; step++) {
        struct dry_plan_step s;
        st = dry_plan_step(p, step, &s);
        if (st)
            break;
        dry_plan_deal(&s, ranks, owner);
        add_step(&s, owner, load, &share, &all, &most);
    }
    dry_free(load);
    dry_free(owner);
    if (st)
        return st;
    share.mean /= steps;
    share.idle /= steps;
    share.balance = most > 0 ? all / most : 1;
    share.load = most / ranks / steps;
    share.mean_load = all / ranks / steps;
    *out = share;
    return DRY_OK;
}
