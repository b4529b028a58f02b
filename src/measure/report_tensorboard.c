/*
 * Writes a run's curves, stages and samples as a TensorBoard event file.
 * Owns the records until they are written.
 * Must not know how records are encoded.
 */
#include "config.h"

#include "measure/report.h"

#include "measure/report_facts.h"
#include "measure/tfrecord.h"

#include "base/file.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char ending[] = ".drydock";

struct events {
    struct dry_buffer buffer;
    const struct dry_report *r;
    double *began; /* [starts]: seconds since 1970 when its process began */
    size_t next;   /* moment that the next step is looked for from */
    int failed;
};

static void put(struct events *e, double wall, int64_t step, const char *tag, double value)
{
    if (!e->failed && isfinite(value) && dry_tfrecord_scalar(&e->buffer, wall, step, tag, value))
        e->failed = 1;
}

/* run.json tells when a start's manifest was written, which is in the time before its first step. */
static enum dry_status find_began(struct events *e)
{
    const struct dry_report *r = e->r;
    const json_t *earlier = dry_report_at(r, "earlier_starts");
    double last = 0;

    e->began = dry_alloc((size_t)r->starts + 1, sizeof *e->began, "times of starts");
    if (!e->began)
        return DRY_ERR_MEMORY;
    for (int s = 0; s < r->starts; s++) {
        const json_t *start = s + 1 < r->starts ? json_array_get(earlier, (size_t)s) : r->h->run;
        double wall = dry_report_time(json_string_value(json_object_get(start, "began")));

        if (!isfinite(wall))
            wall = dry_report_time(json_string_value(json_object_get(start, "started")));
        e->began[s] = isfinite(wall) ? wall : last;
        last = e->began[s];
    }
    return DRY_OK;
}

/* When a step ended: where the account has it, else as far into the run as the steps before took. Steps are
 * asked for by rising number. */
static double wall_of(struct events *e, int64_t step, double since)
{
    const struct dry_report *r = e->r;

    for (; e->next < r->moments; e->next++) {
        const struct dry_report_moment *m = &r->moment[e->next];

        if (m->phase != DRY_PHASE_STEP || m->superseded || m->step < step)
            continue;
        if (m->step > step)
            break;
        return e->began[m->start] + m->at - r->offset[m->start] + m->seconds;
    }
    return e->began[0] + since;
}

static void put_validation(struct events *e, double wall, const struct dry_history_validation *v)
{
    put(e, wall, v->step, "loss/validation", v->loss);
    put(e, wall, v->step, "loss/validation_perplexity", v->perplexity);
}

static void put_steps(struct events *e)
{
    const struct dry_report *r = e->r;
    double since = 0, wall = e->began[0];
    size_t v = 0;

    for (size_t i = 0; i < r->h->steps; i++) {
        const struct dry_history_step *s = &r->h->step[i];

        since += s->seconds;
        wall = wall_of(e, s->step, since);
        put(e, wall, s->step, "loss/training", s->loss);
        put(e, wall, s->step, "loss/smoothed", r->smooth[i]);
        put(e, wall, s->step, "optimizer/learning_rate", s->rate);
        put(e, wall, s->step, "optimizer/gradient_norm", s->norm);
        put(e, wall, s->step, "throughput/tokens_per_second", r->speed[i]);
        for (; v < r->h->validations && r->h->validation[v].step <= s->step; v++)
            put_validation(e, wall, &r->h->validation[v]);
    }
    for (; v < r->h->validations; v++)
        put_validation(e, wall, &r->h->validation[v]);
}

/* "stages/data_wait" */
static void stage_tag(enum dry_stage stage, char *tag, size_t size)
{
    snprintf(tag, size, "stages/%s", dry_stage_name(stage));
    for (char *c = tag; *c; c++)
        if (*c != '/' && !isalnum((unsigned char)*c))
            *c = '_';
}

/* Seconds of each step, mean over ranks; stages that take no time in any step have no curve. */
static void put_stages(struct events *e)
{
    const struct dry_report *r = e->r;
    double all[DRY_STAGES] = {0};
    char tag[64];

    for (size_t i = 0; i < r->moments; i++)
        for (int s = 0; s < DRY_STAGES && r->moment[i].phase == DRY_PHASE_STEP; s++)
            all[s] += r->moment[i].stage[s];
    for (size_t i = 0; i < r->moments; i++) {
        const struct dry_report_moment *m = &r->moment[i];

        if (m->phase != DRY_PHASE_STEP || m->superseded)
            continue;
        for (int s = 0; s < DRY_STAGES; s++) {
            if (!(all[s] > 0))
                continue;
            stage_tag((enum dry_stage)s, tag, sizeof tag);
            put(e, e->began[m->start] + m->at - r->offset[m->start] + m->seconds, m->step, tag, m->stage[s]);
        }
    }
}

static void put_sample(struct events *e, const struct dry_history_sample *s, const char *what, double value)
{
    char tag[96];

    if (s->index >= 0)
        snprintf(tag, sizeof tag, "gpu/%s/rank%d_gpu%d", what, s->rank, s->index);
    else
        snprintf(tag, sizeof tag, "process/%s/rank%d", what, s->rank);
    put(e, e->began[s->start] + s->at, s->step, tag, value);
}

static void put_samples(struct events *e)
{
    for (size_t i = 0; i < e->r->h->samples; i++) {
        const struct dry_history_sample *s = &e->r->h->sample[i];

        if (s->start >= e->r->starts || !isfinite(s->at))
            continue;
        put_sample(e, s, s->index >= 0 ? "utilisation_percent" : "cpu_percent", s->busy);
        put_sample(e, s, "memory_utilisation_percent", s->memory_busy);
        put_sample(e, s, "memory_GiB", s->memory / (1 << 30));
        put_sample(e, s, "power_W", s->power);
        put_sample(e, s, "sm_clock_MHz", s->clock);
        put_sample(e, s, "temperature_C", s->temperature);
        put_sample(e, s, "storage_read_MiB_per_s", s->read / (1 << 20));
        put_sample(e, s, "storage_written_MiB_per_s", s->written / (1 << 20));
    }
}

static int is_ours(const char *name)
{
    size_t n = strlen(name), tail = sizeof ending - 1;

    return strncmp(name, "events.out.tfevents.", 20) == 0 && n > tail && strcmp(name + n - tail, ending) == 0;
}

/* TensorBoard would show the earlier file's points beside the new one's. */
static enum dry_status remove_earlier(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    enum dry_status status = dry_dir_list(folder, &names, &count);

    for (size_t i = 0; i < count && !status; i++) {
        char *path = is_ours(names[i]) ? dry_path_join(folder, names[i]) : NULL;

        if (path && unlink(path)) {
            dry_error("%s: cannot be removed: %s", path, strerror(errno));
            status = DRY_ERR_IO;
        }
        dry_free(path);
    }
    dry_dir_free(names, count);
    return status;
}

static enum dry_status write_file(struct events *e, const char *folder)
{
    char *path;
    enum dry_status status = dry_dir_make(folder);

    if (status || (status = remove_earlier(folder)))
        return status;
    path = dry_format("%s/events.out.tfevents.%010.0f%s", folder, floor(fmax(0, e->began[0])), ending);
    if (!path)
        return DRY_ERR_MEMORY;
    status = dry_file_write(path, e->buffer.data, e->buffer.len);
    dry_free(path);
    return status;
}

enum dry_status dry_report_tensorboard(const struct dry_history *h, const char *folder)
{
    struct dry_report r;
    struct events e = {.r = &r};
    enum dry_status status = dry_report_gather(h, NULL, &r);

    if (status)
        return status;
    status = find_began(&e);
    if (!status) {
        if (dry_tfrecord_version(&e.buffer, e.began[0]))
            e.failed = 1;
        put_steps(&e);
        put_stages(&e);
        put_samples(&e);
        status = e.failed ? DRY_ERR_MEMORY : write_file(&e, folder);
    }
    dry_buffer_reset(&e.buffer);
    dry_free(e.began);
    dry_report_release(&r);
    return status;
}
