/*
 * reproduce: a finished run done again from its manifest, whole or from one checkpoint to the next, and the
 * bits compared.
 * Owns what the parts share.
 * Must not know how a part does its work: this file is their order.
 */
#include "config.h"

#include "command/reproduce.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run (rank 0) ---- */

/* What there is of the run must be something that can be done again. */
static enum dry_status check_manifest(const struct dry_reproduce *r)
{
    const char *command = json_string_value(json_object_get(r->run, "command"));

    if (!command || strcmp(command, "finetune") != 0 || !json_is_object(json_object_get(r->run, "options")) ||
        !json_is_object(json_object_get(r->run, "contract"))) {
        dry_error("%s/run.json: is no manifest of a finetune that has its options and contract", r->folder);
        return DRY_ERR_INPUT;
    }
    if (r->steps < 1) {
        dry_error("%s/run.json: its contract has no steps", r->folder);
        return DRY_ERR_INPUT;
    }
    return DRY_OK;
}

/* The whole run: its adapter is there, and one contract made it. */
static enum dry_status check_whole(struct dry_reproduce *r)
{
    const json_t *changes = json_object_get(r->run, "changes");
    char *adapter = dry_format("%s/adapter/adapter_model.safetensors", r->folder);
    enum dry_status status = adapter ? DRY_OK : DRY_ERR_MEMORY;

    r->to = r->steps;
    if (!status && json_array_size(changes) > 0) {
        const json_t *last = json_array_get(changes, json_array_size(changes) - 1);

        dry_error(
            "%s: its batch was changed on the way (--accept-batch-change, last at step %lld), so no one "
            "contract made its adapter; --from-step with a checkpoint after the change does that part "
            "again",
            r->folder, (long long)json_integer_value(json_object_get(last, "continues_as_step")));
        status = DRY_ERR_INPUT;
    }
    if (!status && !dry_file_exists(adapter)) {
        dry_error("%s: has no adapter to compare with: it was not finished; finish it, or take the way from "
                  "one of its checkpoints to the next with --from-step",
                  r->folder);
        status = DRY_ERR_INPUT;
    }
    dry_free(adapter);
    return status;
}

/* From a checkpoint to the next. */
static enum dry_status check_part(struct dry_reproduce *r)
{
    int64_t first = -1;
    char step[32];
    enum dry_status status = dry_checkpoint_after(r->folder, r->from - 1, &first);

    if (!status && first != r->from) {
        if (first < 0)
            dry_error("--from-step %lld: %s has no checkpoint of that step, nor a later one",
                      (long long)r->from, r->folder);
        else
            dry_error("--from-step %lld: %s has no checkpoint of that step; the next one is of step %lld",
                      (long long)r->from, r->folder, (long long)first);
        return DRY_ERR_USAGE;
    }
    snprintf(step, sizeof step, "%lld", (long long)r->from);
    if (!status)
        status = dry_checkpoint_find(r->folder, step, NULL, &r->checkpoint);
    if (!status)
        status = dry_checkpoint_after(r->folder, r->from, &r->to);
    if (!status && r->to < 0) {
        dry_error("%s: has no checkpoint after step %lld to compare with; give an earlier one as --from-step "
                  "(--keep-checkpoints of the run says how many stay)",
                  r->folder, (long long)r->from);
        status = DRY_ERR_INPUT;
    }
    return status;
}

static enum dry_status check_output(const struct dry_reproduce *r)
{
    char *manifest = dry_path_join(r->output, "run.json");
    enum dry_status status = manifest ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && dry_file_exists(manifest)) {
        dry_error("--output %s: holds a run already; give a new folder", r->output);
        status = DRY_ERR_USAGE;
    }
    dry_free(manifest);
    return status;
}

static enum dry_status read_run(struct dry_reproduce *r)
{
    enum dry_status status = check_output(r);

    if (!status)
        status = dry_history_open(r->folder, &r->then);
    if (status)
        return status;
    r->run = json_incref(r->then->run);
    r->steps = json_integer_value(json_object_get(json_object_get(r->run, "contract"), "steps"));
    status = check_manifest(r);
    if (!status)
        status = r->from ? check_part(r) : check_whole(r);
    return status;
}

/* Collective. Only rank 0 needs to see the run's folder. */
static enum dry_status share_run(struct dry_reproduce *r)
{
    struct dry_comm *comm = r->call->comm;
    char *text = r->rank == 0 ? json_dumps(r->run, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    int64_t size = text ? (int64_t)strlen(text) + 1 : 0;
    enum dry_status status = dry_comm_agree(comm, r->rank != 0 || text ? DRY_OK : DRY_ERR_MEMORY);

    if (!status)
        status = dry_comm_bcast(comm, &size, sizeof size, 0);
    if (!status && r->rank != 0)
        text = malloc((size_t)size);
    if (!status)
        status = dry_comm_agree(comm, text ? DRY_OK : DRY_ERR_MEMORY);
    if (!status)
        status = dry_comm_bcast(comm, text, (size_t)size, 0);
    if (!status)
        status = dry_comm_bcast(comm, &r->steps, sizeof r->steps, 0);
    if (!status)
        status = dry_comm_bcast(comm, &r->to, sizeof r->to, 0);
    if (!status && r->rank != 0)
        status = (r->run = json_loads(text, 0, NULL)) ? DRY_OK : DRY_ERR_MEMORY;
    if (!status && r->rank != 0 && r->from) /* rank 0 alone reads it */
        status = (r->checkpoint = dry_format("step-%06lld.h5", (long long)r->from)) ? DRY_OK : DRY_ERR_MEMORY;
    free(text);
    return dry_comm_agree(comm, status);
}

/* ---- the order ---- */

static enum dry_status prepare(struct dry_reproduce *r)
{
    unsigned allowed = 0;
    enum dry_status status;

    dry_log_defer(1);
    status = dry_differ_allowed(r->call->config->allow,
                                DRY_DIFFER_VERSIONS | DRY_DIFFER_DEVICES | DRY_DIFFER_DATA, &allowed);
    if (!status && r->rank == 0)
        status = read_run(r);
    status = dry_comm_agree(r->call->comm, status);
    if (!status)
        status = share_run(r);
    if (!status)
        status = dry_comm_agree(r->call->comm, dry_reproduce_config(r));
    dry_log_defer(0);
    if (!status)
        status = dry_reproduce_check(r, allowed);
    return status;
}

/* Collective. The steps, by the same command that did them first. */
static enum dry_status run_again(struct dry_reproduce *r)
{
    struct dry_call call = *r->call;
    enum dry_status status;

    call.config = r->config;
    dry_info("steps %lld to %lld of %s again, into %s", (long long)r->from + 1, (long long)r->to, r->folder,
             r->output);
    status = dry_command_finetune(&call);
    if (status == DRY_STOPPED && r->to < r->steps) { /* at the step it was to stop after, or by a signal? */
        int64_t newest = -1;

        status = DRY_OK;
        if (r->rank == 0)
            status = dry_checkpoint_newest(r->output, &newest);
        if (!status && r->rank == 0 && newest != r->to)
            status = DRY_STOPPED;
        status = dry_comm_agree(call.comm, status);
    }
    return status;
}

static void release(struct dry_reproduce *r)
{
    dry_history_close(r->then);
    dry_history_close(r->now);
    dry_differ_release(&r->differences);
    dry_adapter_destroy(r->adapter);
    dry_base_close(r->base);
    dry_config_destroy(r->config);
    json_decref(r->run);
    dry_free(r->checkpoint);
    dry_free(r->dir);
}

enum dry_status dry_command_reproduce(const struct dry_call *call)
{
    struct dry_reproduce r = {.call = call,
                              .folder = call->positionals == 1 ? call->positional[0] : NULL,
                              .output = call->config->output,
                              .from = call->config->from_step,
                              .rank = dry_comm_rank(call->comm)};
    struct dry_reproduced out;
    enum dry_status status = DRY_OK;

    if (!r.folder) {
        if (r.rank == 0)
            dry_error(
                "reproduce does one run again; usage: [mpirun -np N] drydock reproduce RUN --output NEW");
        return dry_comm_agree(call->comm, DRY_ERR_USAGE);
    }
    status = prepare(&r);
    if (!status)
        status = run_again(&r);
    if (!status && r.rank == 0) {
        status = dry_reproduce_compare(&r, &out);
        if (!status)
            status = dry_reproduce_tell(&r, &out);
    }
    status = dry_comm_agree(call->comm, status);
    release(&r);
    return status;
}
