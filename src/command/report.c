/*
 * report: writes each run's page, text and TensorBoard file into its folder, or prints its numbers.
 * Owns what it reads during a call.
 * Must not know how a report looks.
 */
#include "config.h"

#include "command/command.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "measure/report.h"

#include <stdio.h>

static enum dry_status print_json(const struct dry_history *h, const json_t *scaling)
{
    json_t *root = dry_report_json(h, scaling);
    int bad;

    if (!root)
        return DRY_ERR_MEMORY;
    bad = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) || putchar('\n') == EOF ||
          fflush(stdout) == EOF;
    json_decref(root);
    if (bad) {
        dry_error("standard output: the report cannot be written");
        return DRY_ERR_IO;
    }
    return DRY_OK;
}

static enum dry_status write_files(const struct dry_history *h, const char *run, const json_t *scaling)
{
    char *page = dry_path_join(run, "report.html"), *text = dry_path_join(run, "report.txt"),
         *events = dry_path_join(run, "tensorboard");
    enum dry_status status = page && text && events ? DRY_OK : DRY_ERR_MEMORY;

    if (!status)
        status = dry_report_html(h, scaling, page);
    if (!status)
        status = dry_report_text(h, text);
    if (!status)
        status = dry_report_tensorboard(h, events);
    if (!status)
        dry_info("%s: open it in a browser; %s for a terminal; tensorboard --logdir %s", page, text, events);
    dry_free(page);
    dry_free(text);
    dry_free(events);
    return status;
}

/* A folder of scale has runs in it but is none. */
static enum dry_status check_run(const char *run)
{
    char *manifest = dry_path_join(run, "run.json"), *scaling = dry_path_join(run, "scaling.json");
    enum dry_status status = manifest && scaling ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && !dry_file_exists(manifest) && dry_file_exists(scaling)) {
        dry_error(
            "%s: is a scale, not a run; give one of the runs in it: drydock report %s/ranks-N --scaling %s",
            run, run, run);
        status = DRY_ERR_INPUT;
    }
    dry_free(manifest);
    dry_free(scaling);
    return status;
}

static enum dry_status report_one(const char *run, const json_t *scaling, int json)
{
    struct dry_history *h = NULL;
    enum dry_status status = check_run(run);

    if (!status)
        status = dry_history_open(run, &h);
    if (!status)
        status = write_files(h, run, scaling);
    if (!status && json)
        status = print_json(h, scaling);
    dry_history_close(h);
    return status;
}

static enum dry_status read_scaling(const char *folder, json_t **scaling)
{
    char *path = dry_path_join(folder, "scaling.json");
    enum dry_status status = path ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && !dry_file_exists(path)) {
        dry_error("--scaling %s: holds no scaling.json, as the --output of a finished drydock scale does",
                  folder);
        status = DRY_ERR_USAGE;
    }
    if (!status)
        status = dry_json_read(path, scaling);
    if (!status && !json_is_array(json_object_get(*scaling, "rows"))) {
        dry_error("%s: key \"rows\": must be an array of measured rank counts", path);
        json_decref(*scaling);
        *scaling = NULL;
        status = DRY_ERR_INPUT;
    }
    dry_free(path);
    return status;
}

/* A run that cannot be reported does not keep the others from it. */
enum dry_status dry_command_report(const struct dry_call *call)
{
    const struct dry_config *c = call->config;
    json_t *scaling = NULL;
    enum dry_status status = DRY_OK;

    if (call->positionals == 0) {
        dry_error("report wants the folders of runs: drydock report RUN...");
        return DRY_ERR_USAGE;
    }
    if (c->scaling)
        status = read_scaling(c->scaling, &scaling);
    if (status)
        return status;
    for (int i = 0; i < call->positionals; i++) {
        enum dry_status one = report_one(call->positional[i], scaling, c->json);

        status = one > status ? one : status;
    }
    json_decref(scaling);
    return status;
}
