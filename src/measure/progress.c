/*
 * Shows how far a run is: a line in place on a terminal, a line now and then in a log.
 * Owns the clock readings that speed and remaining time are made of.
 * Must not know where its lines go.
 */
#include "config.h"

#include "measure/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>

struct dry_progress {
    int64_t steps, first_step, interval;
    double began;   /* of the first step */
    double told;    /* of the last line */
    int64_t tokens; /* useful ones since the last line */
};

enum dry_status dry_progress_create(int64_t steps, int64_t first_step, int64_t interval,
                                    struct dry_progress **progress)
{
    struct dry_progress *p = dry_alloc(1, sizeof *p, "the progress line");

    if (!p)
        return DRY_ERR_MEMORY;
    p->steps = steps;
    p->first_step = first_step;
    p->interval = interval;
    p->began = p->told = dry_clock_now();
    *progress = p;
    return DRY_OK;
}

void dry_progress_step(struct dry_progress *p, const struct dry_step_report *s)
{
    int64_t done = s->step - p->first_step + 1;
    int line = done == 1 || s->step == p->steps || (p->interval > 0 && s->step % p->interval == 0);
    double now = dry_clock_now(), passed = now - p->told;
    char text[160], eta[32] = "";

    p->tokens += s->useful;
    if (!line && !dry_log_is_terminal())
        return;
    dry_clock_span((now - p->began) / (double)done * (double)(p->steps - s->step), eta, sizeof eta);
    snprintf(text, sizeof text, "step %lld/%lld loss %.4f lr %.2e norm %.3g tok/s %.0f eta %s",
             (long long)s->step, (long long)p->steps, s->loss, s->rate, s->norm,
             passed > 0 ? (double)p->tokens / passed : 0.0, eta);
    if (line)
        dry_info("%s", text);
    else
        dry_log_progress(text);
    if (line || passed > 5) { /* speed over a few seconds, so that the line does not flicker */
        p->told = now;
        p->tokens = 0;
    }
}

void dry_progress_destroy(struct dry_progress *p)
{
    if (p)
        dry_log_progress(NULL);
    dry_free(p);
}
