/*
 * Room: how much memory is left for a run on this host, and what would fit into it.  Owns nothing.
 */
#ifndef DRY_TRAIN_ROOM_H
#define DRY_TRAIN_ROOM_H

#include "train/engine.h"

/* Local. Bytes that processes of this host can still take: MemAvailable, and what every control group above
 * this process leaves (version 2 or 1; a batch system's limit is one). -1: the system does not tell. */
int64_t dry_room_host(void);

/* Local. The most tokens of a micro-batch, a multiple of `unit` and at most limits->tokens, whose layout
 * takes at most `bytes`; 0: not even one unit fits. Rows and longest shrink with it. */
enum dry_status dry_room_tokens(const struct dry_backend_ops *ops, const struct dry_base *base,
                                const struct dry_adapter *adapter, const struct dry_limits *limits,
                                size_t bytes, int64_t unit, int64_t *tokens);

#endif
