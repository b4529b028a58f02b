/*
 * The sampler: a thread that looks, every so often, at what this rank's process and its device are doing.
 * Owns the thread, the samples not yet taken, and the device's probe.  Must not call MPI, nor allocate while
 * it runs.
 */
#ifndef DRY_MEASURE_SAMPLER_H
#define DRY_MEASURE_SAMPLER_H

#include "base/status.h"
#include "compute/probe.h"

#include <stddef.h>
#include <time.h>

/* NAN where the system does not tell. */
struct dry_sample {
    double at;            /* dry_clock_now() */
    struct timespec wall; /* time of day */
    double cpu;           /* of the process since the sample before, percent of one core */
    double memory;        /* resident, bytes */
    double read, written; /* from and to storage since the sample before, bytes a second */
    int device;           /* number that nvidia-smi shows, -1: no device was looked at */
    struct dry_probe_sample probe;
};

enum { DRY_SAMPLES = 1024 }; /* kept until taken; more of them are thinned out */

struct dry_sampler;
/* Local. Starts the thread with all signals blocked; interval in seconds. A system that gives no thread is
 * DEVICE, and nothing is logged. MEMORY. */
enum dry_status dry_sampler_start(double interval, struct dry_sampler **s);
/* Local. From now on a device is looked at too. Takes the probe. */
void dry_sampler_attach(struct dry_sampler *s, const struct dry_probe_ops *ops, struct dry_probe *probe);
/* Local. The samples since the last call, oldest first; at most DRY_SAMPLES. Returns how many. */
size_t dry_sampler_take(struct dry_sampler *s, struct dry_sample sample[DRY_SAMPLES]);
/* Local. Ends the thread, closes the probe and frees s; NULL allowed. */
void dry_sampler_stop(struct dry_sampler *s);

#endif
