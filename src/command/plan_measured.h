/*
 * plan's time: what measured steps of a scale or of a run say of the run that is planned.
 * Owns nothing.  Must not know how the steps were measured.
 */
#ifndef DRY_COMMAND_PLAN_MEASURED_H
#define DRY_COMMAND_PLAN_MEASURED_H

#include "command/plan_report.h"
#include "measure/scaling.h"

enum { DRY_PLAN_TIMES = 16 };

struct dry_plan_time {
    int ranks;
    double step, epoch_hours, hours; /* seconds a step, checkpoints and validations among them */
};

struct dry_plan_measured {
    struct dry_scaling_model model;
    int scale;           /* of a scale; else of one run */
    int exact;           /* one run: its plan is this plan; else its load is estimated by tokens */
    int ranks;           /* one run: its ranks */
    int64_t first, last; /* one run: its counted steps */
    int validation;      /* the plan validates, and what that takes was not measured */
    struct dry_plan_time time[DRY_PLAN_TIMES];
    int times;
    int smallest; /* index of the first that meets `target` hours; -1 */
    double target;
};

/* Local. Reads --measured DIR and foretells for 1, 2, 4, 8 ... ranks and for `subject->ranks`. INPUT: DIR
 * holds neither, or its base or adapter is another. */
enum dry_status dry_plan_measured_make(const struct dry_plan_subject *subject, struct dry_plan_measured *m);
void dry_plan_measured_print(FILE *out, const struct dry_plan_subject *subject,
                             const struct dry_plan_measured *m);
/* Local. Caller decrefs; NULL: no memory. */
json_t *dry_plan_measured_json(const struct dry_plan_measured *m);

#endif
