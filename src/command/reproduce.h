/*
 * reproduce's state, shared by its parts.  Owns everything; released by dry_command_reproduce.
 */
#ifndef DRY_COMMAND_REPRODUCE_H
#define DRY_COMMAND_REPRODUCE_H

#include "command/differ.h"
#include "command/setup.h"
#include "measure/history.h"

struct dry_reproduce {
    const struct dry_call *call;
    const char *folder; /* of the run that is done again */
    const char *output; /* of the new one */
    int rank;
    json_t *run;               /* its run.json, on every rank */
    int64_t from, to;          /* checkpoint to begin with (0: none), last step to compare */
    int64_t steps;             /* of the run's contract */
    char *checkpoint;          /* file of step `from`; NULL: none. rank 0 */
    struct dry_config *config; /* of the new run */
    /* what it is done again with */
    char *dir;
    struct dry_base *base;
    struct dry_adapter *adapter; /* its shape, where checkpoints are compared */
    struct dry_differences differences;
    struct dry_history *then, *now; /* rank 0; now: the new run's */
};

/* What came out; rank 0. */
struct dry_reproduced {
    char hash_then[DRY_HASH_HEX], hash_now[DRY_HASH_HEX]; /* of the adapter's file, or of values, m and v */
    int64_t compared;                                     /* steps with a line in both metrics.jsonl */
    int64_t step;                                         /* the first that differs; 0: none */
    const char *what;                                     /* "loss" */
    double value_then, value_now;
};

/* reproduce_config.c. Local: options of the run as they were given, for the new one; paths by the folder that
 * the run was started in. USAGE, INPUT, MEMORY. */
enum dry_status dry_reproduce_config(struct dry_reproduce *r);

/* reproduce_check.c. Collective: versions, devices, data, tokenizer and base as they are now against the
 * run's; all differences are named, and those that are not allowed refused. */
enum dry_status dry_reproduce_check(struct dry_reproduce *r, unsigned allowed);

/* reproduce_compare.c. Local, rank 0: bits of both. */
enum dry_status dry_reproduce_compare(struct dry_reproduce *r, struct dry_reproduced *out);
/* Local, rank 0: what came out, on standard output; an unequal one is NUMERIC, with an error line. */
enum dry_status dry_reproduce_tell(struct dry_reproduce *r, const struct dry_reproduced *out);

#endif
