/*
 * What a run tells: run.json (the manifest), metrics.jsonl (a line per step and validation), progress for
 * people. Owns the open metrics file.  Rank 0 only, except where stated.  Must not know how a run trains.
 *
 * run.json holds the latest start whole, and of the starts before it ("earlier_starts") the few words that
 * tell what the run went through: when, how many ranks, resumed from which step, and how it ended.  "exit" is
 * null while a run runs, and stays null when it was killed.  "matrix" has for each rank the operations a
 * second that products of the run's own shapes reached before it started, "flops_per_token" what a useful
 * token costs.
 */
#ifndef DRY_MEASURE_RUN_H
#define DRY_MEASURE_RUN_H

#include "config/contract.h"
#include "train/loop.h"

/* The manifest: values known at start; end values by dry_run_finish. All borrowed for the call. */
struct dry_manifest {
    const char *command; /* "finetune" */
    int argc;
    char **argv;
    json_t *options;
    const struct dry_contract *contract;
    const char *plan_hash;
    const char *base;    /* folder */
    const char *backend; /* describe() */
    const char *
        libraries; /* JSON object's text: name -> version of what measure itself does not link; may be NULL */
    int ranks;
    int64_t resumed_from;      /* step, 0: fresh */
    int64_t resumed_validated; /* last step whose validation is in the state resumed from */
    json_t *change;            /* an accepted batch change of this start, or NULL; earlier ones are kept */
    double began; /* dry_clock_now() when the process began: what stages.csv and the samples count from */
    const char *output;
    const char *data, *data_hash, *tokenizer_hash; /* the training data's path, and SHA-256 of bytes */
    const char *validation, *validation_hash;      /* the same of the validation data; NULL: none */
    double resident;        /* share of the base's files that were in memory at start; NAN: not known */
    const json_t *devices;  /* a rank's each: {"rank", "host", "device", "driver", "threads", "matrix"} */
    double flops_per_token; /* by the LoRA count, of a useful token of the data; 0: not known */
    double flops_per_squared_length; /* the attention's part of it: of a unit of squared record length */
};

struct dry_run;
/* Local. Writes OUTPUT/run.json (exit null) and opens OUTPUT/metrics.jsonl; a resumed run first drops metrics
 * lines of steps after resumed_from, so that each step has one line. IO. */
enum dry_status dry_run_start(const char *output, const struct dry_manifest *m, struct dry_run **r);
enum dry_status dry_run_step(struct dry_run *r, const struct dry_step_report *s,
                             const struct dry_stages *stages);
enum dry_status dry_run_validation(struct dry_run *r, const struct dry_validation_report *v);
/* What run.json gets at the end; each is taken, and may be NULL. */
struct dry_run_end {
    json_t *results;
    json_t *algorithms;        /* of matrix products, as the backend lists them */
    json_t *account, *verdict; /* dry_account_json and dry_verdict_json of the start as a whole */
};
/* Local. Adds end time, exit status, stages and `end` (may be NULL) to run.json; frees r. r NULL: nothing. */
enum dry_status dry_run_finish(struct dry_run *r, enum dry_status outcome, const struct dry_stages *stages,
                               const struct dry_run_end *end);
/* Local. The manifest without what belongs to one start (ranks, host), as JSON text for checkpoints;
 * dry_free. NULL: no memory. */
char *dry_run_manifest_text(const struct dry_run *r);
/* Local. What an earlier run in this folder left in its run.json: its contract, and the value of each option
 * as text (options[name] of dry_config_json, caller decrefs; may be NULL). *found 0 when there is no
 * run.json. INPUT. */
enum dry_status dry_run_contract(const char *output, struct dry_contract *k, json_t **options, int *found);
/* Local. Versions of this build, for run.json and --version; caller decrefs. NULL: no memory. */
json_t *dry_build_json(void);
/* The machine that this process runs on, for run.json; caller decrefs. NULL: no memory. */
json_t *dry_host_json(void);

/* Progress: "step 10/234 loss 1.2345 lr 2.00e-04 norm 0.51 tok/s 1234 eta 0:12": on a terminal rewritten in
 * place, in a log one line every `interval` steps, at the first and at the last. Local to rank 0. */
struct dry_progress;
enum dry_status dry_progress_create(int64_t steps, int64_t first_step, int64_t interval,
                                    struct dry_progress **p);
void dry_progress_step(struct dry_progress *p, const struct dry_step_report *s);
void dry_progress_destroy(struct dry_progress *p);

#endif
