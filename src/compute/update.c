/*
 * The check of a step's summed words, with what to do about each fault, and AdamW's scalars for the step.
 * Owns nothing.  Must not know where sums and masters lie.
 */
#include "config.h"

#include "compute/update.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>

enum dry_status dry_update_check(const int64_t words[DRY_SUMS], int64_t step)
{
    if (words[DRY_SUM_FLAGS] & (DRY_FLAG_RANGE - 1)) {
        dry_error("step %" PRId64
                  ": a loss or gradient is not finite; lower --learning-rate or set --max-grad-norm, and "
                  "check the base's weights for values that are not finite",
                  step);
        return DRY_ERR_NUMERIC;
    }
    if (words[DRY_SUM_FLAGS]) {
        dry_error("step %" PRId64
                  ": a gradient sum left its range of 2^%d; the run diverges: lower --learning-rate or "
                  "--alpha, or use a smaller --effective-batch",
                  step, DRY_GRAD_LIMIT_BITS - DRY_GRAD_BITS);
        return DRY_ERR_NUMERIC;
    }
    if (words[DRY_SUM_TOKENS] <= 0) {
        dry_error("step %" PRId64
                  ": no supervised token in the step, so there is no mean loss; check the data with "
                  "drydock prepare",
                  step);
        return DRY_ERR_NUMERIC;
    }
    return DRY_OK;
}

struct dry_adamw_terms dry_update_terms(const struct dry_adamw *o)
{
    return (struct dry_adamw_terms){
        .decay = (float)(1 - o->rate * o->decay),
        .weight1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .weight2 = (float)(1 - o->beta2),
        .step = (float)(o->rate / (1 - pow(o->beta1, (double)o->step))),
        .root = (float)sqrt(1 - pow(o->beta2, (double)o->step)),
        .epsilon = (float)o->epsilon,
    };
}
