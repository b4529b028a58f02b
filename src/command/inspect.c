/*
 * inspect: what is inside a model, cache, checkpoint, adapter or run.
 * Owns the objects that its parts make.
 * Must not know what they hold: it finds out what a path is, and prints.
 */
#include "config.h"

#include "command/inspect.h"

#include "command/command.h"
#include "command/lengths.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/base.h"
#include "state/checkpoint_describe.h"

#include <string.h>

typedef enum dry_status inspect_part(const struct dry_inspect *in, const char *path, json_t **content);

int dry_inspect_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

enum dry_status dry_inspect_no_memory(json_t *content)
{
    json_decref(content);
    dry_error("out of memory, or a text that is no UTF-8, in what inspect tells");
    return DRY_ERR_MEMORY;
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

static int holds(const char *dir, const char *name)
{
    char *path = dry_path_join(dir, name);
    int there = path && dry_file_exists(path);

    dry_free(path);
    return there;
}

/* The part for a folder: by the file that makes it what it is. */
static inspect_part *part_of_folder(const char *dir)
{
    static const struct {
        const char *file;
        inspect_part *part;
    } signs[] = {
        {"run.json", dry_inspect_run},
        {"adapter_config.json", dry_inspect_adapter},
        {"config.json", dry_inspect_model},
        {"tokenizer.json", dry_inspect_tokenizer},
    };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (holds(dir, signs[i].file))
            return signs[i].part;
    return NULL;
}

/* The part for a file; *folder: it takes the file's folder instead. */
static inspect_part *part_of_file(const char *path, int *folder)
{
    static const struct {
        const char *name;
        inspect_part *part;
    } members[] = {
        {"run.json", dry_inspect_run},
        {"adapter_config.json", dry_inspect_adapter},
        {"config.json", dry_inspect_model},
        {"tokenizer.json", dry_inspect_tokenizer},
        {"tokenizer_config.json", dry_inspect_tokenizer},
    };

    *folder = 0;
    if (dry_checkpoint_is_hdf5(path) || ends_with(path, ".h5"))
        return dry_inspect_hdf5;
    if (ends_with(path, ".safetensors"))
        return dry_inspect_safetensors;
    if (ends_with(path, ".safetensors.index.json"))
        return dry_inspect_index;
    if (ends_with(path, ".cfg"))
        return dry_inspect_config;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(dry_path_base(path), members[i].name) == 0) {
            *folder = 1;
            return members[i].part;
        }
    }
    return NULL;
}

static enum dry_status unknown(const char *path)
{
    if (!dry_file_exists(path) && !dry_file_is_dir(path)) {
        dry_error("%s: there is no such file or folder", path);
        return DRY_ERR_IO;
    }
    dry_error("%s: nothing that inspect knows; it takes a model, adapter or run folder, a .safetensors file "
              "or its index, "
              "a cache or checkpoint (.h5), tokenizer.json or a .cfg file",
              path);
    return DRY_ERR_INPUT;
}

static enum dry_status look(const struct dry_inspect *in, const char *path, json_t **content)
{
    size_t size = (size_t)(dry_path_base(path) - path);
    inspect_part *part;
    char *dir = NULL;
    int folder = 0;
    enum dry_status s;

    part = dry_file_is_dir(path)   ? part_of_folder(path)
           : dry_file_exists(path) ? part_of_file(path, &folder)
                                   : NULL;
    if (!part)
        return unknown(path);
    if (in->config->record >= 0 && part != dry_inspect_hdf5) {
        dry_error("--record %lld: %s is no cache; a record is shown of a cache (.h5) only",
                  (long long)in->config->record, path);
        return DRY_ERR_USAGE;
    }
    if (!folder)
        return part(in, path, content);
    dir = size ? dry_strndup(path, size > 1 ? size - 1 : 1) : dry_strdup(".");
    s = dir ? part(in, dir, content) : DRY_ERR_MEMORY;
    dry_free(dir);
    return s;
}

/* All paths; what was found before a bad one is printed all the same. */
static enum dry_status look_all(const struct dry_inspect *in, const char *const *paths, int count)
{
    json_t *all = json_array(), *content;
    enum dry_status s = DRY_OK, worst = DRY_OK;

    for (int i = 0; i < count; i++) {
        content = NULL;
        s = look(in, paths[i], &content);
        if (!s && in->config->json) {
            if (dry_inspect_put(content, "path", json_string(paths[i])) ||
                json_array_append_new(all, content))
                s = dry_inspect_no_memory(NULL);
        } else if (!s) {
            s = dry_inspect_print(paths[i], content);
            json_decref(content);
        }
        worst = worst ? worst : s;
    }
    if (in->config->json && json_array_size(all)) {
        s = dry_print_json(json_array_size(all) == 1 ? json_incref(json_array_get(all, 0))
                                                     : json_incref(all));
        worst = worst ? worst : s;
    }
    json_decref(all);
    return worst;
}

/* The words, else what --adapter or --base names. */
static int choose_paths(const struct dry_call *call, const char *base, const char *paths[2],
                        const char *const **list)
{
    const struct dry_config *c = call->config;
    int count = 0;

    if (call->positionals) {
        *list = call->positional;
        return call->positionals;
    }
    if (c->adapter)
        paths[count++] = c->adapter;
    if (base && !c->adapter)
        paths[count++] = base;
    *list = paths;
    return count;
}

/* --base is found, and its tokenizer read where it is needed: for the pieces of a record. */
static enum dry_status open_base(const struct dry_config *c, char **dir, struct dry_tokenizer **t)
{
    enum dry_status s;

    if (!c->base)
        return DRY_OK;
    s = dry_base_locate(c->base, dir);
    return s || c->record < 0 ? s : dry_tokenizer_create(*dir, t);
}

enum dry_status dry_command_inspect(const struct dry_call *call)
{
    struct dry_inspect in = {.config = call->config};
    const char *paths[2];
    const char *const *list;
    char *dir = NULL;
    int count;
    enum dry_status s = open_base(call->config, &dir, &in.tokenizer);

    if (s)
        goto out;
    in.base = dir;
    count = choose_paths(call, dir, paths, &list);
    if (count == 0) {
        dry_error("inspect needs a path: a model, adapter or run folder, a .safetensors file, a cache or "
                  "checkpoint "
                  "(.h5), tokenizer.json or a .cfg file");
        s = DRY_ERR_USAGE;
    } else if (call->config->record >= 0 && !in.tokenizer) {
        dry_error("--record needs --base too: its tokenizer gives the tokens' text");
        s = DRY_ERR_USAGE;
    } else
        s = look_all(&in, list, count);
out:
    dry_tokenizer_destroy(in.tokenizer);
    dry_free(dir);
    return s;
}
