/*
 * The learning rate as a function of the step, as Transformers' get_scheduler.  Owns nothing.
 */
#ifndef DRY_TRAIN_SCHEDULE_H
#define DRY_TRAIN_SCHEDULE_H

#include <stdint.h>

enum dry_schedule { DRY_SCHEDULE_COSINE, DRY_SCHEDULE_LINEAR, DRY_SCHEDULE_CONSTANT };

/* Local. Rate of 1-based step s of `steps`: factor(s - 1), since Transformers steps the scheduler after the
 * optimizer. warm-up: t / max(1, warmup); then cosine 0.5 (1 + cos(pi p)), linear max(0, 1 - p), constant 1,
 * p = (t - warmup) / max(1, steps - warmup). */
double dry_schedule_rate(enum dry_schedule s, double peak, int64_t warmup, int64_t steps, int64_t step);
int dry_schedule_parse(const char *name, enum dry_schedule *s); /* 0, or -1 */

#endif
