/*
 * What a run is done again with, against what it was done with: before any work.
 * Owns nothing; base and adapter are struct dry_reproduce's.
 * Must not know what is compared afterwards.
 */
#include "config.h"

#include "command/reproduce.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "compute/probe.h"
#include "measure/run.h"
#include "state/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* Collective. What this rank's device calls itself; "": a host, or nobody tells. */
static enum dry_status device_name(const struct dry_call *call, const struct dry_backend_ops *ops, char *name,
                                   size_t size)
{
    const struct dry_probe_ops *probes = dry_probe_of(ops->name);
    struct dry_probe *probe = NULL;
    const char *why;
    int device = -1, first;
    enum dry_status status = dry_setup_device(call, ops, &device, &first);

    *name = 0;
    if (!status && ops->devices && probes && !probes->open(device, &probe, &why)) {
        snprintf(name, size, "%s", probes->name(probe));
        probes->close(probe);
    }
    return status;
}

/* Collective. The ranks' devices as in run.json; on rank 0, NULL elsewhere. */
static enum dry_status devices_json(const struct dry_call *call, const struct dry_backend_ops *ops,
                                    json_t **devices)
{
    int ranks = dry_comm_size(call->comm);
    size_t *sizes = dry_alloc((size_t)ranks, sizeof *sizes, "sizes of the ranks' devices");
    void *all = NULL;
    char name[96];
    enum dry_status status = dry_comm_agree(call->comm, sizes ? DRY_OK : DRY_ERR_MEMORY);

    *devices = NULL;
    if (!status)
        status = device_name(call, ops, name, sizeof name);
    if (!status)
        status = dry_comm_gather(call->comm, name, sizeof name, 0, &all, sizes);
    if (!status && dry_comm_rank(call->comm) == 0) {
        *devices = json_array();
        for (int i = 0; *devices && i < ranks; i++)
            if (json_array_append_new(*devices, json_pack("{s:s}", "device", (char *)all + i * sizeof name)))
                status = DRY_ERR_MEMORY;
        if (!*devices)
            status = DRY_ERR_MEMORY;
    }
    dry_free(all);
    dry_free(sizes);
    return dry_comm_agree(call->comm, status);
}

static json_t *libraries_json(void)
{
    char mpi[64];

    dry_comm_library(mpi, sizeof mpi);
    return json_pack("{s:s, s:s}", "hdf5", dry_checkpoint_library(), "mpi", mpi);
}

/* A file's hash as in run.json; a run without the file has none. */
static enum dry_status data_json(const char *path, json_t **data)
{
    char hash[DRY_HASH_HEX];
    enum dry_status status;

    *data = NULL;
    if (!path)
        return DRY_OK;
    status = dry_hash_file(path, hash);
    if (!status && !(*data = json_pack("{s:s, s:s}", "path", path, "sha256", hash)))
        status = DRY_ERR_MEMORY;
    return status;
}

/* Rank 0. A manifest of what is there now, as far as it can differ; devices are taken. */
static enum dry_status now_json(struct dry_reproduce *r, const struct dry_backend_ops *ops,
                                const char *tokenizer, json_t *devices, json_t **now)
{
    json_t *data = NULL, *validation = NULL;
    enum dry_status status = data_json(r->config->data, &data);

    if (!status)
        status = data_json(r->config->validation_data, &validation);
    if (status) {
        json_decref(data);
        json_decref(devices);
        return status;
    }
    *now = json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o*, s:s, s:O}", "build", dry_build_json(), "libraries",
                     libraries_json(), "backend", ops->name, "host", dry_host_json(), "devices", devices,
                     "data", data, "validation", validation, "tokenizer", tokenizer, "options",
                     json_object_get(r->run, "options"));
    return *now ? DRY_OK : DRY_ERR_MEMORY;
}

/* Rank 0. The bytes that are read: of data, validation data and base. */
static enum dry_status look(struct dry_reproduce *r, json_t *now)
{
    json_t *pair[] = {r->run, now};
    const char *then = json_string_value(json_object_get(json_object_get(r->run, "contract"), "base"));
    char first[16], second[16];
    enum dry_status status;

    status = dry_differ_look(
        pair, 2, DRY_DIFFER_VERSIONS | DRY_DIFFER_DEVICES | DRY_DIFFER_DATA | DRY_DIFFER_VALIDATION,
        &r->differences);
    for (int i = 0; i < r->differences.count;
         i++) /* the validation data is data too: it has no name of its own */
        if (r->differences.item[i].kind == DRY_DIFFER_VALIDATION)
            r->differences.item[i].kind = DRY_DIFFER_DATA;
    if (!status && then && strcmp(then, r->base->hash) != 0) {
        const char *value[] = {first, second};

        snprintf(first, sizeof first, "%.12s", then);
        snprintf(second, sizeof second, "%.12s", r->base->hash);
        status = dry_differ_add(&r->differences, DRY_DIFFER_DATA, "base (SHA-256 of its headers)", value);
    }
    return status;
}

/* Rank 0. Refuses, or says what was accepted. */
static enum dry_status judge(struct dry_reproduce *r, unsigned allowed)
{
    const char *const name[] = {r->folder, "this start"};
    enum dry_status status =
        dry_differ_refuse(&r->differences, name, allowed, "bits are promised for the same only");

    for (int i = 0; i < r->differences.count && !status; i++)
        dry_warn("%s: %s is %s in the run, %s now; the bits may differ for that",
                 dry_differ_name(r->differences.item[i].kind), r->differences.item[i].name,
                 r->differences.item[i].value[0], r->differences.item[i].value[1]);
    return status;
}

enum dry_status dry_reproduce_check(struct dry_reproduce *r, unsigned allowed)
{
    struct dry_call call = *r->call;
    const struct dry_backend_ops *ops = NULL;
    struct dry_tokenizer *tokenizer = NULL;
    json_t *devices = NULL, *now = NULL;
    float *values = NULL;
    enum dry_status status;

    call.config = r->config;
    dry_log_defer(1);
    status = dry_comm_agree(call.comm, dry_setup_backend(r->config, &ops));
    dry_log_defer(0);
    if (!status)
        status = devices_json(&call, ops, &devices);
    if (!status)
        status = dry_setup_tokenizer(&call, &r->dir, &tokenizer);
    if (!status)
        status = dry_setup_base(&call, r->dir, &r->base);
    if (!status)
        status = dry_setup_adapter(&call, r->base, &r->adapter, &values);
    if (status)
        goto out;
    dry_log_defer(1);
    if (r->rank == 0) {
        status = now_json(r, ops, dry_tokenizer_hash(tokenizer), devices, &now);
        devices = NULL;
        if (!status)
            status = look(r, now);
        if (!status)
            status = judge(r, allowed);
    }
    status = dry_comm_agree(call.comm, status);
    dry_log_defer(0);
out:
    dry_free(values);
    dry_tokenizer_destroy(tokenizer);
    json_decref(devices);
    json_decref(now);
    return status;
}
