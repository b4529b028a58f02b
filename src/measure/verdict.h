/*
 * The verdict: from an account, what a run's time mostly went to, and what to change first.
 * Owns nothing.  Must not know how the numbers were measured or where sentences are shown.
 */
#ifndef DRY_MEASURE_VERDICT_H
#define DRY_MEASURE_VERDICT_H

#include "measure/account.h"

enum dry_cause {
    DRY_CAUSE_HEALTHY,    /* most time is computing, nothing else is worth a change */
    DRY_CAUSE_DATA,       /* waiting for records (slow storage, tokenising) */
    DRY_CAUSE_COPY,       /* moving micro-batches to the device */
    DRY_CAUSE_SMALL,      /* micro-batches too small for the device, or too few for the ranks */
    DRY_CAUSE_REDUCE,     /* adding up over ranks */
    DRY_CAUSE_IMBALANCE,  /* shares of ranks are unequal by the plan */
    DRY_CAUSE_SLOW_RANK,  /* one rank computes slower than the others for the same work */
    DRY_CAUSE_CHECKPOINT, /* writing checkpoints */
    DRY_CAUSE_VALIDATION, /* validating */
    DRY_CAUSE_PADDING,    /* computing padding */
    DRY_CAUSE_STARTUP,    /* start-up and tokenising against a short run */
    DRY_CAUSE_UNEXPLAINED,
    DRY_CAUSES
};

/* One finding; the first of a verdict is the dominant one. */
struct dry_finding {
    enum dry_cause cause;
    double share;     /* of wall-clock (of padding: of computing) that a change could win at most */
    char fact[400];   /* what was seen, with its numbers: "Rank 2 computes 1.8 times as long as ..." */
    char advice[480]; /* what to change, in options, and what that would bring */
};

struct dry_verdict {
    struct dry_finding finding[DRY_CAUSES]; /* by falling share */
    int findings;                           /* 1 at least: healthy stands alone */
};

/* Local. Looks at the latest start of a run as a whole and at its steady steps (the first few, which warm up,
 * not counted). INPUT for a run without an account. */
enum dry_status dry_verdict_make(const struct dry_history *h, struct dry_verdict *v);
const char *dry_cause_name(enum dry_cause c); /* "data wait", "slow rank" ... */
/* Local. The same; "none" for a start without a step, of which nothing can be said. */
const char *dry_finding_name(const struct dry_finding *f);
/* Local. As plain sentences, a finding a paragraph. */
void dry_verdict_print(FILE *out, const struct dry_verdict *v);
json_t *dry_verdict_json(const struct dry_verdict *v);

#endif
