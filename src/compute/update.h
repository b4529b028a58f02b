/*
 * What the updates of all backends share: the check of the summed words before anything is changed, and the
 * scalars of AdamW. Owns nothing.  Must not know where sums and masters lie.
 */
#ifndef DRY_COMPUTE_UPDATE_H
#define DRY_COMPUTE_UPDATE_H

#include "compute/backend.h"

/* Scalars of PyTorch's AdamW, whose scalars are doubles and whose tensors are float32:
 * m += weight1 (g - m); v = v beta2 + weight2 g^2; value = value decay - step m / (sqrt(v) / root + epsilon).
 */
struct dry_adamw_terms {
    float decay, weight1, beta2, weight2, step, root, epsilon;
};

/* Local. Raised flags or no token: NUMERIC, said here, once, by the rank that finds it. */
enum dry_status dry_update_check(const int64_t words[DRY_SUMS], int64_t step);
struct dry_adamw_terms dry_update_terms(const struct dry_adamw *o);

#endif
