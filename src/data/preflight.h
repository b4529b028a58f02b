/*
 * The preflight: what is wrong with the data, by file and line, before anything is trained on it.
 * Owns the first complaints of each kind.  Private to data/.
 */
#ifndef DRY_DATA_PREFLIGHT_H
#define DRY_DATA_PREFLIGHT_H

#include "data/cache.h"

enum { DRY_COMPLAINTS = 10 }; /* named one by one, of each kind */

/* What happens to records that cannot be used: left out, or the whole file is refused. */
struct dry_policy {
    int bad_drop, long_drop;
};

struct dry_complaint {
    int64_t line;
    int32_t outcome;
    char why[160];
};

/* One rank's or all ranks' account. */
struct dry_preflight {
    int64_t outcome[DRY_RECORD_OUTCOMES];
    int64_t special_text, truncated;
    int64_t longest, longest_line; /* of the records that are too long; tokens before truncation */
};

/* Local. Adds one line; keeps its complaint when it is among the first of its kind. The list has room for
 * DRY_COMPLAINTS * DRY_RECORD_OUTCOMES. */
void dry_preflight_add(struct dry_preflight *p, const struct dry_record *r, struct dry_complaint *list,
                       size_t *listed);
/* Collective. Sums the account over the ranks; on rank 0 *list (dry_free) are all ranks' complaints in line
 * order. */
enum dry_status dry_preflight_gather(struct dry_comm *comm, struct dry_preflight *p,
                                     const struct dry_complaint *mine, size_t listed,
                                     struct dry_complaint **list, size_t *count);
/* Local, rank 0. Names the bad records with `path`:line and judges: INPUT, with the remedy, when the policy
 * does not leave them out or when nothing would be left. */
enum dry_status dry_preflight_judge(const struct dry_preflight *p, const char *path, int64_t limit,
                                    struct dry_policy policy, const struct dry_complaint *list, size_t count);

#endif
