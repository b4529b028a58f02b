/*
 * The command line: words to options, by getopt_long on an array made from the table.
 * Owns that array while it reads.  Must not know what values mean, nor the commands' own words.
 */
#include "config.h"

#include "config/options.h"

#include "base/log.h"
#include "config/values.h"

#include <getopt.h>
#include <string.h>

/* "plan and finetune" of a set of commands. */
static int append_commands(struct dry_buffer *b, unsigned commands)
{
    for (unsigned bit = 1; dry_command_name(bit); bit <<= 1) {
        unsigned later = commands & ~(bit | (bit - 1));
        if (!(commands & bit))
            continue;
        if (dry_buffer_printf(b, "%s%s", dry_command_name(bit),
                              !later                ? ""
                              : later & (later - 1) ? ", "
                                                    : " and ") != 0)
            return -1;
    }
    return 0;
}

static enum dry_status refuse_unknown(const char *word)
{
    char name[DRY_KEY_SIZE];
    size_t dashes = strspn(word, "-"), n = strcspn(word + dashes, "=");
    const char *meant;

    snprintf(name, sizeof name, "%.*s", (int)n, word + dashes);
    meant = dry_option_suggest(name);
    if (dashes == 1 && dry_option_find(name) >= 0)
        dry_error("unknown option -%s; options begin with two dashes: --%s", name, name);
    else if (meant)
        dry_error("unknown option %.*s; did you mean --%s?", (int)(dashes + n), word, meant);
    else
        dry_error("unknown option %.*s; --help lists the options of a command", (int)(dashes + n), word);
    return DRY_ERR_USAGE;
}

static enum dry_status refuse_foreign(const struct dry_option *o, unsigned command)
{
    struct dry_buffer b = {0};
    enum dry_status status = DRY_ERR_MEMORY;

    if (append_commands(&b, o->commands) == 0) {
        dry_error("--%s is not an option of %s; it belongs to %s", o->flag, dry_command_name(command),
                  b.data);
        status = DRY_ERR_USAGE;
    }
    dry_buffer_reset(&b);
    return status;
}

/* One option as getopt found it: `word` is what was typed, `value` its value or NULL. */
static enum dry_status take(struct dry_config *c, unsigned command, int i, const char *word,
                            const char *value)
{
    const struct dry_option *o = &dry_option_table()[i];
    size_t typed = strcspn(word + 2, "=");
    char place[DRY_KEY_SIZE + 2];

    if (typed !=
        strlen(o->flag)) /* getopt completes abbreviations; a later option would change their meaning */
        return refuse_unknown(word);
    if (!(o->commands & command))
        return refuse_foreign(o, command);
    snprintf(place, sizeof place, "--%s", o->flag);
    if (value && !word[2 + typed] && strncmp(value, "--", 2) == 0) {
        dry_error("%s lacks its value (%s): %s follows; a value that begins so is written %s=%s", place,
                  o->argument, value, place, value);
        return DRY_ERR_USAGE;
    }
    return dry_values_set(c, i, value ? value : "true", DRY_ORIGIN_ARGUMENT, place);
}

static enum dry_status refuse_valueless(const struct dry_option *o, const char *word)
{
    if (strcmp(word + 2, o->flag) != 0)
        return refuse_unknown(word);
    dry_error("%s lacks its value (%s)", word, o->argument);
    return DRY_ERR_USAGE;
}

static struct option *long_options(void)
{
    const struct dry_option *table = dry_option_table();
    int count = dry_options_count();
    struct option *all = dry_alloc((size_t)count + 1, sizeof *all, "option names");

    for (int i = 0; all && i < count; i++)
        all[i] =
            (struct option){.name = table[i].flag,
                            .has_arg = table[i].type == DRY_OPT_BOOL ? optional_argument : required_argument,
                            .val = 256 + i};
    return all;
}

enum dry_status dry_config_arguments(struct dry_config *c, unsigned command, int argc, char **argv,
                                     const char **positional, int *positionals)
{
    struct option *all = long_options();
    char **word = dry_alloc((size_t)argc + 2, sizeof *word, "command line");
    enum dry_status status = DRY_OK;
    int count = 0;

    if (!all || !word) {
        status = DRY_ERR_MEMORY;
        goto out;
    }
    word[0] = (char *)"drydock";
    for (int i = 0; i < argc; i++)
        word[i + 1] = argv[i];
    c->values->word = argv;
    c->values->words = argc;
    c->values->command = command;
    optind = 0; /* glibc: start anew */
    opterr = 0;
    while (status == DRY_OK) {
        int at = optind ? optind : 1;
        int found =
            getopt_long(argc + 1, word, "-:", all, NULL); /* '-': in order; ':': tells a missing value */
        if (found == -1)
            break;
        if (found == 1)
            positional[count++] = optarg;
        else if (found == ':') {
            status = refuse_valueless(&dry_option_table()[optopt - 256], word[at]);
        } else if (found == '?')
            status = refuse_unknown(word[at]);
        else
            status = take(c, command, found - 256, word[at], optarg);
    }
    for (int i = optind; status == DRY_OK && i < argc + 1; i++)
        positional[count++] = word[i];
    if (status == DRY_OK)
        *positionals = count;
out:
    dry_free(word);
    dry_free(all);
    return status;
}
