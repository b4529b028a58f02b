/*
 * The commands: names, sentences, and the help that lists them.
 * Owns the table, which is constant.  Must not know how a command works.
 */
#include "config.h"

#include "command/command.h"

#include "base/build.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static const struct dry_command table[] = {
    {.name = "prepare",
     .bit = DRY_CMD_PREPARE,
     .text = "tokenise the data into a cache and report what is in it",
     .usage = "[mpirun -np N] drydock prepare [FILE.cfg] [options]",
     .run = dry_command_prepare},
    {.name = "lengths",
     .bit = DRY_CMD_LENGTHS,
     .text = "report token lengths and what padding would cost",
     .usage = "[mpirun -np N] drydock lengths [FILE.cfg] [options]",
     .run = dry_command_lengths},
    {.name = "plan",
     .bit = DRY_CMD_PLAN,
     .text = "show contract, steps, checkpoints and memory; train nothing",
     .usage = "[mpirun -np N] drydock plan [FILE.cfg] [options]",
     .run = dry_command_plan},
    {.name = "finetune",
     .bit = DRY_CMD_FINETUNE,
     .text = "train a LoRA adapter",
     .usage = "[mpirun -np N] drydock finetune [FILE.cfg] [options]",
     .run = dry_command_finetune},
    {.name = "evaluate",
     .bit = DRY_CMD_EVALUATE,
     .text = "measure loss and perplexity of base and adapter on held-out data",
     .usage = "[mpirun -np N] drydock evaluate [FILE.cfg] [options]",
     .run = dry_command_evaluate},
    {.name = "scale",
     .bit = DRY_CMD_SCALE,
     .text = "measure 1, 2, ... ranks on the same records, and say how many are worth it",
     .usage = "[mpirun -np N] drydock scale [FILE.cfg] [options]",
     .run = dry_command_scale},
    {.name = "sweep",
     .bit = DRY_CMD_SWEEP,
     .text = "train several configurations side by side, each on its own ranks",
     .usage = "[mpirun -np N] drydock sweep [FILE.cfg...] [options]",
     .run = dry_command_sweep,
     .paths = 1},
    {.name = "compare",
     .bit = DRY_CMD_COMPARE,
     .text = "show finished runs side by side, and refuse what cannot be compared",
     .usage = "drydock compare [options] RUN...",
     .run = dry_command_compare,
     .alone = 1,
     .paths = 1},
    {.name = "reproduce",
     .bit = DRY_CMD_REPRODUCE,
     .text = "run a finished run again from its manifest and compare bits",
     .usage = "[mpirun -np N] drydock reproduce [options] RUN",
     .run = dry_command_reproduce,
     .paths = 1},
    {.name = "report",
     .bit = DRY_CMD_REPORT,
     .text = "write a run as one HTML page with plots, as text, and for TensorBoard",
     .usage = "drydock report [options] RUN...",
     .run = dry_command_report,
     .alone = 1,
     .paths = 1},
    {.name = "merge",
     .bit = DRY_CMD_MERGE,
     .text = "write the base with the adapter added to it",
     .usage = "drydock merge [FILE.cfg] [options]",
     .run = dry_command_merge},
    {.name = "tokenize",
     .bit = DRY_CMD_TOKENIZE,
     .text = "show the tokens of texts, to check a tokenizer",
     .usage = "drydock tokenize [FILE.cfg] [options] <TEXTS.jsonl",
     .run = dry_command_tokenize},
    {.name = "inspect",
     .bit = DRY_CMD_INSPECT,
     .text = "show what is inside a model, cache, checkpoint, adapter or run",
     .usage = "drydock inspect [options] PATH...",
     .run = dry_command_inspect,
     .alone = 1,
     .paths = 1},
    {.name = "options",
     .bit = DRY_CMD_OPTIONS,
     .text = "print every option as a commented sample file",
     .usage = "drydock options [options] >FILE.cfg",
     .run = dry_command_options,
     .alone = 1},
    {.name = NULL},
};

const struct dry_command *dry_command_table(void)
{
    return table;
}

const struct dry_command *dry_command_find(const char *name)
{
    const char *known[sizeof table / sizeof *table], *meant;
    size_t count = 0;

    for (; table[count].name; count++) {
        if (strcmp(table[count].name, name) == 0)
            return &table[count];
        known[count] = table[count].name;
    }
    meant = dry_nearest(name, known, count);
    if (name[0] == '-')
        dry_error("a command comes before options such as %s; drydock --help lists the commands", name);
    else if (meant)
        dry_error("there is no command %s; did you mean %s?", name, meant);
    else
        dry_error("there is no command %s; drydock --help lists the commands", name);
    return NULL;
}

void dry_command_help(FILE *out, const struct dry_command *command)
{
    if (command) {
        fprintf(out, "usage: %s\n\n%s: %s.\n\n", command->usage, command->name, command->text);
        dry_config_help(out, command->bit);
        if (strstr(command->usage, "[FILE.cfg"))
            fprintf(out, "\nFILE.cfg sets any of these by their names with _ for -; the command line\n"
                         "overrides it.  drydock options prints such a file.\n");
        return;
    }
    fprintf(out, "usage: [mpirun -np N] drydock COMMAND [FILE.cfg] [--option value]...\n\n"
                 "LoRA fine-tuning of Llama- and Qwen-family models on any number of MPI ranks,\n"
                 "one rank a device, with the same result on each number.\n\nCommands:\n");
    for (const struct dry_command *c = table; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->text);
    fprintf(out, "\ndrydock COMMAND --help explains a command's options; drydock --version -v tells\n"
                 "what this program was built from.\n\n"
                 "Exit status: 0 done; 1 failed; 2 wrong usage or configuration; 75 stopped on\n"
                 "request with a checkpoint written, to be started again.\n");
}

void dry_command_version(FILE *out, int verbose)
{
    const char *revision = dry_build_revision();

    fprintf(out, "drydock %s%s%s%s\n", dry_build_version(), *revision ? " (" : "", revision,
            *revision ? ")" : "");
    if (verbose)
        fprintf(out, "%s\n", dry_build_summary());
}
