/*
 * What the rest of drydock sees of this folder: the backend's table and the communicator's.
 * Owns nothing.  Only the two registries (compute/, parallel/) and the files of this folder may include it;
 * it takes no header of a foreign library along.
 */
#ifndef DRY_CUDA_ENTRY_H
#define DRY_CUDA_ENTRY_H

#include "compute/backend.h"
#include "compute/probe.h"
#include "parallel/device.h"

extern const struct dry_backend_ops dry_cuda_ops;
/* Local. GPUs of this host that this program can use; 0 also when there is no driver. */
int dry_cuda_usable(void);

extern const struct dry_device_comm_ops dry_nccl_ops;
extern const struct dry_probe_ops dry_nvml_ops;

#endif
