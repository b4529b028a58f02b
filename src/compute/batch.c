/*
 * What every backend asks of a micro-batch before it computes.
 * Owns nothing.  Must not know where the arrays go.
 */
#include "config.h"

#include "compute/backend.h"

#include "base/log.h"

#include <inttypes.h>

enum dry_status dry_batch_check(const struct dry_base *base, const struct dry_limits *l,
                                const struct dry_batch *batch)
{
    int64_t vocab = base->arch.vocab;

    if (batch->tokens > l->tokens || batch->records > l->records || batch->rows > l->rows ||
        batch->longest > l->longest || batch->useful > batch->tokens ||
        batch->offset[batch->records] != batch->useful) {
        dry_error("micro-batch of %" PRId64 " tokens, %" PRId64 " records, %" PRId64
                  " labels, longest %" PRId64 " is beyond what was laid out (%" PRId64 ", %" PRId64
                  ", %" PRId64 ", %" PRId64 "); please report this as a bug",
                  batch->tokens, batch->records, batch->rows, batch->longest, l->tokens, l->records, l->rows,
                  l->longest);
        return DRY_ERR_INTERNAL;
    }
    for (int64_t t = 0; t < batch->useful; t++)
        if (batch->id[t] < 0 || batch->id[t] >= vocab || batch->position[t] < 0 ||
            batch->position[t] >= l->longest) {
            dry_error("%s: token id %d at position %d is not in the base's vocabulary of %" PRId64
                      " or its longest record; prepare the data again with this base",
                      base->dir, (int)batch->id[t], (int)batch->position[t], vocab);
            return DRY_ERR_INPUT;
        }
    for (int64_t r = 0; r < batch->rows; r++)
        if (batch->label[r] < 0 || batch->label[r] >= vocab || batch->row[r] < 0 ||
            batch->row[r] >= batch->useful) {
            dry_error("%s: label %d is not in the base's vocabulary of %" PRId64
                      "; prepare the data again with this base",
                      base->dir, (int)batch->label[r], vocab);
            return DRY_ERR_INPUT;
        }
    return DRY_OK;
}
