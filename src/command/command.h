/*
 * Commands: one thin file each; the table that main.c looks them up in.
 */
#ifndef DRY_COMMAND_COMMAND_H
#define DRY_COMMAND_COMMAND_H

#include "config/options.h"
#include "parallel/comm.h"

/* What a command gets. positional: words that are no options (inspect takes paths; elsewhere FILE.cfg is
 * already read and there are none). */
struct dry_call {
    struct dry_comm *comm;     /* NULL for a command that is alone */
    struct dry_config *config; /* finetune may complete it from the run that it continues */
    const char **positional;
    int positionals;
    int argc; /* the whole command line, for the manifest */
    char **argv;
    double started; /* dry_clock_now() at process start */
};

struct dry_command {
    const char *name;
    unsigned bit;                                        /* dry_command_bit */
    const char *text;                                    /* one sentence for --help */
    const char *usage;                                   /* "drydock inspect [options] PATH..." */
    enum dry_status (*run)(const struct dry_call *call); /* Collective */
    int alone; /* runs without MPI, in the first process of a launch only */
    int paths; /* its words are for itself and are not FILE.cfg */
};

/* Ended by name NULL. */
const struct dry_command *dry_command_table(void);
/* Local. The command of that name; NULL: logged with the nearest one. */
const struct dry_command *dry_command_find(const char *name);
/* Local. --help of the program (command NULL) or of one command; --version, with -v all that it was built
 * from. */
void dry_command_help(FILE *out, const struct dry_command *command);
void dry_command_version(FILE *out, int verbose);

enum dry_status dry_command_prepare(const struct dry_call *call);
enum dry_status dry_command_lengths(const struct dry_call *call);
enum dry_status dry_command_plan(const struct dry_call *call);
enum dry_status dry_command_finetune(const struct dry_call *call);
enum dry_status dry_command_evaluate(const struct dry_call *call);
enum dry_status dry_command_merge(const struct dry_call *call);
enum dry_status dry_command_tokenize(const struct dry_call *call);
enum dry_status dry_command_inspect(const struct dry_call *call);
enum dry_status dry_command_options(const struct dry_call *call);
enum dry_status dry_command_scale(const struct dry_call *call);
enum dry_status dry_command_sweep(const struct dry_call *call);
enum dry_status dry_command_compare(const struct dry_call *call);
enum dry_status dry_command_reproduce(const struct dry_call *call);
enum dry_status dry_command_report(const struct dry_call *call);

#endif
