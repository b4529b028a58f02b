/*
 * drydock options: the sample file, or the man page's section, on standard output.
 * Owns nothing.  Must not know the table, which config/ prints.
 */
#include "config.h"

#include "command/command.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum dry_status dry_command_options(const struct dry_call *call)
{
    if (call->config->man)
        dry_config_man(stdout);
    else
        dry_config_sample(stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        dry_error("standard output: %s", strerror(errno));
        return DRY_ERR_IO;
    }
    return DRY_OK;
}
