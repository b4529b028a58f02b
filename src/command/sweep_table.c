/*
 * What became of a sweep's configurations: read back from their folders, as a table, and as JSON.
 * Owns nothing that outlives a call.
 * Must not know how they were trained.
 */
#include "config.h"

#include "command/sweep.h"

#include "command/lengths.h"
#include "measure/history.h"
#include "measure/words.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct row {
    int ranks;               /* 0: it never came so far as to have a folder */
    int64_t step, steps;     /* done, and to be done */
    double loss, validation; /* last ones; NAN: none */
    double best;             /* lowest validation loss; NAN: none */
    double rate, seconds;    /* tokens a second in steps; wall-clock of all starts */
    char outcome[48];
};

/* Wall-clock of all starts: of each the rank that took longest. */
static double wall_clock(const struct dry_history *h)
{
    double all = 0;

    for (int start = 0; start < h->starts; start++) {
        double longest = 0;

        for (int rank = 0;; rank++) {
            double seconds = 0;
            int there = 0;

            for (size_t i = 0; i < h->rows; i++)
                if (h->row[i].start == start && h->row[i].rank == rank) {
                    seconds += h->row[i].seconds;
                    there = 1;
                }
            if (!there)
                break;
            longest = seconds > longest ? seconds : longest;
        }
        all += longest;
    }
    return all;
}

static void fill(const struct dry_history *h, struct row *r)
{
    double tokens = 0, seconds = 0;

    r->ranks = h->ranks;
    r->steps = (int64_t)json_integer_value(json_object_get(json_object_get(h->run, "contract"), "steps"));
    for (size_t i = 0; i < h->steps; i++) {
        tokens += (double)h->step[i].tokens;
        seconds += h->step[i].seconds;
    }
    if (h->steps > 0) {
        r->step = h->step[h->steps - 1].step;
        r->loss = h->step[h->steps - 1].loss;
    }
    r->rate = seconds > 0 ? tokens / seconds : NAN;
    for (size_t i = 0; i < h->validations; i++) {
        r->validation = h->validation[i].loss;
        r->best = fmin(r->best, h->validation[i].loss); /* of a number and NAN: the number */
    }
    r->seconds = h->rows > 0 ? wall_clock(h) : NAN;
}

/* A configuration that did not run has no folder, or an older run's. */
static enum dry_status read_back(const struct dry_sweep_run *run, struct row *r)
{
    char *manifest = dry_path_join(run->output, "run.json");
    struct dry_history *h = NULL;
    enum dry_status status = manifest ? DRY_OK : DRY_ERR_MEMORY;

    *r = (struct row){.loss = NAN, .validation = NAN, .best = NAN, .rate = NAN, .seconds = NAN};
    if (run->outcome == DRY_OK)
        snprintf(r->outcome, sizeof r->outcome, "done");
    else if (run->outcome == DRY_STOPPED)
        snprintf(r->outcome, sizeof r->outcome, "stopped");
    else
        snprintf(r->outcome, sizeof r->outcome, "failed (%s)", dry_status_name(run->outcome));
    if (!status && dry_file_exists(manifest)) {
        status = dry_history_open(run->output, &h);
        if (!status)
            fill(h, r);
        dry_history_close(h);
    } else if (!status && run->outcome == DRY_STOPPED) {
        snprintf(r->outcome, sizeof r->outcome, "not started");
    }
    dry_free(manifest);
    return status;
}

/* ---- the best ---- */

struct best {
    int run;             /* -1: none */
    int held_out;        /* by validation loss; else by the training loss */
    const char *why_not; /* no best: a sentence */
};

static int same_option(const struct dry_sweep *s, const char *flag)
{
    char one[32], two[32];
    const char *a = dry_config_value(s->run[0].config, flag, one);

    for (int i = 1; i < s->runs; i++) {
        const char *b = dry_config_value(s->run[i].config, flag, two);
        if (!a != !b || (a && strcmp(a, b) != 0))
            return 0;
    }
    return 1;
}

/* Losses on other records, or of other tokens, say nothing about each other. */
static const char *incomparable(const struct dry_sweep *s, int held_out)
{
    static const char *const flags[] = {"base",      "template",     "prompt-field",   "completion-field",
                                        "separator", "special-text", "max-seq-length", "long-records"};

    if (!same_option(s, held_out ? "validation-data" : "data"))
        return held_out ? "the configurations are validated on different records"
                        : "there is no validation, and the configurations train on different records";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!same_option(s, flags[i]))
            return "the configurations make different tokens of the same records";
    return NULL;
}

static struct best find_best(const struct dry_sweep *s, const struct row *row)
{
    struct best b = {.run = -1};

    for (int i = 0; i < s->runs; i++)
        b.held_out |= s->run[i].outcome == DRY_OK && isfinite(row[i].best);
    b.why_not = incomparable(s, b.held_out);
    for (int i = 0; i < s->runs && !b.why_not; i++) {
        double value = b.held_out ? row[i].best : row[i].loss;

        if (s->run[i].outcome != DRY_OK || !isfinite(value))
            continue;
        if (b.run < 0 || value < (b.held_out ? row[b.run].best : row[b.run].loss))
            b.run = i;
    }
    if (b.run < 0 && !b.why_not)
        b.why_not = "no configuration is done";
    return b;
}

/* ---- shown ---- */

static const char *loss_text(double loss, char text[32])
{
    if (isfinite(loss))
        snprintf(text, 32, "%.4f", loss);
    else
        snprintf(text, 32, "-");
    return text;
}

static void print_row(FILE *out, const struct dry_sweep_run *run, const struct row *r, int width, int best)
{
    char ranks[16] = "-", steps[48] = "-", loss[32], validation[32], lowest[32];

    if (r->ranks > 0) {
        snprintf(ranks, sizeof ranks, "%d", r->ranks);
        snprintf(steps, sizeof steps, "%lld/%lld", (long long)r->step, (long long)r->steps);
    }
    fprintf(out, "%c %-*s %6s %11s %9s %11s %9s %10s %13s  %-16s %s\n", best ? '*' : ' ', width, run->name,
            ranks, steps, loss_text(r->loss, loss), loss_text(r->validation, validation),
            loss_text(r->best, lowest), isfinite(r->rate) ? dry_words_real(r->rate).text : "-",
            isfinite(r->seconds) ? dry_words_seconds(r->seconds).text : "-", r->outcome, run->differs);
}

static enum dry_status print_table(const struct dry_sweep *s, const struct row *row, const struct best *b)
{
    FILE *out = stdout;
    int width = (int)strlen("configuration"), failed = 0, stopped = 0;

    for (int i = 0; i < s->runs; i++) {
        int n = (int)strlen(s->run[i].name);
        width = n > width ? n : width;
        failed += s->run[i].outcome > DRY_STOPPED;
        stopped += s->run[i].outcome == DRY_STOPPED;
    }
    fprintf(out, "  %-*s %6s %11s %9s %11s %9s %10s %13s  %-16s %s\n", width, "configuration", "ranks",
            "steps", "loss", "validation", "best", "tokens/s", "wall-clock", "outcome", "what differs");
    for (int i = 0; i < s->runs; i++)
        print_row(out, &s->run[i], &row[i], width, i == b->run);
    fprintf(out, "\n");
    if (b->run >= 0 && b->held_out)
        fprintf(out,
                "The best is %s, with the lowest validation loss, %.4f; that adapter is %s/adapter-best.\n",
                s->run[b->run].name, row[b->run].best, s->run[b->run].output);
    else if (b->run >= 0)
        fprintf(out,
                "The lowest loss at the end is that of %s, %.4f: a training loss, of one step's records; "
                "--validation-data would tell more.\n",
                s->run[b->run].name, row[b->run].loss);
    else
        fprintf(out, "No best is named: %s.\n", b->why_not);
    if (failed)
        fprintf(out, "%d of %d configuration%s failed; the log says why.\n", failed, s->runs,
                dry_plural(s->runs));
    if (stopped)
        fprintf(
            out,
            "Stopped on request: start the same command again to go on; what is done is not done again.\n");
    return dry_print_end();
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *run_json(const struct dry_sweep_run *run, const struct row *r)
{
    json_t *j = json_pack("{s:s, s:s?, s:s, s:O, s:s, s:i, s:I, s:I}", "name", run->name, "file", run->file,
                          "folder", run->output, "differs", run->values, "outcome", r->outcome, "ranks",
                          r->ranks, "step", (json_int_t)r->step, "steps", (json_int_t)r->steps);
    if (j && (json_object_set_new(j, "loss", number(r->loss)) ||
              json_object_set_new(j, "validation_loss", number(r->validation)) ||
              json_object_set_new(j, "best_validation_loss", number(r->best)) ||
              json_object_set_new(j, "tokens_per_second", number(r->rate)) ||
              json_object_set_new(j, "seconds", number(r->seconds)))) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

/* NULL: no memory. */
static json_t *sweep_json(const struct dry_sweep *s, const struct row *row, const struct best *b,
                          enum dry_status outcome)
{
    json_t *runs = json_array(), *all;
    char now[40];

    for (int i = 0; i < s->runs; i++)
        if (json_array_append_new(runs, run_json(&s->run[i], &row[i]))) {
            json_decref(runs);
            return NULL;
        }
    dry_clock_iso(now, sizeof now);
    all = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "command", "sweep", "started", s->started, "finished",
        now, "exit", outcome == DRY_OK || outcome == DRY_STOPPED ? dry_status_exit(outcome) : 1, "ranks",
        dry_comm_size(s->call->comm), "ranks_each", s->each, "at_once", s->groups, "configurations", runs);
    if (all &&
        json_object_set_new(all, "best",
                            b->run < 0 ? json_pack("{s:n, s:s}", "name", "why_not", b->why_not)
                                       : json_pack("{s:s, s:s}", "name", s->run[b->run].name, "by",
                                                   b->held_out ? "validation loss" : "training loss"))) {
        json_decref(all);
        all = NULL;
    }
    return all;
}

enum dry_status dry_sweep_tell(const struct dry_sweep *s, enum dry_status outcome)
{
    struct row *row = dry_alloc((size_t)s->runs, sizeof *row, "the sweep's table");
    char *path = dry_path_join(s->call->config->output, "sweep.json");
    json_t *all = NULL;
    struct best best;
    enum dry_status status = row && path ? DRY_OK : DRY_ERR_MEMORY;

    for (int i = 0; i < s->runs && !status; i++)
        status = read_back(&s->run[i], &row[i]);
    if (status)
        goto out;
    best = find_best(s, row);
    if (!(all = sweep_json(s, row, &best, outcome))) {
        dry_error("not enough memory for %s", path);
        status = DRY_ERR_MEMORY;
        goto out;
    }
    status = dry_json_write(path, all);
    if (s->call->config->json) {
        enum dry_status printed = dry_print_json(json_incref(all));
        status = status ? status : printed;
    } else {
        enum dry_status printed = print_table(s, row, &best);
        status = status ? status : printed;
    }
out:
    json_decref(all);
    dry_free(path);
    dry_free(row);
    return status;
}
