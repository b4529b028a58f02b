/*
 * JSON by jansson, and the few readers that every user of it needs.  The only home of <jansson.h>.
 * Readers log "FILE: key "x": what is wrong" and return INPUT.
 */
#ifndef DRY_BASE_JSON_H
#define DRY_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

/* Local. Parses a whole file that must hold one JSON value; duplicate keys are refused. *root: caller
 * decrefs. INPUT, IO. */
enum dry_status dry_json_read(const char *path, json_t **root);
/* Local. Writes indented JSON with a final newline by dry_file_write. */
enum dry_status dry_json_write(const char *path, const json_t *root);

/* Local. Typed reads of object[key]. `where` names file (and path) for the message. A missing or null key
 * gives *value = the given default and OK; pass required != 0 to make that an error. */
enum dry_status dry_json_int(const json_t *object, const char *key, int required, int64_t otherwise,
                             const char *where, int64_t *value);
enum dry_status dry_json_real(const json_t *object, const char *key, int required, double otherwise,
                              const char *where, double *value);
enum dry_status dry_json_bool(const json_t *object, const char *key, int required, int otherwise,
                              const char *where, int *value);
/* *value borrows from object or is `otherwise` (which may be NULL). A NUL inside is refused. */
enum dry_status dry_json_text(const json_t *object, const char *key, int required, const char *otherwise,
                              const char *where, const char **value);

#endif
