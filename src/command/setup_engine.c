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

enum dry_status dry_setup_backend(const struct dry_config *c, const struct dry_backend_ops **ops)
{
    return dry_backend_find(c->devices && strcmp(c->devices, "cpu") == 0 ? "cpu" : c->backend, ops);
}

/* Where a rank computes, and with whom it shares the memory there. */
struct place {
    int device;
    int64_t room;                    /* bytes; -1: unknown */
    int sharers;                     /* ranks that take of it, this one too */
    int shared;                      /* some ranks of the run share a device */
    int asked;                       /* --devices names the device more than once */
    int second;                      /* a lower rank computes there too */
    char where[48];                  /* "this host", "GPU 0" */
    unsigned char id[DRY_DEVICE_ID]; /* of the device */
};

/* What ranks tell each other of their places. */
struct card {
    unsigned char id[DRY_DEVICE_ID];
    int device, asked;
};

/* Local. By the list, else by the rank's number on its host; a host that shows one device only has chosen. */
static enum dry_status choose(const struct dry_call *call, const struct dry_backend_ops *ops, struct place *p)
{
    int list[MAX_DEVICES], n = dry_config_devices(call->config, list, MAX_DEVICES);
    int local = dry_comm_seat(call->comm), there = ops->devices();
    size_t room = 0;
    enum dry_status status;

    p->device = there > 0 ? local % there : 0;
    if (n > 0) {
        if (local >= n || local >= MAX_DEVICES) {
            dry_error("%s names %d of a host's GPUs and %d ranks run here; name one for each (a number "
                      "twice: two ranks "
                      "share it), or start fewer ranks",
                      dry_config_place(call->config, "devices"), n, dry_comm_local_size(call->comm));
            return DRY_ERR_USAGE;
        }
        p->device = list[local];
        for (int i = 0; i < n && i < MAX_DEVICES; i++)
            p->asked |= i != local && list[i] == p->device;
    }
    status = ops->device(p->device, p->id, &room);
    p->room = (int64_t)room;
    snprintf(p->where, sizeof p->where, "GPU %d", p->device);
    return status;
}

/* Local. Compares this run's cards: refuses what nobody asked for, counts the sharers. */
static enum dry_status compare(const struct dry_comm *comm, const struct card *card, struct place *p)
{
    int ranks = dry_comm_size(comm), rank = dry_comm_rank(comm);

    for (int a = 0; a < ranks; a++)
        for (int b = a + 1; b < ranks; b++) {
            if (memcmp(card[a].id, card[b].id, DRY_DEVICE_ID) != 0)
                continue;
            p->shared = 1;
            p->sharers += a == rank || b == rank;
            p->second |= b == rank;
            if (card[a].asked && card[b].asked)
                continue;
            dry_error("ranks %d and %d would share one GPU (number %d and %d of its host), which is slower "
                      "than one rank "
                      "there; start a rank for each GPU, or name it twice: --devices %d,%d",
                      a, b, card[a].device, card[b].device, card[a].device, card[b].device);
            return DRY_ERR_USAGE;
        }
    return DRY_OK;
}

/* Collective. Every rank's card to all of them, in new memory. */
static enum dry_status show_cards(struct dry_comm *comm, const struct place *p, struct card **cards)
{
    size_t bytes = (size_t)dry_comm_size(comm) * sizeof(struct card);
    struct card *card = dry_alloc(bytes, 1, "the ranks' devices"), mine;
    size_t *sizes = dry_alloc((size_t)dry_comm_size(comm), sizeof *sizes, "sizes of the ranks' devices");
    enum dry_status status = dry_comm_agree(comm, card && sizes ? DRY_OK : DRY_ERR_MEMORY);
    void *all = NULL;

    memset(&mine, 0, sizeof mine);
    memcpy(mine.id, p->id, sizeof mine.id);
    mine.device = p->device;
    mine.asked = p->asked;
    if (!status)
        status = dry_comm_gather(comm, &mine, sizeof mine, 0, &all, sizes);
    if (!status && all)
        memcpy(card, all, bytes);
    if (!status)
        status = dry_comm_bcast(comm, card, bytes, 0);
    dry_free(all);
    dry_free(sizes);
    if (status)
        dry_free(card);
    else
        *cards = card;
    return status;
}

/* Collective. Where this rank computes. */
static enum dry_status find_place(const struct dry_call *call, const struct dry_backend_ops *ops,
                                  struct place *p)
{
    struct dry_comm *comm = call->comm;
    struct card *card = NULL;
    enum dry_status status;

    *p = (struct place){.room = -1, .sharers = dry_comm_local_size(comm), .where = "this host"};
    if (!ops->devices) {
        p->room = dry_room_host();
        return DRY_OK;
    }
    p->sharers = 1;
    status = dry_comm_agree(comm, choose(call, ops, p));
    if (!status)
        status = show_cards(comm, p, &card);
    if (!status)
        status = dry_comm_agree(comm, compare(comm, card, p));
    dry_free(card);
    return status;
}

enum dry_status dry_setup_room(const struct dry_config *c, const struct dry_backend_ops *ops, int64_t *room)
{
    int list[MAX_DEVICES], n = dry_config_devices(c, list, MAX_DEVICES);
    unsigned char id[DRY_DEVICE_ID];
    size_t bytes = 0;
    enum dry_status status = DRY_OK;

    if (!ops->devices)
        *room = dry_room_host();
    else if (ops->devices() == 0)
        *room = -1;
    else if (!(status = ops->device(n > 0 ? list[0] : 0, id, &bytes)))
        *room = (int64_t)bytes;
    return status;
}

/* Local. *fits: this run would, with --recompute full. */
static enum dry_status full_fits(const struct place *p, const struct dry_backend_ops *ops,
                                 const struct dry_base *base, const struct dry_adapter *adapter,
                                 const struct dry_limits *limits, int *fits)
{
    struct dry_limits full = *limits;
    struct dry_layout layout;
    enum dry_status status;

    *fits = 0;
    if (!limits->training || limits->recompute == DRY_RECOMPUTE_FULL)
        return DRY_OK;
    full.recompute = DRY_RECOMPUTE_FULL;
    status = dry_engine_layout(ops, base, adapter, &full, &layout);
    if (!status)
        *fits = layout.total <= (size_t)(p->room / p->sharers);
    return status;
}

/* Local. Names what would fit: --recompute full, a smaller micro-batch, or fewer ranks there. */
static enum dry_status refuse_room(const struct place *p, const struct dry_backend_ops *ops,
                                   const struct dry_base *base, const struct dry_adapter *adapter,
                                   const struct dry_limits *limits, size_t total)
{
    int64_t tokens = 0, fit = p->room / (int64_t)total;
    char need[16], have[16], remedy[160];
    const char *full = "";
    enum dry_status status;
    int fits;

    status = dry_room_tokens(ops, base, adapter, limits, (size_t)(p->room / p->sharers), DRY_ROW_MULTIPLE,
                             &tokens);
    if (!status)
        status = full_fits(p, ops, base, adapter, limits, &fits);
    if (status)
        return status;
    if (fits)
        full = "--recompute full, which takes more time, would fit; ";
    dry_bytes_text((double)total, need);
    dry_bytes_text((double)p->room, have);
    if (fit > 0 && fit < p->sharers)
        snprintf(remedy, sizeof remedy, "%lld rank%s on %s would fit", (long long)fit, fit == 1 ? "" : "s",
                 p->where);
    else
        snprintf(remedy, sizeof remedy, "the base alone leaves no room");
    if (tokens >= limits->longest)
        dry_error("memory: each of %d ranks on %s needs %s for micro-batches of %lld tokens, and %s "
                  "are left in "
                  "all; %smicro-batches of %lld tokens would fit (--micro-batch-tokens %lld or fewer records "
                  "each)%s%s",
                  p->sharers, p->where, need, (long long)limits->tokens, have, full, (long long)tokens,
                  (long long)tokens, fit > 0 ? ", or " : "", fit > 0 ? remedy : "");
    else if (tokens > 0)
        dry_error("memory: each of %d ranks on %s needs %s for micro-batches of %lld tokens, and %s "
                  "are left in "
                  "all; %sa --max-seq-length of %lld would fit%s%s",
                  p->sharers, p->where, need, (long long)limits->tokens, have, full, (long long)tokens,
                  fit > 0 ? ", or " : "", fit > 0 ? remedy : "");
    else
        dry_error("memory: each of %d ranks on %s needs %s, and %s are left in all; %s", p->sharers, p->where,
                  need, have, fits ? "--recompute full, which takes more time, would fit" : remedy);
    return DRY_ERR_MEMORY;
}

static enum dry_status check_room(const struct place *p, const struct dry_backend_ops *ops,
                                  const struct dry_base *base, const struct dry_adapter *adapter,
                                  const struct dry_limits *limits, size_t total)
{
    size_t all;

    if (p->room < 0)
        return DRY_OK;
    if (dry_mul_size(total, (size_t)p->sharers, &all) || all > (size_t)p->room)
        return refuse_room(p, ops, base, adapter, limits, total);
    return DRY_OK;
}

enum dry_status dry_setup_engine(const struct dry_call *call, const struct dry_base *base,
                                 const struct dry_adapter *adapter, const struct dry_limits *limits,
                                 uint64_t seed, struct dry_backend **backend, struct dry_engine **engine,
                                 struct dry_layout *layout)
{
    const struct dry_backend_ops *ops;
    struct dry_backend_options o = {.seed = seed};
    struct place place;
    enum dry_status status;

    dry_log_defer(1);
    status = dry_comm_agree(call->comm, dry_setup_backend(call->config, &ops));
    if (!status)
        status = find_place(call, ops, &place);
    if (!status)
        status = dry_engine_layout(ops, base, adapter, limits, layout);
    if (!status)
        status = check_room(&place, ops, base, adapter, limits, layout->total);
    status = dry_comm_agree(call->comm, status); /* all have looked before one takes memory */
    if (!status) {
        o.device = place.device;
        status = ops->create(&o, backend);
    }
    if (!status)
        status = dry_engine_create(*backend, base, adapter, limits, engine);
    status = dry_comm_agree(call->comm, status);
    dry_log_defer(0);
    return status;
}

enum dry_status dry_setup_device(const struct dry_call *call, const struct dry_backend_ops *ops, int *device,
                                 int *first)
{
    struct place place;
    enum dry_status status;

    dry_log_defer(1);
    status = find_place(call, ops, &place);
    dry_log_defer(0);
    if (status)
        return status;
    *device = ops->devices ? place.device : -1;
    *first = !place.second;
    return DRY_OK;
}

enum dry_status dry_setup_device_comm(const struct dry_call *call, const struct dry_backend_ops *ops,
                                      struct dry_device_comm **d)
{
    const char *name = call->config->communicator;
    const struct dry_device_comm_ops *direct = dry_device_comm_of(ops->name);
    int named = strcmp(name, "auto") != 0;
    struct place place = {.shared = 0};
    enum dry_status status = DRY_OK;

    *d = NULL;
    if (strcmp(name, "mpi") == 0 || dry_comm_size(call->comm) == 1 || (!named && !direct))
        return DRY_OK;
    dry_log_defer(1);
    if (!direct) {
        dry_error("%s is %s: this build of drydock has none for the %s backend; leave it out or give mpi",
                  dry_config_place(call->config, "communicator"), name, ops->name);
        status = DRY_ERR_USAGE;
    }
    status = dry_comm_agree(call->comm, status);
    if (!status)
        status = find_place(call, ops, &place);
    if (!status && place.shared && named) {
        dry_error(
            "%s is %s, which wants a GPU for each rank, and ranks share one here; leave it out or give mpi",
            dry_config_place(call->config, "communicator"), name);
        status = DRY_ERR_USAGE;
    }
    status = dry_comm_agree(call->comm, status);
    if (!status && !place.shared)
        status = dry_comm_agree(call->comm, direct->create(call->comm, place.device, d));
    dry_log_defer(0);
    return status;
}
