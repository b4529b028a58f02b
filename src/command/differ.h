/*
 * What tells runs apart, by their manifests: each difference with every run's value, in kinds that a user can
 * accept by name.  Shared by compare and reproduce.  Owns the texts.  Must not know what a difference means
 * for the command that asks.
 */
#ifndef DRY_COMMAND_DIFFER_H
#define DRY_COMMAND_DIFFER_H

#include "base/json.h"
#include "base/status.h"

/* Kinds, as bits; their names are those of --allow. */
enum dry_differ {
    DRY_DIFFER_DATA = 1 << 0,       /* "data": records, tokenizer, how records become tokens */
    DRY_DIFFER_CONTRACT = 1 << 1,   /* "contract": the rest of the contract, base, adapter, batch changes */
    DRY_DIFFER_VALIDATION = 1 << 2, /* "validation": the validation set */
    DRY_DIFFER_CACHE = 1 << 3,      /* "cache": was the base in memory already when the run started */
    DRY_DIFFER_VERSIONS = 1 << 4,   /* "versions": of this program, its compiler, libraries, drivers */
    DRY_DIFFER_DEVICES = 1 << 5     /* "devices": kinds of GPUs, or of processors where they compute */
};

struct dry_difference {
    enum dry_differ kind;
    char name[48];
    char **value; /* [runs] */
};

struct dry_differences {
    int runs, count, room;
    struct dry_difference *item;
};

/* Local. Appends the differences of these kinds over manifests run[0..runs); d is zeroed before the first
 * call. What a manifest does not tell (an older run) is no difference. MEMORY. */
enum dry_status dry_differ_look(json_t *const *run, int runs, unsigned kinds, struct dry_differences *d);
/* Local. Appends one, with the texts value[0..runs) copied. MEMORY. */
enum dry_status dry_differ_add(struct dry_differences *d, enum dry_differ kind, const char *name,
                               const char *const *value);
void dry_differ_release(struct dry_differences *d);

/* Local. The kinds that a comma list names, of those that may be named. USAGE. */
enum dry_status dry_differ_allowed(const char *list, unsigned may, unsigned *allowed);
/* Local. USAGE when there are differences that are not allowed: each is an error line with every run's value
 * under run's name, and the last line says what --allow would have to be. */
enum dry_status dry_differ_refuse(const struct dry_differences *d, const char *const *name, unsigned allowed,
                                  const char *why);
const char *dry_differ_name(enum dry_differ kind);
/* Local. [{"kind", "name", "values": [...]}...]; caller decrefs. NULL: no memory. */
json_t *dry_differ_json(const struct dry_differences *d);

/* Local. A JSON value as people read it; null and NULL: "-". */
void dry_differ_text(const json_t *value, char *text, size_t size);
/* Local. The kinds of devices that a run computed on, such as "NVIDIA H200"; "" when it does not tell. */
void dry_differ_devices(const json_t *run, char *text, size_t size);

#endif
