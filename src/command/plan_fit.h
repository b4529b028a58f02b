/*
 * plan's answer when memory does not suffice: what would.
 * Owns nothing.
 */
#ifndef DRY_COMMAND_PLAN_FIT_H
#define DRY_COMMAND_PLAN_FIT_H

#include "command/plan_report.h"
#include "compute/backend.h"

/* What a plan needs and may take. */
struct dry_plan_need {
    const struct dry_backend_ops *ops;
    struct dry_limits limits;
    size_t total; /* bytes of a rank */
    int64_t room; /* bytes left on the host or its GPU; -1: not known */
};

/* Local. Nothing when it fits, or that is not known; else lines that name each change that would make it fit,
 * or that none does. MEMORY. */
enum dry_status dry_plan_fit_print(FILE *out, const struct dry_plan_subject *s,
                                   const struct dry_plan_need *n);

#endif
