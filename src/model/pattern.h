/*
 * PEFT's patterns: values for the modules whose names match a regular expression, such as rank_pattern.
 * Owns the compiled expressions.
 */
#ifndef DRY_MODEL_PATTERN_H
#define DRY_MODEL_PATTERN_H

#include "base/json.h"
#include "base/status.h"

struct dry_patterns;

/* Local. From "KEY=VALUE,KEY=VALUE" or NULL; `where` names the option. USAGE, MEMORY. */
enum dry_status dry_patterns_from_text(const char *text, const char *where, struct dry_patterns **p);
/* Local. From a JSON object of numbers, or NULL; `where` names file and key. INPUT, MEMORY. */
enum dry_status dry_patterns_from_json(const json_t *object, const char *where, struct dry_patterns **p);
void dry_patterns_destroy(struct dry_patterns *p);
/* Local. The value of the first key, in order, that matches the module's name as PEFT matches it, the regular
 * expression
 * (.*\.)?(KEY)$ from the start: *value, else it is left alone. INPUT: the engine gave up. */
enum dry_status dry_patterns_find(struct dry_patterns *p, const char *module, double *value);
/* Local. The first key that has not matched any name so far, or NULL; borrowed. */
const char *dry_patterns_unused(const struct dry_patterns *p);

#endif
