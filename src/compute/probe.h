/*
 * Probes: what a device says of itself while it works.  The table of a backend's kind; NVML's is in cuda/.
 * Owns the interface; what there is stands in registry.c.
 */
#ifndef DRY_COMPUTE_PROBE_H
#define DRY_COMPUTE_PROBE_H

#include "base/status.h"

#include <stdint.h>

/* NAN (throttle: 0) where the device does not offer a number. */
struct dry_probe_sample {
    double busy, memory_busy;     /* utilization.gpu, utilization.memory: percent */
    double memory;                /* used, bytes */
    double power, energy;         /* W; J since the driver was loaded */
    double clock, temperature;    /* SM clock in MHz; degrees C */
    uint64_t throttle;            /* reasons, as NVML's bits */
    double pcie_in, pcie_out;     /* bytes a second, from and to the host */
    double nvlink_in, nvlink_out; /* bytes a second, over all links */
};

struct dry_probe;
struct dry_probe_ops {
    const char *backend; /* whose devices it knows: "cuda" */
    /* Local. The backend's device `index` of this host. DEVICE with *why (borrowed, one sentence) when
     * the library or the device is not there; nothing is logged. */
    enum dry_status (*open)(int index, struct dry_probe **p, const char **why);
    void (*close)(struct dry_probe *p);               /* NULL allowed */
    int (*number)(const struct dry_probe *p);         /* the index that nvidia-smi shows */
    const char *(*name)(const struct dry_probe *p);   /* "NVIDIA H200"; borrowed */
    const char *(*driver)(const struct dry_probe *p); /* driver's version; borrowed */
    /* Local, from any one thread. */
    void (*sample)(struct dry_probe *p, struct dry_probe_sample *s);
};

/* Local. The probe of a backend's devices in this build, or NULL. */
const struct dry_probe_ops *dry_probe_of(const char *backend);

#endif
