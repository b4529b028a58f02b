/*
 * The running account of one rank: each second since the start belongs to one stage.
 * Owns nothing; the account is the caller's plain struct.
 * Must not know what happens in a stage.
 */
#include "config.h"

#include "train/stages.h"

#include "base/clock.h"

#include <assert.h>
#include <string.h>

static const char *const names[] = {
    [DRY_STAGE_STARTUP] = "start-up",      [DRY_STAGE_TOKENISE] = "tokenise",
    [DRY_STAGE_DATA] = "data wait",        [DRY_STAGE_COPY] = "copy in",
    [DRY_STAGE_FORWARD] = "forward",       [DRY_STAGE_BACKWARD] = "backward",
    [DRY_STAGE_REDUCE] = "reduce",         [DRY_STAGE_WAIT] = "wait for slowest rank",
    [DRY_STAGE_OPTIMIZER] = "optimizer",   [DRY_STAGE_CHECKPOINT] = "checkpoint",
    [DRY_STAGE_VALIDATION] = "validation", [DRY_STAGE_UNEXPLAINED] = "unexplained",
};
_Static_assert(sizeof names / sizeof *names == DRY_STAGES, "each stage has a name");

static void turn(struct dry_stages *s, double at, enum dry_stage stage)
{
    int64_t i = s->turns++ % DRY_STAGE_TURNS;

    s->turn[i].at = at;
    s->turn[i].stage = stage;
}

void dry_stages_start(struct dry_stages *s, double since, enum dry_stage first)
{
    memset(s, 0, sizeof *s);
    s->since = since;
    s->now = first;
    turn(s, since, first);
}

enum dry_stage dry_stages_enter(struct dry_stages *s, enum dry_stage next)
{
    enum dry_stage before = s->now;
    double now = dry_clock_now();

    s->seconds[before] += now - s->since;
    s->since = now;
    s->now = next;
    if (next != before)
        turn(s, now, next);
    if (s->device)
        s->device->ops->mark(s->device, (int)next);
    return before;
}

void dry_stages_open(struct dry_stages *s, enum dry_stage next, struct dry_backend *b)
{
    dry_stages_enter(s, next);
    if (!b->ops->mark)
        return;
    s->device = b;
    s->opened = s->since;
    s->turns_before = s->turns;
    memcpy(s->before, s->seconds, sizeof s->before);
    b->ops->mark(b, (int)next);
}

/* The window's seconds by its marks, which took `sum` of the `whole`. Two clocks measured them: a sum that is
 * a little over is stretched to fit. */
static void replace(struct dry_stages *s, const struct dry_mark *mark, int count, double sum, double whole)
{
    double stretch = sum > whole ? whole / sum : 1, at = s->opened;

    memcpy(s->seconds, s->before, sizeof s->seconds);
    s->turns = s->turns_before;
    for (int i = 0; i < count; i++) {
        s->seconds[mark[i].kind] += mark[i].seconds * stretch;
        turn(s, at, (enum dry_stage)mark[i].kind);
        at += mark[i].seconds * stretch;
    }
    if (sum < whole) {
        s->seconds[DRY_STAGE_UNEXPLAINED] += whole - sum;
        turn(s, at, DRY_STAGE_UNEXPLAINED);
    }
}

enum dry_status dry_stages_close(struct dry_stages *s)
{
    struct dry_backend *b = s->device;
    double sum = 0;
    int count = 0;
    enum dry_status status;

    if (!b)
        return DRY_OK;
    s->device = NULL;
    dry_stages_enter(s, s->now); /* to the present: the window's end */
    status = b->ops->marks(b, s->mark, DRY_STAGE_TURNS, &count);
    if (status)
        return status;
    for (int i = 0; i < count; i++) {
        assert(s->mark[i].kind >= 0 && s->mark[i].kind < DRY_STAGES);
        sum += s->mark[i].seconds;
    }
    if (count > 0) {
        replace(s, s->mark, count, sum, s->since - s->opened);
        turn(s, s->since, s->now);
    }
    return DRY_OK;
}

void dry_stages_drop(struct dry_stages *s)
{
    s->device = NULL;
}

enum dry_stage dry_stages_at(const struct dry_stages *s, double t)
{
    int64_t oldest = s->turns > DRY_STAGE_TURNS ? s->turns - DRY_STAGE_TURNS : 0, i = s->turns - 1;

    while (i > oldest && s->turn[i % DRY_STAGE_TURNS].at > t)
        i--;
    return s->turn[i % DRY_STAGE_TURNS].stage;
}

const char *dry_stage_name(enum dry_stage stage)
{
    assert(stage >= 0 && stage < DRY_STAGES);
    return names[stage];
}
