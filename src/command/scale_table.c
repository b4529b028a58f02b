/*
 * scale's tables and sentences for people, and scaling.json.
 * Owns nothing.
 * Must not know how the numbers came about.
 */
#include "config.h"

#include "command/scale.h"

#include "base/log.h"
#include "base/memory.h"
#include "measure/words.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 6, WIDTH = 13, LABEL = 34 };

/* Rows from..to of the table, a column each. */
struct block {
    FILE *out;
    const struct dry_scale *s;
    int from, to;
};

static void label(const struct block *b, const char *text)
{
    fprintf(b->out, "%-*s", LABEL, text);
}

static void cell(const struct block *b, const char *text)
{
    fprintf(b->out, " %*s", WIDTH, text);
}

/* Seconds with as many digits as tell a step's parts apart. */
static void cell_seconds(const struct block *b, double seconds)
{
    char text[32];

    snprintf(text, sizeof text, seconds >= 100 ? "%.1f" : seconds >= 1 ? "%.3f" : "%.5f", seconds);
    cell(b, text);
}

static void head(const struct block *b)
{
    label(b, "");
    for (int i = b->from; i < b->to; i++) {
        char text[24];

        snprintf(text, sizeof text, "%d rank%s", b->s->row[i].ranks, dry_plural(b->s->row[i].ranks));
        cell(b, text);
    }
    fprintf(b->out, "\n");
}

/* Seconds a step of a stage, mean over the ranks; checkpoints spread over the training's own interval. */
static double stage_seconds(const struct dry_scale *s, int i, int stage)
{
    const struct dry_account *a = &s->row[i].account;

    if (stage == DRY_STAGE_CHECKPOINT)
        return s->run[s->of[i]].checkpoint;
    return stage == DRY_STAGE_VALIDATION ? 0 : a->stage[stage].mean / (double)a->steps;
}

static void print_stages(const struct block *b)
{
    fprintf(b->out, "seconds a step, mean over the ranks\n");
    for (int k = 0; k < DRY_STAGES; k++) {
        char name[48];
        double most = 0;

        for (int i = 0; i < b->s->rows; i++)
            most = fmax(most, stage_seconds(b->s, i, k));
        if (!(most > 0) && k != DRY_STAGE_UNEXPLAINED)
            continue;
        snprintf(name, sizeof name, "  %s%s", dry_stage_name((enum dry_stage)k),
                 k == DRY_STAGE_CHECKPOINT ? ", spread" : "");
        label(b, name);
        for (int i = b->from; i < b->to; i++)
            cell_seconds(b, stage_seconds(b->s, i, k));
        fprintf(b->out, "\n");
    }
}

static void print_line(const struct block *b, const char *name,
                       struct dry_words (*value)(const struct dry_scale *s, int i))
{
    label(b, name);
    for (int i = b->from; i < b->to; i++)
        cell(b, value(b->s, i).text);
    fprintf(b->out, "\n");
}

static const struct dry_scale_run *run_of(const struct dry_scale *s, int i)
{
    return &s->run[s->of[i]];
}

static struct dry_words step_text(const struct dry_scale *s, int i)
{
    double x = run_of(s, i)->step;

    return dry_words_fixed(x, x >= 100 ? 1 : x >= 1 ? 3 : 5);
}

static struct dry_words model_text(const struct dry_scale *s, int i)
{
    double x = dry_scaling_seconds(&s->model, s->row[i].ranks, s->row[i].load) + run_of(s, i)->checkpoint;

    return dry_words_fixed(x, x >= 100 ? 1 : x >= 1 ? 3 : 5);
}

static struct dry_words tokens_text(const struct dry_scale *s, int i)
{
    return dry_words_count(run_of(s, i)->tokens);
}

static struct dry_words rate_text(const struct dry_scale *s, int i)
{
    return dry_words_real(run_of(s, i)->tokens / run_of(s, i)->step);
}

static struct dry_words speedup_text(const struct dry_scale *s, int i)
{
    return dry_words_fixed(run_of(s, i)->speedup, 2);
}

static struct dry_words efficiency_text(const struct dry_scale *s, int i)
{
    return dry_words_share(run_of(s, i)->efficiency);
}

static struct dry_words batch_text(const struct dry_scale *s, int i)
{
    return dry_words_count((double)s->row[i].effective_batch);
}

static struct dry_words epoch_text(const struct dry_scale *s, int i)
{
    return dry_words_count((double)s->row[i].steps_per_epoch);
}

static struct dry_words micros_text(const struct dry_scale *s, int i)
{
    return dry_words_count((double)s->row[i].micros);
}

static struct dry_words balance_text(const struct dry_scale *s, int i)
{
    return dry_words_share(s->row[i].mean_load / s->row[i].load);
}

static struct dry_words busy_text(const struct dry_scale *s, int i)
{
    const struct dry_account *a = &s->row[i].account;
    struct dry_words w;

    snprintf(w.text, sizeof w.text, "%.2f (%d)", a->busy_least > 0 ? a->busy_most / a->busy_least : 1,
             a->busy_most_rank);
    return w;
}

static struct dry_words closing_text(const struct dry_scale *s, int i)
{
    return dry_words_share(s->row[i].account.unexplained);
}

static struct dry_words adapter_text(const struct dry_scale *s, int i)
{
    struct dry_words w;

    snprintf(w.text, sizeof w.text, "%.12s", run_of(s, i)->adapter ? run_of(s, i)->adapter : "none");
    return w;
}

static void print_block(const struct block *b)
{
    head(b);
    print_stages(b);
    print_line(b, "seconds a step", step_text);
    print_line(b, "  by the model", model_text);
    print_line(b, "useful tokens a step", tokens_text);
    print_line(b, "useful tokens/s", rate_text);
    print_line(b, "speed-up", speedup_text);
    print_line(b, "efficiency", efficiency_text);
    print_line(b, "effective batch, records a step", batch_text);
    print_line(b, "optimizer steps per epoch", epoch_text);
    print_line(b, "micro-batches a rank, at most", micros_text);
    print_line(b, "balance of the ranks' shares", balance_text);
    print_line(b, "most over least computing (rank)", busy_text);
    print_line(b, "not explained, of wall-clock", closing_text);
    print_line(b, "adapter's sha256", adapter_text);
    fprintf(b->out, "\n");
}

static void print_left_out(FILE *out, const struct dry_scale *s)
{
    int any = 0;

    for (int i = 0; i < s->runs; i++) {
        const struct dry_scale_run *r = &s->run[i];

        if (r->status)
            fprintf(out, "%d rank%s: failed (%s), and not in the table\n", r->ranks, dry_plural(r->ranks),
                    dry_status_name(r->status));
        else if (r->differs)
            fprintf(out, "%d rank%s: cannot be compared: %s\n", r->ranks, dry_plural(r->ranks), r->differs);
        any |= r->status || r->differs;
    }
    if (any)
        fprintf(out, "\n");
}

static void print_hours(FILE *out, const struct dry_scale *s)
{
    fprintf(out, "the whole training, %s steps\n", dry_words_count((double)s->contract.steps).text);
    fprintf(out, "  %-7s %14s %14s %14s\n", "ranks", "s/step", "an epoch", "in all");
    for (int i = 0; i < s->forecasts; i++) {
        const struct dry_scale_forecast *f = &s->forecast[i];
        int power = (f->ranks & (f->ranks - 1)) == 0;

        if (!power && !f->measured && i != s->smallest)
            continue;
        fprintf(out, "%c %-7d %14s %14s %14s  %s\n", i == s->smallest ? '*' : ' ', f->ranks,
                dry_words_real(f->step).text, dry_words_seconds(f->epoch_hours * 3600).text,
                dry_words_seconds(f->hours * 3600).text, f->measured ? "measured" : "predicted");
    }
    if (s->smallest >= 0)
        fprintf(out, "  * the smallest number of ranks that meets %.9g hours\n",
                s->call->config->target_hours);
    fprintf(out, "\n");
}

/* Lines of at most 100 columns. */
static void print_sentence(FILE *out, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t word = strcspn(text, " ");

        if (column && column + 1 + word > 100) {
            fprintf(out, "\n");
            column = 0;
        } else if (column) {
            fprintf(out, " ");
            column++;
        }
        fwrite(text, 1, word, out);
        column += word;
        text += word + strspn(text + word, " ");
    }
    fprintf(out, "\n");
}

void dry_scale_print(FILE *out, const struct dry_scale *s)
{
    const struct dry_config *c = s->call->config;

    fprintf(
        out,
        "scale: %lld records of %s, %lld steps on each rank count, of them the last %lld counted\n"
        "checkpoints counted as in the training: %lld in its %s steps; effective batch %lld on every rank "
        "count\n\n",
        (long long)s->part_contract.records, c->data, (long long)c->steps,
        (long long)(c->steps - s->first + 1), (long long)dry_scale_saves(s),
        dry_words_count((double)s->contract.steps).text, (long long)s->contract.effective_batch);
    for (int i = 0; i < s->rows; i += COLUMNS) {
        struct block b = {.out = out, .s = s, .from = i, .to = i + COLUMNS < s->rows ? i + COLUMNS : s->rows};

        print_block(&b);
    }
    print_left_out(out, s);
    print_hours(out, s);
    for (int i = 0; i < s->sentences; i++)
        print_sentence(out, s->sentence[i]);
}

/* ---- JSON ---- */

static json_t *stages_json(const struct dry_scale *s, int i)
{
    json_t *all = json_object();
    int bad = !all;

    for (int k = 0; k < DRY_STAGES && !bad; k++)
        bad = json_object_set_new(all, dry_stage_name((enum dry_stage)k), json_real(stage_seconds(s, i, k)));
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *row_json(const struct dry_scale *s, int i)
{
    const struct dry_scale_run *r = run_of(s, i);
    const struct dry_scaling_row *row = &s->row[i];
    const json_t *cache = json_object_get(json_object_get(r->run, "page_cache"), "base");

    return json_pack("{s:i, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:i, s:s?, "
                     "s:O?, s:o, s:o, s:o}",
                     "ranks", r->ranks, "folder", r->folder, "step_seconds", r->step,
                     "checkpoint_seconds_per_step", r->checkpoint, "tokens_per_step", r->tokens,
                     "tokens_per_second", r->tokens / r->step, "speedup", r->speedup, "efficiency",
                     r->efficiency, "model_seconds",
                     dry_scaling_seconds(&s->model, row->ranks, row->load) + r->checkpoint, "effective_batch",
                     (json_int_t)row->effective_batch, "steps_per_epoch", (json_int_t)row->steps_per_epoch,
                     "micro_batches_most", (json_int_t)row->micros, "load", row->load, "mean_load",
                     row->mean_load, "ranks_of_a_host", row->together, "adapter_sha256", r->adapter,
                     "page_cache", cache, "stages", stages_json(s, i), "account",
                     dry_account_json(&row->account), "verdict", dry_verdict_json(&row->verdict));
}

static json_t *left_out_json(const struct dry_scale *s)
{
    json_t *all = json_array();
    int bad = !all;

    for (int i = 0; i < s->runs && !bad; i++) {
        const struct dry_scale_run *r = &s->run[i];

        if (r->status || r->differs)
            bad = json_array_append_new(all, json_pack("{s:i, s:s, s:s?}", "ranks", r->ranks, "status",
                                                       dry_status_name(r->status), "differs", r->differs));
    }
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *forecasts_json(const struct dry_scale *s)
{
    json_t *all = json_array();
    int bad = !all;

    for (int i = 0; i < s->forecasts && !bad; i++) {
        const struct dry_scale_forecast *f = &s->forecast[i];

        bad = json_array_append_new(all, json_pack("{s:i, s:b, s:f, s:f, s:f}", "ranks", f->ranks, "measured",
                                                   f->measured, "step_seconds", f->step, "epoch_hours",
                                                   f->epoch_hours, "hours", f->hours));
    }
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return all;
}

json_t *dry_scale_json(const struct dry_scale *s)
{
    const struct dry_config *c = s->call->config;
    json_t *rows = json_array(), *sentences = json_array();
    int bad = !rows || !sentences;

    for (int i = 0; i < s->rows && !bad; i++)
        bad = json_array_append_new(rows, row_json(s, i));
    for (int i = 0; i < s->sentences && !bad; i++)
        bad = json_array_append_new(sentences, json_string(s->sentence[i]));
    if (bad) {
        json_decref(rows);
        json_decref(sentences);
        return NULL;
    }
    return json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:f, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "format", 1, "steps",
        (json_int_t)c->steps, "discarded_steps", (json_int_t)(s->first - 1), "checkpoint_interval",
        (json_int_t)c->checkpoint_interval, "checkpoint_interval_measured", (json_int_t)s->interval,
        "target_hours", c->target_hours, "smallest_ranks",
        s->smallest >= 0 ? json_integer(s->forecast[s->smallest].ranks) : json_null(), "reduced_bytes",
        s->bytes, "contract", dry_contract_json(&s->contract), "rows", rows, "left_out", left_out_json(s),
        "forecasts", forecasts_json(s), "model", dry_scaling_json(&s->model), "sentences", sentences);
}
