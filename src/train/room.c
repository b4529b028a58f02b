/*
 * Reads from /proc and the control groups how much memory is left, and searches for the largest micro-batch
 * that fits. Owns nothing. Must not know what the memory is for beyond the engine's layout.
 */
#include "config.h"

#include "train/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key` in a file of "key number" lines; in a file of one number with key "". -1: not there.
 */
static int64_t read_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    size_t length = strlen(key);
    int64_t value = -1;
    char line[256];

    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNd64, &value) != 1)
            value = -1;
    fclose(file);
    return value;
}

static int64_t smaller(int64_t a, int64_t b)
{
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    return a < b ? a : b;
}

/* What one group leaves: its limit less its use, where pages of files can be given back. -1: no limit. */
static int64_t group_room(const char *folder, const char *limit_name, const char *use_name,
                          const char *file_key)
{
    char path[512];
    int64_t limit, use, pages;

    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    limit = read_number(path, "");
    snprintf(path, sizeof path, "%s/%s", folder, use_name);
    use = read_number(path, "");
    if (limit < 0 || use < 0 || limit > INT64_MAX / 2)
        return -1;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    pages = read_number(path, file_key);
    use -= pages > 0 ? smaller(pages, use) : 0;
    return use < limit ? limit - use : 0;
}

/* The least room over a group and all above it. */
static int64_t groups_room(const char *mount, char *group, const char *limit_name, const char *use_name,
                           const char *file_key)
{
    int64_t room = -1;

    for (;;) {
        char folder[384], *slash;

        snprintf(folder, sizeof folder, "%s%s", mount, group);
        room = smaller(room, group_room(folder, limit_name, use_name, file_key));
        slash = strrchr(group, '/');
        if (!slash || !*group)
            return room;
        *slash = 0;
    }
}

int64_t dry_room_host(void)
{
    int64_t room = read_number("/proc/meminfo", "MemAvailable:");
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[256];

    if (room >= 0)
        room *= 1024;
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (controllers[1] == 0)
            room =
                smaller(room, groups_room("/sys/fs/cgroup", group, "memory.max", "memory.current", "file "));
        else if (strstr(controllers, "memory"))
            room = smaller(room, groups_room("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_cache "));
    }
    if (file)
        fclose(file);
    return room;
}

enum dry_status dry_room_tokens(const struct dry_backend_ops *ops, const struct dry_base *base,
                                const struct dry_adapter *adapter, const struct dry_limits *limits,
                                size_t bytes, int64_t unit, int64_t *tokens)
{
    int64_t low = 0, high = limits->tokens / unit; /* in units: low fits or is 0, above high is not asked */

    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        struct dry_limits less = *limits;
        struct dry_layout layout;
        enum dry_status status;

        less.tokens = middle * unit;
        less.rows = smaller(less.rows, less.tokens);
        less.longest = smaller(less.longest, less.tokens);
        less.records = smaller(less.records, less.tokens);
        status = dry_engine_layout(ops, base, adapter, &less, &layout);
        if (status)
            return status;
        if (layout.total <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    *tokens = low * unit;
    return DRY_OK;
}
