/*
 * sweep's parts: the configurations, and the table of what became of them.
 * Owns what a sweep holds, in struct dry_sweep.
 */
#ifndef DRY_COMMAND_SWEEP_H
#define DRY_COMMAND_SWEEP_H

#include "command/command.h"

#include "base/json.h"

/* One configuration: a whole finetune of its own. */
struct dry_sweep_run {
    char *name;       /* of its folder and in the log: from its file and what is varied */
    const char *file; /* FILE.cfg (borrowed), NULL: none */
    char *output;     /* DIR/NAME */
    char *differs;    /* "learning-rate=1e-4 rank=8": the options that are not the same in all */
    json_t *values;   /* the same: option -> value as text */
    char **word;      /* its command line: "drydock", "finetune", FILE.cfg, options... */
    int words;
    const char **rest; /* words that are no options, as parsing gives them */
    struct dry_config *config;
    enum dry_status outcome; /* agreed over all ranks at the end */
    int begun;               /* it was started, or had been before */
};

struct dry_sweep {
    const struct dry_call *call;
    struct dry_sweep_run *run;
    int runs;
    int each, groups; /* ranks of a configuration; configurations at once */
    char started[40];
};

/* sweep_list.c. Collective: the configurations from the files and --vary, each read and checked; all wrong
 * ones are named. s->call is set. USAGE, and what a check finds. */
enum dry_status dry_sweep_list(struct dry_sweep *s);
/* Local. Frees the configurations. */
void dry_sweep_release(struct dry_sweep *s);
/* sweep_grid.c. Local: what --vary asks for. */
struct dry_sweep_axis {
    char *flag;
    char **value;
    int values;
};
struct dry_sweep_grid {
    struct dry_sweep_axis *axis;
    int axes;
    int64_t points; /* combinations; 1 without --vary */
};
/* Local. USAGE, MEMORY. */
enum dry_status dry_sweep_grid_read(const struct dry_config *c, struct dry_sweep_grid *g);
void dry_sweep_grid_release(struct dry_sweep_grid *g);
/* Local. The value of an axis at a point of the grid, the last axis changing first. */
const char *dry_sweep_grid_value(const struct dry_sweep_grid *g, int64_t point, int axis);

/* sweep_table.c. Local, rank 0: reads the runs' folders back, writes DIR/sweep.json, and prints the table or
 * JSON on standard output. MEMORY, IO. */
enum dry_status dry_sweep_tell(const struct dry_sweep *s, enum dry_status outcome);

#endif
