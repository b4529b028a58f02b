/*
 * What a checkpoint holds, for people: without the adapter that it belongs to.
 * Owns nothing.
 */
#ifndef DRY_STATE_CHECKPOINT_DESCRIBE_H
#define DRY_STATE_CHECKPOINT_DESCRIBE_H

#include "base/json.h"
#include "base/status.h"

/* Local. Non-zero when the file begins as HDF5 does. Logs nothing. */
int dry_checkpoint_is_hdf5(const char *path);
/* Local. 1: HDF5 with a checkpoint's groups; 0: HDF5 without; -1: it cannot be opened as HDF5. Logs nothing.
 */
int dry_checkpoint_is(const char *path);
/* Local. All attributes of / by name (texts that are JSON as JSON; not finite: null), and "tensors": an array
 * of name, shape, and the norms of its values, m and v. Every byte is read, so damage is found. Caller
 * decrefs. INPUT, MEMORY. */
enum dry_status dry_checkpoint_describe(const char *path, json_t **content);

#endif
