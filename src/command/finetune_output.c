/*
 * finetune's output folder: it must be new or a run's, belongs to one run at a time, and holds the earlier
 * run's contract. Owns the lock of the folder through struct dry_finetune. Must not know what is trained.
 */
#include "config.h"

#include "command/finetune.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int dry_finetune_harmless(const char *name)
{
    static const char *const endings[] = {".log", ".out", ".err", ".cfg", ".sh"};
    size_t length = strlen(name);

    if (name[0] == '.' || strcmp(name, "cache") == 0 || strncmp(name, "run.json.tmp.", 13) == 0)
        return 1;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);

        if (length > n && strcmp(name + length - n, endings[i]) == 0)
            return 1;
    }
    return 0;
}

/* Rank 0. A folder with neither run.json nor checkpoints that holds something else is somebody's: nothing is
 * written over. */
static enum dry_status check_folder(const char *output, int *earlier)
{
    char *manifest = dry_path_join(output, "run.json"), **names = NULL;
    enum dry_status status = manifest ? DRY_OK : DRY_ERR_MEMORY;
    int64_t newest = -1;
    size_t count = 0;

    if (!status && (*earlier = dry_file_exists(manifest)) == 0)
        status = dry_checkpoint_newest(output, &newest);
    if (!status && newest >= 0)
        dry_warn(
            "--output %s: the run there has lost its run.json; what it promised is taken from its newest "
            "checkpoint, step %lld",
            output, (long long)newest);
    else if (!status && !*earlier)
        status = dry_dir_list(output, &names, &count);
    for (size_t i = 0; i < count && !status; i++)
        if (!dry_finetune_harmless(names[i])) {
            dry_error("--output %s: holds %s and is no run of drydock (no run.json); give a new folder",
                      output, names[i]);
            status = DRY_ERR_USAGE;
        }
    dry_dir_free(names, count);
    dry_free(manifest);
    return status;
}

/* Rank 0. Held until the process ends, also when it is killed. */
static enum dry_status take_lock(struct dry_finetune *f, const char *output)
{
    char *path = dry_path_join(output, ".lock");
    enum dry_status status = DRY_OK;

    if (!path)
        return DRY_ERR_MEMORY;
    /* A file system without locks (ENOLCK, ENOSYS) leaves the check to the user. */
    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->lock < 0) {
        dry_error("%s: cannot be opened: %s", path, strerror(errno));
        status = DRY_ERR_IO;
    } else if (flock(f->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        dry_error(
            "--output %s: another drydock is running in this folder; wait for it, or give another folder",
            output);
        status = DRY_ERR_USAGE;
    }
    dry_free(path);
    return status;
}

static int64_t option_value(const json_t *options, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(json_object_get(options, key), "value"));
}

/* The command that began the run, typed again with another number of ranks, keeps the run's effective batch:
 * its accumulation was a way to state it. */
static enum dry_status inherit_batch(struct dry_finetune *f)
{
    struct dry_config *c = f->call->config;
    char text[32];
    enum dry_status status;

    if (!f->earlier || c->gradient_accumulation_steps == 0 || c->accept_batch_change ||
        dry_config_origin(c, "effective-batch") != DRY_ORIGIN_DEFAULT ||
        option_value(f->before, "gradient_accumulation_steps") != c->gradient_accumulation_steps ||
        option_value(f->before, "per_device_batch_size") != c->per_device_batch_size)
        return DRY_OK;
    snprintf(text, sizeof text, "%lld", (long long)f->then.effective_batch);
    status = dry_config_set(c, "effective-batch", text, DRY_ORIGIN_ARGUMENT);
    if (!status)
        status = dry_config_set(c, "gradient-accumulation-steps", "0", DRY_ORIGIN_ARGUMENT);
    if (!status)
        dry_info("effective batch %s is this run's contract and stays; the accumulation is derived from it",
                 text);
    return status;
}

/* Rank 0. The contract that the earlier run's run.json tells. Checkpoints hold it too: a damaged run.json
 * does not end a run that has one. */
static enum dry_status read_contract(struct dry_finetune *f)
{
    const char *output = f->call->config->output;
    int64_t newest = -1;
    enum dry_status status = dry_run_contract(output, &f->then, &f->before, &f->earlier);

    if (status != DRY_ERR_INPUT)
        return status;
    if (dry_checkpoint_newest(output, &newest) || newest < 0) {
        dry_error_more("no checkpoint is there to go on from: give another --output, or remove '%s'", output);
        return status;
    }
    dry_log_flush();
    dry_warn("%s/run.json is set aside as run.json.damaged; what the run promised is taken from its newest "
             "checkpoint, step %lld",
             output, (long long)newest);
    f->earlier = 0;
    return DRY_OK;
}

/* Collective. Rank 0 reads; all know. */
static enum dry_status share_contract(struct dry_finetune *f)
{
    char *text = NULL;
    int64_t size = 0;
    enum dry_status status = DRY_OK;

    if (f->rank == 0 && f->earlier) {
        status = read_contract(f);
        if (!status && f->before && !(text = json_dumps(f->before, JSON_COMPACT)))
            status = DRY_ERR_MEMORY;
        size = text ? (int64_t)strlen(text) + 1 : 0;
    }
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = dry_comm_bcast(f->comm, &f->earlier, sizeof f->earlier, 0);
    if (!status)
        status = dry_comm_bcast(f->comm, &f->then, sizeof f->then, 0);
    if (!status)
        status = dry_comm_bcast(f->comm, &size, sizeof size, 0);
    if (!status && size > 0 && f->rank != 0) {
        text = malloc((size_t)size);
        status = text ? DRY_OK : DRY_ERR_MEMORY;
    }
    status = dry_comm_agree(f->comm, status);
    if (!status && size > 0) {
        status = dry_comm_bcast(f->comm, text, (size_t)size, 0);
        if (!status && f->rank != 0)
            f->before = json_loads(text, 0, NULL);
    }
    free(text);
    return status;
}

/* Rank 0. A step or file that is not there is said before any work; what it holds is checked when it is read.
 */
static enum dry_status check_resume(const struct dry_config *c)
{
    char *path = NULL;
    enum dry_status status = DRY_OK;

    if (strcmp(c->resume, "auto") != 0)
        status = dry_checkpoint_find(c->output, c->resume, NULL, &path);
    dry_free(path);
    return status;
}

enum dry_status dry_finetune_look(struct dry_finetune *f)
{
    const struct dry_config *c = f->call->config;
    enum dry_status status = DRY_OK;

    dry_log_defer(1);
    f->options = dry_config_json(c, DRY_CMD_FINETUNE);
    if (!f->options)
        status = DRY_ERR_MEMORY;
    if (!status && f->rank == 0 && dry_file_is_dir(c->output)) {
        status = check_folder(c->output, &f->earlier);
        if (!status)
            status = take_lock(f, c->output);
    }
    if (!status && f->rank == 0)
        status = check_resume(c);
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = share_contract(f);
    if (!status)
        status = dry_comm_agree(f->comm, inherit_batch(f));
    dry_log_defer(0);
    return status;
}

enum dry_status dry_finetune_folder(struct dry_finetune *f)
{
    const char *output = f->call->config->output;
    int earlier = 0;
    enum dry_status status = DRY_OK;

    dry_log_defer(1);
    if (f->rank == 0 && f->lock < 0) {
        status = dry_dir_make(output);
        if (!status)
            status = take_lock(f, output);
        if (!status)
            status = check_folder(output, &earlier);
        if (!status && earlier) {
            dry_error(
                "--output %s: another drydock has begun a run in this folder just now; start again to go "
                "on with it, or give another folder",
                output);
            status = DRY_ERR_USAGE;
        }
    }
    status = dry_comm_agree(f->comm, status);
    dry_log_defer(0);
    return status;
}
