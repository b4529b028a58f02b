/*
 * Communicators between devices: sums of int64 in device memory, without a way over the host.
 * Owns the interface; what there is stands in registry.c.  Must not know what is added up.
 */
#ifndef DRY_PARALLEL_DEVICE_H
#define DRY_PARALLEL_DEVICE_H

#include "parallel/comm.h"

struct dry_device_comm;

struct dry_device_comm_ops {
    const char *name;    /* "nccl" */
    const char *backend; /* whose memory it adds up: "cuda" */
    /* Collective. Over the ranks of c, each with a device of its own; `device` is this rank's index on its
     * host. c is borrowed until destroy. COMM within the deadline, with a line that names the call, when a
     * rank does not come. */
    enum dry_status (*create)(struct dry_comm *c, int device, struct dry_device_comm **d);
    void (*destroy)(struct dry_device_comm *d);
    /* Collective. In place; returns when the sum is there. A rank that is gone or an error of the network
     * ends in COMM within the deadline, with a line that names it; the communicator is then good for nothing
     * but destroy. */
    enum dry_status (*sum_i64)(struct dry_device_comm *d, int64_t *block, size_t count);
};

/* First member of every device communicator's own struct. */
struct dry_device_comm {
    const struct dry_device_comm_ops *ops;
};

/* Local. The device communicator of this build that adds up memory of that backend, or NULL. */
const struct dry_device_comm_ops *dry_device_comm_of(const char *backend);

#endif
