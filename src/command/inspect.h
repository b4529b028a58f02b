/*
 * inspect's parts: each kind of file or folder as one JSON object, printed as it is or as a table.
 * Owns nothing.  Private to command/.
 */
#ifndef DRY_COMMAND_INSPECT_H
#define DRY_COMMAND_INSPECT_H

#include "base/json.h"
#include "config/options.h"
#include "text/tokenizer.h"

/* What every part gets. tokenizer: of --base, or NULL; base: its folder, or NULL. */
struct dry_inspect {
    const struct dry_config *config;
    const char *base;
    struct dry_tokenizer *tokenizer;
};

/* Local. All of them: *content in a new object whose "kind" says what it is; caller decrefs. INPUT, IO,
 * MEMORY, USAGE. */

/* inspect_model.c */
enum dry_status dry_inspect_model(const struct dry_inspect *in, const char *dir, json_t **content);
enum dry_status dry_inspect_safetensors(const struct dry_inspect *in, const char *path, json_t **content);
enum dry_status dry_inspect_index(const struct dry_inspect *in, const char *path, json_t **content);
/* inspect_adapter.c */
enum dry_status dry_inspect_adapter(const struct dry_inspect *in, const char *dir, json_t **content);
/* inspect_data.c */
enum dry_status dry_inspect_hdf5(const struct dry_inspect *in, const char *path, json_t **content);
enum dry_status dry_inspect_run(const struct dry_inspect *in, const char *dir, json_t **content);
enum dry_status dry_inspect_tokenizer(const struct dry_inspect *in, const char *dir, json_t **content);
enum dry_status dry_inspect_config(const struct dry_inspect *in, const char *path, json_t **content);

/* inspect_print.c. Local. The object for people: scalars as "key value", objects indented under their key,
 * arrays of objects as columns. MEMORY. */
enum dry_status dry_inspect_print(const char *path, const json_t *content);

/* inspect.c. Local. object[key] = value (taken, NULL is an error); returns 0, or -1. */
int dry_inspect_put(json_t *object, const char *key, json_t *value);
/* Local. Says that there was no memory and drops the object. */
enum dry_status dry_inspect_no_memory(json_t *content);

#endif
