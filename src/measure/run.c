/*
 * A run's manifest and metrics from its start to its end.
 * Owns run.json's content while the run runs, and the metrics file.
 * Must not know of ranks: one rank calls it.
 */
#include "config.h"

#include "measure/run.h"

#include "measure/manifest.h"
#include "measure/metrics.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dry_run {
    char *path; /* of run.json */
    json_t *root;
    struct dry_metrics *metrics;
    double before[DRY_STAGES]; /* the account at the last metrics line */
};

static void destroy(struct dry_run *r)
{
    dry_metrics_close(r->metrics);
    json_decref(r->root);
    dry_free(r->path);
    dry_free(r);
}

/* The manifest of the starts before, if there is one. A damaged one, of which the finder of the contract has
 * told, is kept beside the new one. */
static enum dry_status read_earlier(const char *path, json_t **earlier)
{
    char *aside = NULL;
    enum dry_status status;

    if (!dry_file_exists(path))
        return DRY_OK;
    dry_log_defer(1);
    status = dry_json_read(path, earlier);
    if (status == DRY_ERR_INPUT)
        dry_log_discard();
    dry_log_defer(0);
    if (status != DRY_ERR_INPUT)
        return status;
    if (!(aside = dry_format("%s.damaged", path)))
        return DRY_ERR_MEMORY;
    status = DRY_OK;
    if (rename(path, aside)) {
        dry_error("%s: cannot be renamed to %s: %s", path, aside, strerror(errno));
        status = DRY_ERR_IO;
    }
    dry_free(aside);
    return status;
}

enum dry_status dry_run_start(const char *output, const struct dry_manifest *m, struct dry_run **run)
{
    struct dry_run *r = dry_alloc(1, sizeof *r, "the run's manifest");
    json_t *earlier = NULL;
    enum dry_status status = DRY_OK;

    if (!r)
        return DRY_ERR_MEMORY;
    if (!(r->path = dry_path_join(output, "run.json")))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = read_earlier(r->path, &earlier);
    if (!status && !(r->root = dry_manifest_json(m, earlier)))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = dry_json_write(r->path, r->root);
    if (!status)
        status = dry_metrics_open(output, m->resumed_from, m->resumed_validated, &r->metrics);
    json_decref(earlier);
    if (status)
        destroy(r);
    else
        *run = r;
    return status;
}

enum dry_status dry_run_step(struct dry_run *r, const struct dry_step_report *s,
                             const struct dry_stages *stages)
{
    json_t *line =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "step", (json_int_t)s->step,
                  "epoch", (json_int_t)s->epoch + 1, "loss", s->loss, "norm", s->norm, "learning_rate",
                  s->rate, "records", (json_int_t)s->records, "tokens", (json_int_t)s->useful,
                  "padded_tokens", (json_int_t)s->tokens, "supervised", (json_int_t)s->supervised, "seconds",
                  s->seconds, "tokens_per_second", s->seconds > 0 ? (double)s->useful / s->seconds : 0.0,
                  "stages", dry_manifest_stages(stages, r->before));

    memcpy(r->before, stages->seconds, sizeof r->before);
    return dry_metrics_put(r->metrics, line);
}

enum dry_status dry_run_validation(struct dry_run *r, const struct dry_validation_report *v)
{
    return dry_metrics_put(r->metrics, json_pack("{s:I, s:f, s:f, s:I, s:b}", "step", (json_int_t)v->step,
                                                 "validation_loss", v->loss, "perplexity", v->perplexity,
                                                 "supervised", (json_int_t)v->supervised, "best", v->best));
}

/* Takes the value. */
static int add(json_t *root, const char *key, json_t *value)
{
    return value ? json_object_set_new(root, key, value) : 0;
}

enum dry_status dry_run_finish(struct dry_run *r, enum dry_status outcome, const struct dry_stages *stages,
                               const struct dry_run_end *given)
{
    static const struct dry_run_end nothing;
    const struct dry_run_end *end = given ? given : &nothing;
    enum dry_status status = DRY_OK;
    char now[40];
    int bad;

    if (!r) {
        json_decref(end->results);
        json_decref(end->algorithms);
        json_decref(end->account);
        json_decref(end->verdict);
        return DRY_OK;
    }
    dry_clock_iso(now, sizeof now);
    bad = json_object_set_new(r->root, "finished", json_string(now));
    bad = json_object_set_new(r->root, "exit", json_integer(dry_status_exit(outcome))) || bad;
    bad = json_object_set_new(r->root, "outcome",
                              json_string(outcome == DRY_OK ? "done" : dry_status_name(outcome))) ||
          bad;
    bad = json_object_set_new(r->root, "stages", dry_manifest_stages(stages, NULL)) || bad;
    bad = add(r->root, "results", end->results) || bad;
    bad = add(r->root, "algorithms", end->algorithms) || bad;
    bad = add(r->root, "account", end->account) || bad;
    bad = add(r->root, "verdict", end->verdict) || bad;
    if (bad) {
        dry_error("%s: no memory for the run's end", r->path);
        status = DRY_ERR_MEMORY;
    } else {
        status = dry_json_write(r->path, r->root);
    }
    destroy(r);
    return status;
}

char *dry_run_manifest_text(const struct dry_run *r)
{
    /* A checkpoint has no trace of how many ranks made it, nor of where. */
    static const char *const dropped[] = {"ranks",   "host",    "earlier_starts", "resumed_from",
                                          "outcome", "exit",    "finished",       "devices",
                                          "matrix",  "storage", "page_cache"};
    json_t *root = json_copy(r->root);
    char *text = NULL, *copy = NULL;

    for (size_t i = 0; root && i < sizeof dropped / sizeof *dropped; i++)
        json_object_del(root, dropped[i]);
    if (root)
        text = json_dumps(root, JSON_COMPACT);
    if (text)
        copy = dry_strdup(text);
    free(text);
    json_decref(root);
    return copy;
}

enum dry_status dry_run_contract(const char *output, struct dry_contract *k, json_t **options, int *found)
{
    char *path = dry_path_join(output, "run.json");
    json_t *root = NULL, *contract;
    enum dry_status status = DRY_OK;

    if (!path)
        return DRY_ERR_MEMORY;
    if (!dry_file_exists(path)) {
        *found = 0;
        goto out;
    }
    status = dry_json_read(path, &root);
    if (status)
        goto out;
    contract = json_object_get(root, "contract");
    if (!json_is_object(contract)) {
        dry_error("%s: has no contract; it was not written by finetune; give another --output", path);
        status = DRY_ERR_INPUT;
    } else {
        status = dry_contract_from_json(contract, path, k);
    }
    if (!status) {
        *found = 1;
        if (options)
            *options = json_incref(json_object_get(root, "options"));
    }
out:
    json_decref(root);
    dry_free(path);
    return status;
}
