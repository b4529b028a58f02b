/*
 * From the numbers of look.h: which causes there are, in which order, and what to do about the first.
 * Owns nothing; sentences are written in advise.c.
 * Must not know how the numbers were measured.
 */
#include "config.h"

#include "measure/verdict.h"

#include "measure/advise.h"

#include "data/plan.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [DRY_CAUSE_HEALTHY] = "healthy",       [DRY_CAUSE_DATA] = "data wait",
    [DRY_CAUSE_COPY] = "copy in",          [DRY_CAUSE_SMALL] = "small micro-batches",
    [DRY_CAUSE_REDUCE] = "reduce",         [DRY_CAUSE_IMBALANCE] = "imbalance",
    [DRY_CAUSE_SLOW_RANK] = "slow rank",   [DRY_CAUSE_CHECKPOINT] = "checkpoint",
    [DRY_CAUSE_VALIDATION] = "validation", [DRY_CAUSE_PADDING] = "padding",
    [DRY_CAUSE_STARTUP] = "start-up",      [DRY_CAUSE_UNEXPLAINED] = "unexplained",
};
_Static_assert(sizeof names / sizeof *names == DRY_CAUSES, "each cause has a name");

/* What is said to be a cause: from which share of the time it is judged against (start-up: of the wall-clock;
 * all others: of the steady steps). Below a twelfth nothing is: without it a run would be less than 1.1 times
 * as fast, and on shared machines runs differ by as much. More is asked where the number is less sure than a
 * stage's seconds, or where a share belongs to a good run. */
static const double limit[DRY_CAUSES] = {
    [DRY_CAUSE_DATA] = 0.08,
    [DRY_CAUSE_COPY] = 0.08,
    [DRY_CAUSE_SMALL] = 0.15,     /* an estimate, from several parts */
    [DRY_CAUSE_REDUCE] = 0.10,    /* comes with ranks */
    [DRY_CAUSE_IMBALANCE] = 0.15, /* shares of whole micro-batches are never quite equal */
    [DRY_CAUSE_SLOW_RANK] = 0.08,
    [DRY_CAUSE_CHECKPOINT] = 0.12, /* is wanted work, on disks that others use */
    [DRY_CAUSE_VALIDATION] = 0.12, /* the same */
    [DRY_CAUSE_PADDING] = 0.12,
    [DRY_CAUSE_STARTUP] = 0.33, /* trials are short: their users know */
    [DRY_CAUSE_UNEXPLAINED] = 0.05,
};

enum {
    FEW_RECORDS = 4,  /* of a rank in a step, at most: too few to even out shares and to pay for meeting */
    FEW_IN_MICRO = 2, /* and of a micro-batch, which could hold more */
    FEW_STEPS = 5,    /* steady ones, at least, for what a single moment can be */
    STARTUP_LEADS_AT = 75 /* percent of the wall-clock: see rank_of() */
};
static const double slow_factor = 1.12;  /* times the median's seconds for the same work */
static const double startup_seconds = 1; /* a start shorter than this is none's trouble */
static const double once_share = 0.33;   /* of the steps' time: what is done once, behind the last step */
static const double shape_loss_least =
    0.2; /* of the rate of larger products; below it measuring errs as much */

static void add(struct dry_verdict *v, enum dry_cause cause, double share)
{
    if (!(share >= limit[cause]))
        return;
    v->finding[v->findings++] = (struct dry_finding){.cause = cause, .share = fmin(share, 1)};
}

/* Records of a rank in a step, mean; from metrics.jsonl, which has no line of a step when the disk was full.
 */
static double records_per_rank(const struct dry_history *h, const struct dry_look *l)
{
    double records = 0, steps = 0;

    for (size_t i = 0; i < h->steps; i++)
        if (h->step[i].step >= l->first && h->step[i].step <= l->last) {
            records += (double)h->step[i].records;
            steps++;
        }
    if (!(steps > 0)) {
        records = (double)json_integer_value(
            json_object_get(json_object_get(h->run, "contract"), "effective_batch"));
        steps = 1;
    }
    return records / steps / l->ranks;
}

/* Validation and checkpoints: the ones that an interval asks for are a cause like others; the one at the end
 * of a run is a cause when it is long. */
static void add_recurring(struct dry_verdict *v, enum dry_cause cause, double seconds, double last,
                          double wall)
{
    if (seconds - last >= limit[cause] * wall || seconds >= once_share * wall)
        add(v, cause, seconds / wall);
}

static void add_small(struct dry_verdict *v, const struct dry_look *l, struct dry_evidence *e)
{
    double compute = l->mean[DRY_STAGE_FORWARD] + l->mean[DRY_STAGE_BACKWARD];
    double records_per_micro = l->micros > 0 ? e->records * (double)(l->ranks * l->steps) / l->micros : 0;
    double rows = l->padded - l->tokens;

    e->few = e->records <= FEW_RECORDS && records_per_micro <= FEW_IN_MICRO;
    e->shape_loss = e->shape_loss >= shape_loss_least ? e->shape_loss : 0;
    e->small_compute = fmax(l->won[DRY_WITHOUT_MICRO], e->shape_loss * compute);
    e->small_idle = l->won[DRY_WITHOUT_IDLE];
    if (e->few) {
        /* waiting, too: of few records a share is uneven by its length and by chance, of many it is not; what
         * other causes explain is theirs */
        double wait = l->mean[DRY_STAGE_WAIT] - l->won[DRY_WITHOUT_SLOW] - l->won[DRY_WITHOUT_DATA] -
                      l->won[DRY_WITHOUT_COPY] - e->small_idle;

        e->small_fixed = fmax(0, fmax(wait, l->won[DRY_WITHOUT_PLAN])) + l->mean[DRY_STAGE_REDUCE] +
                         l->mean[DRY_STAGE_OPTIMIZER];
        if (rows < DRY_ROW_MULTIPLE * l->micros)
            e->small_fixed += fmax(0, l->won[DRY_WITHOUT_PADDING]);
        /* estimates all: they cannot be more than the steps less their computing */
        e->small_fixed = fmin(e->small_fixed, fmax(0, l->wall - compute - e->small_idle));
    }
    add(v, DRY_CAUSE_SMALL, (e->small_compute + e->small_idle + e->small_fixed) / l->wall);
}

static void judge_steps(struct dry_verdict *v, const struct dry_look *l, struct dry_evidence *e)
{
    double wall = l->wall;

    add(v, DRY_CAUSE_DATA, l->won[DRY_WITHOUT_DATA] / wall);
    add(v, DRY_CAUSE_COPY, l->won[DRY_WITHOUT_COPY] / wall);
    if (l->slows > 0)
        add(v, DRY_CAUSE_SLOW_RANK, l->won[DRY_WITHOUT_SLOW] / wall);
    add_recurring(v, DRY_CAUSE_CHECKPOINT, l->most[DRY_STAGE_CHECKPOINT], l->last_checkpoint, wall);
    add_recurring(v, DRY_CAUSE_VALIDATION, l->most[DRY_STAGE_VALIDATION], l->last_validation, wall);
    add_small(v, l, e);
    if (!e->few) { /* with few records these follow from that */
        add(v, DRY_CAUSE_REDUCE, l->reduce / wall);
        add(v, DRY_CAUSE_IMBALANCE, l->won[DRY_WITHOUT_PLAN] / wall);
    }
    if (l->padded - l->tokens >= DRY_ROW_MULTIPLE * l->micros) /* more than rounding */
        add(v, DRY_CAUSE_PADDING, l->won[DRY_WITHOUT_PADDING] / wall);
    if (l->steps >= FEW_STEPS) /* in fewer, one moment in which the system ran something else is as much */
        add(v, DRY_CAUSE_UNEXPLAINED, l->most[DRY_STAGE_UNEXPLAINED] / wall);
}

static void judge_start(struct dry_verdict *v, const struct dry_look *l)
{
    double seconds = l->startup + l->tokenise;

    if (l->whole > 0 && seconds >= startup_seconds)
        add(v, DRY_CAUSE_STARTUP, seconds / l->whole);
}

/* By falling share. A start is paid once, and a longer run dilutes it; what steps lose they lose always: so
 * it comes before them only where it leaves them next to nothing. */
static double rank_of(const struct dry_finding *f)
{
    return f->cause == DRY_CAUSE_STARTUP && 100 * f->share < STARTUP_LEADS_AT ? 0 : f->share;
}

static int falling(const void *a, const void *b)
{
    double x = rank_of(a), y = rank_of(b);

    return (x < y) - (x > y);
}

enum dry_status dry_verdict_make(const struct dry_history *h, struct dry_verdict *v)
{
    struct dry_look l;
    struct dry_evidence e = {0};
    enum dry_status status = dry_look_at(h, slow_factor, &l);

    if (status)
        return status;
    *v = (struct dry_verdict){0};
    if (l.steps > 0) {
        e.records = records_per_rank(h, &l);
        e.shape_loss = dry_advise_shape_loss(h, &l);
        judge_steps(v, &l, &e);
    }
    judge_start(v, &l);
    qsort(v->finding, (size_t)v->findings, sizeof *v->finding, falling);
    if (v->findings == 0)
        v->finding[v->findings++] = (struct dry_finding){
            .cause = DRY_CAUSE_HEALTHY,
            .share = l.wall > 0 ? (l.mean[DRY_STAGE_FORWARD] + l.mean[DRY_STAGE_BACKWARD]) / l.wall : 0};
    for (int i = 0; i < v->findings; i++)
        dry_advise(h, &l, &e, &v->finding[i]);
    dry_look_release(&l);
    return DRY_OK;
}

const char *dry_cause_name(enum dry_cause c)
{
    assert(c >= 0 && c < DRY_CAUSES);
    return names[c];
}

const char *dry_finding_name(const struct dry_finding *f)
{
    return f->cause == DRY_CAUSE_HEALTHY && !(f->share > 0) ? "none" : dry_cause_name(f->cause);
}

/* Words into lines of at most 96 columns, each indented. */
static void paragraph(FILE *out, const char *text)
{
    int column = 0;

    while (*text) {
        int length = (int)strcspn(text, " ");

        if (column > 0 && column + 1 + length > 96) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column > 0 ? " " : "  ", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void dry_verdict_print(FILE *out, const struct dry_verdict *v)
{
    for (int i = 0; i < v->findings; i++) {
        const struct dry_finding *f = &v->finding[i];

        if (f->cause == DRY_CAUSE_HEALTHY)
            fprintf(out, "verdict: %s\n", dry_finding_name(f));
        else
            fprintf(out, "%s %s, %.0f %% of %s\n", i == 0 ? "verdict:" : "also:", names[f->cause],
                    100 * f->share, f->cause == DRY_CAUSE_STARTUP ? "the wall-clock" : "the steps' time");
        paragraph(out, f->fact);
        paragraph(out, f->advice);
    }
}

json_t *dry_verdict_json(const struct dry_verdict *v)
{
    json_t *list = json_array();

    for (int i = 0; list && i < v->findings; i++) {
        const struct dry_finding *f = &v->finding[i];

        if (json_array_append_new(list, json_pack("{s:s, s:f, s:s, s:s}", "cause", dry_finding_name(f),
                                                  "share", f->share, "fact", f->fact, "advice", f->advice))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
