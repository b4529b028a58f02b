/*
 * Checkpoints: one HDF5 file each, independent of the number of ranks, complete or absent.
 * Owns its HDF5 handles during a call.  Must not know of the backend.
 *
 * Layout (format version 1), Fletcher32 on every dataset: /adapter/<PEFT tensor name>, /m/..., /v/... float32; attributes
 * of /: format_version, step, best_loss, contract, options, manifest (JSON texts), complete = 1 (written last).
 */
#ifndef DRY_STATE_CHECKPOINT_H
#define DRY_STATE_CHECKPOINT_H

#include "config/contract.h"
#include "model/adapter.h"

struct dry_checkpoint {
    int64_t step;
    double best_loss;       /* lowest validation loss so far, INFINITY: none */
    double rate_factor;     /* product of accepted batch changes */
    struct dry_contract contract;
    char *options, *manifest; /* JSON texts, owned on load */
    float *values, *m, *v;  /* [parameters], owned by the caller */
};

/* Local. DIR/checkpoints/step-000500.h5 by write, close, fsync, rename, fsync folder; then all but the newest `keep`
 * (0: all are kept) are removed. On failure the older ones stay and nothing half-written remains. IO. */
enum dry_status dry_checkpoint_save(const char *output, const struct dry_adapter *a, const struct dry_checkpoint *c,
                                    int64_t keep);
/* Local. Reads one file into c->values, m, v (given, [parameters]) and checks every tensor against the adapter. INPUT. */
enum dry_status dry_checkpoint_load(const char *path, const struct dry_adapter *a, struct dry_checkpoint *c);
void dry_checkpoint_release(struct dry_checkpoint *c); /* frees options and manifest */
/* Local. Finds where to resume: which = "auto" (newest that loads whole; each damaged one is named and passed over),
 * "never", a step number, or a file. *path NULL: nothing to resume from (auto), in new memory otherwise. INPUT. */
enum dry_status dry_checkpoint_find(const char *output, const char *which, const struct dry_adapter *a, char **path);

#endif
