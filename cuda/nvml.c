/*
 * What NVML says of a GPU while it works.
 * Owns the handle of the library.
 * Must not know who asks.
 */
#include "config.h"

#include "cuda/entry.h"

static enum dry_status nvml_open(int index, struct dry_probe **p, const char **why)
{
    (void)index;
    *p = NULL;
    *why = "NVML is not asked by this build";
    return DRY_ERR_DEVICE;
}

const struct dry_probe_ops dry_nvml_ops = {.backend = "cuda", .open = nvml_open};
