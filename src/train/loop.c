/*
 * The training loop: the one place that sees every stage of every step.
 * Owns the dealing of a step's micro-batches for the time of the call.
 * Must not know how checkpoints, metrics or progress look: they are called through a table.
 */
#include "config.h"

#include "train/loop.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <signal.h>

struct run {
    struct dry_loop *l;
    struct dry_backend *backend;
    enum dry_schedule schedule;
    int *owner; /* [micro-batches of the largest step] */
    int rank, ranks;
    int stop, tell; /* agreed */
    double told;    /* when ranks last told each other */
};

#define TELL_SECONDS 1.0 /* at least, from one time that ranks tell each other to the next */

static enum dry_stage enter(struct run *r, enum dry_stage stage)
{
    return dry_stages_enter(r->l->stages, stage);
}

/* An error that only this rank knows of so far. */
static void say_failure(const struct run *r, int64_t step, enum dry_status status)
{
    dry_error("rank %d failed in %s of step %lld (%s)%s", r->rank, dry_stage_name(r->l->stages->now),
              (long long)step, dry_status_name(status), r->ranks > 1 ? "; all ranks end" : "");
}

/* The same, where the others wait in a collective that this rank cannot enter: all must end. */
static enum dry_status fail(const struct run *r, int64_t step, enum dry_status status)
{
    say_failure(r, step, status);
    if (r->ranks > 1)
        dry_comm_abort(r->l->comm);
    return status;
}

/* Where ranks meet, and wait for the slowest: is any of them asked to stop, has one failed, is it time to
 * tell? The worst status of all is everybody's. */
static enum dry_status meet(struct run *r, enum dry_status mine)
{
    struct dry_loop_hooks *h = &r->l->hooks;
    int64_t word[] = {h->stop ? h->stop(h->context) : 0, mine, dry_clock_now() - r->told >= TELL_SECONDS};
    enum dry_status status = DRY_OK;

    enter(r, DRY_STAGE_WAIT);
    if (r->ranks > 1)
        status = dry_comm_max_i64(r->l->comm, word, sizeof word / sizeof *word);
    if (status)
        return status;
    r->stop |= word[0] != 0;
    r->tell |= word[2] != 0;
    return (enum dry_status)word[1];
}

/* Local. Forward and backward of this rank's micro-batches, up to their end on the device. */
static enum dry_status compute_share(struct run *r, const struct dry_plan_step *s, struct dry_share *share)
{
    struct dry_loop *l = r->l;
    enum dry_status status = r->backend->ops->sums_clear(r->backend);

    dry_plan_deal(s, r->ranks, r->owner);
    for (int64_t m = 0; m < s->micros && !status; m++) {
        const struct dry_batch *batch;
        double began;

        if (r->owner[m] != r->rank)
            continue;
        /* on failure the stage at hand is the one that is told */
        enter(r, DRY_STAGE_DATA);
        if ((status = dry_loader_load(l->loader, s, m, &batch)))
            break;
        enter(r, DRY_STAGE_COPY);
        began = dry_clock_now();
        if ((status = dry_engine_batch(l->engine, batch, 1)))
            break;
        dry_delay("copy", began);
        enter(r, DRY_STAGE_FORWARD);
        began = dry_clock_now();
        if ((status = dry_engine_forward(l->engine)))
            break;
        enter(r, DRY_STAGE_BACKWARD);
        status = dry_engine_backward(l->engine);
        if (!status && dry_delay_asked("compute") && !(status = r->backend->ops->sync(r->backend)))
            dry_delay("compute", began);
        share->tokens += s->micro[m].useful;
        share->padded += s->micro[m].tokens;
        share->supervised += s->micro[m].supervised;
        share->micros++;
        share->square += s->micro[m].square;
    }
    return status ? status : r->backend->ops->sync(r->backend);
}

/* Local. This rank's part of a step, before ranks meet. */
static enum dry_status work(struct run *r, int64_t step, struct dry_plan_step *s, struct dry_share *share)
{
    enum dry_status status;

    dry_stages_open(r->l->stages, DRY_STAGE_DATA, r->backend);
    status = dry_plan_step(r->l->plan, step, s);
    if (!status)
        status = compute_share(r, s, share);
    if (!status)
        status = dry_stages_close(r->l->stages);
    if (status) {
        dry_stages_drop(r->l->stages);
        say_failure(r, step, status);
    }
    return status;
}

/* The sums of all ranks in place: from device to device, or piece by piece through host memory. */
static enum dry_status sum_over_ranks(struct run *r)
{
    const struct dry_backend_ops *ops = r->backend->ops;
    struct dry_device_comm *direct = r->l->device_comm;
    int64_t *block = NULL;
    size_t count = 0, first = 0;
    enum dry_status status;

    if (direct) {
        status = ops->sums_block(r->backend, &block, &count);
        return status ? status : direct->ops->sum_i64(direct, block, count);
    }
    for (;;) {
        status = ops->sums_fetch(r->backend, first, &block, &count);
        if (status || count == 0)
            return status;
        status = dry_comm_sum_i64(r->l->comm, block, count);
        if (!status)
            status = ops->sums_store(r->backend, first, count);
        if (status)
            return status;
        first += count;
    }
}

/* Sums of all ranks in place, then the three words. */
static enum dry_status reduce(struct run *r, int64_t words[DRY_SUMS])
{
    enum dry_status status = DRY_OK;
    double began;

    enter(r, DRY_STAGE_REDUCE);
    began = dry_clock_now();
    if (r->ranks > 1)
        status = sum_over_ranks(r);
    if (!status)
        status = r->backend->ops->sums_read(r->backend, words);
    dry_delay("reduce", began);
    return status;
}

/* The same words on all ranks, so all give the same verdict; rank 0 says it. */
static enum dry_status check_words(const struct run *r, int64_t step, const int64_t words[DRY_SUMS])
{
    if (words[DRY_SUM_FLAGS] == 0 && words[DRY_SUM_TOKENS] > 0)
        return DRY_OK;
    if (r->rank == 0)
        dry_error(
            "step %lld: %s", (long long)step,
            words[DRY_SUM_FLAGS]
                ? "a loss or gradient is not finite or left the range of exact sums; the adapter is as after "
                  "the "
                  "step before; try a lower --learning-rate, or look for broken weights with drydock inspect"
                : "no supervised token in the whole step");
    return DRY_ERR_NUMERIC;
}

static enum dry_status update(struct run *r, int64_t step, struct dry_step_report *report)
{
    const struct dry_contract *k = r->l->contract;
    struct dry_adamw o = {
        .rate = dry_schedule_rate(r->schedule, k->learning_rate * r->l->rate_factor, k->warmup_steps,
                                  k->steps, step),
        .beta1 = k->adam_beta1,
        .beta2 = k->adam_beta2,
        .epsilon = k->adam_epsilon,
        .decay = k->weight_decay,
        .max_norm = k->max_grad_norm,
        .step = step + r->l->update_offset,
    };

    report->rate = o.rate;
    return r->backend->ops->adamw(r->backend, &o, &report->norm);
}

/* Tests: a signal that comes at a known step. */
static void signal_on_purpose(int64_t step)
{
    static const struct {
        const char *kind;
        int number;
    } faults[] = {{"kill-step", SIGKILL}, {"sigterm", SIGTERM}, {"sigint", SIGINT}, {"sigusr1", SIGUSR1}};

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (dry_fault_at(faults[i].kind, step))
            raise(faults[i].number);
}

static enum dry_status run_step(struct run *r, int64_t step, struct dry_share *share)
{
    struct dry_loop *l = r->l;
    double began = dry_clock_now();
    struct dry_step_report report = {.step = step, .steps = l->last_step};
    int64_t words[DRY_SUMS] = {0};
    struct dry_plan_step s;
    enum dry_status status;

    signal_on_purpose(step);
    status = meet(r, work(r, step, &s, share));
    if (status)
        return status;
    status = reduce(r, words);
    if (status)
        return fail(r, step, status);
    status = check_words(r, step, words);
    if (status)
        return status;
    enter(r, DRY_STAGE_OPTIMIZER);
    status = update(r, step, &report);
    if (status)
        return fail(r, step, status);
    report.epoch = s.epoch;
    report.records = s.records;
    report.useful = s.useful;
    report.tokens = s.tokens;
    report.supervised = words[DRY_SUM_TOKENS];
    report.loss = ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS) / (double)words[DRY_SUM_TOKENS];
    report.seconds = dry_clock_now() - began;
    enter(r, DRY_STAGE_UNEXPLAINED);
    status = l->hooks.step ? l->hooks.step(l->hooks.context, &report, l->stages) : DRY_OK;
    return status ? fail(r, step, status) : DRY_OK;
}

static int due(int64_t step, int64_t interval, int64_t last)
{
    return step == last || (interval > 0 && step % interval == 0);
}

/* A stop in the middle leaves this validation to the run that resumes. */
static enum dry_status validate(struct run *r, int64_t step)
{
    struct dry_loop *l = r->l;
    struct dry_validation_report report = {.step = step};
    double best_loss = l->best_loss;
    int64_t best_step = l->best_step;
    double began = dry_clock_now();
    enum dry_status status;

    enter(r, DRY_STAGE_VALIDATION);
    r->tell = 1;
    if (dry_fault_at("sigterm-validation", step))
        raise(SIGTERM);
    status = dry_evaluate(l->comm, l->engine, l->validation_plan, l->validation_loader, l->hooks.stop,
                          l->hooks.context, &report.loss, &report.supervised);
    dry_delay("validation", began);
    if (status == DRY_STOPPED) {
        r->stop = 1;
        return DRY_OK;
    }
    if (status)
        return status;
    report.perplexity = exp(report.loss);
    report.best = report.loss < l->best_loss;
    if (report.best) {
        l->best_loss = report.loss;
        l->best_step = step;
    }
    l->validated_step = step;
    if (l->hooks.validated)
        status = l->hooks.validated(l->hooks.context, &report);
    if (status == DRY_ERR_IO && step < l->last_step) {
        l->best_loss = best_loss; /* what could not be kept is not the best */
        l->best_step = best_step;
        if (r->rank == 0)
            dry_warn("step %lld: the best adapter is not saved; the one before it stays, training goes on",
                     (long long)step);
        return DRY_OK;
    }
    return status;
}

static enum dry_status save(struct run *r, int64_t step, enum dry_loop_why why)
{
    struct dry_loop *l = r->l;
    enum dry_status status;

    if (!l->hooks.checkpoint)
        return DRY_OK;
    enter(r, DRY_STAGE_CHECKPOINT);
    r->tell = 1;
    status = l->hooks.checkpoint(l->hooks.context, l, step, why);
    if (status == DRY_ERR_IO && why == DRY_WHY_INTERVAL) {
        if (r->rank == 0)
            dry_warn("step %lld: not saved; the checkpoint before it stays, training goes on, the next is "
                     "tried at its "
                     "time",
                     (long long)step);
        return DRY_OK;
    }
    return status;
}

static int validation_due(const struct dry_loop *l, int64_t step)
{
    return l->validation_plan && step > 0 && step > l->validated_step &&
           due(step, l->validation_interval, l->last_step);
}

/* What follows a step: validation, checkpoint, the end. */
static enum dry_status after_step(struct run *r, int64_t step)
{
    struct dry_loop *l = r->l;
    enum dry_status status = DRY_OK;

    r->stop |= step == l->stop_after;
    if (r->stop && step == l->last_step && !validation_due(l, step))
        r->stop = 0; /* all is done: end instead of being started once more */
    if (!r->stop && validation_due(l, step))
        status = validate(r, step);
    if (status)
        return status;
    if (step == l->last_step && !r->stop)
        return save(r, step, DRY_WHY_END);
    if (r->stop)
        return save(r, step, DRY_WHY_STOP);
    if (due(step, l->checkpoint_interval, l->last_step))
        return save(r, step, DRY_WHY_INTERVAL);
    return DRY_OK;
}

/* Closes the account of a step; 0: of what came before the first. */
static enum dry_status account(struct run *r, int64_t step, const struct dry_share *share)
{
    struct dry_loop_hooks *h = &r->l->hooks;
    int tell = r->tell;

    enter(r, DRY_STAGE_UNEXPLAINED);
    r->tell = 0;
    if (tell)
        r->told = dry_clock_now();
    return h->account ? h->account(h->context, step, share, tell) : DRY_OK;
}

/* Before the first step: a stop that came during start-up, and a validation that an earlier stop left undone.
 */
static enum dry_status before_steps(struct run *r)
{
    struct dry_loop *l = r->l;
    int64_t done = l->first_step - 1;
    enum dry_status status = account(r, 0, &(struct dry_share){0});

    if (!status)
        status = meet(r, DRY_OK);
    r->stop |= l->stop_after > 0 && done >= l->stop_after;
    if (status || r->stop || !validation_due(l, done))
        return status;
    status = validate(r, done);
    if (!status && !r->stop && done == l->last_step)
        status = save(r, done, DRY_WHY_END);
    return status;
}

enum dry_status dry_loop_run(struct dry_loop *l)
{
    struct run r = {
        .l = l,
        .backend = dry_engine_backend(l->engine),
        .rank = dry_comm_rank(l->comm),
        .ranks = dry_comm_size(l->comm),
        .tell = 1,
    };
    struct dry_plan_bounds bounds;
    enum dry_status status = dry_plan_bounds(l->plan, &bounds);

    if (!status && dry_schedule_parse(l->contract->schedule, &r.schedule)) {
        dry_error("contract: schedule \"%s\" is not known", l->contract->schedule);
        status = DRY_ERR_USAGE;
    }
    if (!status &&
        !(r.owner = dry_alloc((size_t)bounds.micros, sizeof *r.owner, "the dealing of micro-batches")))
        status = DRY_ERR_MEMORY;
    status = dry_comm_agree(l->comm, status);
    if (!status)
        status = before_steps(&r);
    for (int64_t step = l->first_step; step <= l->last_step && !status && !r.stop; step++) {
        struct dry_share share = {0};

        status = run_step(&r, step, &share);
        if (!status)
            status = after_step(&r, step);
        if (!status)
            status = account(&r, step, &share);
    }
    enter(&r, DRY_STAGE_UNEXPLAINED);
    dry_free(r.owner);
    if (!status && r.stop)
        status = DRY_STOPPED;
    return status;
}
