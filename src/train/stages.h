/*
 * Stages: each second of the loop has an owner.  Owns the running account of one rank.
 */
#ifndef DRY_TRAIN_STAGES_H
#define DRY_TRAIN_STAGES_H

enum dry_stage {
    DRY_STAGE_STARTUP,
    DRY_STAGE_TOKENISE,
    DRY_STAGE_DATA,
    DRY_STAGE_COPY,
    DRY_STAGE_FORWARD,
    DRY_STAGE_BACKWARD,
    DRY_STAGE_REDUCE,
    DRY_STAGE_WAIT,
    DRY_STAGE_OPTIMIZER,
    DRY_STAGE_CHECKPOINT,
    DRY_STAGE_VALIDATION,
    DRY_STAGE_UNEXPLAINED,
    DRY_STAGES
};

struct dry_stages {
    double seconds[DRY_STAGES];
    double since; /* when the present stage began */
    enum dry_stage now;
};

/* Local. Opens the account at `since` (dry_clock_now() of the process's start). */
void dry_stages_start(struct dry_stages *s, double since, enum dry_stage first);
/* Local. Ends the present stage and begins another; returns the one before, so that a caller can go back to
 * it. */
enum dry_stage dry_stages_enter(struct dry_stages *s, enum dry_stage next);
/* Local. "start-up", "data wait" ... */
const char *dry_stage_name(enum dry_stage stage);

#endif
