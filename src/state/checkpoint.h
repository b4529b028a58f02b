/*
 * Checkpoints: one HDF5 file each, independent of the number of ranks, complete or absent.
 * Owns its HDF5 handles during a call.  Must not know of the backend, nor of ranks: one rank calls it.
 *
 * Layout (format version 1), Fletcher32 on every dataset: /adapter/<PEFT tensor name>, /m/..., /v/...
 * float32; attributes of /: format_version, step, validated_step, update_offset, best_step, best_loss,
 * rate_factor, contract, options, manifest (JSON texts), complete = 1 (written last).
 */
#ifndef DRY_STATE_CHECKPOINT_H
#define DRY_STATE_CHECKPOINT_H

#include "config/contract.h"
#include "model/adapter.h"

struct dry_checkpoint {
    int64_t step;
    int64_t validated_step; /* last step whose validation was done */
    int64_t update_offset;  /* optimizer updates made = step + this; not 0 after an accepted batch change */
    int64_t best_step;      /* step of the lowest validation loss so far; 0: none */
    double best_loss;       /* that loss, INFINITY: none */
    double rate_factor;     /* product of accepted batch changes */
    struct dry_contract contract;
    char *options, *manifest; /* JSON texts, owned on load */
    float *values, *m, *v;    /* [parameters], owned by the caller */
};

/* Local. DIR/checkpoints/step-000500.h5 by write, fsync, close, rename, fsync folder (needs room for the file
 * twice in memory); then half-written files of killed runs and all but the newest `keep` (0: all are kept)
 * are removed, never the one just written. On failure the older ones stay and nothing half-written remains.
 * IO. */
enum dry_status dry_checkpoint_save(const char *output, const struct dry_adapter *a,
                                    const struct dry_checkpoint *c, int64_t keep);
/* Local. Reads one file into c->values, m, v (given, [parameters]) and checks every tensor against the
 * adapter; the other fields are written on success only. INPUT: damaged, or of another adapter. */
enum dry_status dry_checkpoint_load(const char *path, const struct dry_adapter *a, struct dry_checkpoint *c);
void dry_checkpoint_release(struct dry_checkpoint *c); /* frees options and manifest */
/* Local. Finds where to resume: which = "auto" (newest that reads whole; each damaged one is named and passed
 * over), "never", a step number, or a file. *path NULL: nothing to resume from (auto, never), in new memory
 * otherwise. INPUT: the step or file asked for is not there; in auto also when checkpoints are there and all
 * are damaged, or the newest whole one is of another adapter: starting anew in silence would lose the run.
 * The adapter is used by auto only, and may be NULL otherwise. */
enum dry_status dry_checkpoint_find(const char *output, const char *which, const struct dry_adapter *a,
                                    char **path);
/* Local. Step of the newest checkpoint by name, whole or not; -1: there is none. IO. */
enum dry_status dry_checkpoint_newest(const char *output, int64_t *step);
/* Local. Step of the first checkpoint after a step, by name; -1: there is none. IO, MEMORY. */
enum dry_status dry_checkpoint_after(const char *output, int64_t step, int64_t *next);
/* Local. Moves all checkpoints but `except` (a step) into checkpoints/before-change-N: they are of another
 * contract. IO. */
enum dry_status dry_checkpoint_set_aside(const char *output, int64_t except);
/* Local. HDF5 as built with: "HDF5 library version: 1.10.8"; borrowed. */
const char *dry_checkpoint_library(void);

#endif
