/*
 * A run's options: one table, from which parsing, --help, `drydock options`, the man page, the check that
 * ranks agree and the copy kept in each run all come. Owns the values and their origins.  Must not know what
 * the options do.
 *
 * Life: dry_config_create -> dry_config_arguments -> dry_config_file for the word FILE.cfg among them (the
 * command line wins in either order) -> dry_config_check; from then on it is read as a plain const struct.
 */
#ifndef DRY_CONFIG_OPTIONS_H
#define DRY_CONFIG_OPTIONS_H

#include "base/json.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

enum dry_command_bit {
    DRY_CMD_PREPARE = 1 << 0,
    DRY_CMD_LENGTHS = 1 << 1,
    DRY_CMD_PLAN = 1 << 2,
    DRY_CMD_FINETUNE = 1 << 3,
    DRY_CMD_EVALUATE = 1 << 4,
    DRY_CMD_MERGE = 1 << 5,
    DRY_CMD_TOKENIZE = 1 << 6,
    DRY_CMD_INSPECT = 1 << 7,
    DRY_CMD_OPTIONS = 1 << 8,
    DRY_CMD_SCALE = 1 << 9,
    DRY_CMD_SWEEP = 1 << 10,
    DRY_CMD_COMPARE = 1 << 11,
    DRY_CMD_REPRODUCE = 1 << 12,
    DRY_CMD_REPORT = 1 << 13
};

/* The commands that a bit stands for, such as "finetune"; NULL for no single bit. */
const char *dry_command_name(unsigned bit);

enum dry_option_type { DRY_OPT_BOOL, DRY_OPT_INT, DRY_OPT_REAL, DRY_OPT_TEXT, DRY_OPT_CHOICE, DRY_OPT_MAP };

/* How far a value reaches: contract values may not change in a run's folder; run values may; local ones may
 * differ between ranks. */
enum dry_option_scope { DRY_SCOPE_CONTRACT, DRY_SCOPE_RUN, DRY_SCOPE_LOCAL };

enum dry_origin { DRY_ORIGIN_DEFAULT, DRY_ORIGIN_FILE, DRY_ORIGIN_ARGUMENT };

enum dry_option_note {
    DRY_NOTE_LIST = 1 << 0,    /* a comma list; an array in a file */
    DRY_NOTE_ESCAPES = 1 << 1, /* \n, \t and \\ are understood on the command line; may be empty */
    DRY_NOTE_WHOLE = 1 << 2    /* MAP: values are whole numbers */
};

/* One row. The libconfig key is the flag with '_' for '-'. */
struct dry_option {
    const char *flag; /* "learning-rate" */
    enum dry_option_type type;
    const char *otherwise; /* default as text; NULL: no value */
    double least, most;    /* bounds of INT, REAL and a MAP's values, inclusive */
    const char *choices;   /* CHOICE: "cosine|linear|constant" */
    enum dry_option_scope scope;
    unsigned commands;    /* dry_command_bit: takes it */
    unsigned needed;      /* dry_command_bit: cannot do without it */
    unsigned notes;       /* dry_option_note */
    const char *group;    /* heading in --help; rows of a group stand together */
    const char *argument; /* shown in help: "N", "DIR" */
    const char *example;  /* in the sample file, where there is no default */
    const char *text;     /* one sentence */
    size_t offset;        /* into struct dry_config */
};

/* All values, in the table's order. Text values are NULL when not given. Maps are text "key=value,key=value"
 * (a libconfig group in a file). */
struct dry_config {
    /* what */
    const char *base, *data, *validation_data, *output, *cache, *adapter, *init_adapter;
    /* text */
    const char *template_name; /* plain */
    const char *prompt_field, *completion_field, *separator, *special_text;
    int64_t max_seq_length;
    const char *long_records; /* error | drop | truncate */
    const char *bad_records;  /* error | drop */
    /* adapter */
    int64_t rank;
    double alpha, lora_dropout;
    int rslora;
    const char *targets; /* comma list, or "all" */
    const char *rank_pattern, *alpha_pattern;
    /* contract */
    int64_t effective_batch, per_device_batch_size, gradient_accumulation_steps, micro_batch_tokens;
    int64_t epochs, max_steps, seed;
    double learning_rate, weight_decay, max_grad_norm, adam_beta1, adam_beta2, adam_epsilon;
    const char *schedule; /* cosine | linear | constant */
    int64_t warmup_steps; /* -1: warmup_ratio of all steps */
    double warmup_ratio;
    const char *accept_batch_change; /* NULL | keep | linear | sqrt */
    const char *padding;             /* flat | fixed */
    /* running */
    const char *devices, *backend, *communicator;
    const char *recompute; /* norms | none | full */
    int64_t checkpoint_interval, keep_checkpoints, validation_interval, log_interval;
    const char *resume;     /* auto | never | a step number | a file */
    int64_t stop_after;     /* last step of this start; 0: none */
    double sample_interval; /* seconds between samples of device and process; 0: none */
    /* measuring */
    const char *ranks;            /* scale: list of rank counts, NULL: 1 to all */
    int64_t steps, discard_steps; /* scale */
    double target_hours;
    const char *measured; /* plan: folder of a scale or a run whose times count */
    int64_t ranks_each;   /* sweep */
    const char *vary;     /* sweep: "flag=a,b;flag=c,d" */
    const char *allow;    /* compare, reproduce: differences that are accepted */
    int64_t from_step;    /* reproduce: checkpoint to start from; 0: the beginning */
    const char *scaling;  /* report: folder of a scale */
    /* results */
    int64_t shard_bytes; /* merge: largest safetensors file */
    const char *dtype;   /* merge: float32 | bfloat16 | float16 | base */
    int json;
    int show_records; /* plan: line numbers per step and micro-batch */
    int verbose;      /* inspect: every tensor or record */
    int64_t record;   /* inspect a cache: show this record's tokens; -1: none */
    int special;      /* tokenize: default of `special` */
    int man;          /* options: as the man page's section */
    const char *log_level;
    /* everything below is private to config/ */
    struct dry_config_values *values;
};

/* Local. The table, ended by flag NULL. */
const struct dry_option *dry_option_table(void);

/* Local. Defaults. MEMORY. */
enum dry_status dry_config_create(struct dry_config **c);
void dry_config_destroy(struct dry_config *c);
/* Local. Reads a libconfig file over the defaults; a key that the command line gave is checked but not taken.
 * @include is relative to the file's folder. Unknown key: nearest name, file and line; every wrong key is
 * named. USAGE, IO. */
enum dry_status dry_config_file(struct dry_config *c, const char *path);
/* Local. Options of one command from argv[0..argc) over what is there; `--flag value` and `--flag=value`; a
 * BOOL takes an optional =true|false; the last of several wins; no abbreviations; `--` ends the options.
 * Words without -- are given back in positional (room for argc pointers). argv is borrowed for the life of c.
 * USAGE. */
enum dry_status dry_config_arguments(struct dry_config *c, unsigned command, int argc, char **argv,
                                     const char **positional, int *positionals);
/* Local. Sets one option as if on the command line. USAGE, MEMORY. */
enum dry_status dry_config_set(struct dry_config *c, const char *flag, const char *value,
                               enum dry_origin origin);
enum dry_origin dry_config_origin(const struct dry_config *c, const char *flag);
/* Local. Where a value comes from, for messages: "--rank", "run.cfg:12: rank" or "rank (default)". Borrowed
 * from c. */
const char *dry_config_place(const struct dry_config *c, const char *flag);
/* Local. A value as text; NULL: none is given. buffer is used for numbers. */
const char *dry_config_value(const struct dry_config *c, const char *flag, char buffer[32]);
/* Local. The options that the command line gave, of those that `command` takes too, as words "--flag=value"
 * that mean the same there: an array with room for `more` further words, each word in new memory
 * (dry_config_words_free). MEMORY. */
enum dry_status dry_config_words(const struct dry_config *c, unsigned command, int more, char ***words,
                                 int *count);
void dry_config_words_free(char **words, int count);
/* Local. Checks that hold between options: what the command needs, devices and backend, fields. USAGE. */
enum dry_status dry_config_check(const struct dry_config *c, unsigned command);
/* Local. The check that needs the number of ranks: one rank with several --devices is refused with the mpirun
 * line. USAGE. */
enum dry_status dry_config_check_ranks(const struct dry_config *c, unsigned command, int ranks);

/* Local. GPUs named by --devices, a number twice for two ranks on one: how many, 0 when it names none (not
 * given, or "cpu"); list [room] may be NULL. -1: not a list of whole numbers (dry_config_check has refused
 * it). */
int dry_config_devices(const struct dry_config *c, int *list, int room);
/* Local. Walks a MAP's text "key=value,key=value": 1 and the next pair, 0 at the end, -1 when it is no such
 * list. *at starts as the text. A key may hold '=' (the last one counts) and, in brackets of any kind or
 * after a backslash, a comma. */
int dry_map_next(const char **at, const char **key, size_t *key_length, const char **value,
                 size_t *value_length);

/* Local. Object of name -> {value, origin} for run.json; names as in a file; caller decrefs. NULL: no memory.
 */
json_t *dry_config_json(const struct dry_config *c, unsigned command);
/* Local. Under the error just logged: the contract's options whose values differ in two copies of
 * dry_config_json. */
void dry_config_differences(const json_t *then, const json_t *now);
/* Local. Command and every value whose scope is not LOCAL, with its origin, a line each, in new memory: ranks
 * compare it. */
enum dry_status dry_config_text(const struct dry_config *c, char **text);

/* Local. --help of one command, the complete commented sample file, and the man page's option section. */
void dry_config_help(FILE *out, unsigned command);
void dry_config_sample(FILE *out);
void dry_config_man(FILE *out);

/* Local. The known name nearest to `name` (edit distance at most a third of its length), or NULL. */
const char *dry_nearest(const char *name, const char *const *known, size_t count);

#endif
