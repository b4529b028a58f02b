/*
 * The table as text: --help of a command, the sample file, the man page's section.
 * Owns nothing.  Must not know the values of a run.
 */
#include "config.h"

#include "config/options.h"

#include "config/values.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80, TEXT_COLUMN = 34 };

/* Text broken at blanks; lines after the first begin with `indent` blanks, the first is at `column`. */
static void wrap(FILE *out, int column, int indent, const char *text)
{
    int fresh = 1;

    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!fresh && column + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            fresh = 1;
        }
        fprintf(out, "%s%.*s", fresh ? "" : " ", n, text);
        column += n + !fresh;
        fresh = 0;
        text += n;
        text += strspn(text, " ");
    }
    fprintf(out, "\n");
}

/* Text as it is written in C, in libconfig and behind --separator. */
static void escape(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; *text && n + 3 < size; text++) {
        const char *found = strchr("\n\t\\\"", *text);
        if (found) {
            out[n++] = '\\';
            out[n++] = "nt\\\""[found - "\n\t\\\""];
        } else {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
}

/* "flag ARGUMENT" as typed. */
static void usage_of(const struct dry_option *o, char *text, size_t size)
{
    if (o->type == DRY_OPT_BOOL)
        snprintf(text, size, "--%s[=false]", o->flag);
    else
        snprintf(text, size, "--%s %s", o->flag, o->argument);
}

/* The sentence, and the default or the need. */
static void sentence_of(const struct dry_option *o, unsigned command, char *text, size_t size)
{
    char shown[64];
    int n = snprintf(text, size, "%s", o->text);

    if (o->needed & command)
        snprintf(text + n, size - (size_t)n, " (required)");
    else if (o->otherwise) {
        escape(o->otherwise, shown, sizeof shown);
        snprintf(text + n, size - (size_t)n, " [%s]", shown);
    }
}

void dry_config_help(FILE *out, unsigned command)
{
    const char *group = NULL;

    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        char left[128], text[512];
        if (!(o->commands & command))
            continue;
        if (!group || strcmp(group, o->group) != 0)
            fprintf(out, "%s%s:\n", group ? "\n" : "", o->group);
        group = o->group;
        usage_of(o, left, sizeof left);
        sentence_of(o, command, text, sizeof text);
        if (strlen(left) + 4 > TEXT_COLUMN)
            fprintf(out, "  %s\n%*s", left, TEXT_COLUMN, "");
        else
            fprintf(out, "  %-*s", TEXT_COLUMN - 2, left);
        wrap(out, TEXT_COLUMN, TEXT_COLUMN, text);
    }
}

/* The value that a sample line shows, as libconfig writes it. */
static void sample_value(FILE *out, const struct dry_option *o)
{
    char shown[256];

    escape(o->otherwise ? o->otherwise : o->example, shown, sizeof shown);
    if (o->type == DRY_OPT_MAP)
        fprintf(out, "{ %s }", o->example);
    else if (o->type == DRY_OPT_TEXT || o->type == DRY_OPT_CHOICE)
        fprintf(out, "\"%s\"", shown);
    else
        fprintf(out, "%s%s", shown, o->type == DRY_OPT_INT && strtoll(shown, NULL, 10) > INT_MAX ? "L" : "");
}

/* A comment of one option; lines after the first are comments too. */
static void comment(FILE *out, const char *text)
{
    while (*text) {
        size_t n = strlen(text), room = WIDTH - 2;
        if (n > room)
            for (n = room; n > 0 && text[n] != ' '; n--)
                ;
        fprintf(out, "# %.*s\n", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

/* Which values are allowed and who takes the option, as a sentence. */
static void facts_of(const struct dry_option *o, char *text, size_t size)
{
    struct dry_buffer b = {0};

    if (o->type != DRY_OPT_TEXT &&
        dry_buffer_printf(&b, "%s", o->type == DRY_OPT_MAP ? "Values: " : "Value: ") == 0 &&
        dry_bounds_text(o, &b) == 0)
        dry_buffer_printf(&b, "; ");
    dry_buffer_printf(&b, b.len ? "for" : "For");
    for (unsigned bit = 1; dry_command_name(bit); bit <<= 1)
        if (o->commands & bit)
            dry_buffer_printf(&b, "%s %s", o->commands & (bit - 1) ? "," : "", dry_command_name(bit));
    if (o->scope == DRY_SCOPE_CONTRACT)
        dry_buffer_printf(&b, "; part of the contract");
    snprintf(text, size, "%s.", b.data ? b.data : "");
    dry_buffer_reset(&b);
}

void dry_config_sample(FILE *out)
{
    const char *group = NULL;

    fprintf(out, "# Every option of drydock, as a file for any command: drydock COMMAND FILE.cfg\n"
                 "# A line without # sets an option.  What stands behind # is the default, or an\n"
                 "# example where there is none.  The command line overrides a file.  What is part\n"
                 "# of the contract cannot change in a run's folder.\n"
                 "# @include \"other.cfg\" takes over another file, relative to this one's folder.\n");
    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        char key[DRY_KEY_SIZE], facts[512];
        if (!group || strcmp(group, o->group) != 0)
            fprintf(out, "\n# ---- %s ----\n", o->group);
        group = o->group;
        dry_option_key(o, key);
        facts_of(o, facts, sizeof facts);
        fprintf(out, "\n");
        comment(out, o->text);
        comment(out, facts);
        fprintf(out, "#%s = ", key);
        sample_value(out, o);
        fprintf(out, ";\n");
    }
}

/* Text for troff: no line is a request, no minus becomes a hyphen. */
static void troff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fprintf(out, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            fprintf(out, "\\e");
        else if (*text == '-')
            fprintf(out, "\\-");
        else
            fputc(*text, out);
    }
}

void dry_config_man(FILE *out)
{
    const char *group = NULL;

    fprintf(out, ".SH OPTIONS\nIn a file an option's key has _ for -.\n");
    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        char left[128], text[512], facts[512];
        if (!group || strcmp(group, o->group) != 0)
            fprintf(out, ".SS %s\n", o->group);
        group = o->group;
        usage_of(o, left, sizeof left);
        sentence_of(o, 0, text, sizeof text);
        facts_of(o, facts, sizeof facts);
        fprintf(out, ".TP\n.B ");
        troff(out, left);
        fprintf(out, "\n");
        troff(out, text);
        fprintf(out, "\n");
        troff(out, facts);
        fprintf(out, "\n");
    }
}
