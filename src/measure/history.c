/*
 * Reads a run's folder back: manifest, metrics, stages and samples.
 * Owns what it has read until closed.
 * Must not know what is concluded from it; the files' form is measure's own.
 */
#include "config.h"

#include "measure/history.h"

#include "measure/csv.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MOST = 1 << 20, STARTS_MOST = 1 << 20, LINES_AT_FIRST = 256 };

/* Room for one more element of a growing array. */
static void *room(void *array, size_t count, size_t *capacity, size_t size, const char *what)
{
    size_t more = *capacity ? 2 * *capacity : LINES_AT_FIRST;

    if (count < *capacity)
        return array;
    array = array ? dry_realloc(array, *capacity, more, size, what) : dry_alloc(more, size, what);
    if (array)
        *capacity = more;
    return array;
}

/* ---- metrics.jsonl ---- */

struct metrics_reader {
    const char *path;
    size_t steps_room, validations_room;
};

static enum dry_status take_step(struct dry_history *h, struct metrics_reader *m, const json_t *line,
                                 const char *where)
{
    struct dry_history_step s = {0}, *all;
    enum dry_status status;

    all = room(h->step, h->steps, &m->steps_room, sizeof *all, "the run's steps");
    if (!all)
        return DRY_ERR_MEMORY;
    h->step = all;
    if ((status = dry_json_int(line, "step", 1, 0, where, &s.step)) ||
        (status = dry_json_int(line, "epoch", 0, 0, where, &s.epoch)) ||
        (status = dry_json_int(line, "records", 0, 0, where, &s.records)) ||
        (status = dry_json_int(line, "tokens", 0, 0, where, &s.tokens)) ||
        (status = dry_json_int(line, "padded_tokens", 0, 0, where, &s.padded)) ||
        (status = dry_json_int(line, "supervised", 0, 0, where, &s.supervised)) ||
        (status = dry_json_real(line, "loss", 1, 0, where, &s.loss)) ||
        (status = dry_json_real(line, "norm", 0, NAN, where, &s.norm)) ||
        (status = dry_json_real(line, "learning_rate", 0, NAN, where, &s.rate)) ||
        (status = dry_json_real(line, "seconds", 0, NAN, where, &s.seconds)))
        return status;
    if (h->steps > 0 && s.step <= h->step[h->steps - 1].step) {
        dry_error("%s: step %lld stands behind step %lld", where, (long long)s.step,
                  (long long)h->step[h->steps - 1].step);
        return DRY_ERR_INPUT;
    }
    h->step[h->steps++] = s;
    return DRY_OK;
}

static enum dry_status take_validation(struct dry_history *h, struct metrics_reader *m, const json_t *line,
                                       const char *where)
{
    struct dry_history_validation v = {0}, *all;
    enum dry_status status;

    all = room(h->validation, h->validations, &m->validations_room, sizeof *all, "the run's validations");
    if (!all)
        return DRY_ERR_MEMORY;
    h->validation = all;
    if ((status = dry_json_int(line, "step", 1, 0, where, &v.step)) ||
        (status = dry_json_int(line, "supervised", 0, 0, where, &v.supervised)) ||
        (status = dry_json_real(line, "validation_loss", 1, 0, where, &v.loss)) ||
        (status = dry_json_real(line, "perplexity", 0, NAN, where, &v.perplexity)) ||
        (status = dry_json_bool(line, "best", 0, 0, where, &v.best)))
        return status;
    h->validation[h->validations++] = v;
    return DRY_OK;
}

static enum dry_status take_metrics(struct dry_history *h, struct metrics_reader *m, const char *text,
                                    size_t length, long number)
{
    json_error_t error;
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    char where[4096];
    enum dry_status status;

    if (!json_is_object(line)) {
        dry_error("%s:%ld: the line is damaged: it is no JSON object (%s)", m->path, number,
                  line ? "another value" : error.text);
        json_decref(line);
        return DRY_ERR_INPUT;
    }
    snprintf(where, sizeof where, "%s:%ld", m->path, number);
    status = json_object_get(line, "validation_loss") ? take_validation(h, m, line, where)
                                                      : take_step(h, m, line, where);
    json_decref(line);
    return status;
}

static enum dry_status read_metrics(struct dry_history *h, const char *path)
{
    struct metrics_reader m = {.path = path};
    enum dry_status status = DRY_OK;
    size_t size = 0;
    char *text = NULL, *end;
    long number = 0;

    if (dry_file_exists(path))
        status = dry_file_read(path, &text, &size);
    /* A last line without its newline was being written when the run was killed. */
    for (char *at = text; !status && at && (end = memchr(at, '\n', size - (size_t)(at - text))); at = end + 1)
        status = take_metrics(h, &m, at, (size_t)(end - at), ++number);
    dry_free(text);
    return status;
}

/* ---- stages.csv ---- */

/* A stage's name as a column: "data_wait". */
static void stage_column(enum dry_stage stage, char name[32])
{
    snprintf(name, 32, "%s", dry_stage_name(stage));
    for (char *c = name; *c; c++)
        if (*c == ' ')
            *c = '_';
}

struct stage_columns {
    int start, phase, step, rank, began, seconds, tokens, padded, supervised, micros, square,
        stage[DRY_STAGES];
};

static enum dry_status find_stage_columns(const struct dry_csv *csv, struct stage_columns *k)
{
    enum dry_status status;
    char name[32];

    if ((status = dry_csv_need(csv, "start", &k->start)) ||
        (status = dry_csv_need(csv, "phase", &k->phase)) || (status = dry_csv_need(csv, "step", &k->step)) ||
        (status = dry_csv_need(csv, "rank", &k->rank)) || (status = dry_csv_need(csv, "began", &k->began)) ||
        (status = dry_csv_need(csv, "seconds", &k->seconds)) ||
        (status = dry_csv_need(csv, "tokens", &k->tokens)) ||
        (status = dry_csv_need(csv, "padded_tokens", &k->padded)) ||
        (status = dry_csv_need(csv, "supervised", &k->supervised)) ||
        (status = dry_csv_need(csv, "micro_batches", &k->micros)))
        return status;
    k->square = dry_csv_column(csv, "squared_lengths");
    for (int i = 0; i < DRY_STAGES && !status; i++) {
        stage_column((enum dry_stage)i, name);
        status = dry_csv_need(csv, name, &k->stage[i]);
    }
    return status;
}

static enum dry_status read_phase(const struct dry_csv *csv, int column, enum dry_phase *phase)
{
    static const char *const names[] = {
        [DRY_PHASE_START] = "start", [DRY_PHASE_STEP] = "step", [DRY_PHASE_END] = "end"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(csv->field[column], names[i]) == 0) {
            *phase = (enum dry_phase)i;
            return DRY_OK;
        }
    dry_error("%s:%ld: the line is damaged: phase is \"%.40s\", and not start, step or end", csv->path,
              csv->line, csv->field[column]);
    return DRY_ERR_INPUT;
}

/* A number that must be there: seconds of a row. */
static enum dry_status read_seconds(const struct dry_csv *csv, int column, double *seconds)
{
    enum dry_status status = dry_csv_real(csv, column, seconds);

    if (!status && !isfinite(*seconds)) {
        dry_error("%s:%ld: the line is damaged: %s is empty", csv->path, csv->line, csv->name[column]);
        return DRY_ERR_INPUT;
    }
    return status;
}

static enum dry_status read_row(const struct dry_csv *csv, const struct stage_columns *k,
                                struct dry_history_row *r)
{
    int64_t start = 0, rank = 0;
    enum dry_status status;

    if ((status = dry_csv_int(csv, k->start, 0, STARTS_MOST, &start)) ||
        (status = read_phase(csv, k->phase, &r->phase)) ||
        (status = dry_csv_int(csv, k->step, 0, INT64_MAX, &r->step)) ||
        (status = dry_csv_int(csv, k->rank, 0, RANKS_MOST, &rank)) ||
        (status = read_seconds(csv, k->began, &r->began)) ||
        (status = read_seconds(csv, k->seconds, &r->seconds)) ||
        (status = dry_csv_int(csv, k->tokens, 0, INT64_MAX, &r->tokens)) ||
        (status = dry_csv_int(csv, k->padded, 0, INT64_MAX, &r->padded)) ||
        (status = dry_csv_int(csv, k->supervised, 0, INT64_MAX, &r->supervised)) ||
        (status = dry_csv_int(csv, k->micros, 0, INT64_MAX, &r->micros)) ||
        (k->square >= 0 && (status = dry_csv_int(csv, k->square, 0, INT64_MAX, &r->square))))
        return status;
    for (int i = 0; i < DRY_STAGES && !status; i++)
        status = read_seconds(csv, k->stage[i], &r->stage[i]);
    r->start = (int)start;
    r->rank = (int)rank;
    return status;
}

static enum dry_status read_stages(struct dry_history *h, const char *path)
{
    struct stage_columns k;
    struct dry_csv *csv;
    size_t capacity = 0;
    int more = 0;
    enum dry_status status = dry_csv_open(path, &csv);

    if (status || !csv)
        return status;
    status = find_stage_columns(csv, &k);
    while (!status && !(status = dry_csv_next(csv, &more)) && more) {
        struct dry_history_row *all = room(h->row, h->rows, &capacity, sizeof *all, "the run's stages");

        if (!all) {
            status = DRY_ERR_MEMORY;
            break;
        }
        h->row = all;
        status = read_row(csv, &k, &h->row[h->rows]);
        h->rows += !status;
    }
    dry_csv_close(csv);
    return status;
}

/* ---- gpu.csv, process.csv ---- */

/* Where a sample's numbers stand, and what one unit of the file is. */
struct sample_field {
    const char *gpu, *process; /* columns; NULL: not in that file */
    size_t offset;
    double unit;
};

#define FIELD(gpu, process, member, unit)                               \
    {                                                                   \
        gpu, process, offsetof(struct dry_history_sample, member), unit \
    }
static const struct sample_field sample_fields[] = {
    FIELD("utilization.gpu", "cpu", busy, 1),
    FIELD("utilization.memory", NULL, memory_busy, 1),
    FIELD("memory.used", "memory.used", memory, 1048576),
    FIELD("power.draw", NULL, power, 1),
    FIELD("clocks.sm", NULL, clock, 1),
    FIELD("temperature.gpu", NULL, temperature, 1),
    FIELD("pcie.tx", NULL, pcie_out, 1024),
    FIELD("pcie.rx", NULL, pcie_in, 1024),
    FIELD("nvlink.tx", NULL, nvlink_out, 1024),
    FIELD("nvlink.rx", NULL, nvlink_in, 1024),
    FIELD("energy", NULL, energy, 1),
    FIELD(NULL, "read", read, 1024),
    FIELD(NULL, "written", written, 1024),
};
enum { SAMPLE_FIELDS = sizeof sample_fields / sizeof *sample_fields };

struct host_names {
    char **name;
    int count;
};

struct sample_reader {
    struct dry_csv *csv;
    int gpu, at, start, rank, host, step, stage, index, throttle, field[SAMPLE_FIELDS];
    struct host_names *hosts;
};

static enum dry_status host_number(struct host_names *hosts, const char *name, int *number)
{
    char **all;

    for (int i = 0; i < hosts->count; i++)
        if (strcmp(hosts->name[i], name) == 0) {
            *number = i;
            return DRY_OK;
        }
    all = hosts->name ? dry_realloc(hosts->name, (size_t)hosts->count, (size_t)hosts->count + 1, sizeof *all,
                                    "the hosts of samples")
                      : dry_alloc(1, sizeof *all, "the hosts of samples");
    if (!all)
        return DRY_ERR_MEMORY;
    hosts->name = all;
    if (!(all[hosts->count] = dry_strdup(name)))
        return DRY_ERR_MEMORY;
    *number = hosts->count++;
    return DRY_OK;
}

static enum dry_status read_stage_name(const struct dry_csv *csv, int column, enum dry_stage *stage)
{
    char name[32];

    *stage = DRY_STAGE_UNEXPLAINED;
    if (column < 0 || !*csv->field[column])
        return DRY_OK;
    for (int i = 0; i < DRY_STAGES; i++) {
        stage_column((enum dry_stage)i, name);
        if (strcmp(csv->field[column], name) == 0 ||
            strcmp(csv->field[column], dry_stage_name((enum dry_stage)i)) == 0) {
            *stage = (enum dry_stage)i;
            return DRY_OK;
        }
    }
    dry_error("%s:%ld: the line is damaged: \"%.40s\" is no stage", csv->path, csv->line, csv->field[column]);
    return DRY_ERR_INPUT;
}

static enum dry_status find_sample_columns(struct sample_reader *r)
{
    const struct dry_csv *csv = r->csv;
    enum dry_status status;

    r->start = dry_csv_column(csv, "start");
    r->rank = dry_csv_column(csv, "rank");
    r->host = dry_csv_column(csv, "host");
    r->step = dry_csv_column(csv, "step");
    r->stage = dry_csv_column(csv, "stage");
    r->throttle = r->gpu ? dry_csv_column(csv, "clocks_event_reasons.active") : -1;
    r->index = -1;
    for (int i = 0; i < SAMPLE_FIELDS; i++) {
        const char *name = r->gpu ? sample_fields[i].gpu : sample_fields[i].process;

        r->field[i] = name ? dry_csv_column(csv, name) : -1;
    }
    status = dry_csv_need(csv, "at", &r->at);
    if (!status && r->gpu)
        status = dry_csv_need(csv, "index", &r->index);
    return status;
}

static enum dry_status read_sample(const struct sample_reader *r, struct dry_history_sample *s)
{
    const struct dry_csv *csv = r->csv;
    int64_t start, rank, index = -1;
    enum dry_status status;

    *s = (struct dry_history_sample){0};
    if ((status = read_seconds(csv, r->at, &s->at)) ||
        (status = dry_csv_int(csv, r->start, 0, STARTS_MOST, &start)) ||
        (status = dry_csv_int(csv, r->rank, 0, RANKS_MOST, &rank)) ||
        (status = dry_csv_int(csv, r->step, 0, INT64_MAX, &s->step)) ||
        (status = dry_csv_bits(csv, r->throttle, &s->throttle)) ||
        (status = read_stage_name(csv, r->stage, &s->stage)) ||
        (status = host_number(r->hosts, r->host < 0 ? "" : csv->field[r->host], &s->host)))
        return status;
    if (r->gpu && (status = dry_csv_int(csv, r->index, 0, INT_MAX, &index)))
        return status;
    for (int i = 0; i < SAMPLE_FIELDS && !status; i++) {
        double *value = (double *)((char *)s + sample_fields[i].offset);

        status = dry_csv_real(csv, r->field[i], value);
        *value *= sample_fields[i].unit;
    }
    s->start = (int)start;
    s->rank = (int)rank;
    s->index = (int)index;
    return status;
}

static enum dry_status read_samples(struct dry_history *h, const char *path, int gpu,
                                    struct host_names *hosts, size_t *capacity)
{
    struct sample_reader r = {.gpu = gpu, .hosts = hosts};
    int more = 0;
    enum dry_status status = dry_csv_open(path, &r.csv);

    if (status || !r.csv)
        return status;
    status = find_sample_columns(&r);
    while (!status && !(status = dry_csv_next(r.csv, &more)) && more) {
        struct dry_history_sample *all =
            room(h->sample, h->samples, capacity, sizeof *all, "the run's samples");

        if (!all) {
            status = DRY_ERR_MEMORY;
            break;
        }
        h->sample = all;
        status = read_sample(&r, &h->sample[h->samples]);
        h->samples += !status;
    }
    dry_csv_close(r.csv);
    return status;
}

/* ---- the folder ---- */

static enum dry_status read_manifest(struct dry_history *h, const char *folder, const char *path)
{
    enum dry_status status;

    if (!dry_file_is_dir(folder)) {
        dry_error("%s: there is no such folder; a run's folder is what finetune was given as --output",
                  folder);
        return DRY_ERR_INPUT;
    }
    if (!dry_file_exists(path)) {
        dry_error("%s: is no run's folder: it has no run.json; give the folder that finetune was given as "
                  "--output",
                  folder);
        return DRY_ERR_INPUT;
    }
    status = dry_json_read(path, &h->run);
    if (!status && !json_is_object(h->run)) {
        dry_error("%s: is no manifest of a run: it holds no JSON object", path);
        status = DRY_ERR_INPUT;
    }
    return status;
}

/* Starts so far and the ranks of the latest one: by the manifest, and by the rows when they know of more. */
static enum dry_status count_starts(struct dry_history *h, const char *path)
{
    int64_t ranks = 0;
    enum dry_status status = dry_json_int(h->run, "ranks", 0, 0, path, &ranks);

    if (!status && (ranks < 0 || ranks > RANKS_MOST)) {
        dry_error("%s: key \"ranks\": %lld is no number of ranks", path, (long long)ranks);
        status = DRY_ERR_INPUT;
    }
    if (status)
        return status;
    h->ranks = (int)ranks;
    h->starts = (int)json_array_size(json_object_get(h->run, "earlier_starts")) + 1;
    for (size_t i = 0; i < h->rows; i++)
        if (h->row[i].start >= h->starts)
            h->starts = h->row[i].start + 1;
    for (size_t i = 0; i < h->rows; i++)
        if (h->row[i].start == h->starts - 1 && h->row[i].rank >= h->ranks)
            h->ranks = h->row[i].rank + 1;
    return DRY_OK;
}

enum dry_status dry_history_open(const char *folder, struct dry_history **history)
{
    enum { RUN, METRICS, STAGES, GPU, PROCESS, FILES };
    static const char *const names[] = {
        [RUN] = "run.json", [METRICS] = "metrics.jsonl", [STAGES] = "stages.csv",
        [GPU] = "gpu.csv",  [PROCESS] = "process.csv",
    };
    struct dry_history *h = dry_alloc(1, sizeof *h, "a run's history");
    struct host_names hosts = {0};
    char *path[FILES] = {0};
    size_t capacity = 0;
    enum dry_status status = h && (h->folder = dry_strdup(folder)) ? DRY_OK : DRY_ERR_MEMORY;

    for (int i = 0; i < FILES && !status; i++)
        if (!(path[i] = dry_path_join(folder, names[i])))
            status = DRY_ERR_MEMORY;
    if (status || (status = read_manifest(h, folder, path[RUN])) ||
        (status = read_metrics(h, path[METRICS])) || (status = read_stages(h, path[STAGES])) ||
        (status = read_samples(h, path[GPU], 1, &hosts, &capacity)) ||
        (status = read_samples(h, path[PROCESS], 0, &hosts, &capacity)) ||
        (status = count_starts(h, path[RUN])))
        goto out;
    *history = h;
    h = NULL;
out:
    for (int i = 0; i < FILES; i++)
        dry_free(path[i]);
    for (int i = 0; i < hosts.count; i++)
        dry_free(hosts.name[i]);
    dry_free(hosts.name);
    dry_history_close(h);
    return status;
}

void dry_history_close(struct dry_history *h)
{
    if (!h)
        return;
    json_decref(h->run);
    dry_free(h->row);
    dry_free(h->step);
    dry_free(h->validation);
    dry_free(h->sample);
    dry_free(h->folder);
    dry_free(h);
}

int dry_history_crowded(const json_t *run, struct dry_crowd *c)
{
    const json_t *host = json_object_get(run, "host"), *devices = json_object_get(run, "devices"), *one;
    const char *name = json_string_value(json_object_get(host, "name"));
    size_t i;

    *c = (struct dry_crowd){.host = name, .cores = (int)json_integer_value(json_object_get(host, "cores"))};
    json_array_foreach(devices, i, one)
    {
        const char *there = json_string_value(json_object_get(one, "host"));
        const char *device = json_string_value(json_object_get(one, "device"));

        if (!name || !there || !device || strcmp(name, there) != 0 || strncmp(device, "cpu", 3) != 0)
            continue;
        c->ranks++;
        c->threads += (int)json_integer_value(json_object_get(one, "threads"));
    }
    return c->cores > 0 && c->threads > c->cores;
}
