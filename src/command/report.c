/*
 * report: not there yet.
 * Owns nothing.  Must not know anything.
 */
#include "config.h"

#include "command/command.h"

#include "base/log.h"

enum dry_status dry_command_report(const struct dry_call *call)
{
    (void)call;
    dry_error("report is not built yet");
    return DRY_ERR_INTERNAL;
}
