/*
 * What follows from the measured rows: hours of the whole training, and sentences with the numbers they rest
 * on.
 * Owns the sentences through struct dry_scale.
 * Must not know how a row was measured.
 */
#include "config.h"

#include "command/scale.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "command/plan_report.h"
#include "data/shares.h"
#include "measure/words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WALKED = 2000, MOST_RANKS = 64 };

/* Parts of a step over which a sentence is worth its line. */
#define WORTH 0.02
/* What is named first, though the ranks compute as they should, must be worth as much of the time. */
#define FIRST 0.10
/* A model that misses a rank count by more is not to be trusted behind the measured ones. */
#define TRUSTED 0.10

static enum dry_status say(struct dry_scale *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum dry_status say(struct dry_scale *s, const char *format, ...)
{
    struct dry_buffer b = {0};
    char text[1280];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (s->sentences == DRY_SCALE_SENTENCES)
        return DRY_OK;
    if (dry_buffer_printf(&b, "%s", text))
        return DRY_ERR_MEMORY;
    s->sentence[s->sentences++] = b.data;
    return DRY_OK;
}

/* "1 rank", "3 ranks" */
static struct dry_words ranks_text(int n)
{
    struct dry_words w;

    snprintf(w.text, sizeof w.text, "%d rank%s", n, dry_plural(n));
    return w;
}

/* ---- hours ---- */

static enum dry_status foretell(struct dry_scale *s, int ranks)
{
    int64_t epoch = s->contract.steps_per_epoch, walked = dry_smaller(epoch, WALKED);
    int64_t steps = s->contract.steps;
    struct dry_scale_forecast *f = &s->forecast[s->forecasts];
    struct dry_plan_share share;
    enum dry_status status = dry_plan_shares_of(s->plan, 1, dry_smaller(walked, steps), ranks, &share);

    if (status)
        return status;
    *f = (struct dry_scale_forecast){.ranks = ranks, .load = share.load};
    for (int i = 0; i < s->rows; i++) {
        const struct dry_scaling_row *row = &s->row[i];

        if (row->ranks != ranks)
            continue;
        f->measured = 1; /* the same ranks, only that the records of the whole data fall to them otherwise */
        f->step = s->run[s->of[i]].step + dry_scaling_parts(row).arrive * (share.load / row->load - 1);
    }
    if (!f->measured)
        f->step = dry_scaling_seconds(&s->model, ranks, share.load) +
                  s->model.checkpoint * (double)dry_scale_saves(s) / (double)steps;
    f->hours = f->step * (double)steps / 3600;
    f->epoch_hours = f->step * (double)epoch / 3600;
    s->forecasts++;
    return DRY_OK;
}

static int is_measured(const struct dry_scale *s, int ranks)
{
    for (int i = 0; i < s->rows; i++)
        if (s->row[i].ranks == ranks)
            return 1;
    return 0;
}

static enum dry_status foretell_all(struct dry_scale *s)
{
    enum dry_status status = DRY_OK;

    s->smallest = -1;
    for (int n = 1; n <= MOST_RANKS || n <= s->row[s->rows - 1].ranks; n++) {
        if (n > 16 && (n & (n - 1)) && !is_measured(s, n))
            continue;
        if (s->forecasts == DRY_SCALE_FORECASTS)
            break;
        status = foretell(s, n);
        if (status)
            return status;
        if (s->smallest < 0 && s->forecast[s->forecasts - 1].hours <= s->call->config->target_hours)
            s->smallest = s->forecasts - 1;
    }
    return DRY_OK;
}

static const struct dry_scale_forecast *forecast_of(const struct dry_scale *s, int ranks)
{
    for (int i = 0; i < s->forecasts; i++)
        if (s->forecast[i].ranks == ranks)
            return &s->forecast[i];
    return NULL;
}

static struct dry_words hours_text(double hours)
{
    return dry_words_seconds(hours * 3600);
}

/* ---- sentences ---- */

static enum dry_status say_measured(struct dry_scale *s)
{
    const struct dry_scale_run *first = &s->run[s->of[0]], *last = &s->run[s->of[s->rows - 1]];

    if (s->rows == 1)
        return say(s, "Measured: %s takes %s a step of %lld records (%s useful tokens).",
                   ranks_text(first->ranks).text, dry_words_seconds(first->step).text,
                   (long long)s->contract.effective_batch, dry_words_count(first->tokens).text);
    return say(
        s,
        "Measured: a step of %lld records takes %s on %s and %s on %s: %.2f times as fast with %g times "
        "the ranks, an efficiency of %s.",
        (long long)s->contract.effective_batch, dry_words_seconds(first->step).text,
        ranks_text(first->ranks).text, dry_words_seconds(last->step).text, ranks_text(last->ranks).text,
        first->step / last->step, (double)last->ranks / first->ranks, dry_words_share(last->efficiency).text);
}

/* Where the seconds are that the most ranks lack of the ideal. */
static enum dry_status say_lost(struct dry_scale *s)
{
    const struct dry_scale_run *r0 = &s->run[s->of[0]], *r = &s->run[s->of[s->rows - 1]];
    const struct dry_scaling_row *row0 = &s->row[0], *row = &s->row[s->rows - 1];
    struct dry_scaling_parts p0 = dry_scaling_parts(row0), p = dry_scaling_parts(row);
    double part = (double)r0->ranks / r->ranks, ideal = r0->step * part, lost = r->step - ideal;
    double uneven = p.arrive * (1 - row->mean_load / row->load);
    struct {
        const char *what;
        double seconds;
    } why[] = {
        {"in unequal shares of the micro-batches", uneven},
        {"in computing that is slower with more ranks at work, and in waiting for chance delays",
         p.arrive - uneven - p0.arrive * part},
        {"in adding up the gradients", p.reduce - p0.reduce * part},
        {"in the optimizer and the rest, which every rank does alike", p.fixed - p0.fixed * part},
        {"in checkpoints", r->checkpoint - r0->checkpoint * part},
    };
    struct dry_buffer b = {0};
    enum dry_status status = DRY_OK;
    int failed = 0;

    if (s->rows < 2)
        return DRY_OK;
    if (!(lost > WORTH * r->step))
        return say(s, "%s lose nothing that is worth a change: %s a step would be ideal.",
                   ranks_text(r->ranks).text, dry_words_seconds(ideal).text);
    for (size_t i = 0; i < sizeof why / sizeof *why; i++)
        if (why[i].seconds > WORTH * lost)
            failed = failed || dry_buffer_printf(&b, "%s%s %s", b.len ? ", " : "",
                                                 dry_words_seconds(why[i].seconds).text, why[i].what);
    if (failed)
        status = DRY_ERR_MEMORY;
    else
        status = say(s, "Ideal would be %s a step on %s; of the %s more that it takes, %s.",
                     dry_words_seconds(ideal).text, ranks_text(r->ranks).text, dry_words_seconds(lost).text,
                     b.data ? b.data : "no part stands out");
    dry_buffer_reset(&b);
    return status;
}

/* The first rank count that has more threads on a host than cores. */
static enum dry_status say_crowd(struct dry_scale *s)
{
    for (int i = 0; i < s->rows; i++) {
        struct dry_crowd c;

        if (dry_history_crowded(s->run[s->of[i]].run, &c))
            return say(
                s,
                "From %s on, ranks share cores: %d of them compute with %d threads on the %d core%s of host "
                "%s. That cannot be faster than a rank on each core, and says little of ranks that have "
                "cores of their own.",
                ranks_text(s->row[i].ranks).text, c.ranks, c.threads, c.cores, dry_plural(c.cores), c.host);
    }
    return DRY_OK;
}

static enum dry_status say_bits(struct dry_scale *s)
{
    const char *first = s->run[s->of[0]].adapter;

    if (s->rows < 2 || !first)
        return DRY_OK;
    for (int i = 1; i < s->rows; i++) {
        const char *adapter = s->run[s->of[i]].adapter;

        if (!adapter || strcmp(adapter, first) != 0)
            return say(
                s,
                "The adapters differ: %s and %s ended with other bits, which must not be. Are the devices "
                "and libraries of all ranks the same?",
                ranks_text(s->row[0].ranks).text, ranks_text(s->row[i].ranks).text);
    }
    return say(s,
               "All %d rank counts ended with the same adapter, bit for bit (sha256 %.16s...): the number of "
               "ranks only decides how long it takes.",
               s->rows, first);
}

static enum dry_status say_hours(struct dry_scale *s)
{
    const struct dry_contract *k = &s->contract;
    double target = s->call->config->target_hours;
    const struct dry_scale_forecast *one = &s->forecast[0], *best = one, *f;
    enum dry_status status;

    status = say(s, "The whole training is %s steps (%s records, %lld epoch%s): %s on %s (%s).",
                 dry_words_count((double)k->steps).text, dry_words_count((double)k->records).text,
                 (long long)k->epochs, dry_plural(k->epochs), hours_text(one->hours).text,
                 ranks_text(one->ranks).text, one->measured ? "from its measured step" : "by the model");
    if (status)
        return status;
    if (s->smallest == 0)
        return say(s,
                   "One rank meets %.9g hours (--target-hours): a second device is better used for another "
                   "training than for this one.",
                   target);
    for (int i = 0; i < s->forecasts; i++)
        if (s->forecast[i].hours < best->hours)
            best = &s->forecast[i];
    if (s->smallest < 0)
        return say(
            s,
            "No number of ranks up to %d meets %.9g hours (--target-hours): the best of them, %d, takes "
            "%s (%s).",
            s->forecast[s->forecasts - 1].ranks, target, best->ranks, hours_text(best->hours).text,
            best->measured ? "from its measured step" : "by the model, not measured");
    f = &s->forecast[s->smallest];
    return say(s, "The smallest number of ranks that meets %.9g hours (--target-hours) is %d: %s (%s).",
               target, f->ranks, hours_text(f->hours).text,
               f->measured ? "from its measured step" : "by the model, not measured");
}

/* The run's verdict is of steps without checkpoints; its share here of steps with them. */
static enum dry_status say_dominant(struct dry_scale *s, int first)
{
    const struct dry_scale_run *r = &s->run[s->of[s->rows - 1]];
    const struct dry_finding *f = &s->row[s->rows - 1].verdict.finding[0];

    char without[64] = "";

    if (f->cause == DRY_CAUSE_HEALTHY)
        return say(s, "On %s: %s", ranks_text(r->ranks).text, f->fact);
    if (r->checkpoint > WORTH * r->step)
        snprintf(without, sizeof without, ", %.1f %% of a step without checkpoints", 100 * f->share);
    return say(s, "%s, on %s: %s (%s of the time at most%s): %s %s", first ? "To change first" : "Then",
               ranks_text(r->ranks).text, dry_cause_name(f->cause),
               dry_words_share(f->share * (1 - r->checkpoint / r->step)).text, without, f->fact, f->advice);
}

static enum dry_status say_checkpoint(struct dry_scale *s, int first)
{
    const struct dry_scale_run *r = &s->run[s->of[s->rows - 1]];
    double each = dry_scaling_parts(&s->row[s->rows - 1]).checkpoint, rest = r->step - r->checkpoint;
    double steps = (double)s->contract.steps, saves = (double)dry_scale_saves(s);
    double wanted = fmin(steps, ceil(each / (0.01 * rest))), then = each * ceil(steps / wanted) / steps;
    struct dry_words count = dry_words_count(saves);

    if (!(r->checkpoint > WORTH * r->step))
        return DRY_OK;
    if (!(saves > ceil(steps / wanted)))
        return say(
            s,
            "%sA checkpoint takes %s on %s, which is %s of the time with %s in %s step%s: a longer training "
            "dilutes it; faster storage under --output makes it shorter.",
            first ? "To change first: " : "", dry_words_seconds(each).text, ranks_text(r->ranks).text,
            dry_words_share(r->checkpoint / r->step).text, count.text, dry_words_count(steps).text,
            dry_plural(s->contract.steps));
    return say(
        s,
        "%sA checkpoint takes %s on %s, which is %s of the time at --checkpoint-interval %lld (%s in %s "
        "steps): --checkpoint-interval %.0f would make it %s; faster storage under --output would "
        "help, too.",
        first ? "To change first: " : "", dry_words_seconds(each).text, ranks_text(r->ranks).text,
        dry_words_share(r->checkpoint / r->step).text, (long long)s->call->config->checkpoint_interval,
        count.text, dry_words_count(steps).text, wanted, dry_words_share(then / (rest + then)).text);
}

/* What could win most comes first. */
static enum dry_status say_causes(struct dry_scale *s)
{
    const struct dry_scale_run *r = &s->run[s->of[s->rows - 1]];
    const struct dry_finding *f = &s->row[s->rows - 1].verdict.finding[0];
    double saving = r->checkpoint / r->step;
    int before = saving > (f->cause == DRY_CAUSE_HEALTHY ? FIRST : fmax(WORTH, f->share * (1 - saving)));
    enum dry_status status = before ? say_checkpoint(s, 1) : say_dominant(s, 1);

    if (status)
        return status;
    return before ? say_dominant(s, 0) : say_checkpoint(s, 0);
}

/* A larger cut that memory would take. */
static enum dry_status say_cut(struct dry_scale *s)
{
    struct dry_plan_subject about = {.config = s->call->config,
                                     .contract = &s->contract,
                                     .cache = dry_cache_view(s->whole),
                                     .plan = s->plan,
                                     .base = s->base,
                                     .adapter = s->adapter,
                                     .ranks = s->row[s->rows - 1].ranks};
    struct dry_plan_report *report = NULL;
    struct dry_plan_larger l;
    char shared[128] = "";
    enum dry_status status = dry_plan_report_create(&about, &report);

    if (!status && dry_plan_report_larger(report, s->row[s->rows - 1].together, &l)) {
        if (about.ranks > 1)
            snprintf(shared, sizeof shared, ", and %s share them to %s", ranks_text(about.ranks).text,
                     dry_words_share(l.balance).text);
        status = say(
            s,
            "Memory would take a larger micro-batch: %lld %s in place of %lld need %s of the %s left%s; "
            "a step then has %.1f micro-batches in place of %.1f%s. It is another "
            "contract, so choose before the training begins.",
            (long long)(l.micro_records ? l.micro_records : l.micro_tokens),
            l.micro_records ? "records" : "tokens",
            (long long)(l.micro_records ? s->contract.micro_records : s->contract.micro_tokens),
            dry_words_bytes((double)l.memory).text, dry_words_bytes((double)l.room).text,
            l.room_is_shared ? " on this host, for each rank" : " on a GPU", l.micros, l.micros_now, shared);
    }
    dry_plan_report_destroy(report);
    return status;
}

/* Side by side they share their hosts as the ranks of one training do. */
static double side_by_side(const struct dry_scale *s, const struct dry_scale_forecast *half, int all)
{
    const struct dry_scaling_model *m = &s->model;
    int more =
        (all < m->together ? all : m->together) - (half->ranks < m->together ? half->ranks : m->together);

    return half->hours + m->compute * m->contention * more * half->load * (double)s->contract.steps / 3600;
}

static enum dry_status say_two(struct dry_scale *s)
{
    int n = s->row[s->rows - 1].ranks;
    const struct dry_scale_forecast *all = forecast_of(s, n), *half = n % 2 ? NULL : forecast_of(s, n / 2);
    double hours;

    if (!half && n > 2) { /* of an odd number one less */
        all = forecast_of(s, n - 1);
        half = forecast_of(s, (n - 1) / 2);
    }
    if (!all || !half)
        return DRY_OK;
    hours = side_by_side(s, half, all->ranks);
    if (!(2 * all->hours > hours * 1.01))
        return DRY_OK;
    return say(s,
               "Two trainings side by side on %s each would take %s by the model; one after the other on %d "
               "they take %s: side by side is %.2f times as fast for both (drydock sweep).",
               ranks_text(half->ranks).text, hours_text(hours).text, all->ranks,
               hours_text(2 * all->hours).text, 2 * all->hours / hours);
}

static enum dry_status say_model(struct dry_scale *s)
{
    const struct dry_scaling_model *m = &s->model;
    enum dry_status status;

    if (m->predicted) {
        status = say(
            s,
            "Only %s was measured, so all others are predicted: adding up %s of gradients at the %s/s that "
            "this host's memory gives, and computing as fast on every rank as on this one. A network "
            "between hosts, or ranks that share a device, make it slower.",
            ranks_text(s->row[0].ranks).text, dry_words_bytes(s->bytes).text,
            dry_words_bytes(m->bandwidth).text);
    } else if (m->left_out == 0) {
        status =
            say(s,
                "The model rests on %d rank count%s, too few to leave one out and try it: measure a third "
                "(--ranks) before you trust it.",
                s->rows, dry_plural(s->rows));
    } else {
        status = say(
            s,
            "The model, fitted without the %s, predicts %s a step for them and %s was measured: an error "
            "of %+.1f %%%s",
            ranks_text(m->left_out).text, dry_words_seconds(m->left_out_seconds).text,
            dry_words_seconds(m->left_out_measured).text, 100 * m->left_out_error,
            fabs(m->left_out_error) <= TRUSTED ? "."
                                               : ", so do not build on rank counts that were not measured.");
    }
    if (status || m->predicted)
        return status;
    return say(
        s,
        "What is predicted for more ranks takes at most %d of them on a host, and further hosts like it%s.",
        m->together,
        s->row[s->rows - 1].ranks > m->together ? "" : "; a network between hosts was not measured");
}

enum dry_status dry_scale_verdict(struct dry_scale *s)
{
    enum dry_status status = foretell_all(s);

    if (!status)
        status = say_measured(s);
    if (!status)
        status = say_lost(s);
    if (!status)
        status = say_crowd(s);
    if (!status)
        status = say_bits(s);
    if (!status)
        status = say_hours(s);
    if (!status)
        status = say_causes(s);
    if (!status)
        status = say_cut(s);
    if (!status)
        status = say_two(s);
    if (!status)
        status = say_model(s);
    return status;
}
