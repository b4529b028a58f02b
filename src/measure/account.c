/*
 * Sums a run's rows up: seconds of stages over steps, then over ranks; tokens, rates and energy.
 * Owns the sums of ranks while it works.
 * Must not know what is concluded from an account.
 */
#include "config.h"

#include "measure/account.h"

#include "measure/words.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One rank's share of the counted rows. */
struct rank_sum {
    int64_t rows;
    double seconds, stepping, micros, missing; /* missing: seconds that no stage has */
    double stage[DRY_STAGES];
};

/* Time of a start on one rank: what is counted of it. */
struct window {
    double from, to;
};

/* ---- which rows count ---- */

/* The latest start that has rows, where the latest is asked for. */
static int start_of(const struct dry_history *h, const struct dry_account_range *range)
{
    int latest = -1;

    if (range->start != -1)
        return range->start;
    for (size_t i = 0; i < h->rows; i++)
        if (h->row[i].start > latest)
            latest = h->row[i].start;
    return latest;
}

static int counts(const struct dry_history_row *r, const struct dry_account_range *range, int start)
{
    if (start != -2 && r->start != start)
        return 0;
    if (r->phase != DRY_PHASE_STEP)
        return range->whole;
    return r->step >= range->first && (range->last <= 0 || r->step <= range->last);
}

static enum dry_status check(const struct dry_history *h, const struct dry_account_range *range, int start,
                             int *ranks)
{
    *ranks = 0;
    if (h->rows == 0) {
        dry_error("%s: has no account: there is no stages.csv, or no line in it; runs write it from their "
                  "first step on",
                  h->folder);
        return DRY_ERR_INPUT;
    }
    for (size_t i = 0; i < h->rows; i++)
        if (counts(&h->row[i], range, start) && h->row[i].rank >= *ranks)
            *ranks = h->row[i].rank + 1;
    if (*ranks > 0)
        return DRY_OK;
    dry_error("%s/stages.csv: has no line of steps %lld to %lld%s", h->folder, (long long)range->first,
              (long long)range->last, range->last <= 0 ? " (the last)" : "");
    return DRY_ERR_INPUT;
}

/* ---- sums ---- */

static void add_rows(const struct dry_history *h, const struct dry_account_range *range, int start,
                     struct rank_sum *sum, struct dry_account *a)
{
    int reference = -1; /* steps are counted on the rank of the first row: every rank has a row of each */

    for (size_t i = 0; i < h->rows; i++) {
        const struct dry_history_row *r = &h->row[i];
        struct rank_sum *s = sum + r->rank;
        double stages = 0;

        if (!counts(r, range, start))
            continue;
        for (int k = 0; k < DRY_STAGES; k++) {
            s->stage[k] += r->stage[k];
            stages += r->stage[k];
        }
        s->rows++;
        s->seconds += r->seconds;
        s->missing += fabs(r->seconds - stages);
        s->micros += (double)r->micros;
        a->tokens += (double)r->tokens;
        a->padded += (double)r->padded;
        a->supervised += (double)r->supervised;
        a->micros += (double)r->micros;
        if (r->phase != DRY_PHASE_STEP)
            continue;
        s->stepping += r->seconds;
        if (reference < 0)
            reference = r->rank;
        if (r->rank != reference)
            continue;
        if (a->steps++ == 0 || r->step < a->first)
            a->first = r->step;
        if (r->step > a->last)
            a->last = r->step;
    }
}

/* value [ranks] is sorted here. */
static struct dry_spread spread(double *value, int ranks)
{
    struct dry_spread s = {.most_rank = 0};

    for (int r = 0; r < ranks; r++) {
        s.mean += value[r] / ranks;
        if (value[r] > value[s.most_rank])
            s.most_rank = r;
    }
    dry_sort_reals(value, (size_t)ranks);
    s.least = value[0];
    s.most = value[ranks - 1];
    s.median = (value[(ranks - 1) / 2] + value[ranks / 2]) / 2;
    return s;
}

static void spread_ranks(const struct rank_sum *sum, double *value, struct dry_account *a)
{
    struct dry_spread busy;

    for (int k = 0; k < DRY_STAGES; k++) {
        for (int r = 0; r < a->ranks; r++)
            value[r] = sum[r].stage[k];
        a->stage[k] = spread(value, a->ranks);
    }
    for (int r = 0; r < a->ranks; r++)
        value[r] = sum[r].stage[DRY_STAGE_FORWARD] + sum[r].stage[DRY_STAGE_BACKWARD];
    busy = spread(value, a->ranks);
    a->busy_least = busy.least;
    a->busy_most = busy.most;
    a->busy_most_rank = busy.most_rank;
    for (int r = 0; r < a->ranks; r++) {
        double unexplained = fabs(sum[r].stage[DRY_STAGE_UNEXPLAINED]) + sum[r].missing;

        a->wall = fmax(a->wall, sum[r].seconds);
        a->stepping = fmax(a->stepping, sum[r].stepping);
        a->micros_most = fmax(a->micros_most, sum[r].micros);
        if (sum[r].seconds > 0)
            a->unexplained = fmax(a->unexplained, unexplained / sum[r].seconds);
    }
}

/* ---- rates ---- */

/* Rates come from run.json: what a useful token costs by the LoRA count, and of each rank the rate of
 * products. Both are 0 where an older run did not tell. */
static void add_rates(const struct dry_history *h, struct dry_account *a)
{
    const json_t *matrix = json_object_get(h->run, "matrix");

    if (a->steps > 0 && a->stepping > 0) {
        a->step_seconds = a->stepping / (double)a->steps;
        a->tokens_per_second = a->tokens / a->stepping;
        a->supervised_per_second = a->supervised / a->stepping;
        a->flops_per_second =
            json_number_value(json_object_get(h->run, "flops_per_token")) * a->tokens_per_second;
    }
    for (size_t i = 0; i < json_array_size(matrix); i++)
        a->matrix_per_second += json_number_value(json_array_get(matrix, i));
}

/* ---- energy ---- */

/* What is counted of a start on a rank, from the begin of its first row to the end of its last one. */
static int window_of(const struct dry_history *h, const struct dry_account_range *range, int start, int rank,
                     struct window *w)
{
    int found = 0;

    for (size_t i = 0; i < h->rows; i++) {
        const struct dry_history_row *r = &h->row[i];

        if (r->start != start || r->rank != rank || !counts(r, range, start))
            continue;
        w->from = found ? fmin(w->from, r->began) : r->began;
        w->to = found ? fmax(w->to, r->began + r->seconds) : r->began + r->seconds;
        found = 1;
    }
    return found;
}

/* Joules between two samples of one GPU, of which the part inside the window counts: by the energy counter,
 * or by the mean of the two powers where there is none. */
static void add_pair(const struct dry_history_sample *a, const struct dry_history_sample *b,
                     const struct window *w, double *joules, double *covered)
{
    double from = fmax(a->at, w->from), to = fmin(b->at, w->to), whole = b->at - a->at;
    double used = b->energy - a->energy;

    if (!(to > from))
        return;
    if (!isfinite(used))
        used = (a->power + b->power) / 2 * whole;
    if (!(used >= 0)) /* not offered, or the driver was loaded again in between */
        return;
    *joules += used * (to - from) / whole;
    *covered += to - from;
}

/* A GPU that several ranks share is counted once: by the samples of the lowest of them. */
static int counted_elsewhere(const struct dry_history *h, const struct dry_history_sample *s)
{
    for (size_t i = 0; i < h->samples; i++) {
        const struct dry_history_sample *o = &h->sample[i];

        if (o->start == s->start && o->host == s->host && o->index == s->index && o->rank < s->rank)
            return 1;
    }
    return 0;
}

/* Joules of the GPU that a rank sampled. The samples come once a second or so: what of the window lies
 * outside them is taken at the mean power inside; NAN when that is more than half of it. */
static double rank_energy(const struct dry_history *h, const struct window *w, int start, int rank,
                          int *shared)
{
    const struct dry_history_sample *before = NULL;
    double joules = 0, covered = 0;

    *shared = 0;
    for (size_t i = 0; i < h->samples; i++) {
        const struct dry_history_sample *s = &h->sample[i];

        if (s->start != start || s->rank != rank || s->index < 0)
            continue;
        if (!before && (*shared = counted_elsewhere(h, s)))
            return 0;
        if (before && before->index == s->index)
            add_pair(before, s, w, &joules, &covered);
        before = s;
    }
    return covered > 0 && covered >= (w->to - w->from) / 2 ? joules * (w->to - w->from) / covered : NAN;
}

static double energy(const struct dry_history *h, const struct dry_account_range *range, int start, int ranks)
{
    int first = start == -2 ? 0 : start, last = start == -2 ? h->starts - 1 : start;
    double joules = 0;

    if (h->samples == 0)
        return NAN;
    for (int s = first; s <= last; s++)
        for (int r = 0; r < ranks; r++) {
            struct window w = {0};
            int shared;

            if (window_of(h, range, s, r, &w)) {
                double used = rank_energy(h, &w, s, r, &shared);

                joules += shared ? 0 : used;
            }
        }
    return joules;
}

enum dry_status dry_account_make(const struct dry_history *h, const struct dry_account_range *range,
                                 struct dry_account *account)
{
    struct dry_account_range steps = *range;
    struct dry_account a = {0};
    struct rank_sum *sum = NULL;
    double *value = NULL;
    int start = start_of(h, range);
    enum dry_status status = check(h, range, start, &a.ranks);

    if (status)
        return status;
    sum = dry_alloc((size_t)a.ranks, sizeof *sum, "the sums of ranks");
    value = dry_alloc((size_t)a.ranks, sizeof *value, "the sums of ranks");
    if (!sum || !value) {
        status = DRY_ERR_MEMORY;
        goto out;
    }
    add_rows(h, range, start, sum, &a);
    spread_ranks(sum, value, &a);
    add_rates(h, &a);
    steps.whole = 0;
    a.energy = energy(h, range, start, a.ranks);
    a.step_energy = a.steps > 0 ? energy(h, &steps, start, a.ranks) : NAN;
    *account = a;
out:
    dry_free(value);
    dry_free(sum);
    return status;
}
