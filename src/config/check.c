/*
 * Checks between options: what a command needs, devices and backend, fields.
 * Owns nothing.  Must not know data, models or what devices there are.
 */
#include "config.h"

#include "config/options.h"

#include "base/log.h"
#include "config/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 1024 };

int dry_config_devices(const struct dry_config *c, int *list, int room)
{
    const char *s = c->devices;
    int count = 0;

    if (!s || strcmp(s, "cpu") == 0)
        return 0;
    for (;;) {
        char *end;
        long n;
        if (*s < '0' || *s > '9')
            return -1;
        errno = 0;
        n = strtol(s, &end, 10);
        if (errno || n >= MOST_DEVICES || (*end && *end != ','))
            return -1;
        if (list && count < room)
            list[count] = (int)n;
        count++;
        if (!*end)
            return count;
        s = end + 1;
    }
}

static enum dry_status check_needs(const struct dry_config *c, unsigned command)
{
    const struct dry_option *table = dry_option_table();
    struct dry_buffer missing = {0};
    enum dry_status status = DRY_OK;
    char buffer[32];

    for (int i = 0; table[i].flag; i++)
        if (table[i].needed & command && !dry_values_text(c, i, buffer) &&
            dry_buffer_printf(&missing, "%s--%s %s", missing.len ? ", " : "", table[i].flag,
                              table[i].argument) != 0)
            status = DRY_ERR_MEMORY;
    if (missing.len && status == DRY_OK) {
        dry_error("%s needs %s, on the command line or in a file; --help explains", dry_command_name(command),
                  missing.data);
        status = DRY_ERR_USAGE;
    }
    dry_buffer_reset(&missing);
    return status;
}

static enum dry_status check_devices(const struct dry_config *c)
{
    if (dry_config_devices(c, NULL, 0) < 0) {
        dry_error("%s: \"%s\" is not a list of GPU numbers such as 0,1,2, nor cpu",
                  dry_config_place(c, "devices"), c->devices);
        return DRY_ERR_USAGE;
    }
    if (strcmp(c->communicator, "nccl") == 0 &&
        (strcmp(c->backend, "cpu") == 0 || (c->devices && strcmp(c->devices, "cpu") == 0))) {
        dry_error("%s is nccl, which adds up in GPU memory, and there is no GPU in this run; leave it out or "
                  "give mpi",
                  dry_config_place(c, "communicator"));
        return DRY_ERR_USAGE;
    }
    if (c->devices && strcmp(c->devices, "cpu") == 0 && strcmp(c->backend, "cuda") == 0) {
        dry_error("%s is cpu and %s is cuda; leave one of them out", dry_config_place(c, "devices"),
                  dry_config_place(c, "backend"));
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

enum dry_status dry_config_check(const struct dry_config *c, unsigned command)
{
    enum dry_status status = check_needs(c, command);

    if (status == DRY_OK)
        status = check_devices(c);
    if (status != DRY_OK)
        return status;
    if (command == DRY_CMD_PREPARE && !c->output && !c->cache) {
        dry_error("prepare needs --cache DIR or --output DIR to write the cache into");
        return DRY_ERR_USAGE;
    }
    if (strcmp(c->prompt_field, c->completion_field) == 0) {
        dry_error("%s and %s name the same field \"%s\"", dry_config_place(c, "prompt-field"),
                  dry_config_place(c, "completion-field"), c->prompt_field);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

enum dry_status dry_config_check_ranks(const struct dry_config *c, unsigned command, int ranks)
{
    static const char *const none[] = {NULL};
    int takes = (dry_option_table()[dry_option_find("devices")].commands & command) != 0;
    int devices = takes ? dry_config_devices(c, NULL, 0) : 0;
    struct dry_buffer line = {0};
    enum dry_status status = DRY_ERR_MEMORY;

    if (ranks != 1 || devices < 2)
        return DRY_OK;
    if (dry_values_command(c, devices, none, "", &line) == 0) {
        dry_error(
            "%s names %d devices, but drydock was started as one rank; a rank drives one device, so start:",
            dry_config_place(c, "devices"), devices);
        dry_error_more("%s", line.data);
        status = DRY_ERR_USAGE;
    }
    dry_buffer_reset(&line);
    return status;
}
