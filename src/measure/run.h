/*
 * What a run tells: run.json (the manifest), metrics.jsonl (a line per step and validation), progress for people.
 * Owns the open metrics file.  Rank 0 only, except where stated.
 */
#ifndef DRY_MEASURE_RUN_H
#define DRY_MEASURE_RUN_H

#include "config/contract.h"
#include "train/loop.h"

/* The manifest: values known at start; end values by dry_run_finish. */
struct dry_manifest {
    const char *command;        /* "finetune" */
    int argc;
    char **argv;
    json_t *options;            /* borrowed */
    const struct dry_contract *contract;
    const char *plan_hash;
    const char *backend;        /* describe() */
    int ranks;
    int64_t resumed_from;       /* step, 0: fresh */
    json_t *changes;            /* accepted batch changes, array, may be NULL; borrowed */
};

struct dry_run;
/* Local. Writes OUTPUT/run.json (exit null) and opens OUTPUT/metrics.jsonl; a resumed run first drops metrics lines of
 * steps after resumed_from, so that each step has one line. IO. */
enum dry_status dry_run_start(const char *output, const struct dry_manifest *m, struct dry_run **r);
enum dry_status dry_run_step(struct dry_run *r, const struct dry_step_report *s, const struct dry_stages *stages);
enum dry_status dry_run_validation(struct dry_run *r, const struct dry_validation_report *v);
/* Local. Adds end time, exit status, stages and results to run.json; frees r. NULL allowed. */
enum dry_status dry_run_finish(struct dry_run *r, enum dry_status outcome, const struct dry_stages *stages,
                               json_t *results);
/* Local. The manifest as JSON text (caller frees), for checkpoints. */
char *dry_run_manifest_text(const struct dry_run *r);
/* Local. Contract of an earlier run in this folder; *found 0 when there is none. INPUT. */
enum dry_status dry_run_contract(const char *output, struct dry_contract *k, int *found);
/* Local. Versions of this build and its libraries, for --version -v and run.json; caller decrefs. */
json_t *dry_build_json(void);

/* Progress: "step 10/234 loss 1.234 lr 2.0e-04 tok/s 1234 eta 0:12": on a terminal rewritten in place, in a log one line
 * every `interval` steps and at the last. */
struct dry_progress;
enum dry_status dry_progress_create(int64_t steps, int64_t first_step, int64_t interval, struct dry_progress **p);
void dry_progress_step(struct dry_progress *p, const struct dry_step_report *s);
void dry_progress_destroy(struct dry_progress *p);

#endif
