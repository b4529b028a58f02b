/*
 * scale: the same records on 1, 2, ... ranks of this allocation; a table, a model, a verdict.
 * Owns struct dry_scale.
 * Must not know how a part does its work: this file is the order of the parts, and what is refused before.
 */
#include "config.h"

#include "command/scale.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "command/finetune.h"
#include "command/lengths.h"
#include "command/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked for ---- */

static int rising(const void *left, const void *right)
{
    const struct dry_scale_run *a = left, *b = right;

    return (a->ranks > b->ranks) - (a->ranks < b->ranks);
}

/* Local. Each from 1 to 8, then doubling, and all. */
static void every_count(struct dry_scale *s)
{
    for (int n = 1; n <= s->ranks; n = n < 8 ? n + 1 : 2 * n)
        s->run[s->runs++].ranks = n;
    if (s->run[s->runs - 1].ranks != s->ranks)
        s->run[s->runs++].ranks = s->ranks;
}

/* Local. --ranks 1,2,4: rising, each once. */
static enum dry_status read_counts(struct dry_scale *s)
{
    const char *place = dry_config_place(s->call->config, "ranks"), *at = s->call->config->ranks;

    if (!at) {
        every_count(s);
        return DRY_OK;
    }
    for (;; at++) {
        char *end;
        long n;

        errno = 0;
        n = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || n < 1 || (*end && *end != ',')) {
            dry_error("%s: \"%s\" is not a list of rank counts such as 1,2,4", place, s->call->config->ranks);
            return DRY_ERR_USAGE;
        }
        if (n > s->ranks) {
            dry_error("%s asks for %ld ranks, and this allocation has %d; start drydock on %ld (mpirun -np "
                      "%ld), or ask for fewer",
                      place, n, s->ranks, n, n);
            return DRY_ERR_USAGE;
        }
        if (s->runs == DRY_SCALING_ROWS) {
            dry_error("%s: more than %d rank counts", place, DRY_SCALING_ROWS);
            return DRY_ERR_USAGE;
        }
        s->run[s->runs++].ranks = (int)n;
        at = end;
        if (!*at)
            break;
    }
    qsort(s->run, (size_t)s->runs, sizeof *s->run, rising);
    for (int i = 1; i < s->runs; i++)
        if (s->run[i].ranks == s->run[i - 1].ranks) {
            dry_error("%s names %d twice", place, s->run[i].ranks);
            return DRY_ERR_USAGE;
        }
    return DRY_OK;
}

/* Local. Which steps count, and where the runs save: the training's own interval if that falls among them,
 * else once in their middle. */
static enum dry_status read_steps(struct dry_scale *s)
{
    const struct dry_config *c = s->call->config;
    int64_t counted = c->steps - c->discard_steps, own = c->checkpoint_interval;

    if (counted < 1) {
        dry_error("%s discards all of the %lld steps (%s); none would be counted",
                  dry_config_place(c, "discard-steps"), (long long)c->steps, dry_config_place(c, "steps"));
        return DRY_ERR_USAGE;
    }
    s->first = c->discard_steps + 1;
    s->interval = c->discard_steps + (counted + 1) / 2;
    if (own > 0 && own < c->steps && (c->steps - 1) / own > c->discard_steps / own)
        s->interval = own;
    return DRY_OK;
}

/* Rank 0. Nothing is written over: a scale's folder is for one scale. */
static enum dry_status check_output(const char *output)
{
    char **names = NULL, *finished = NULL;
    size_t count = 0;
    enum dry_status status = DRY_OK;

    if (!dry_file_is_dir(output))
        return DRY_OK;
    if (!(finished = dry_path_join(output, "scaling.json")))
        return DRY_ERR_MEMORY;
    if (dry_file_exists(finished)) {
        dry_error("--output %s: holds a finished scale (%s/scaling.txt); to measure again, give a new folder",
                  output, output);
        status = DRY_ERR_USAGE;
    }
    dry_free(finished);
    if (!status)
        status = dry_dir_list(output, &names, &count);
    for (size_t i = 0; i < count && !status; i++) {
        if (dry_finetune_harmless(names[i]))
            continue;
        status = DRY_ERR_USAGE;
        if (strncmp(names[i], "ranks-", 6) == 0 || strncmp(names[i], "subset.", 7) == 0)
            dry_error("--output %s: holds the %s of a scale that did not end; give a new folder, or remove "
                      "this one",
                      output, names[i]);
        else
            dry_error("--output %s: holds %s, which is of no scale; give a new folder", output, names[i]);
    }
    dry_dir_free(names, count);
    return status;
}

/* Collective. What can be refused is refused before anything is written. */
static enum dry_status check(struct dry_scale *s)
{
    enum dry_status status = read_counts(s);

    if (!status)
        status = read_steps(s);
    if (!status && s->rank == 0)
        status = check_output(s->call->config->output);
    if (!status)
        status = dry_setup_early(s->call);
    status = dry_comm_agree(s->world, status);
    if (!status && s->rank == 0)
        status = dry_dir_make(s->call->config->output);
    return dry_comm_agree(s->world, status);
}

/* ---- what is left ---- */

static enum dry_status write_text(const struct dry_scale *s, const char *text, size_t size)
{
    char *path = dry_path_join(s->call->config->output, "scaling.txt");
    enum dry_status status = path ? dry_file_write(path, text, size) : DRY_ERR_MEMORY;

    dry_free(path);
    return status;
}

/* Rank 0. scaling.txt and, last, scaling.json, whose presence says that all is there. */
static enum dry_status finish(struct dry_scale *s)
{
    char *path = dry_path_join(s->call->config->output, "scaling.json"), *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    json_t *all = NULL;
    enum dry_status status = path && out ? DRY_OK : DRY_ERR_MEMORY;

    if (out && !status)
        dry_scale_print(out, s);
    if (out && fclose(out) && !status)
        status = DRY_ERR_MEMORY;
    if (!status)
        status = write_text(s, text, size);
    if (!status && !(all = dry_scale_json(s)))
        status = DRY_ERR_MEMORY;
    if (status == DRY_ERR_MEMORY)
        dry_error("not enough memory for the table of scale");
    if (!status)
        status = dry_json_write(path, all);
    if (!status && s->call->config->json) {
        status = dry_print_json(json_incref(all));
    } else if (!status) {
        fwrite(text, 1, size, stdout);
        status = dry_print_end();
    }
    if (!status)
        dry_info(
            "scale: %s keeps all numbers; drydock report RUN --scaling %s shows them beside a run, drydock "
            "plan --measured %s foretells with them",
            path, s->call->config->output, s->call->config->output);
    json_decref(all);
    free(text);
    dry_free(path);
    return status;
}

/* Rank 0. */
static enum dry_status conclude(struct dry_scale *s)
{
    enum dry_status status = dry_scale_rows(s);

    if (!status)
        status = dry_scale_manifest(s);
    if (!status)
        status = dry_scale_verdict(s);
    return status ? status : finish(s);
}

static void release(struct dry_scale *s)
{
    for (int i = 0; i < s->runs; i++) {
        dry_free(s->run[i].folder);
        json_decref(s->run[i].run);
    }
    for (int i = 0; i < s->sentences; i++)
        dry_free(s->sentence[i]);
    json_decref(s->manifest);
    dry_plan_destroy(s->plan);
    dry_plan_destroy(s->part_plan);
    dry_cache_close(s->whole);
    dry_cache_close(s->part);
    dry_free(s->part_path);
    dry_free(s->values);
    dry_adapter_destroy(s->adapter);
    dry_base_close(s->base);
    dry_tokenizer_destroy(s->tokenizer);
    dry_free(s->dir);
    dry_free(s);
}

/* Collective. A run that fails on its own does not end the others; *worst is then the command's status all
 * the same. */
static enum dry_status run_all(struct dry_scale *s, enum dry_status *worst)
{
    enum dry_status status;
    int good = 0;

    *worst = DRY_OK;

    for (int i = 0; i < s->runs; i++) {
        status = dry_scale_run(s, i);
        if (status == DRY_STOPPED)
            dry_info("scale: stopped on request; there is no table of rank counts that were not run");
        if (status)
            return status;
        good += s->run[i].status == DRY_OK;
        *worst = s->run[i].status > *worst ? s->run[i].status : *worst;
    }
    if (good == 0 && s->rank == 0)
        dry_error("scale: no rank count could be measured; the lines above say why");
    return good ? DRY_OK : *worst;
}

enum dry_status dry_command_scale(const struct dry_call *call)
{
    struct dry_scale *s = dry_alloc(1, sizeof *s, "scale");
    enum dry_status status = dry_comm_agree(call->comm, s ? DRY_OK : DRY_ERR_MEMORY), worst = DRY_OK;

    if (status) {
        dry_free(s);
        return status;
    }
    s->call = call;
    s->world = call->comm;
    s->rank = dry_comm_rank(call->comm);
    s->ranks = dry_comm_size(call->comm);
    dry_log_defer(1);
    status = check(s);
    dry_log_defer(0);
    if (!status)
        status = dry_scale_subset(s);
    if (!status) {
        dry_signals_watch(); /* those that rest, too: the run that a signal stops ends in its own way */
        status = run_all(s, &worst);
    }
    if (!status)
        status = dry_comm_agree(s->world, s->rank == 0 ? conclude(s) : DRY_OK);
    release(s);
    return status ? status : worst;
}
