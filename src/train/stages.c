/*
 * The running account of one rank: each second since the start belongs to one stage.
 * Owns nothing; the account is the caller's plain struct.
 * Must not know what happens in a stage.
 */
#include "config.h"

#include "train/stages.h"

#include "base/clock.h"

#include <assert.h>

static const char *const names[] = {
    [DRY_STAGE_STARTUP] = "start-up",      [DRY_STAGE_TOKENISE] = "tokenise",
    [DRY_STAGE_DATA] = "data wait",        [DRY_STAGE_COPY] = "copy in",
    [DRY_STAGE_FORWARD] = "forward",       [DRY_STAGE_BACKWARD] = "backward",
    [DRY_STAGE_REDUCE] = "reduce",         [DRY_STAGE_WAIT] = "wait for slowest rank",
    [DRY_STAGE_OPTIMIZER] = "optimizer",   [DRY_STAGE_CHECKPOINT] = "checkpoint",
    [DRY_STAGE_VALIDATION] = "validation", [DRY_STAGE_UNEXPLAINED] = "unexplained",
};
_Static_assert(sizeof names / sizeof *names == DRY_STAGES, "each stage has a name");

void dry_stages_start(struct dry_stages *s, double since, enum dry_stage first)
{
    *s = (struct dry_stages){.since = since, .now = first};
}

enum dry_stage dry_stages_enter(struct dry_stages *s, enum dry_stage next)
{
    enum dry_stage before = s->now;
    double now = dry_clock_now();

    s->seconds[before] += now - s->since;
    s->since = now;
    s->now = next;
    return before;
}

const char *dry_stage_name(enum dry_stage stage)
{
    assert(stage >= 0 && stage < DRY_STAGES);
    return names[stage];
}
