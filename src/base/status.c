/*
 * Names and exit statuses of the status codes.
 * Owns nothing.
 * Must not know who fails or why.
 */
#include "config.h"

#include "base/status.h"

static const char *const names[] = {
    [DRY_OK] = "ok",
    [DRY_STOPPED] = "stopped",
    [DRY_ERR_USAGE] = "usage",
    [DRY_ERR_INPUT] = "input",
    [DRY_ERR_IO] = "io",
    [DRY_ERR_MEMORY] = "memory",
    [DRY_ERR_NUMERIC] = "numeric",
    [DRY_ERR_COMM] = "communication",
    [DRY_ERR_DEVICE] = "device",
    [DRY_ERR_INTERNAL] = "internal",
};
_Static_assert(sizeof names / sizeof names[0] == DRY_ERR_INTERNAL + 1, "a name for each status");

const char *dry_status_name(enum dry_status status)
{
    if ((unsigned)status >= sizeof names / sizeof names[0])
        return "unknown";
    return names[status];
}

int dry_status_exit(enum dry_status status)
{
    switch (status) {
    case DRY_OK:
        return 0;
    case DRY_STOPPED:
        return 75;
    case DRY_ERR_USAGE:
        return 2;
    default:
        return 1;
    }
}
