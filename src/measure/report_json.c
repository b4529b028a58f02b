/*
 * Everything that a report shows, as numbers.
 * Owns nothing; what it returns is the caller's.
 * Must not know how the page looks.
 */
#include "config.h"

#include "measure/report.h"

#include "measure/report_facts.h"

#include "base/log.h"

#include <math.h>

/* Takes value; a lack of memory anywhere leaves root without the member and sets *bad. */
static void put(json_t *root, const char *key, json_t *value, int *bad)
{
    if (!value || json_object_set_new(root, key, value))
        *bad = 1;
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *column(const double *x, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < n; i++)
        if (json_array_append_new(array, real(x[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *whole_column(const double *x, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < n; i++)
        if (json_array_append_new(array, json_integer((json_int_t)x[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *curves(const struct dry_report *r)
{
    json_t *o = json_object();
    int bad = !o;
    size_t n = r->h->steps;

    put(o, "step", whole_column(r->step, n), &bad);
    put(o, "loss", column(r->loss, n), &bad);
    put(o, "smoothed", column(r->smooth, n), &bad);
    put(o, "learning_rate", column(r->rate, n), &bad);
    put(o, "norm", column(r->norm, n), &bad);
    put(o, "tokens_per_second", column(r->speed, n), &bad);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *validations(const struct dry_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < r->h->validations; i++) {
        const struct dry_history_validation *v = &r->h->validation[i];

        if (json_array_append_new(array,
                                  json_pack("{s:I, s:o, s:o, s:I, s:b}", "step", (json_int_t)v->step, "loss",
                                            real(v->loss), "perplexity", real(v->perplexity), "supervised",
                                            (json_int_t)v->supervised, "best", v->best))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *stages(const double *stage)
{
    json_t *o = json_object();

    for (int s = 0; o && s < DRY_STAGES; s++)
        if (json_object_set_new(o, dry_stage_name((enum dry_stage)s), real(stage[s]))) {
            json_decref(o);
            return NULL;
        }
    return o;
}

static json_t *ranks(const struct dry_report *r)
{
    json_t *array = json_array();

    for (int i = 0; array && i < r->ranks; i++)
        if (json_array_append_new(array,
                                  json_pack("{s:i, s:o}", "rank", i, "stages", stages(r->rank_stage[i])))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Means over ranks, on the page's time axis. */
static json_t *moments(const struct dry_report *r)
{
    static const char *const phase[] = {"start", "step", "end"};
    json_t *array = json_array();

    for (size_t i = 0; array && i < r->moments; i++) {
        const struct dry_report_moment *m = &r->moment[i];

        if (json_array_append_new(array, json_pack("{s:i, s:s, s:I, s:f, s:f, s:b, s:o}", "start", m->start,
                                                   "phase", phase[m->phase], "step", (json_int_t)m->step,
                                                   "at", m->at, "seconds", m->seconds, "done_again",
                                                   m->superseded, "stages", stages(m->stage)))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *marks(const struct dry_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < r->marks; i++) {
        const struct dry_report_mark *m = &r->mark[i];

        if (json_array_append_new(array,
                                  json_pack("{s:s, s:I, s:f, s:f}", "what", dry_stage_name(m->stage), "step",
                                            (json_int_t)m->step, "at", m->at, "seconds", m->seconds))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *sample(const struct dry_report *r, const struct dry_history_sample *s)
{
    return json_pack(
        "{s:f, s:i, s:i, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "at",
        r->offset[s->start] + s->at, "start", s->start, "rank", s->rank, "gpu",
        s->index >= 0 ? json_integer(s->index) : json_null(), "step", (json_int_t)s->step, "stage",
        dry_stage_name(s->stage), "utilisation", real(s->busy), "memory_utilisation", real(s->memory_busy),
        "memory_bytes", real(s->memory), "watts", real(s->power), "sm_clock_mhz", real(s->clock), "throttle",
        (json_int_t)s->throttle, "celsius", real(s->temperature), "pcie_in", real(s->pcie_in), "pcie_out",
        real(s->pcie_out), "nvlink_in", real(s->nvlink_in), "nvlink_out", real(s->nvlink_out), "storage_read",
        real(s->read));
}

static json_t *samples(const struct dry_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < r->h->samples; i++) {
        json_t *one = sample(r, &r->h->sample[i]);

        if (!one || json_object_set_new(one, "storage_written", real(r->h->sample[i].written)) ||
            json_array_append(array, one)) {
            json_decref(one);
            json_decref(array);
            return NULL;
        }
        json_decref(one);
    }
    return array;
}

static json_t *warnings(const struct dry_report *r)
{
    json_t *array = json_array();

    for (int i = 0; array && i < r->warnings; i++)
        if (json_array_append_new(array, json_string(r->warning[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *borrowed(const json_t *value)
{
    return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

static json_t *put_all(const struct dry_report *r)
{
    json_t *o = json_object(), *name = json_string(r->name);
    int bad = !o;

    put(o, "name", name ? name : json_null(), &bad); /* null: a name that is no UTF-8 */
    put(o, "outcome", json_string(r->outcome), &bad);
    put(o, "steps", json_integer((json_int_t)r->steps), &bad);
    put(o, "steps_done", json_integer((json_int_t)r->done), &bad);
    put(o, "seconds", real(r->offset[r->starts]), &bad);
    put(o, "starts", json_integer(r->starts), &bad);
    put(o, "warnings", warnings(r), &bad);
    put(o, "contract", borrowed(dry_report_at(r, "contract")), &bad);
    put(o, "account", r->accounted ? dry_account_json(&r->account) : json_null(), &bad);
    put(o, "verdict", r->judged ? dry_verdict_json(&r->verdict) : json_null(), &bad);
    put(o, "curves", curves(r), &bad);
    put(o, "validations", validations(r), &bad);
    put(o, "ranks", ranks(r), &bad);
    put(o, "time", moments(r), &bad);
    put(o, "marks", marks(r), &bad);
    put(o, "samples", samples(r), &bad);
    put(o, "lengths", borrowed(r->lengths), &bad);
    put(o, "scaling", borrowed(r->scaling), &bad);
    put(o, "run", borrowed(r->h->run), &bad);
    if (!bad)
        return o;
    dry_error("no memory for the report as JSON");
    json_decref(o);
    return NULL;
}

json_t *dry_report_json(const struct dry_history *h, const json_t *scaling)
{
    struct dry_report r;
    json_t *root;

    if (dry_report_gather(h, scaling, &r))
        return NULL;
    dry_report_lengths(&r);
    root = put_all(&r);
    dry_report_release(&r);
    return root;
}
