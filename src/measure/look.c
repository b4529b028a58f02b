/*
 * Lines of stages.csv -> what the steady steps of a run's latest start show.
 * Owns the table of lines by step and rank for the time of a call.
 * Must not know of files or of sentences.
 */
#include "config.h"

#include "measure/look.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

enum {
    WARM_UP_MOST = 5,  /* steps that are not counted, at most */
    WARM_UP_PART = 10, /* and of the steps made at most this part, one at least */
    PARTS = 4,         /* of a run, in each of which a slow rank must be slow */
    PART_STEPS = 5,    /* that a part has at least */
    PART_LEAST = 25,   /* percent of its slowness on the whole that it must show there */
    STEPS_LEAST = 75,  /* percent of the steps with work in which it must be slower than the median */
    QUICK_PART = 10,   /* one of so many steps reduces quicker than what reducing itself takes */
    FIT_ROUNDS = 3,    /* model of the cost and factors of the ranks, each found with the other */
    SIGMA = 2          /* standard errors by which a cost must be away from nothing */
};

/* The steady steps: line of step s and rank r at s * ranks + r. */
struct table {
    const struct dry_history_row **row;
    int64_t steps;
    int ranks;
    double per_token, per_micro, *factor; /* the cost's model */
    double per_square;                    /* a unit of squared length in tokens: the attention's work */
    const char *is_slow;                  /* [ranks] */
};

static const struct dry_history_row *at(const struct table *t, int64_t s, int r)
{
    return t->row[s * t->ranks + r];
}

static double computing(const struct dry_history_row *w)
{
    return w->stage[DRY_STAGE_FORWARD] + w->stage[DRY_STAGE_BACKWARD];
}

/* The row's work in tokens. */
static double weight(const struct table *t, const struct dry_history_row *w)
{
    return (double)w->padded + t->per_square * (double)w->square;
}

static double expected(const struct table *t, const struct dry_history_row *w)
{
    return t->per_token * weight(t, w) + t->per_micro * (double)w->micros;
}

/* ---- what work costs ---- */

/* By the operations of both; 0 for a run that did not keep them. */
static double square_in_tokens(const struct dry_history *h, const struct table *t)
{
    double square = json_number_value(json_object_get(h->run, "flops_per_squared_length")),
           all = json_number_value(json_object_get(h->run, "flops_per_token")), tokens = 0, squares = 0;

    for (int64_t i = 0; i < t->steps * t->ranks; i++) {
        tokens += (double)t->row[i]->tokens;
        squares += (double)t->row[i]->square;
    }
    if (tokens > 0)
        all -= square * squares / tokens; /* what a token costs beside attention */
    return all > 0 ? square / all : 0;
}

/* seconds = per_token tokens + per_micro micro-batches, by least squares; a line's error grows with its
 * tokens. What a micro-batch costs beside its tokens can be told only where micro-batches differ in length,
 * and counts only as far as it is surely there. */
static void fit(struct table *t)
{
    double tt = 0, tm = 0, mm = 0, tc = 0, mc = 0, cc = 0, n = 0, det, left;

    for (int64_t i = 0; i < t->steps * t->ranks; i++) {
        const struct dry_history_row *w = t->row[i];
        double x = weight(t, w), m = (double)w->micros, c = computing(w) / t->factor[i % t->ranks];

        if (!(x > 0))
            continue;
        tt += x; /* each product divided by x, the weight */
        tm += m;
        mm += m * m / x;
        tc += c;
        mc += m * c / x;
        cc += c * c / x;
        n++;
    }
    t->per_micro = 0;
    t->per_token = tt > 0 ? tc / tt : 0;
    det = tt * mm - tm * tm;
    if (!(n > 8 && det > 0.01 * tt * mm))
        return;
    double token = (tc * mm - mc * tm) / det, micro = (mc * tt - tc * tm) / det;
    left = fmax(0, cc - token * tc - micro * mc) / (n - 2);
    micro -= SIGMA * sqrt(left * tt / det);
    if (!(micro > 0))
        return;
    t->per_micro = fmin(micro, tm > 0 ? tc / tm : 0);
    t->per_token = (tc - t->per_micro * tm) / tt;
}

/* Seconds of each rank over those that its work should take, over the same of the median rank (of two in the
 * middle the faster: of two ranks one is slow, not one fast). Ranks without work: 1. */
static void factors(const struct table *t, int64_t from, int64_t to, double *factor, double *sorted)
{
    int n = 0;
    double median;

    for (int r = 0; r < t->ranks; r++) {
        double took = 0, should = 0;

        for (int64_t s = from; s < to; s++) {
            took += computing(at(t, s, r));
            should += expected(t, at(t, s, r));
        }
        factor[r] = should > 0 && took > 0 ? took / should : 0;
        if (factor[r] > 0)
            sorted[n++] = factor[r];
    }
    dry_sort_reals(sorted, (size_t)n);
    median = n > 0 ? sorted[(n - 1) / 2] : 1;
    for (int r = 0; r < t->ranks; r++)
        factor[r] = factor[r] > 0 ? factor[r] / median : 1;
}

/* Which ranks are slow: on the whole, and further from the median than the fastest; in every part of the run,
 * if less; and in most of the steps. Ranks that compete for cores are slow in turn, and scatter to both
 * sides. */
static void find_slow(const struct table *t, double limit, char *is_slow, double *part, double *sorted)
{
    int64_t parts = t->steps / PART_STEPS, above[2] = {0};
    double fastest = 1;

    parts = parts < 1 ? 1 : parts > PARTS ? PARTS : parts;
    if (parts == 1) /* so few steps show less surely who is slow */
        limit += limit - 1;
    for (int r = 0; r < t->ranks; r++)
        fastest = fmin(fastest, t->factor[r]);
    for (int r = 0; r < t->ranks; r++)
        is_slow[r] = t->ranks > 1 && t->factor[r] >= limit && t->factor[r] * fastest >= 1;
    for (int64_t p = 0; p < parts; p++) {
        factors(t, t->steps * p / parts, t->steps * (p + 1) / parts, part, sorted);
        for (int r = 0; r < t->ranks; r++)
            is_slow[r] = is_slow[r] && part[r] >= 1 + (t->factor[r] - 1) * PART_LEAST / 100;
    }
    for (int r = 0; r < t->ranks; r++) {
        if (!is_slow[r])
            continue;
        memset(above, 0, sizeof above);
        for (int64_t s = 0; s < t->steps; s++) {
            factors(t, s, s + 1, part, sorted);
            above[part[r] > 1] += at(t, s, r)->micros > 0;
        }
        is_slow[r] = 100 * above[1] >= STEPS_LEAST * (above[0] + above[1]);
    }
}

/* ---- what a step would be without something ---- */

/* Seconds that a rank works before it meets the others. */
static double work(const struct dry_history_row *w)
{
    return w->stage[DRY_STAGE_DATA] + w->stage[DRY_STAGE_COPY] + computing(w);
}

/* mean: a rank's share of the step's cost, were all shares equal. */
static double without(const struct table *t, const struct dry_history_row *w, int r, enum dry_without what,
                      double mean)
{
    double c = computing(w), f = t->factor[r];

    switch (what) {
    case DRY_WITHOUT_DATA:
        return work(w) - w->stage[DRY_STAGE_DATA];
    case DRY_WITHOUT_COPY:
        return work(w) - w->stage[DRY_STAGE_COPY];
    case DRY_WITHOUT_SLOW:
        return work(w) - (t->is_slow[r] ? c * (1 - 1 / f) : 0);
    case DRY_WITHOUT_PLAN:
    case DRY_WITHOUT_IDLE:
        return work(w) + f * (mean - expected(t, w));
    case DRY_WITHOUT_MICRO:
        return work(w) - fmin(c, f * t->per_micro * (double)w->micros);
    case DRY_WITHOUT_PADDING:
        return work(w) - (w->padded > 0 ? f * t->per_token * (double)(w->padded - w->tokens) : 0);
    case DRY_WITHOUTS:
        break;
    }
    return work(w);
}

static void add_step(const struct table *t, int64_t s, struct dry_look *l)
{
    double mean = 0, most = 0, last = 0, then[DRY_WITHOUTS] = {0};
    int64_t micros = 0, micros_most = 0;
    int busy = 0;

    for (int r = 0; r < t->ranks; r++) {
        const struct dry_history_row *w = at(t, s, r);

        mean += expected(t, w) / t->ranks;
        most = fmax(most, expected(t, w));
        last = fmax(last, work(w));
        micros += w->micros;
        micros_most = w->micros > micros_most ? w->micros : micros_most;
        busy += w->micros > 0;
    }
    for (int i = 0; i < DRY_WITHOUTS; i++)
        for (int r = 0; r < t->ranks; r++)
            then[i] = fmax(then[i], without(t, at(t, s, r), r, (enum dry_without)i, mean));
    for (int i = 0; i < DRY_WITHOUTS; i++)
        if (i != (micros < t->ranks ? DRY_WITHOUT_PLAN : DRY_WITHOUT_IDLE))
            l->won[i] += last - then[i];
    l->load += (mean > 0 ? most / mean : 1) / (double)t->steps;
    l->idle += (double)(t->ranks - busy) / (double)t->steps;
    l->micros_most += (double)micros_most / (double)t->steps;
}

/* reduce: room for [steps]. */
static void add_stages(const struct table *t, int64_t last_step, double *reduce, struct dry_look *l)
{
    for (int r = 0; r < t->ranks; r++) {
        double sum[DRY_STAGES] = {0};

        for (int64_t s = 0; s < t->steps; s++) {
            const struct dry_history_row *w = at(t, s, r);

            for (int i = 0; i < DRY_STAGES; i++)
                sum[i] += w->stage[i];
            l->wall += w->seconds / t->ranks;
            l->tokens += (double)w->tokens;
            l->padded += (double)w->padded;
            l->weight += weight(t, w);
            l->micros += (double)w->micros;
            if (w->step == last_step) {
                l->last_checkpoint = fmax(l->last_checkpoint, w->stage[DRY_STAGE_CHECKPOINT]);
                l->last_validation = fmax(l->last_validation, w->stage[DRY_STAGE_VALIDATION]);
            }
        }
        for (int i = 0; i < DRY_STAGES; i++) {
            l->mean[i] += sum[i] / t->ranks;
            if (r == 0 || sum[i] > l->most[i]) {
                l->most[i] = sum[i];
                l->most_rank[i] = r;
            }
        }
    }
    for (int64_t s = 0; s < t->steps; s++) {
        double checkpoint = 0, validation = 0;

        reduce[s] = INFINITY;
        for (int r = 0; r < t->ranks; r++) {
            reduce[s] = fmin(reduce[s], at(t, s, r)->stage[DRY_STAGE_REDUCE]);
            checkpoint += at(t, s, r)->stage[DRY_STAGE_CHECKPOINT];
            validation += at(t, s, r)->stage[DRY_STAGE_VALIDATION];
        }
        l->checkpoints += checkpoint > 0;
        l->validations += validation > 0;
    }
    dry_sort_reals(reduce, (size_t)t->steps);
    l->reduce = (double)t->steps * reduce[t->steps / QUICK_PART];
}

/* ---- the lines ---- */

static int64_t warm_up(int64_t steps)
{
    int64_t n = steps / WARM_UP_PART;

    n = n < 1 ? 1 : n > WARM_UP_MOST ? WARM_UP_MOST : n;
    return steps > n ? n : 0;
}

/* The lines of the latest start by step and rank; a step that lacks a rank's line (the run was killed) is
 * left out. */
static enum dry_status gather(const struct dry_history *h, struct table *t, int64_t *last_step)
{
    int start = h->starts - 1;
    int64_t first = INT64_MAX, last = -1, kept = 0, skip;

    for (size_t i = 0; i < h->rows; i++)
        if (h->row[i].start == start && h->row[i].phase == DRY_PHASE_STEP) {
            first = h->row[i].step < first ? h->row[i].step : first;
            last = h->row[i].step > last ? h->row[i].step : last;
        }
    if (last < first) {
        t->steps = 0;
        return DRY_OK;
    }
    t->row = dry_alloc((size_t)(last - first + 1) * (size_t)t->ranks, sizeof *t->row, "lines of the account");
    if (!t->row)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->rows; i++) {
        const struct dry_history_row *w = &h->row[i];

        if (w->start == start && w->phase == DRY_PHASE_STEP && w->rank >= 0 && w->rank < t->ranks)
            t->row[(w->step - first) * t->ranks + w->rank] = w;
    }
    for (int64_t s = 0; s <= last - first; s++) {
        int whole = 1;

        for (int r = 0; r < t->ranks; r++)
            whole = whole && t->row[s * t->ranks + r];
        if (whole)
            memmove(t->row + kept++ * t->ranks, t->row + s * t->ranks, (size_t)t->ranks * sizeof *t->row);
    }
    skip = warm_up(kept);
    t->steps = kept - skip;
    memmove(t->row, t->row + skip * t->ranks, (size_t)(t->steps * t->ranks) * sizeof *t->row);
    *last_step = last;
    return DRY_OK;
}

static enum dry_status add_whole(const struct dry_history *h, struct dry_look *l)
{
    double *whole = dry_alloc((size_t)l->ranks, sizeof *whole, "seconds of the ranks");
    int start = h->starts - 1;

    if (!whole)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->rows; i++) {
        const struct dry_history_row *w = &h->row[i];

        if (w->start != start || w->rank < 0 || w->rank >= l->ranks)
            continue;
        whole[w->rank] += w->seconds;
        l->whole = fmax(l->whole, whole[w->rank]);
        if (w->phase == DRY_PHASE_START) {
            l->startup = fmax(l->startup, w->stage[DRY_STAGE_STARTUP]);
            l->tokenise = fmax(l->tokenise, w->stage[DRY_STAGE_TOKENISE]);
        }
    }
    dry_free(whole);
    return DRY_OK;
}

enum dry_status dry_look_at(const struct dry_history *h, double slow, struct dry_look *l)
{
    struct table t = {.ranks = h->ranks};
    double *part = NULL, *sorted = NULL, *reduce = NULL;
    char *is_slow = NULL;
    int64_t last_step = -1;
    enum dry_status status;

    *l = (struct dry_look){.ranks = h->ranks, .slow = -1};
    if (h->rows == 0 || h->starts < 1 || h->ranks < 1) {
        dry_error("%s: has no account (stages.csv is missing or empty): the run is older than accounts, or "
                  "was killed before its first step",
                  h->folder);
        return DRY_ERR_INPUT;
    }
    l->factor = t.factor = dry_alloc((size_t)h->ranks, sizeof *t.factor, "factors of the ranks");
    part = dry_alloc((size_t)h->ranks, sizeof *part, "factors of the ranks");
    sorted = dry_alloc((size_t)h->ranks, sizeof *sorted, "factors of the ranks");
    is_slow = dry_alloc((size_t)h->ranks, 1, "slow ranks");
    status = t.factor && part && sorted && is_slow ? gather(h, &t, &last_step) : DRY_ERR_MEMORY;
    if (!status)
        status = add_whole(h, l);
    if (!status && t.steps > 0 &&
        !(reduce = dry_alloc((size_t)t.steps, sizeof *reduce, "seconds of the steps")))
        status = DRY_ERR_MEMORY;
    if (status || t.steps == 0)
        goto out;
    t.per_square = square_in_tokens(h, &t);
    for (int r = 0; r < t.ranks; r++)
        t.factor[r] = 1;
    for (int i = 0; i < FIT_ROUNDS; i++) {
        fit(&t);
        factors(&t, 0, t.steps, t.factor, sorted);
    }
    find_slow(&t, slow, is_slow, part, sorted);
    t.is_slow = is_slow;
    for (int r = 0; r < t.ranks; r++) {
        l->slows += is_slow[r];
        if (is_slow[r] && (l->slow < 0 || t.factor[r] > t.factor[l->slow]))
            l->slow = r;
    }
    l->first = t.row[0]->step;
    l->last = t.row[(t.steps - 1) * t.ranks]->step;
    l->steps = t.steps;
    l->per_token = t.per_token;
    l->per_micro = t.per_micro;
    add_stages(&t, last_step, reduce, l);
    for (int64_t s = 0; s < t.steps; s++)
        add_step(&t, s, l);
    l->step = l->wall / (double)t.steps;
out:
    dry_free(t.row);
    dry_free(part);
    dry_free(sorted);
    dry_free(reduce);
    dry_free(is_slow);
    if (status)
        dry_look_release(l);
    return status;
}

void dry_look_release(struct dry_look *l)
{
    dry_free(l->factor);
    l->factor = NULL;
}
