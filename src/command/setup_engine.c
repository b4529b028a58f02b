/*
 * The backend that the options ask for and the engine on it, after a look at whether they fit into memory.
 * Owns nothing that outlives a call but what it hands out.
 * Must not know of data or contracts.
 */
#include "config.h"

#include "command/setup.h"

#include "base/log.h"
#include "base/memory.h"
#include "train/room.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 256 };

void dry_bytes_text(double bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, 16, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

/* Local. Names what would fit: a smaller micro-batch, or fewer ranks on this host. */
static enum dry_status refuse_room(const struct dry_call *call, const struct dry_backend_ops *ops,
                                   const struct dry_base *base, const struct dry_adapter *adapter,
                                   const struct dry_limits *limits, size_t total, int64_t room)
{
    int ranks = dry_comm_local_size(call->comm);
    int64_t tokens = 0, fit = room / (int64_t)total;
    char need[16], have[16], remedy[160];
    enum dry_status status;

    status = dry_room_tokens(ops, base, adapter, limits, (size_t)(room / ranks), DRY_ROW_MULTIPLE, &tokens);
    if (status)
        return status;
    dry_bytes_text((double)total, need);
    dry_bytes_text((double)room, have);
    if (fit > 0 && fit < ranks)
        snprintf(remedy, sizeof remedy, "%lld rank%s on this host would fit", (long long)fit,
                 fit == 1 ? "" : "s");
    else
        snprintf(remedy, sizeof remedy, "the base alone leaves no room");
    if (tokens >= limits->longest)
        dry_error("memory: each of %d ranks on this host needs %s for micro-batches of %lld tokens, and %s "
                  "are left in "
                  "all; micro-batches of %lld tokens would fit (--micro-batch-tokens %lld or fewer records "
                  "each)%s%s",
                  ranks, need, (long long)limits->tokens, have, (long long)tokens, (long long)tokens,
                  fit > 0 ? ", or " : "", fit > 0 ? remedy : "");
    else if (tokens > 0)
        dry_error("memory: each of %d ranks on this host needs %s for micro-batches of %lld tokens, and %s "
                  "are left in "
                  "all; a --max-seq-length of %lld would fit%s%s",
                  ranks, need, (long long)limits->tokens, have, (long long)tokens, fit > 0 ? ", or " : "",
                  fit > 0 ? remedy : "");
    else
        dry_error("memory: each of %d ranks on this host needs %s, and %s are left in all; %s", ranks, need,
                  have, remedy);
    return DRY_ERR_MEMORY;
}

static enum dry_status check_room(const struct dry_call *call, const struct dry_backend_ops *ops,
                                  const struct dry_base *base, const struct dry_adapter *adapter,
                                  const struct dry_limits *limits, size_t total)
{
    int64_t room = dry_room_host();
    size_t all;

    if (room < 0)
        return DRY_OK;
    if (dry_mul_size(total, (size_t)dry_comm_local_size(call->comm), &all) || all > (size_t)room)
        return refuse_room(call, ops, base, adapter, limits, total, room);
    return DRY_OK;
}

static int device_of(const struct dry_call *call)
{
    int list[MAX_DEVICES], n = dry_config_devices(call->config, list, MAX_DEVICES);
    int local = dry_comm_local_rank(call->comm);

    return n > 0 && n <= MAX_DEVICES ? list[local % n] : local;
}

enum dry_status dry_setup_engine(const struct dry_call *call, const struct dry_base *base,
                                 const struct dry_adapter *adapter, const struct dry_limits *limits,
                                 uint64_t seed, struct dry_backend **backend, struct dry_engine **engine,
                                 struct dry_layout *layout)
{
    const struct dry_config *c = call->config;
    const char *name = c->devices && strcmp(c->devices, "cpu") == 0 ? "cpu" : c->backend;
    struct dry_backend_options o = {.device = device_of(call), .seed = seed};
    const struct dry_backend_ops *ops;
    enum dry_status status;

    dry_log_defer(1);
    status = dry_backend_find(name, &ops);
    if (!status)
        status = dry_engine_layout(ops, base, adapter, limits, layout);
    if (!status)
        status = check_room(call, ops, base, adapter, limits, layout->total);
    status = dry_comm_agree(call->comm, status); /* all have looked before one takes memory */
    if (!status)
        status = ops->create(&o, backend);
    if (!status)
        status = dry_engine_create(*backend, base, adapter, limits, engine);
    status = dry_comm_agree(call->comm, status);
    dry_log_defer(0);
    return status;
}
