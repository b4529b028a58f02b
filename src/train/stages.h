/*
 * Stages: each second of a run has an owner.  Owns the running account of one rank, and when it went from
 * stage to stage.
 *
 * A device works behind the host's back: the host asks for work and goes on.  Between dry_stages_open and
 * dry_stages_close the stages are therefore also marked in the order of the device's work, and the device's
 * seconds then take the place of the host's.
 */
#ifndef DRY_TRAIN_STAGES_H
#define DRY_TRAIN_STAGES_H

#include "compute/backend.h"

#include <stdint.h>

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

enum { DRY_STAGE_TURNS = 4096 }; /* that are remembered; a step has four for each micro-batch */

struct dry_stages {
    double seconds[DRY_STAGES]; /* of the stages that have ended */
    double since;               /* when the present stage began */
    enum dry_stage now;
    /* private: the turns, and the window that is open */
    struct {
        double at;
        enum dry_stage stage;
    } turn[DRY_STAGE_TURNS];
    int64_t turns; /* made in all; the last DRY_STAGE_TURNS are there */
    struct dry_backend *device;
    double opened, before[DRY_STAGES]; /* the window's begin, and the account then */
    int64_t turns_before;
    struct dry_mark mark[DRY_STAGE_TURNS];
};

/* Local. Opens the account at `since` (dry_clock_now() of the process's start). */
void dry_stages_start(struct dry_stages *s, double since, enum dry_stage first);
/* Local. Ends the present stage and begins another; returns the one before, so that a caller can go back to
 * it. */
enum dry_stage dry_stages_enter(struct dry_stages *s, enum dry_stage next);
/* Local. Enters `next` and opens a window in which the backend, which has nothing left to do, marks what it
 * is given to do. Nothing more than enter where the backend has no marks. b is borrowed until close or drop.
 */
void dry_stages_open(struct dry_stages *s, enum dry_stage next, struct dry_backend *b);
/* Local. After ops->sync: the window's seconds become the device's; what the device did not account for is
 * unexplained. What ops->marks says. */
enum dry_status dry_stages_close(struct dry_stages *s);
/* Local. Ends an open window, if there is one, with the host's seconds: after a failure. */
void dry_stages_drop(struct dry_stages *s);
/* Local. The stage at a time; before what is remembered, the oldest one that is. */
enum dry_stage dry_stages_at(const struct dry_stages *s, double t);
/* Local. "start-up", "data wait" ... */
const char *dry_stage_name(enum dry_stage stage);

#endif
