/*
 * Shows what compare has gathered: a table with a column for each run, or JSON.
 * Owns nothing that outlives a call.
 * Must not know how the numbers were gathered.
 */
#include "config.h"

#include "command/compare.h"

#include "measure/words.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ---- */

enum { LABEL = 34, COLUMN = 16 };

struct table {
    FILE *out;
    const struct dry_compare *c;
};

/* What the last column of two runs says. */
enum against { NOTHING, RATIO, DIFFERENCE };

/* "A", "B" ... "Z", "A1" ... */
static void name_of(int r, char name[16])
{
    if (r < 26)
        snprintf(name, 16, "%c", 'A' + r);
    else
        snprintf(name, 16, "%c%d", 'A' + r % 26, r / 26);
}

static void begin(const struct table *t, const char *label)
{
    fprintf(t->out, "  %-*s", LABEL, label);
}

static void put(const struct table *t, const char *text)
{
    fprintf(t->out, " %*s", COLUMN, text);
}

/* A ratio of what is nearly nothing says nothing. */
static void end(const struct table *t, double a, double b, enum against against)
{
    double ratio = b / a;

    if (t->c->runs == 2 && against == RATIO && ratio > 1e-3 && ratio < 1e3)
        fprintf(t->out, " %9.3f x", ratio);
    if (t->c->runs == 2 && against == DIFFERENCE && a == b)
        fprintf(t->out, " %11s", "equal");
    else if (t->c->runs == 2 && against == DIFFERENCE && isfinite(b - a))
        fprintf(t->out, " %+11.6f", b - a);
    fprintf(t->out, "\n");
}

/* A row of numbers, each written by `words`; not a number is "-". */
static void row(const struct table *t, const char *label, double (*value)(const struct dry_compare_run *r),
                struct dry_words (*words)(double), enum against against)
{
    int known = 0;

    for (int r = 0; r < t->c->runs; r++)
        known = known || isfinite(value(&t->c->run[r]));
    if (!known)
        return;
    begin(t, label);
    for (int r = 0; r < t->c->runs; r++) {
        double v = value(&t->c->run[r]);

        put(t, isfinite(v) ? words(v).text : "-");
    }
    end(t, value(&t->c->run[0]), value(&t->c->run[1]), against);
}

static void loss_row(const struct table *t, const char *label, const double *loss)
{
    char text[32];

    begin(t, label);
    for (int r = 0; r < t->c->runs; r++) {
        snprintf(text, sizeof text, "%.6f", loss[r]);
        put(t, isfinite(loss[r]) ? text : "-");
    }
    end(t, loss[0], loss[1], DIFFERENCE);
}

static void heading(const struct table *t, const char *text)
{
    char name[16];

    fprintf(t->out, "\n%-*s", LABEL + 2, text);
    for (int r = 0; r < t->c->runs; r++) {
        name_of(r, name);
        put(t, name);
    }
    if (t->c->runs == 2)
        fprintf(t->out, " %11s", strstr(text, "loss") ? "B - A" : "B / A");
    fprintf(t->out, "\n");
}

/* ---- values ---- */

static double ranks(const struct dry_compare_run *r)
{
    return r->h->ranks;
}

static double wall(const struct dry_compare_run *r)
{
    return r->accounted ? r->whole.wall : NAN;
}

static int stepped(const struct dry_compare_run *r)
{
    return r->accounted && r->steady.steps > 0;
}

static double step_seconds(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.step_seconds : NAN;
}

static double tokens_per_second(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.tokens_per_second : NAN;
}

static double supervised_per_second(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.supervised_per_second : NAN;
}

static double step_tokens(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.tokens / (double)r->steady.steps : NAN;
}

static double padding(const struct dry_compare_run *r)
{
    return stepped(r) && r->steady.padded > 0 ? 1 - r->steady.tokens / r->steady.padded : NAN;
}

static double flops(const struct dry_compare_run *r)
{
    return stepped(r) && r->steady.flops_per_second > 0 ? r->steady.flops_per_second : NAN;
}

static double matrix_share(const struct dry_compare_run *r)
{
    return r->steady.matrix_per_second > 0 ? flops(r) / r->steady.matrix_per_second : NAN;
}

static double memory(const struct dry_compare_run *r)
{
    return r->memory;
}

static double step_energy(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.step_energy / (double)r->steady.steps : NAN;
}

static double token_energy(const struct dry_compare_run *r)
{
    return stepped(r) ? r->steady.step_energy / r->steady.tokens * 1e6 : NAN;
}

static double closing(const struct dry_compare_run *r)
{
    return r->accounted ? r->whole.unexplained : NAN;
}

static double stage_seconds(const struct dry_compare_run *r, int stage)
{
    return stepped(r) ? r->steady.stage[stage].mean / (double)r->steady.steps : NAN;
}

static struct dry_words flops_words(double x)
{
    return dry_words_unit(x, "FLOP/s");
}

static struct dry_words joules(double x)
{
    return dry_words_unit(x, "J");
}

/* ---- parts ---- */

/* "done", or what else is known of how it ended. */
static const char *outcome(const struct dry_compare_run *r)
{
    const char *text = json_string_value(json_object_get(r->h->run, "outcome"));

    return text && strcmp(text, "running") == 0 ? "no end yet" : text ? text : "-";
}

/* Of the words for an end these say what became of the run, all others why it failed. */
static int failed(const struct dry_compare_run *r)
{
    return json_integer_value(json_object_get(r->h->run, "exit")) != 0 &&
           strcmp(outcome(r), dry_status_name(DRY_STOPPED)) != 0;
}

static void print_runs(const struct table *t)
{
    char name[16], devices[128];

    for (int r = 0; r < t->c->runs; r++) {
        const struct dry_compare_run *run = &t->c->run[r];

        name_of(r, name);
        dry_differ_devices(run->h->run, devices, sizeof devices);
        fprintf(t->out, "%s  %s: %s%s%s, %lld of %lld step%s, %d rank%s%s%s\n", name, run->folder,
                failed(run) ? "failed (" : "", outcome(run), failed(run) ? ")" : "", (long long)run->last,
                (long long)run->steps, dry_plural(run->steps), run->h->ranks, dry_plural(run->h->ranks),
                *devices ? ", " : "", devices);
    }
}

static void print_differences(const struct table *t, const struct dry_differences *d, const char *title)
{
    char name[16];

    if (d->count == 0)
        return;
    fprintf(t->out, "\n%s\n", title);
    for (int i = 0; i < d->count; i++) {
        const struct dry_difference *one = &d->item[i];

        fprintf(t->out, "  %s: %s is", dry_differ_name(one->kind), one->name);
        for (int r = 0; r < d->runs; r++) {
            name_of(r, name);
            fprintf(t->out, "%s %s in %s", r ? "," : "", one->value[r], name);
        }
        fprintf(t->out, "\n");
    }
}

static void print_stages(const struct table *t)
{
    double most = 0;
    char text[48];
    int any = 0;

    for (int r = 0; r < t->c->runs; r++) {
        any = any || stepped(&t->c->run[r]);
        most = fmax(most, step_seconds(&t->c->run[r]));
    }
    if (!any)
        return;
    heading(t, most < 10 ? "a step, ms (mean over ranks)" : "a step, seconds (mean over ranks)");
    for (int k = 0; k < DRY_STAGES; k++) {
        int used = 0;

        for (int r = 0; r < t->c->runs; r++)
            used = used || stage_seconds(&t->c->run[r], k) > 0;
        if (!used)
            continue;
        begin(t, dry_stage_name((enum dry_stage)k));
        for (int r = 0; r < t->c->runs; r++) {
            double v = stage_seconds(&t->c->run[r], k);

            snprintf(text, sizeof text, "%.2f", most < 10 ? 1e3 * v : v);
            put(t, isfinite(v) ? text : "-");
        }
        end(t, stage_seconds(&t->c->run[0], k), stage_seconds(&t->c->run[1], k), RATIO);
    }
    row(t, "step", step_seconds, dry_words_seconds, RATIO);
}

static void print_rates(const struct table *t)
{
    int gpu = 0;

    for (int r = 0; r < t->c->runs; r++)
        gpu = gpu || t->c->run[r].on_gpu;
    heading(t, "throughput");
    row(t, "ranks", ranks, dry_words_count, RATIO);
    row(t, "useful tokens a step", step_tokens, dry_words_count, RATIO);
    row(t, "useful tokens/s", tokens_per_second, dry_words_real, RATIO);
    row(t, "supervised tokens/s", supervised_per_second, dry_words_real, RATIO);
    row(t, "by the LoRA count", flops, flops_words, RATIO);
    row(t, "share of the products' own rate", matrix_share, dry_words_share, RATIO);
    row(t, "padding, of computed tokens", padding, dry_words_share, NOTHING);
    row(t, gpu ? "memory of a GPU, most" : "memory of a rank's process, most", memory, dry_words_bytes,
        RATIO);
    row(t, "energy a step", step_energy, joules, RATIO);
    row(t, "energy, million useful tokens", token_energy, joules, RATIO);
    row(t, "wall-clock of the latest start", wall, dry_words_seconds, RATIO);
    row(t, "not explained by stages, at most", closing, dry_words_share, NOTHING);
}

/* Non-zero when equal steps are equal records: each step has as many in all runs. */
static int same_places(const struct dry_compare *c)
{
    const struct dry_history *a = c->run[0].h;

    for (int r = 0; r < c->runs; r++) {
        const struct dry_history *b = c->run[r].h;

        for (size_t i = 0; i < a->steps && i < b->steps; i++)
            if (a->step[i].step != b->step[i].step || a->step[i].records != b->step[i].records)
                return 0;
    }
    return 1;
}

static void print_losses(const struct table *t)
{
    const struct dry_compare *c = t->c;
    char label[128];

    if (c->steps_points + c->examples_points == 0)
        return;
    heading(t, "training loss");
    for (int i = 0; i < c->steps_points; i++) {
        double at = c->step[i].at, window = c->step[i].window;

        if (window > 1)
            snprintf(label, sizeof label, "steps %.0f to %.0f", at - window + 1, at);
        else
            snprintf(label, sizeof label, "step %.0f", at);
        loss_row(t, label, c->step[i].loss);
    }
    for (int i = 0; i < c->examples_points && !same_places(c); i++) {
        snprintf(label, sizeof label, "%s records to %s seen",
                 dry_words_count(c->examples[i].at - c->examples[i].window + 1).text,
                 dry_words_count(c->examples[i].at).text);
        loss_row(t, label, c->examples[i].loss);
    }
    for (int r = 0; r < c->runs; r++)
        if (isnan(c->run[r].examples)) {
            fprintf(t->out,
                    "  %s/metrics.jsonl does not begin at step 1 or lacks steps: losses at equal records are "
                    "not known\n",
                    c->run[r].folder);
            break;
        }
}

static void print_validation(const struct table *t)
{
    const struct dry_compare *c = t->c;
    char label[64], text[48];
    int any = 0;

    for (int r = 0; r < c->runs; r++)
        any = any || c->run[r].h->validations > 0;
    if (!any)
        return;
    heading(t, "validation loss");
    if (c->validated > 0) {
        snprintf(label, sizeof label, "after step %lld", (long long)c->validated);
        loss_row(t, label, c->validation);
    }
    for (int best = 0; best <= 1; best++) {
        begin(t, best ? "lowest (after step)" : "last (after step)");
        for (int r = 0; r < c->runs; r++) {
            const struct dry_history *h = c->run[r].h;
            const struct dry_history_validation *v =
                h->validations ? &h->validation[h->validations - 1] : NULL;

            for (size_t i = 0; best && i < h->validations; i++)
                if (h->validation[i].loss < v->loss)
                    v = &h->validation[i];
            if (v)
                snprintf(text, sizeof text, "%.6f (%lld)", v->loss, (long long)v->step);
            put(t, v ? text : "-");
        }
        fprintf(t->out, "\n");
    }
}

static void print_verdicts(const struct table *t)
{
    char name[16];

    fprintf(t->out, "\nwhat the time went to\n");
    for (int r = 0; r < t->c->runs; r++) {
        const struct dry_compare_run *run = &t->c->run[r];

        name_of(r, name);
        if (run->accounted)
            fprintf(t->out, "  %s  %s: %s\n", name, dry_finding_name(&run->verdict.finding[0]),
                    run->verdict.finding[0].fact);
        else
            fprintf(t->out, "  %s  not known: the run has no stages.csv\n", name);
    }
}

void dry_compare_print(FILE *out, const struct dry_compare *c)
{
    struct table t = {out, c};

    print_runs(&t);
    print_differences(&t, &c->differences, "differences that were allowed");
    print_differences(&t, &c->others, "other differences");
    print_stages(&t);
    print_rates(&t);
    print_losses(&t);
    print_validation(&t);
    print_verdicts(&t);
}

/* ---- JSON ---- */

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *reals(const double *x, int count)
{
    json_t *all = json_array();

    for (int i = 0; all && i < count; i++)
        if (json_array_append_new(all, real(x[i]))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *points_json(const struct dry_compare_point *point, int points, int runs)
{
    json_t *all = json_array();

    for (int i = 0; all && i < points; i++)
        if (json_array_append_new(all, json_pack("{s:I, s:I, s:o}", "at", (json_int_t)point[i].at, "window",
                                                 (json_int_t)point[i].window, "loss",
                                                 reals(point[i].loss, runs)))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *validations_json(const struct dry_history *h)
{
    json_t *all = json_array();

    for (size_t i = 0; all && i < h->validations; i++)
        if (json_array_append_new(all, json_pack("{s:I, s:f}", "step", (json_int_t)h->validation[i].step,
                                                 "loss", h->validation[i].loss))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *run_json(const struct dry_compare_run *r)
{
    json_t *steady = stepped(r) ? dry_account_json(&r->steady) : json_null();
    json_t *whole = r->accounted ? dry_account_json(&r->whole) : json_null();
    json_t *verdict = r->accounted ? dry_verdict_json(&r->verdict) : json_null();

    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "run", r->folder, "outcome",
                     outcome(r), "ranks", r->h->ranks, "steps", (json_int_t)r->steps, "steps_done",
                     (json_int_t)r->last, "records_seen", real(r->examples), "memory_bytes", real(r->memory),
                     "steady_steps", steady, "latest_start", whole, "verdict", verdict, "validations",
                     validations_json(r->h));
}

json_t *dry_compare_json(const struct dry_compare *c)
{
    json_t *runs = json_array();

    for (int r = 0; runs && r < c->runs; r++)
        if (json_array_append_new(runs, run_json(&c->run[r]))) {
            json_decref(runs);
            runs = NULL;
        }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "runs", runs, "differences",
                     dry_differ_json(&c->differences), "other_differences", dry_differ_json(&c->others),
                     "loss_at_steps", points_json(c->step, c->steps_points, c->runs), "loss_at_records",
                     points_json(c->examples, c->examples_points, c->runs));
}
