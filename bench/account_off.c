/*
 * The account left out: the functions of train/stages.c, measure/ledger.c and measure/sampler.c with nothing
 * in them. Owns nothing. Must not measure anything: linked before the library it makes the program that
 * bench/account compares with.
 */
#include "config.h"

#include "measure/ledger.h"
#include "measure/sampler.h"
#include "train/stages.h"

#include <string.h>

void dry_stages_start(struct dry_stages *s, double since, enum dry_stage first)
{
    memset(s, 0, sizeof *s);
    s->since = since;
    s->now = first;
}

enum dry_stage dry_stages_enter(struct dry_stages *s, enum dry_stage next)
{
    enum dry_stage before = s->now;

    s->now = next;
    return before;
}

void dry_stages_open(struct dry_stages *s, enum dry_stage next, struct dry_backend *b)
{
    (void)b;
    s->now = next;
}

enum dry_status dry_stages_close(struct dry_stages *s)
{
    (void)s;
    return DRY_OK;
}

void dry_stages_drop(struct dry_stages *s)
{
    (void)s;
}

enum dry_stage dry_stages_at(const struct dry_stages *s, double t)
{
    (void)t;
    return s->now;
}

const char *dry_stage_name(enum dry_stage stage)
{
    (void)stage;
    return "not measured";
}

enum dry_status dry_ledger_open(const struct dry_ledger_input *in, struct dry_ledger **l)
{
    (void)in;
    *l = NULL;
    return DRY_OK;
}

enum dry_status dry_ledger_put(struct dry_ledger *l, enum dry_phase phase, int64_t step,
                               const struct dry_share *share, int gather)
{
    (void)l;
    (void)phase;
    (void)step;
    (void)share;
    (void)gather;
    return DRY_OK;
}

void dry_ledger_close(struct dry_ledger *l)
{
    (void)l;
}

enum dry_status dry_sampler_start(double interval, struct dry_sampler **s)
{
    (void)interval;
    *s = NULL;
    return DRY_OK;
}

void dry_sampler_attach(struct dry_sampler *s, const struct dry_probe_ops *ops, struct dry_probe *probe)
{
    (void)s;
    ops->close(probe);
}

size_t dry_sampler_take(struct dry_sampler *s, struct dry_sample sample[DRY_SAMPLES])
{
    (void)s;
    (void)sample;
    return 0;
}

void dry_sampler_stop(struct dry_sampler *s)
{
    (void)s;
}
