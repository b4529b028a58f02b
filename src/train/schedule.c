/*
 * The learning rate as a function of the step, as Transformers' get_scheduler defines it.
 * Owns nothing.
 * Must not know of optimizers, ranks or options.
 */
#include "config.h"

#include "train/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const names[] = {
    [DRY_SCHEDULE_COSINE] = "cosine",
    [DRY_SCHEDULE_LINEAR] = "linear",
    [DRY_SCHEDULE_CONSTANT] = "constant",
};

static double factor(enum dry_schedule s, int64_t warmup, int64_t steps, int64_t t)
{
    double p;

    if (t < warmup)
        return (double)t / (double)(warmup > 1 ? warmup : 1);
    p = (double)(t - warmup) / (double)(steps - warmup > 1 ? steps - warmup : 1);
    switch (s) {
    case DRY_SCHEDULE_COSINE:
        p = 0.5 * (1.0 + cos(M_PI * p));
        return p > 0 ? p : 0;
    case DRY_SCHEDULE_LINEAR:
        return p < 1 ? 1 - p : 0;
    case DRY_SCHEDULE_CONSTANT:
        break;
    }
    return 1;
}

double dry_schedule_rate(enum dry_schedule s, double peak, int64_t warmup, int64_t steps, int64_t step)
{
    return peak * factor(s, warmup, steps, step - 1);
}

int dry_schedule_parse(const char *name, enum dry_schedule *s)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *s = (enum dry_schedule)i;
            return 0;
        }
    return -1;
}
