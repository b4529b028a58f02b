/*
 * Values back to the words of a command line.
 * Owns nothing that outlives a call but the words that it hands out.
 * Must not know what the options do.
 */
#include "config.h"

#include "config/options.h"

#include "base/memory.h"
#include "config/values.h"

const char *dry_config_value(const struct dry_config *c, const char *flag, char buffer[32])
{
    int i = dry_option_find(flag);

    return i < 0 ? NULL : dry_values_text(c, i, buffer);
}

/* "--flag=value" in new memory, with what the command line would undo spelled out again; NULL: no memory. */
static char *word_of(const struct dry_option *o, const char *value)
{
    struct dry_buffer b = {0};
    int failed = dry_buffer_printf(&b, "--%s=", o->flag);

    for (; *value && !failed; value++) {
        const char *spelled = !(o->notes & DRY_NOTE_ESCAPES) ? NULL
                              : *value == '\n'               ? "\\n"
                              : *value == '\t'               ? "\\t"
                              : *value == '\\'               ? "\\\\"
                                                             : NULL;
        failed = spelled ? dry_buffer_printf(&b, "%s", spelled) : dry_buffer_append(&b, value, 1);
    }
    if (failed) {
        dry_buffer_reset(&b);
        return NULL;
    }
    return b.data;
}

enum dry_status dry_config_words(const struct dry_config *c, unsigned command, int more, char ***words,
                                 int *count)
{
    const struct dry_option *table = dry_option_table();
    char **word = dry_alloc((size_t)dry_options_count() + (size_t)more, sizeof *word, "a command line");
    int n = 0;

    if (!word)
        return DRY_ERR_MEMORY;
    for (int i = 0; table[i].flag; i++) {
        char buffer[32];
        const char *value = dry_values_text(c, i, buffer);

        if (!(table[i].commands & command) || c->values->value[i].origin != DRY_ORIGIN_ARGUMENT || !value)
            continue;
        if (!(word[n] = word_of(&table[i], value))) {
            dry_config_words_free(word, n);
            return DRY_ERR_MEMORY;
        }
        n++;
    }
    *words = word;
    *count = n;
    return DRY_OK;
}

void dry_config_words_free(char **words, int count)
{
    for (int i = 0; words && i < count; i++)
        dry_free(words[i]);
    dry_free(words);
}
