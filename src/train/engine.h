/*
 * The model on a backend: buffers laid out once, and one micro-batch forward, backward or evaluated.
 * Owns the arena's layout.  The only place that knows in which order a layer's operations run.
 */
#ifndef DRY_TRAIN_ENGINE_H
#define DRY_TRAIN_ENGINE_H

#include "compute/backend.h"

enum { DRY_LAYOUT_NAMES = 32 };

/* The memory of a run, byte for byte: what plan prints and what is allocated. */
struct dry_layout {
    struct {
        char name[32];
        size_t bytes, offset; /* offset in the arena; weights, state and workspace lie outside it */
        int in_arena;
    } part[DRY_LAYOUT_NAMES];
    int parts;
    size_t arena, total;
};

/* Local. Lays out for the limits; with limits->training an adapter is needed. MEMORY when a size overflows.
 */
enum dry_status dry_engine_layout(const struct dry_backend_ops *ops, const struct dry_base *base,
                                  const struct dry_adapter *adapter, const struct dry_limits *limits,
                                  struct dry_layout *layout);

/* "norms", "none" or "full" and back; the name is one of these (the option table has checked it). */
enum dry_recompute dry_recompute_find(const char *name);
const char *dry_recompute_name(enum dry_recompute r);

struct dry_engine;
/* Local. Loads the base into the backend and allocates the arena. All are borrowed until destroy. adapter may
 * be NULL. */
enum dry_status dry_engine_create(struct dry_backend *backend, const struct dry_base *base,
                                  const struct dry_adapter *adapter, const struct dry_limits *limits,
                                  struct dry_engine **e);
void dry_engine_destroy(struct dry_engine *e);
struct dry_backend *dry_engine_backend(struct dry_engine *e);
/* Local. The arena between micro-batches, when nothing in it is needed: memory of the backend's kind. */
void *dry_engine_arena(struct dry_engine *e, size_t *bytes);

/* Local. Takes the micro-batch that the calls below work on; dropout 0: none (evaluation). Borrowed only for
 * the call. */
enum dry_status dry_engine_batch(struct dry_engine *e, const struct dry_batch *batch, int dropout);
/* Local. Adds the micro-batch's loss and tokens to the backend's sums and keeps what backward needs. */
enum dry_status dry_engine_forward(struct dry_engine *e);
/* Local. Adds the micro-batch's gradients to the sums; directly after forward. */
enum dry_status dry_engine_backward(struct dry_engine *e);
/* Local. Adds loss and tokens only. */
enum dry_status dry_engine_evaluate(struct dry_engine *e);

#endif
