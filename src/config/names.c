/*
 * Names: keys, flags, and what a wrong one may have meant.
 * Owns the list of words that other trainers use.  Must not know values.
 */
#include "config.h"

#include "config/options.h"
#include "config/values.h"

#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b; LONGEST + 1 for texts that are too
 * long. */
static int distance(const char *a, const char *b)
{
    int row[3][LONGEST + 2];
    size_t n = strlen(a), m = strlen(b);

    if (n > LONGEST || m > LONGEST)
        return LONGEST + 1;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int cost = a[i - 1] != b[j - 1];
            now[j] = least(least(before[j] + 1, now[j - 1] + 1), before[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *dry_nearest(const char *name, const char *const *known, size_t count)
{
    const char *best = NULL;
    int allowed = (int)(strlen(name) / 3), found = allowed + 1;

    for (size_t i = 0; i < count; i++) {
        int d = distance(name, known[i]);
        if (d < found) {
            found = d;
            best = known[i];
        }
    }
    return best;
}

int dry_options_count(void)
{
    int n = 0;

    for (const struct dry_option *o = dry_option_table(); o->flag; o++)
        n++;
    return n;
}

int dry_option_find(const char *flag)
{
    const struct dry_option *table = dry_option_table();

    for (int i = 0; table[i].flag; i++)
        if (strcmp(table[i].flag, flag) == 0)
            return i;
    return -1;
}

/* At most DRY_KEY_SIZE - 1 bytes, `from` replaced by `to`. */
static void spell(const char *name, char from, char to, char out[DRY_KEY_SIZE])
{
    size_t n = 0;

    for (; name[n] && n < DRY_KEY_SIZE - 1; n++)
        out[n] = name[n] == from ? to : name[n];
    out[n] = '\0';
}

void dry_option_key(const struct dry_option *o, char key[DRY_KEY_SIZE])
{
    spell(o->flag, '-', '_', key);
}

const char *dry_option_suggest(const char *name)
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {
        {"model", "base"},
        {"base-model", "base"},
        {"model-name", "base"},
        {"model-name-or-path", "base"},
        {"dataset", "data"},
        {"train-file", "data"},
        {"train-data", "data"},
        {"eval-data", "validation-data"},
        {"validation-file", "validation-data"},
        {"output-dir", "output"},
        {"adapter-path", "adapter"},
        {"lora-r", "rank"},
        {"lora-rank", "rank"},
        {"lora-alpha", "alpha"},
        {"dropout", "lora-dropout"},
        {"use-rslora", "rslora"},
        {"target-modules", "targets"},
        {"lora-target-modules", "targets"},
        {"lr", "learning-rate"},
        {"lr-scheduler", "schedule"},
        {"lr-scheduler-type", "schedule"},
        {"num-train-epochs", "epochs"},
        {"num-epochs", "epochs"},
        {"batch-size", "effective-batch"},
        {"global-batch-size", "effective-batch"},
        {"per-device-train-batch-size", "per-device-batch-size"},
        {"micro-batch-size", "per-device-batch-size"},
        {"save-steps", "checkpoint-interval"},
        {"save-total-limit", "keep-checkpoints"},
        {"eval-steps", "validation-interval"},
        {"logging-steps", "log-interval"},
        {"resume-from-checkpoint", "resume"},
        {"max-length", "max-seq-length"},
        {"cutoff-len", "max-seq-length"},
        {"sequence-length", "max-seq-length"},
        {"device", "devices"},
        {"gpus", "devices"},
        {"clip", "max-grad-norm"},
        {"clip-grad-norm", "max-grad-norm"},
        {"response-field", "completion-field"},
    };
    const struct dry_option *table = dry_option_table();
    const char *flags[256], *begins = NULL;
    char dashed[DRY_KEY_SIZE];
    size_t count = 0;
    int several = 0;

    spell(name, '_', '-', dashed);
    for (; table[count].flag && count < sizeof flags / sizeof *flags; count++) {
        flags[count] = table[count].flag;
        if (strcmp(flags[count], dashed) == 0)
            return flags[count];
        if (dashed[0] && dashed[1] && strncmp(flags[count], dashed, strlen(dashed)) == 0) {
            several = begins != NULL;
            begins = flags[count];
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].theirs, dashed) == 0)
            return words[i].ours;
    if (begins && !several)
        return begins;
    return dry_nearest(dashed, flags, count);
}
