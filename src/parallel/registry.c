/*
 * Which communicators between devices this build has.
 * Owns the table; the only place of parallel/ with a build condition.  Must not know how any of them works.
 */
#include "config.h"

#include "parallel/device.h"

#include <string.h>
#ifdef DRY_HAVE_NCCL
#include "cuda/entry.h"
#endif

static const struct dry_device_comm_ops *const communicators[] = {
#ifdef DRY_HAVE_NCCL
    &dry_nccl_ops,
#endif
    NULL,
};

const struct dry_device_comm_ops *dry_device_comm_of(const char *backend)
{
    for (int i = 0; communicators[i]; i++)
        if (strcmp(communicators[i]->backend, backend) == 0)
            return communicators[i];
    return NULL;
}
