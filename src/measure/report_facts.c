/*
 * Puts together what a report tells from what a run's folder holds.
 * Owns the arrays that it makes.
 * Must not know how they are shown.
 */
#include "config.h"

#include "measure/report_facts.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/contract.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* ---- run.json */

const json_t *dry_report_at(const struct dry_report *r, const char *path)
{
    const json_t *value = r->h->run;

    while (value && *path) {
        char key[64];
        size_t n = strcspn(path, ".");

        snprintf(key, sizeof key, "%.*s", (int)n, path);
        value = json_object_get(value, key);
        path += n + (path[n] == '.');
    }
    return json_is_null(value) ? NULL : value;
}

const char *dry_report_text_at(const struct dry_report *r, const char *path, const char *otherwise)
{
    const char *text = json_string_value(dry_report_at(r, path));

    return text && *text ? text : otherwise;
}

double dry_report_number_at(const struct dry_report *r, const char *path)
{
    const json_t *value = dry_report_at(r, path);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static size_t add_text(char *text, size_t size, size_t at, const char *more)
{
    return at + 1 < size ? at + (size_t)snprintf(text + at, size - at, "%s", more) : at;
}

void dry_report_value(const json_t *value, char *text, size_t size)
{
    char one[256];
    size_t at = 0, i;
    const json_t *item;

    *text = 0;
    if (json_is_string(value))
        snprintf(text, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_array(value))
        json_array_foreach(value, i, item)
        {
            dry_report_value(item, one, sizeof one);
            at = add_text(text, size, at, i ? ", " : "");
            at = add_text(text, size, at, one);
        }
}

double dry_report_time(const char *iso)
{
    struct tm t = {0};
    double seconds = 0;
    const char *rest = iso ? strptime(iso, "%Y-%m-%dT%H:%M:", &t) : NULL;

    if (!rest || sscanf(rest, "%lf", &seconds) != 1)
        return NAN;
    return (double)timegm(&t) + seconds;
}

/* ---- what the run came to */

/* Its folder's lock is held while it runs. */
static int is_running(const char *folder)
{
    char *path = dry_path_join(folder, ".lock");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    int held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;

    if (fd >= 0)
        close(fd);
    dry_free(path);
    return held;
}

static void find_outcome(struct dry_report *r)
{
    const char *outcome = dry_report_text_at(r, "outcome", "running");

    if (strcmp(outcome, "done") == 0) {
        r->outcome = "finished";
        r->good = 1;
    } else if (strcmp(outcome, "stopped") == 0) {
        r->outcome = "stopped on request";
        r->good = 0;
    } else if (strcmp(outcome, "running") == 0 && is_running(r->h->folder)) {
        r->outcome = "running";
        r->good = 0;
    } else if (strcmp(outcome, "running") == 0) {
        r->outcome = "killed";
        r->good = -1;
    } else {
        r->outcome = "failed";
        r->good = -1;
    }
}

/* A folder given as "." or "run/" has a name too. */
static char *find_name(const char *folder)
{
    char *whole = realpath(folder, NULL), *name;
    size_t size;

    if (!whole)
        return dry_strdup(folder);
    size = strlen(whole);
    while (size > 1 && whole[size - 1] == '/')
        whole[--size] = 0;
    name = dry_strdup(size > 1 ? dry_path_base(whole) : whole);
    free(whole);
    return name;
}

__attribute__((format(printf, 2, 3))) static void warn(struct dry_report *r, const char *format, ...)
{
    char text[512];
    va_list ap;

    if (r->warnings == DRY_REPORT_WARNINGS)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if ((r->warning[r->warnings] = dry_strdup(text)))
        r->warnings++;
}

/* ---- curves */

static double *numbers(size_t n)
{
    return dry_alloc(n, sizeof(double), "a report's curve");
}

/* The mean of what came before, weighted less the longer ago it was. */
static void smooth(struct dry_report *r)
{
    double keep, sum = 0, weight = 0;

    r->span = fmin(50, fmax(4, (double)r->h->steps / 20));
    keep = 1 - 2 / (r->span + 1);
    for (size_t i = 0; i < r->h->steps; i++) {
        if (isfinite(r->loss[i])) {
            sum = keep * sum + r->loss[i];
            weight = keep * weight + 1;
        }
        r->smooth[i] = weight > 0 ? sum / weight : NAN;
    }
}

static enum dry_status gather_curves(struct dry_report *r)
{
    const struct dry_history *h = r->h;

    r->step = numbers(h->steps);
    r->loss = numbers(h->steps);
    r->smooth = numbers(h->steps);
    r->rate = numbers(h->steps);
    r->norm = numbers(h->steps);
    r->speed = numbers(h->steps);
    r->validation_step = numbers(h->validations);
    r->validation = numbers(h->validations);
    if (!r->step || !r->loss || !r->smooth || !r->rate || !r->norm || !r->speed || !r->validation_step ||
        !r->validation)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->steps; i++) {
        r->step[i] = (double)h->step[i].step;
        r->loss[i] = h->step[i].loss;
        r->rate[i] = h->step[i].rate;
        r->norm[i] = h->step[i].norm;
        r->speed[i] = h->step[i].seconds > 0 ? (double)h->step[i].tokens / h->step[i].seconds : NAN;
        r->done = h->step[i].step > r->done ? h->step[i].step : r->done;
    }
    for (size_t i = 0; i < h->validations; i++) {
        r->validation_step[i] = (double)h->validation[i].step;
        r->validation[i] = h->validation[i].loss;
    }
    smooth(r);
    return DRY_OK;
}

/* ---- time */

static int before(const void *left, const void *right)
{
    const struct dry_history_row *a = *(const struct dry_history_row *const *)left,
                                 *b = *(const struct dry_history_row *const *)right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int same_moment(const struct dry_history_row *a, const struct dry_history_row *b)
{
    return a->start == b->start && a->phase == b->phase && a->step == b->step;
}

/* The rows of a moment, one per rank, as one. */
static struct dry_report_moment moment_of(struct dry_history_row *const *row, size_t n)
{
    struct dry_report_moment m = {
        .start = row[0]->start, .ranks = (int)n, .phase = row[0]->phase, .step = row[0]->step};

    for (size_t i = 0; i < n; i++) {
        m.at += row[i]->began / (double)n;
        m.seconds += row[i]->seconds / (double)n;
        for (int s = 0; s < DRY_STAGES; s++) {
            m.stage[s] += row[i]->stage[s] / (double)n;
            m.slowest[s] = fmax(m.slowest[s], row[i]->stage[s]);
        }
    }
    return m;
}

static enum dry_status gather_moments(struct dry_report *r)
{
    const struct dry_history *h = r->h;
    struct dry_history_row **row = dry_alloc(h->rows, sizeof *row, "a report's steps");

    r->moment = dry_alloc(h->rows, sizeof *r->moment, "a report's steps");
    if (!row || !r->moment) {
        dry_free(row);
        return DRY_ERR_MEMORY;
    }
    for (size_t i = 0; i < h->rows; i++)
        row[i] = &h->row[i];
    if (h->rows)
        qsort(row, h->rows, sizeof *row, before);
    for (size_t i = 0, n; i < h->rows; i += n) {
        for (n = 1; i + n < h->rows && same_moment(row[i], row[i + n]);)
            n++;
        r->moment[r->moments++] = moment_of(row + i, n);
    }
    dry_free(row);
    return DRY_OK;
}

/* Where each start begins on the common axis. */
static enum dry_status gather_offsets(struct dry_report *r)
{
    const struct dry_history *h = r->h;

    r->starts = h->starts;
    for (size_t i = 0; i < h->rows; i++)
        r->starts = h->row[i].start >= r->starts ? h->row[i].start + 1 : r->starts;
    for (size_t i = 0; i < h->samples; i++)
        r->starts = h->sample[i].start >= r->starts ? h->sample[i].start + 1 : r->starts;
    r->offset = numbers((size_t)r->starts + 1);
    if (!r->offset)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->rows; i++) {
        double *length = &r->offset[h->row[i].start + 1];

        *length = fmax(*length, h->row[i].began + h->row[i].seconds);
    }
    for (size_t i = 0; i < h->samples; i++)
        if (isfinite(h->sample[i].at))
            r->offset[h->sample[i].start + 1] = fmax(r->offset[h->sample[i].start + 1], h->sample[i].at);
    for (int s = 0; s < r->starts; s++)
        r->offset[s + 1] += r->offset[s];
    for (size_t i = 0; i < r->moments; i++)
        r->moment[i].at += r->offset[r->moment[i].start];
    return DRY_OK;
}

/* A step that a later start did again: those starts go on from a checkpoint before it. */
static void find_superseded(struct dry_report *r)
{
    int64_t first = INT64_MAX;
    int start = -1;
    int64_t first_here = INT64_MAX;

    for (size_t i = r->moments; i-- > 0;) {
        struct dry_report_moment *m = &r->moment[i];

        if (m->start != start) {
            first = first_here < first ? first_here : first;
            first_here = INT64_MAX;
            start = m->start;
        }
        if (m->phase != DRY_PHASE_STEP)
            continue;
        first_here = m->step < first_here ? m->step : first_here;
        if (m->step >= first) {
            m->superseded = 1;
            r->again += m->seconds;
        }
    }
}

static void add_mark(struct dry_report *r, const struct dry_report_moment *m, enum dry_stage stage,
                     double end)
{
    struct dry_report_mark *mark = &r->mark[r->marks];

    if (!(m->slowest[stage] > 0))
        return;
    /* what is saved once more behind the last step */
    if (m->phase == DRY_PHASE_END && r->marks && r->mark[r->marks - 1].stage == stage)
        return;
    mark->stage = stage;
    mark->step = m->step ? m->step : r->done;
    mark->seconds = m->slowest[stage];
    mark->at = fmax(m->at, end - mark->seconds);
    r->marks++;
}

/* In a step's time, validation comes after the step and the checkpoint last. */
static enum dry_status gather_marks(struct dry_report *r)
{
    r->mark = dry_alloc(2 * r->moments, sizeof *r->mark, "a report's marks");
    if (!r->mark)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < r->moments; i++) {
        const struct dry_report_moment *m = &r->moment[i];
        double end = m->at + m->seconds;

        if (m->phase == DRY_PHASE_START)
            continue;
        add_mark(r, m, DRY_STAGE_VALIDATION, end - m->slowest[DRY_STAGE_CHECKPOINT]);
        add_mark(r, m, DRY_STAGE_CHECKPOINT, end);
    }
    return DRY_OK;
}

static enum dry_status gather_ranks(struct dry_report *r)
{
    const struct dry_history *h = r->h;
    int latest = -1;

    for (size_t i = 0; i < h->rows; i++)
        latest = h->row[i].start > latest ? h->row[i].start : latest;
    for (size_t i = 0; i < h->rows; i++)
        if (h->row[i].start == latest && h->row[i].rank >= r->ranks)
            r->ranks = h->row[i].rank + 1;
    r->rank_stage = dry_alloc((size_t)r->ranks, sizeof *r->rank_stage, "a report's ranks");
    if (!r->rank_stage)
        return DRY_ERR_MEMORY;
    for (size_t i = 0; i < h->rows; i++)
        for (int s = 0; h->row[i].start == latest && s < DRY_STAGES; s++)
            r->rank_stage[h->row[i].rank][s] += h->row[i].stage[s];
    return DRY_OK;
}

/* ---- what deserves attention */

static void warn_of_outcome(struct dry_report *r)
{
    const char *outcome = dry_report_text_at(r, "outcome", "");

    if (r->good < 0 && strcmp(r->outcome, "killed") == 0)
        warn(r, "The run was killed: it wrote no end, and nothing holds its folder's lock. Started again "
                "with the "
                "same command it goes on from its newest checkpoint.");
    else if (r->good < 0)
        warn(r, "The run failed (%s). Its log says what and where.", outcome);
    else if (strcmp(r->outcome, "running") == 0)
        warn(r, "The run is under way: the numbers are those of its files at the time of this report.");
    if (r->steps > 0 && r->done > 0 && r->done < r->steps && r->good >= 0 && strcmp(r->outcome, "running"))
        warn(r, "%lld of %lld steps are done; the same command goes on with the rest.", (long long)r->done,
             (long long)r->steps);
}

static void gather_warnings(struct dry_report *r)
{
    const json_t *changes = dry_report_at(r, "changes");
    size_t earlier = json_array_size(dry_report_at(r, "earlier_starts"));

    warn_of_outcome(r);
    if (r->h->steps == 0)
        warn(r, "No step is recorded in metrics.jsonl.");
    if (r->h->rows == 0)
        warn(r, "There is no stages.csv: where the time went is not known.");
    else if (r->accounted && r->account.unexplained > 0.02)
        warn(r, "%.1f %% of the wall-clock is unexplained (more than 2 %%).", 100 * r->account.unexplained);
    if (json_array_size(changes))
        warn(r,
             "The effective batch was changed %zu time%s with --accept-batch-change: losses before and after "
             "do "
             "not stand for the same number of records.",
             json_array_size(changes), json_array_size(changes) == 1 ? "" : "s");
    if (r->again > 0)
        warn(r, "%.1f s went into steps that a later start did again from a checkpoint before them.",
             r->again);
    if (earlier > 0)
        warn(r, "The run was started %zu times; the account and the verdict are of the latest start.",
             earlier + 1);
}

/* The maker of the account and of the verdict log what a run lacks for them; a report then goes without. */
static void gather_account(struct dry_report *r)
{
    const struct dry_account_range whole = {.start = -1, .whole = 1};

    if (r->h->rows == 0)
        return;
    dry_log_defer(1);
    r->accounted = !dry_account_make(r->h, &whole, &r->account);
    r->judged = r->accounted && !dry_verdict_make(r->h, &r->verdict);
    dry_log_discard();
    dry_log_defer(0);
}

enum dry_status dry_report_gather(const struct dry_history *h, const json_t *scaling, struct dry_report *r)
{
    enum dry_status status;

    memset(r, 0, sizeof *r);
    r->h = h;
    r->scaling = scaling;
    r->name = find_name(h->folder);
    status = r->name ? DRY_OK : DRY_ERR_MEMORY;
    find_outcome(r);
    r->steps = (int64_t)fmax(0, dry_report_number_at(r, "contract.steps"));
    if (!status)
        status = gather_curves(r);
    if (!status)
        status = gather_moments(r);
    if (!status)
        status = gather_offsets(r);
    if (!status)
        status = gather_marks(r);
    if (!status)
        status = gather_ranks(r);
    if (status) {
        dry_report_release(r);
        return status;
    }
    find_superseded(r);
    gather_account(r);
    gather_warnings(r);
    return DRY_OK;
}

void dry_report_release(struct dry_report *r)
{
    double *curve[] = {r->step, r->loss,  r->smooth,          r->rate,
                       r->norm, r->speed, r->validation_step, r->validation};

    for (size_t i = 0; i < sizeof curve / sizeof *curve; i++)
        dry_free(curve[i]);
    for (int i = 0; i < r->warnings; i++)
        dry_free(r->warning[i]);
    dry_free(r->rank_stage);
    dry_free(r->mark);
    dry_free(r->moment);
    dry_free(r->offset);
    dry_free(r->name);
    json_decref(r->lengths);
}
