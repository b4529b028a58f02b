/*
 * scale's runs: one finetune for each rank count on a part of the allocation, read back into rows.
 * Owns the configuration and the communicator of a run while it runs.
 * Must not know how a run trains, or what is concluded.
 */
#include "config.h"

#include "command/scale.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "data/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ---- */

/* The value of one option, as scale got it, for the run. */
static enum dry_status take_option(const json_t *given, const struct dry_option *o, struct dry_config *c)
{
    const json_t *value = json_object_get(given, "value");
    const char *origin = json_string_value(json_object_get(given, "origin"));
    char number[64];

    if (!value || json_is_null(value) || (origin && strcmp(origin, "default") == 0))
        return DRY_OK;
    if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(number, sizeof number, "%s", json_is_true(value) ? "true" : "false");
    /* as of a file: a text is as it was understood, and not escaped once more */
    return dry_config_set(c, o->flag, json_is_string(value) ? json_string_value(value) : number,
                          DRY_ORIGIN_FILE);
}

static enum dry_status set_whole(struct dry_config *c, const char *flag, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    return dry_config_set(c, flag, text, DRY_ORIGIN_ARGUMENT);
}

/* What the run has of its own: folder, records, steps; and the effective batch that was resolved once for the
 * allocation. */
static enum dry_status set_own(const struct dry_scale *s, const struct dry_scale_run *r, struct dry_config *c)
{
    const struct dry_config *given = s->call->config;
    char *cache = dry_path_join(given->output, "cache");
    enum dry_status status = cache ? DRY_OK : DRY_ERR_MEMORY;

    if (!status)
        status = dry_config_set(c, "output", r->folder, DRY_ORIGIN_ARGUMENT);
    if (!status)
        status = dry_config_set(c, "data", s->part_path, DRY_ORIGIN_ARGUMENT);
    if (!status)
        status = dry_config_set(c, "cache", given->cache ? given->cache : cache, DRY_ORIGIN_ARGUMENT);
    if (!status)
        status = dry_config_set(c, "resume", "never", DRY_ORIGIN_ARGUMENT);
    if (!status)
        status = set_whole(c, "max-steps", given->steps);
    if (!status)
        status = set_whole(c, "checkpoint-interval", s->interval);
    if (!status)
        status = set_whole(c, "effective-batch", s->contract.effective_batch);
    if (!status)
        status = set_whole(c, "gradient-accumulation-steps", 0);
    if (!status && given->warmup_steps >= given->steps)
        status = set_whole(c, "warmup-steps", -1);
    dry_free(cache);
    return status;
}

static enum dry_status make_config(const struct dry_scale *s, const struct dry_scale_run *r,
                                   struct dry_config **config)
{
    const struct dry_option *table = dry_option_table();
    json_t *given = dry_config_json(s->call->config, DRY_CMD_SCALE);
    struct dry_config *c = NULL;
    enum dry_status status = given ? dry_config_create(&c) : DRY_ERR_MEMORY;

    for (int i = 0; table[i].flag && !status; i++) {
        char key[64];

        if (!(table[i].commands & DRY_CMD_FINETUNE) || !(table[i].commands & DRY_CMD_SCALE))
            continue;
        snprintf(key, sizeof key, "%s", table[i].flag);
        for (char *k = key; *k; k++)
            *k = *k == '-' ? '_' : *k;
        status = take_option(json_object_get(given, key), &table[i], c);
    }
    if (!status)
        status = set_own(s, r, c);
    json_decref(given);
    if (status)
        dry_config_destroy(c);
    else
        *config = c;
    return status;
}

/* Collective over the part. Only warnings and errors of the run are shown. */
static enum dry_status run_part(const struct dry_scale *s, struct dry_scale_run *r, struct dry_comm *part)
{
    enum dry_log_level level = dry_log_level_now();
    struct dry_call call = *s->call;
    struct dry_config *config = NULL;
    enum dry_status status = dry_comm_agree(part, make_config(s, r, &config));

    if (!status) {
        call.comm = part;
        call.config = config;
        call.started = dry_clock_now();
        if (level == DRY_LOG_INFO)
            dry_log_set_level(DRY_LOG_WARN);
        status = dry_command_finetune(&call);
        dry_log_set_level(level);
    }
    dry_config_destroy(config);
    return status;
}

/* Collective. The run's status to all; more than one kind of failure leaves the worst. */
static enum dry_status share_status(const struct dry_scale *s, struct dry_scale_run *r, enum dry_status mine)
{
    int64_t worst = mine;
    enum dry_status status = dry_comm_max_i64(s->world, &worst, 1);

    r->status = (enum dry_status)worst;
    return status;
}

enum dry_status dry_scale_run(struct dry_scale *s, int i)
{
    const struct dry_config *c = s->call->config;
    struct dry_scale_run *r = &s->run[i];
    struct dry_comm *part = NULL;
    double began = dry_clock_now();
    char name[32], span[32];
    enum dry_status status;

    snprintf(name, sizeof name, "ranks-%d", r->ranks);
    r->folder = dry_path_join(c->output, name);
    status = dry_comm_agree(s->world, r->folder ? DRY_OK : DRY_ERR_MEMORY);
    if (status)
        return status;
    dry_info("scale %d of %d: %d rank%s, %lld steps", i + 1, s->runs, r->ranks, dry_plural(r->ranks),
             (long long)c->steps);
    status = dry_comm_split(s->world, s->rank < r->ranks ? 0 : -1, &part);
    if (status)
        return status;
    if (part)
        status = run_part(s, r, part);
    dry_comm_destroy(part);
    if (dry_comm_rest(s->world))
        return DRY_ERR_COMM;
    status = share_status(s, r, status);
    if (status)
        return status;
    dry_clock_span(dry_clock_now() - began, span, sizeof span);
    if (r->status == DRY_STOPPED)
        return DRY_STOPPED;
    if (r->status && s->rank == 0)
        dry_warn(
            "scale: %d rank%s failed after %s (%s; the lines above say why); the other rank counts go on",
            r->ranks, dry_plural(r->ranks), span, dry_status_name(r->status));
    else
        dry_info("scale %d of %d: %d rank%s done in %s, start-up included", i + 1, s->runs, r->ranks,
                 dry_plural(r->ranks), span);
    return DRY_OK;
}

/* ---- read back ---- */

/* Most ranks of a run on one host. */
static int together_of(const json_t *run, int ranks)
{
    const json_t *devices = json_object_get(run, "devices"), *one, *other;
    size_t i, j;
    int most = 0;

    json_array_foreach(devices, i, one)
    {
        const char *host = json_string_value(json_object_get(one, "host"));
        int here = 0;

        json_array_foreach(devices, j, other)
        {
            const char *there = json_string_value(json_object_get(other, "host"));

            here += host && there && strcmp(host, there) == 0;
        }
        most = here > most ? here : most;
    }
    return most > 0 ? most : ranks;
}

/* Checkpoints that fall to the counted steps: at the interval, and after the last step. */
static int64_t checkpoints_of(const struct dry_scale *s)
{
    int64_t steps = s->call->config->steps, count = 1;

    for (int64_t step = s->first; step < steps; step++)
        count += step % s->interval == 0;
    return count;
}

/* Why a run cannot stand beside the first of the rows; NULL: it can. */
static const char *compare(const struct dry_scale *s, const struct dry_scale_run *r,
                           const struct dry_scaling_row *row)
{
    const json_t *contract = json_object_get(r->run, "contract");
    const char *plan = json_string_value(json_object_get(r->run, "plan_hash"));
    const char *first =
        s->rows > 0 ? json_string_value(json_object_get(s->run[s->of[0]].run, "plan_hash")) : plan;

    if (json_integer_value(json_object_get(contract, "effective_batch")) != s->contract.effective_batch)
        return "another effective batch";
    if (plan && first && strcmp(plan, first) != 0)
        return "other records a step";
    if (row->account.steps != s->call->config->steps - s->first + 1)
        return "fewer steps were done";
    return NULL;
}

/* What belongs to a short run on purpose is no cause of the training: it starts, and saves more often than
 * the training will. What the training's own checkpoints cost is told apart. */
static void leave_out(struct dry_history *h)
{
    for (size_t i = 0; i < h->rows; i++) {
        struct dry_history_row *w = &h->row[i];

        for (int k = 0; k < DRY_STAGES; k++) {
            if (k != DRY_STAGE_STARTUP && k != DRY_STAGE_TOKENISE && k != DRY_STAGE_CHECKPOINT &&
                k != DRY_STAGE_VALIDATION)
                continue;
            w->seconds -= w->stage[k];
            w->stage[k] = 0;
        }
    }
}

static enum dry_status read_row(struct dry_scale *s, struct dry_scale_run *r)
{
    struct dry_account_range range = {.start = -1, .first = s->first};
    struct dry_scaling_row *row = &s->row[s->rows];
    struct dry_history *h = NULL;
    struct dry_plan_share share;
    enum dry_status status = dry_history_open(r->folder, &h);

    if (!status)
        status = dry_account_make(h, &range, &row->account);
    if (!status) {
        leave_out(h);
        status = dry_verdict_make(h, &row->verdict);
    }
    if (!status)
        status = dry_plan_shares_of(s->part_plan, s->first, s->call->config->steps, r->ranks, &share);
    if (!status) {
        r->run = json_incref(h->run);
        r->adapter = json_string_value(json_object_get(json_object_get(r->run, "results"), "adapter_sha256"));
        r->tokens = row->account.tokens / (double)row->account.steps;
        row->ranks = r->ranks;
        row->together = together_of(r->run, r->ranks);
        row->load = share.load;
        row->mean_load = share.mean_load;
        row->micros = share.most;
        row->effective_batch = s->contract.effective_batch;
        row->steps_per_epoch = s->contract.steps_per_epoch;
        row->checkpoints = checkpoints_of(s);
        row->differs = r->differs = compare(s, r, row);
        if (!r->differs)
            s->of[s->rows++] = (int)(r - s->run);
    }
    dry_history_close(h);
    return status;
}

int64_t dry_scale_saves(const struct dry_scale *s)
{
    int64_t interval = s->call->config->checkpoint_interval;

    return interval > 0 ? dry_pieces(s->contract.steps, interval) : 1;
}

/* Seconds a step as the training will have them, and the rows against the smallest. */
static void derive(struct dry_scale *s)
{
    for (int i = 0; i < s->rows; i++) {
        struct dry_scale_run *r = &s->run[s->of[i]], *first = &s->run[s->of[0]];
        struct dry_scaling_parts p = dry_scaling_parts(&s->row[i]);

        r->checkpoint = p.checkpoint * (double)dry_scale_saves(s) / (double)s->contract.steps;
        r->step = p.arrive + p.reduce + p.fixed + r->checkpoint;
        r->speedup = first->step * first->ranks / r->step;
        r->efficiency = r->speedup / r->ranks;
    }
}

enum dry_status dry_scale_rows(struct dry_scale *s)
{
    int wide = 0;
    enum dry_status status = DRY_OK;

    for (int i = 0; i < s->runs && !status; i++)
        if (s->run[i].status == DRY_OK && s->run[i].folder)
            status = read_row(s, &s->run[i]);
    if (status)
        return status;
    if (s->rows == 0) {
        dry_error("scale: no rank count of %d could be measured; the lines above say why", s->runs);
        return DRY_ERR_INPUT;
    }
    s->bytes = (double)((size_t)s->adapter->parameters + DRY_SUMS) * sizeof(int64_t);
    for (int i = 0; i < s->rows; i++)
        wide |= s->row[i].ranks > 1;
    if (!wide)
        status = dry_scaling_bandwidth(s->bytes, &s->bandwidth);
    if (!status)
        status = dry_scaling_fit(s->row, s->rows, s->bytes, s->bandwidth, &s->model);
    if (!status)
        derive(s);
    return status;
}
