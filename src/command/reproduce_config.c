/*
 * From a run's manifest to the options that do it again.
 * Owns nothing; the configuration is struct dry_reproduce's.
 * Must not know how a run trains.
 */
#include "config.h"

#include "command/reproduce.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Options that say where and how far a start went, not what it computed. */
static int left_out(const char *flag)
{
    static const char *const names[] = {"output", "cache",   "resume", "stop-after", "accept-batch-change",
                                        "json",   "verbose", "allow",  "log-level"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(flag, names[i]) == 0)
            return 1;
    return 0;
}

static int is_path(const char *flag)
{
    return strcmp(flag, "data") == 0 || strcmp(flag, "validation-data") == 0 ||
           strcmp(flag, "init-adapter") == 0;
}

/* A path of the run, as seen from here. */
static enum dry_status set_path(struct dry_reproduce *r, const char *flag, const char *path,
                                enum dry_origin origin)
{
    const char *folder = json_string_value(json_object_get(json_object_get(r->run, "host"), "folder"));
    char *whole = dry_path_join(folder ? folder : ".", path);
    enum dry_status status = whole ? dry_config_set(r->config, flag, whole, origin) : DRY_ERR_MEMORY;

    dry_free(whole);
    return status;
}

/* The base by the folder that the run found it in: a name may be looked up elsewhere now. */
static enum dry_status set_base(struct dry_reproduce *r, enum dry_origin origin)
{
    const char *base = json_string_value(json_object_get(r->run, "base"));

    if (!base) {
        dry_error("%s/run.json: does not tell the folder of its base (key \"base\")", r->folder);
        return DRY_ERR_INPUT;
    }
    return set_path(r, "base", base, origin);
}

/* Options of the machine and where things lie, which reproduce takes too: what it is given counts, else what
 * the run was given. That moved things have the bytes that the run read is checked like all others. */
static int given_anew(const struct dry_reproduce *r, const char *flag)
{
    static const char *const names[] = {"devices",      "backend",         "communicator",
                                        "log-interval", "sample-interval", "base",
                                        "data",         "validation-data", "init-adapter"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(flag, names[i]) == 0)
            return dry_config_origin(r->call->config, flag) != DRY_ORIGIN_DEFAULT;
    return 0;
}

/* GPUs by their numbers are for as many ranks as the run had. */
static int devices_fit(const struct dry_reproduce *r, const char *devices)
{
    int64_t named = 1;

    if (strcmp(devices, "cpu") == 0)
        return 1;
    for (const char *c = devices; *c; c++)
        named += *c == ',';
    return named == dry_comm_size(r->call->comm);
}

static enum dry_status set_option(struct dry_reproduce *r, const struct dry_option *o, const json_t *given)
{
    const json_t *value = json_object_get(given, "value");
    const char *origin_text = json_string_value(json_object_get(given, "origin"));
    enum dry_origin origin = origin_text && strcmp(origin_text, "argument") == 0 ? DRY_ORIGIN_ARGUMENT
                             : origin_text && strcmp(origin_text, "file") == 0   ? DRY_ORIGIN_FILE
                                                                                 : DRY_ORIGIN_DEFAULT;
    const char *text = json_string_value(value);
    char number[64];

    if (!value || json_is_null(value))
        return DRY_OK;
    if (o->notes & DRY_NOTE_ESCAPES && origin == DRY_ORIGIN_ARGUMENT)
        origin = DRY_ORIGIN_FILE; /* the manifest has the text as it was understood */
    if (strcmp(o->flag, "base") == 0 && !given_anew(r, o->flag))
        return set_base(r, origin);
    if (text && is_path(o->flag) && !given_anew(r, o->flag))
        return set_path(r, o->flag, text, origin);
    if (strcmp(o->flag, "devices") == 0 && text && !given_anew(r, o->flag) && !devices_fit(r, text)) {
        if (r->rank == 0)
            dry_info("--devices %s of the run is not for %d rank%s: each rank takes the GPU of its place",
                     text, dry_comm_size(r->call->comm), dry_plural(dry_comm_size(r->call->comm)));
        return DRY_OK;
    }
    if (!text) {
        if (json_is_real(value))
            snprintf(number, sizeof number, "%.17g", json_real_value(value));
        else
            dry_differ_text(value, number, sizeof number);
        text = number;
    }
    return dry_config_set(r->config, o->flag, text, origin);
}

/* The effective batch of an accumulation that was given is the contract's: the ranks may be others now. */
static enum dry_status keep_batch(struct dry_reproduce *r)
{
    int64_t batch =
        json_integer_value(json_object_get(json_object_get(r->run, "contract"), "effective_batch"));
    enum dry_status status;
    char text[32];

    if (r->config->gradient_accumulation_steps == 0)
        return DRY_OK;
    snprintf(text, sizeof text, "%lld", (long long)batch);
    status = dry_config_set(r->config, "effective-batch", text, DRY_ORIGIN_ARGUMENT);
    return status ? status
                  : dry_config_set(r->config, "gradient-accumulation-steps", "0", DRY_ORIGIN_ARGUMENT);
}

/* Where the new run lies, and from where to where it goes. */
static enum dry_status set_course(struct dry_reproduce *r)
{
    const struct dry_config *own = r->call->config;
    char step[32];
    enum dry_status status = dry_config_set(r->config, "output", r->output, DRY_ORIGIN_ARGUMENT);

    if (!status && own->cache)
        status = dry_config_set(r->config, "cache", own->cache, DRY_ORIGIN_ARGUMENT);
    if (!status)
        status =
            dry_config_set(r->config, "resume", r->checkpoint ? r->checkpoint : "never", DRY_ORIGIN_ARGUMENT);
    if (!status && r->to < r->steps) {
        snprintf(step, sizeof step, "%lld", (long long)r->to);
        status = dry_config_set(r->config, "stop-after", step, DRY_ORIGIN_ARGUMENT);
    }
    return status;
}

enum dry_status dry_reproduce_config(struct dry_reproduce *r)
{
    const struct dry_option *table = dry_option_table();
    const json_t *options = json_object_get(r->run, "options"), *given;
    json_t *own = dry_config_json(r->call->config, DRY_CMD_REPRODUCE);
    enum dry_status status = own ? dry_config_create(&r->config) : DRY_ERR_MEMORY;

    for (int i = 0; table[i].flag && !status; i++) {
        char key[64];

        snprintf(key, sizeof key, "%s", table[i].flag);
        for (char *c = key; *c; c++)
            if (*c == '-')
                *c = '_';
        if (given_anew(r, table[i].flag))
            given = json_object_get(own, key);
        else
            given = json_object_get(options, key);
        if (table[i].commands & DRY_CMD_FINETUNE && !left_out(table[i].flag))
            status = set_option(r, &table[i], given);
    }
    if (!status)
        status = keep_batch(r);
    if (!status)
        status = set_course(r);
    if (!status)
        status = dry_config_check(r->config, DRY_CMD_FINETUNE);
    json_decref(own);
    return status;
}
