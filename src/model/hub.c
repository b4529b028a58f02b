/*
 * Finding a base: a folder, or a hub name in the local Hugging Face cache.
 * Owns nothing.  Must not go to the network: a miss prints the download command.
 */
#include "config.h"

#include "model/base.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* The cache's folder as huggingface_hub finds it, in new memory. */
static char *hub_folder(void)
{
    const char *value;

    if ((value = variable("HF_HUB_CACHE")) || (value = variable("HUGGINGFACE_HUB_CACHE")))
        return dry_strdup(value);
    if ((value = variable("HF_HOME")))
        return dry_format("%s/hub", value);
    if ((value = variable("XDG_CACHE_HOME")))
        return dry_format("%s/huggingface/hub", value);
    value = variable("HOME");
    return dry_format("%s/.cache/huggingface/hub", value ? value : "");
}

/* NAME or ORG/NAME of the characters that the hub allows. */
static int is_hub_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t first = strspn(name, letters), second = name[first] == '/' ? strspn(name + first + 1, letters) : 0;

    if (first == 0 || name[0] == '.')
        return 0;
    return name[first] == 0 || (second > 0 && name[first + 1 + second] == 0);
}

/* "models--ORG--NAME" in new memory. */
static char *cache_entry(const char *name)
{
    const char *slash = strchr(name, '/');

    if (!slash)
        return dry_format("models--%s", name);
    return dry_format("models--%.*s--%s", (int)(slash - name), name, slash + 1);
}

/* The snapshot that refs/main names. */
static enum dry_status read_snapshot(const char *entry, const char *name, char **dir)
{
    char *ref = dry_path_join(entry, "refs/main"), *hash = NULL, *path = NULL;
    enum dry_status s = DRY_ERR_MEMORY;
    size_t size;

    if (!ref)
        return s;
    s = dry_file_read(ref, &hash, &size);
    if (s)
        goto out;
    hash[strcspn(hash, " \t\r\n")] = 0;
    s = DRY_ERR_INPUT;
    if (!*hash || strchr(hash, '/') || hash[0] == '.') {
        dry_error("%s: holds no commit; download again: hf download %s", ref, name);
        goto out;
    }
    path = dry_format("%s/snapshots/%s", entry, hash);
    if (!path)
        s = DRY_ERR_MEMORY;
    else if (!dry_file_is_dir(path))
        dry_error("%s: no such folder, though %s names it; download again: hf download %s", path, ref, name);
    else
        s = DRY_OK;
out:
    dry_free(hash);
    dry_free(ref);
    if (s) {
        dry_free(path);
        return s;
    }
    *dir = path;
    return DRY_OK;
}

static enum dry_status look_up(const char *name, char **dir)
{
    char *hub = hub_folder(), *model = hub ? cache_entry(name) : NULL, *entry = NULL, *ref = NULL;
    enum dry_status s = DRY_ERR_MEMORY;

    if (!model || !(entry = dry_path_join(hub, model)) || !(ref = dry_path_join(entry, "refs/main")))
        goto out;
    if (dry_file_exists(ref)) {
        s = read_snapshot(entry, name, dir);
        goto out;
    }
    dry_error("--base %s: no such folder here, and not in the Hugging Face cache %s; give a model folder, or "
              "download: "
              "hf download %s (older: huggingface-cli download %s)",
              name, hub, name, name);
    s = DRY_ERR_INPUT;
out:
    dry_free(ref);
    dry_free(entry);
    dry_free(model);
    dry_free(hub);
    return s;
}

enum dry_status dry_base_locate(const char *name, char **dir)
{
    char *copy;

    if (dry_file_is_dir(name)) {
        copy = dry_strdup(name);
        if (!copy)
            return DRY_ERR_MEMORY;
        *dir = copy;
        return DRY_OK;
    }
    if (dry_file_exists(name)) {
        dry_error("--base %s: a file; give the model's folder", name);
        return DRY_ERR_INPUT;
    }
    if (!is_hub_name(name)) {
        dry_error("--base %s: no such folder; give a Hugging Face model folder, or a hub name such as "
                  "Qwen/Qwen2.5-7B-Instruct",
                  name);
        return DRY_ERR_INPUT;
    }
    return look_up(name, dir);
}
