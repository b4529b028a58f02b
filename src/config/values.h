/*
 * What the files of config/ share: values with their origin and place, and the one way to set them.
 * Owns what struct dry_config hides.  Not for use outside config/.
 */
#ifndef DRY_CONFIG_VALUES_H
#define DRY_CONFIG_VALUES_H

#include "base/memory.h"
#include "config/options.h"

struct dry_config_value {
    enum dry_origin origin;
    char *text;  /* of TEXT, CHOICE and MAP: the member points here */
    char *place; /* "--rank", "run.cfg:12: rank", "rank (default)" */
};

struct dry_config_values {
    struct dry_config_value *value; /* [options] */
    char **word;                    /* borrowed: the command line's words after the command */
    int words;
    unsigned command;
};

enum { DRY_KEY_SIZE = 64 };

/* Local. Rows of the table; row of a flag, or -1. */
int dry_options_count(void);
int dry_option_find(const char *flag);
/* Local. The row's name as a libconfig key ("learning_rate"). */
void dry_option_key(const struct dry_option *o, char key[DRY_KEY_SIZE]);
/* Local. The flag that a wrong name (with - or _) may have meant: a name other trainers use, the only flag
 * that begins so, or the nearest; NULL. */
const char *dry_option_suggest(const char *name);

/* Local. Sets row i from text; `place` names it in the message. A FILE's value is checked, but does not
 * replace an ARGUMENT's. USAGE, MEMORY. */
enum dry_status dry_values_set(struct dry_config *c, int i, const char *text, enum dry_origin origin,
                               const char *place);
/* Local. The value of row i as text; NULL when there is none. buffer is used for numbers. */
const char *dry_values_text(const struct dry_config *c, int i, char buffer[32]);
/* Local. The shortest text that reads back as the same double. */
void dry_real_text(double value, char text[32]);
/* Local. Appends "a whole number from 1 to 9". 0, or -1 for lack of memory. */
int dry_bounds_text(const struct dry_option *o, struct dry_buffer *b);
/* Local. Appends the command line that this configuration came from, started on `ranks` ranks, without the
 * flags in `drop` (ended by NULL) and with `add` at the end; words are quoted for a shell. 0, or -1 for lack
 * of memory. */
int dry_values_command(const struct dry_config *c, int ranks, const char *const *drop, const char *add,
                       struct dry_buffer *b);

#endif
