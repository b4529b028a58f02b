/*
 * Gathers what compare shows: accounts of steady steps, memory, and losses at places that all runs reach.
 * Owns nothing; arrays are struct dry_compare's.
 * Must not know how that is shown, nor whether the runs may be compared.
 */
#include "config.h"

#include "command/compare.h"

#include "base/memory.h"
#include "base/number.h"

#include <math.h>

/* Steps that warm up are not counted: a tenth, from one to five. */
static int64_t warm_up(int64_t steps)
{
    int64_t n = dry_smaller(dry_larger(steps / 10, 1), 5);

    return steps > n ? n : 0;
}

static enum dry_status gather_account(struct dry_compare_run *r)
{
    struct dry_account_range all = {.start = -1, .whole = 1}, steady = {.start = -1};
    enum dry_status status;

    r->accounted = r->h->rows > 0;
    if (!r->accounted)
        return DRY_OK;
    status = dry_account_make(r->h, &all, &r->whole);
    if (!status && r->whole.steps > 0) {
        steady.first = r->whole.first + warm_up(r->whole.steps);
        status = dry_account_make(r->h, &steady, &r->steady);
    }
    if (!status)
        status = dry_verdict_make(r->h, &r->verdict);
    return status;
}

static void gather_memory(struct dry_compare_run *r)
{
    r->memory = NAN;
    for (size_t i = 0; i < r->h->samples; i++)
        r->on_gpu = r->on_gpu || (r->h->sample[i].index >= 0 && isfinite(r->h->sample[i].memory));
    for (size_t i = 0; i < r->h->samples; i++)
        if ((r->h->sample[i].index >= 0) == r->on_gpu)
            r->memory = fmax(r->memory, r->h->sample[i].memory);
}

static void gather_run(struct dry_compare_run *r)
{
    const struct dry_history *h = r->h;
    int64_t expected = 1;

    r->steps = json_integer_value(json_object_get(json_object_get(h->run, "contract"), "steps"));
    r->last = h->steps ? h->step[h->steps - 1].step : 0;
    for (size_t i = 0; i < h->steps; i++)
        r->examples += h->step[i].step == expected++ ? (double)h->step[i].records : NAN;
    gather_memory(r);
}

/* Mean over the supervised tokens of steps whose place is in (at - window, at]; a step's place is its number,
 * or the records seen with it. */
static double mean_loss(const struct dry_compare_run *r, const struct dry_compare_point *p, int by_records)
{
    double seen = 0, loss = 0, tokens = 0;

    for (size_t i = 0; i < r->h->steps; i++) {
        const struct dry_history_step *s = &r->h->step[i];
        double place;

        seen += (double)s->records;
        place = by_records ? seen : (double)s->step;
        if (place > p->at - p->window && place <= p->at) {
            double weight = s->supervised > 0 ? (double)s->supervised : 1;

            loss += s->loss * weight;
            tokens += weight;
        }
    }
    return tokens > 0 ? loss / tokens : NAN;
}

/* Up to four places, evenly over what all runs have: a quarter, a half, three quarters, all. */
static enum dry_status gather_points(struct dry_compare *c, double end, double window, int by_records,
                                     struct dry_compare_point *point, int *points)
{
    double before = 0;

    for (int i = 1; i <= DRY_COMPARE_POINTS; i++) {
        struct dry_compare_point *p = &point[*points];
        double at = floor(end * i / DRY_COMPARE_POINTS);

        if (!(at > before) || at < window)
            continue;
        before = at;
        *p = (struct dry_compare_point){.at = at, .window = window};
        p->loss = dry_alloc((size_t)c->runs, sizeof *p->loss, "the runs' losses");
        if (!p->loss)
            return DRY_ERR_MEMORY;
        ++*points;
        for (int r = 0; r < c->runs; r++)
            p->loss[r] = mean_loss(&c->run[r], p, by_records);
    }
    return DRY_OK;
}

/* A window is a twentieth, and for records at least the largest step of any run. */
static enum dry_status gather_losses(struct dry_compare *c)
{
    double steps = INFINITY, examples = INFINITY, most = 1;
    enum dry_status status;

    for (int r = 0; r < c->runs; r++) {
        const struct dry_compare_run *run = &c->run[r];

        steps = fmin(steps, (double)run->last);
        examples = isnan(run->examples) ? 0 : fmin(examples, run->examples);
        for (size_t i = 0; i < run->h->steps; i++)
            most = fmax(most, (double)run->h->step[i].records);
    }
    status = gather_points(c, steps, fmax(1, ceil(steps / 20)), 0, c->step, &c->steps_points);
    if (!status)
        status =
            gather_points(c, examples, fmax(most, ceil(examples / 20)), 1, c->examples, &c->examples_points);
    return status;
}

static const struct dry_history_validation *validation_at(const struct dry_history *h, int64_t step)
{
    const struct dry_history_validation *found = NULL;

    for (size_t i = 0; i < h->validations; i++)
        if (h->validation[i].step == step)
            found = &h->validation[i];
    return found;
}

static enum dry_status gather_validation(struct dry_compare *c)
{
    const struct dry_history *first = c->run[0].h;

    c->validation = dry_alloc((size_t)c->runs, sizeof *c->validation, "the runs' validations");
    if (!c->validation)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < first->validations; i++) {
        int64_t step = first->validation[i].step;
        int all = 1;

        for (int r = 0; r < c->runs; r++)
            all = all && validation_at(c->run[r].h, step);
        if (!all || step < c->validated)
            continue;
        c->validated = step;
        for (int r = 0; r < c->runs; r++)
            c->validation[r] = validation_at(c->run[r].h, step)->loss;
    }
    return DRY_OK;
}

enum dry_status dry_compare_gather(struct dry_compare *c)
{
    enum dry_status status = DRY_OK;

    for (int r = 0; r < c->runs && !status; r++) {
        gather_run(&c->run[r]);
        status = gather_account(&c->run[r]);
    }
    if (!status)
        status = gather_losses(c);
    if (!status)
        status = gather_validation(c);
    return status;
}

void dry_compare_release(struct dry_compare *c)
{
    for (int r = 0; r < c->runs; r++)
        dry_history_close(c->run[r].h);
    for (int i = 0; i < DRY_COMPARE_POINTS; i++) {
        dry_free(c->step[i].loss);
        dry_free(c->examples[i].loss);
    }
    dry_differ_release(&c->differences);
    dry_differ_release(&c->others);
    dry_free(c->validation);
    dry_free(c->run);
}
