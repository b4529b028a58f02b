/*
 * The option table against the struct, the help and the sample; the command line, with every kind of wrong
 * value.
 */
#include "config.h"

#include "capture.h"
#include "tap.h"

#include "base/memory.h"
#include "base/status.h"
#include "config/options.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(const struct dry_option *o)
{
    return o->type == DRY_OPT_BOOL ? sizeof(int) : sizeof(int64_t);
}

/* Rows follow the struct without a gap, so that no member lacks a row. */
static void table_covers_struct(void)
{
    size_t at = 0;
    int good = 1;

    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        size_t align = size_of(o);
        at = (at + align - 1) / align * align;
        if (o->offset != at) {
            printf("# %s is at %zu, not at %zu\n", o->flag, o->offset, at);
            good = 0;
        }
        at = o->offset + size_of(o);
    }
    at = (at + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
    tap_ok(good && at == offsetof(struct dry_config, values), "every member has its row, in order");
}

static void rows_are_whole(void)
{
    int good = 1;

    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        size_t n = o->text ? strlen(o->text) : 0;
        int row = n && o->text[n - 1] == '.' && isupper((unsigned char)o->text[0]) && o->argument &&
                  o->group && o->commands && (o->needed & ~o->commands) == 0 &&
                  (o->otherwise || o->example) && (o->type != DRY_OPT_CHOICE || o->choices) &&
                  ((o->type != DRY_OPT_INT && o->type != DRY_OPT_REAL) || o->least < o->most) &&
                  strspn(o->flag, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(o->flag);
        for (const struct dry_option *p = dry_option_table(); p < o; p++)
            row = row && strcmp(p->flag, o->flag) != 0;
        if (!row)
            printf("# row %s\n", o->flag);
        good = good && row;
    }
    tap_ok(good, "every row has a sentence, a group, commands, bounds and a default or an example");
}

/* Text that a printing function writes, in new memory. */
static char *printed(void (*print)(FILE *))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    print(out);
    fclose(out);
    return text;
}

static void widest(const char *text, const char *name)
{
    size_t most = 0;

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strcspn(line, "\n") > most)
            most = strcspn(line, "\n");
    tap_ok(most <= 80, "%s fits 80 columns (%zu)", name, most);
}

static void all_is_documented(void)
{
    char *sample = printed(dry_config_sample), *man = printed(dry_config_man);
    int good = 1;

    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        char key[80], flag[80], page[160];
        size_t n = 0;
        snprintf(key, sizeof key, "\n#%s = ", o->flag);
        for (char *s = key; *s; s++)
            *s = *s == '-' ? '_' : *s;
        snprintf(flag, sizeof flag, "--%s", o->flag);
        for (const char *s = flag; *s && n + 3 < sizeof page; s++) {
            if (*s == '-')
                page[n++] = '\\';
            page[n++] = *s;
        }
        page[n] = '\0';
        if (!strstr(sample, key) || !strstr(man, page)) {
            printf("# %s is not documented\n", o->flag);
            good = 0;
        }
        for (unsigned bit = 1; dry_command_name(bit); bit <<= 1) {
            char *help = NULL;
            size_t size;
            FILE *out = open_memstream(&help, &size);
            char line[160], other[160];
            dry_config_help(out, bit);
            fclose(out);
            snprintf(line, sizeof line, "\n  %s ", flag);
            snprintf(other, sizeof other, "\n  %s[", flag);
            if ((strstr(help, line) || strstr(help, other)) != ((o->commands & bit) != 0)) {
                printf("# %s in the help of %s\n", flag, dry_command_name(bit));
                good = 0;
            }
            free(help);
        }
    }
    tap_ok(good, "every option stands in the sample, in the man page and in the help of its commands only");
    widest(sample, "the sample");
    free(sample);
    free(man);
}

/* The sample, as it is and with its # taken away: both are read; the first changes nothing. */
static void sample_parses(void)
{
    char *sample = printed(dry_config_sample), path[] = "/tmp/drydock-sample-XXXXXX", name[64];
    struct dry_config *c, *plain;
    char *before, *after;
    FILE *out;
    int fd = mkstemp(path);

    snprintf(name, sizeof name, "%s.cfg", path);
    close(fd);
    unlink(path);
    dry_config_create(&c);
    dry_config_create(&plain);
    out = fopen(name, "w");
    fputs(sample, out);
    fclose(out);
    tap_equal(dry_config_file(c, name), DRY_OK, "the sample is read");
    dry_config_text(c, &after);
    dry_config_text(plain, &before);
    tap_text(after, before, "the sample changes nothing");
    dry_free(before);
    dry_free(after);
    for (char *s = strstr(sample, "\n#"); s; s = strstr(s + 1, "\n#"))
        if (islower((unsigned char)s[2]))
            s[1] = ' ';
    out = fopen(name, "w");
    fputs(sample, out);
    fclose(out);
    tap_equal(dry_config_file(c, name), DRY_OK, "the sample without # is read");
    tap_equal(dry_config_check(c, DRY_CMD_FINETUNE), DRY_OK, "and passes the check");
    dry_config_text(c, &after);
    dry_config_text(plain, &before);
    tap_ok(strstr(after, "(default)") == NULL, "it sets every option");
    int good = 1;
    for (const struct dry_option *o = dry_option_table(); o->flag; o++) {
        char want[256], *line;
        if (!o->otherwise || o->scope == DRY_SCOPE_LOCAL)
            continue;
        snprintf(want, sizeof want, "\n%s ", o->flag);
        line = strstr(before, want);
        snprintf(want, sizeof want, "%.*s", (int)strcspn(line, "("), line);
        good = good && strstr(after, want) != NULL;
        if (!strstr(after, want))
            printf("# not so in the sample: %s\n", want);
    }
    tap_ok(good, "and every default in it is the default");
    dry_free(before);
    dry_free(after);
    unlink(name);
    dry_config_destroy(c);
    dry_config_destroy(plain);
    free(sample);
}

/* One command line of finetune or another command; words end with NULL. What was said is in capture_text. */
static enum dry_status line_of(struct dry_config **c, unsigned command, const char *const *words,
                               int *positionals)
{
    static char *argv[32];
    static const char *positional[32];
    int argc = 0, ignored;
    enum dry_status status;

    for (; words[argc]; argc++)
        argv[argc] = (char *)words[argc];
    dry_config_create(c);
    capture_begin();
    status = dry_config_arguments(*c, command, argc, argv, positional, positionals ? positionals : &ignored);
    capture_end();
    return status;
}

static void refuses(unsigned command, const char *const *words, const char *what)
{
    struct dry_config *c;
    enum dry_status status = line_of(&c, command, words, NULL);

    if (!tap_ok(status == DRY_ERR_USAGE && strstr(capture_text, what), "%s is refused: %s", words[0], what))
        printf("# status %s, said: %s# wanted: %s\n", dry_status_name(status), capture_text, what);
    dry_config_destroy(c);
}

#define REFUSES(command, what, ...) refuses(command, (const char *const[]){__VA_ARGS__, NULL}, what)

static void wrong_lines(void)
{
    static const char *const wrong[] = {
        "1.5",   "-1", "0",  "65537", "1e99", "1e2", "nan", "inf",
        "8x",    " 8", "8 ", "0x10",  "+",    "",    "--",  "99999999999999999999999",
        "1_000", "8,0"};
    static const char *const unreal[] = {"nan", "inf", "-inf",  "1e999", "1e-999", "0x1p-3", "1e-4x",
                                         " 1",  "",    "-1e-4", "10.1",  "e5",     "1..2",   "1,5"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char word[64];
        snprintf(word, sizeof word, "--rank=%s", wrong[i]);
        REFUSES(DRY_CMD_FINETUNE, "a whole number from 1 to 65536", word);
    }
    for (size_t i = 0; i < sizeof unreal / sizeof *unreal; i++)
        REFUSES(DRY_CMD_FINETUNE, "a number from 0 to 10", "--learning-rate", unreal[i]);
    REFUSES(DRY_CMD_FINETUNE, "did you mean --rank?", "--rnak", "8");
    REFUSES(DRY_CMD_FINETUNE, "did you mean --learning-rate?", "--learning_rate", "1");
    REFUSES(DRY_CMD_FINETUNE, "did you mean --learning-rate?", "--learning", "1");
    REFUSES(DRY_CMD_FINETUNE, "did you mean --learning-rate?", "--lr=1");
    REFUSES(DRY_CMD_FINETUNE, "did you mean --per-device-batch-size?", "--per_device_train_batch_size", "1");
    REFUSES(DRY_CMD_FINETUNE, "did you mean --seed?", "--see");
    REFUSES(DRY_CMD_FINETUNE, "unknown option --frobnicate; --help", "--frobnicate");
    REFUSES(DRY_CMD_FINETUNE, "two dashes: --rank", "-rank", "8");
    REFUSES(DRY_CMD_FINETUNE, "--rank lacks its value (N)", "--rank");
    REFUSES(DRY_CMD_FINETUNE, "--data lacks its value (FILE): --output follows", "--data", "--output", "x");
    REFUSES(DRY_CMD_FINETUNE, "did you mean cosine?", "--schedule", "cosin");
    REFUSES(DRY_CMD_FINETUNE, "is not one of cosine, linear, constant", "--schedule", "cosine|linear");
    REFUSES(DRY_CMD_FINETUNE, "is not true or false", "--rslora=yes");
    REFUSES(DRY_CMD_FINETUNE, "the value is empty", "--data", "");
    REFUSES(DRY_CMD_FINETUNE, "not valid UTF-8", "--data", "\xff");
    REFUSES(DRY_CMD_FINETUNE, "after a backslash", "--separator", "a\\");
    REFUSES(DRY_CMD_FINETUNE, "after a backslash", "--separator", "\\r");
    REFUSES(DRY_CMD_FINETUNE, "empty place", "--targets", "q_proj,,v_proj");
    REFUSES(DRY_CMD_FINETUNE, "not of the form", "--rank-pattern", "q_proj");
    REFUSES(DRY_CMD_FINETUNE, "not of the form", "--rank-pattern", "q_proj=8,");
    REFUSES(DRY_CMD_FINETUNE, "\"0\" of \"q_proj\" is not a whole number", "--rank-pattern", "q_proj=0");
    REFUSES(DRY_CMD_FINETUNE, "\"1.5\" of \"v\" is not a whole number", "--rank-pattern", "q=8,v=1.5");
    REFUSES(DRY_CMD_EVALUATE,
            "--rank is not an option of evaluate; it belongs to plan, finetune, scale and sweep", "--rank",
            "8");
    REFUSES(DRY_CMD_PLAN, "--dtype is not an option of plan; it belongs to merge", "--dtype", "base");
}

static void right_lines(void)
{
    const char *const words[] = {"run.cfg",
                                 "--rank",
                                 "8",
                                 "--alpha=3.5",
                                 "--rslora",
                                 "--rank-pattern",
                                 "a{1,2}[,=]\\,b=4,q=5",
                                 "--separator",
                                 "\\t\\n\\\\",
                                 "--warmup-steps",
                                 "-1",
                                 "--rank",
                                 "9",
                                 "--seed",
                                 "9007199254740992",
                                 "--learning-rate",
                                 "1e-4",
                                 "--data=--x",
                                 "--",
                                 "--rank",
                                 NULL};
    const char *at, *key, *value;
    size_t key_length, value_length;
    struct dry_config *c;
    int positionals = 0;

    tap_equal(line_of(&c, DRY_CMD_FINETUNE, words, &positionals), DRY_OK, "a long command line is read");
    tap_equal(positionals, 2, "positional words are given back, also after --");
    tap_equal(c->rank, 9, "the last of several wins");
    tap_equal(c->rslora, 1, "a switch");
    tap_equal(c->seed, 9007199254740992, "a large seed");
    tap_ok(c->learning_rate == 1e-4 && c->alpha == 3.5, "real values");
    tap_text(c->separator, "\t\n\\", "escapes");
    tap_text(c->data, "--x", "a value that begins with dashes");
    tap_equal(dry_config_origin(c, "rank"), DRY_ORIGIN_ARGUMENT, "origin of what was given");
    tap_equal(dry_config_origin(c, "effective-batch"), DRY_ORIGIN_DEFAULT, "origin of what was not");
    tap_text(dry_config_place(c, "rank"), "--rank", "place of what was given");
    tap_text(dry_config_place(c, "effective-batch"), "effective_batch (default)", "place of what was not");
    at = c->rank_pattern;
    tap_ok(dry_map_next(&at, &key, &key_length, &value, &value_length) == 1 && key_length == 13 &&
               value_length == 1 && *value == '4' &&
               dry_map_next(&at, &key, &key_length, &value, &value_length) == 1 && key_length == 1 &&
               dry_map_next(&at, &key, &key_length, &value, &value_length) == 0,
           "a map's keys may hold commas and equal signs");
    dry_config_destroy(c);
}

static void defaults(void)
{
    struct dry_config *c;

    dry_config_create(&c);
    tap_ok(c->rank == 16 && c->alpha == 32 && c->learning_rate == 2e-4 && c->max_seq_length == 1024 &&
               c->epochs == 1 && c->seed == 42 && c->effective_batch == 32 && c->checkpoint_interval == 500 &&
               c->max_grad_norm == 1 && c->warmup_ratio == 0.03 && c->warmup_steps == -1 &&
               c->keep_checkpoints == 3,
           "default numbers");
    tap_ok(strcmp(c->targets, "all") == 0 && strcmp(c->schedule, "cosine") == 0 &&
               strcmp(c->separator, "\n") == 0 && strcmp(c->prompt_field, "prompt") == 0 &&
               strcmp(c->completion_field, "completion") == 0 && strcmp(c->resume, "auto") == 0 &&
               strcmp(c->backend, "auto") == 0 && !c->devices && !c->base,
           "default texts");
    dry_config_destroy(c);
}

static void check_refuses(unsigned command, const char *const *words, const char *what)
{
    struct dry_config *c;
    enum dry_status status = line_of(&c, command, words, NULL);

    tap_equal(status, DRY_OK, "a command line that only the check refuses");
    capture_begin();
    status = dry_config_check(c, command);
    if (status == DRY_OK)
        status = dry_config_check_ranks(c, command, 1);
    capture_end();
    if (!tap_ok(status == DRY_ERR_USAGE && strstr(capture_text, what), "check: %s", what))
        printf("# status %s, said: %s\n", dry_status_name(status), capture_text);
    dry_config_destroy(c);
}

#define GIVEN "--base", "b", "--data", "d", "--output", "o"
#define CHECK(command, what, ...) check_refuses(command, (const char *const[]){__VA_ARGS__, NULL}, what)

static void checks(void)
{
    CHECK(DRY_CMD_FINETUNE, "needs --base DIR|NAME, --output DIR", "--data", "d");
    CHECK(DRY_CMD_PREPARE, "--cache DIR or --output DIR", "--base", "b", "--data", "d");
    CHECK(DRY_CMD_FINETUNE, "not a list of GPU numbers", GIVEN, "--devices", "0, 1");
    CHECK(DRY_CMD_FINETUNE, "not a list of GPU numbers", GIVEN, "--devices", "cuda:0");
    CHECK(DRY_CMD_FINETUNE, "not a list of GPU numbers", GIVEN, "--devices", "-1");
    CHECK(DRY_CMD_FINETUNE, "--communicator is nccl, which adds up in GPU memory", GIVEN, "--backend", "cpu",
          "--communicator", "nccl");
    CHECK(DRY_CMD_FINETUNE, "--devices is cpu and --backend is cuda", GIVEN, "--devices", "cpu", "--backend",
          "cuda");
    CHECK(DRY_CMD_FINETUNE, "name the same field", GIVEN, "--prompt-field", "completion");
    CHECK(DRY_CMD_FINETUNE,
          "    mpirun -np 3 drydock finetune --base b --data d --output o --devices 0,1,2\n", GIVEN,
          "--devices", "0,1,2");
    CHECK(DRY_CMD_FINETUNE,
          "    mpirun -np 2 drydock finetune --base b --data 'a b' --output $'o\\'\\x0a' --devices=0,1\n",
          "--base", "b", "--data", "a b", "--output", "o'\n", "--devices=0,1");
}

static void copies(void)
{
    const char *const words[] = {GIVEN, "--rank", "8", NULL};
    struct dry_config *c;
    json_t *all;

    line_of(&c, DRY_CMD_FINETUNE, words, NULL);
    all = dry_config_json(c, DRY_CMD_FINETUNE);
    tap_ok(json_integer_value(json_object_get(json_object_get(all, "rank"), "value")) == 8,
           "JSON has the value");
    tap_text(json_string_value(json_object_get(json_object_get(all, "rank"), "origin")), "argument",
             "and its origin");
    tap_ok(json_real_value(json_object_get(json_object_get(all, "learning_rate"), "value")) == 2e-4,
           "real values");
    tap_ok(json_is_null(json_object_get(json_object_get(all, "adapter_pattern"), "value")) == 0 &&
               json_is_null(json_object_get(json_object_get(all, "rank_pattern"), "value")),
           "null for what is not given");
    tap_ok(!json_object_get(all, "dtype"), "only the command's options");
    json_decref(all);
    dry_config_destroy(c);
}

static void names(void)
{
    static const char *const known[] = {"rank", "alpha", "learning-rate"};

    tap_text(dry_nearest("rnak", known, 3), "rank", "two swapped letters are one edit");
    tap_text(dry_nearest("learning-rat", known, 3), "learning-rate", "one letter lacks");
    tap_ok(!dry_nearest("rk", known, 3), "too far for a short word");
    tap_ok(!dry_nearest("", known, 3), "nothing is near to nothing");
}

int main(void)
{
    table_covers_struct();
    rows_are_whole();
    all_is_documented();
    sample_parses();
    defaults();
    right_lines();
    wrong_lines();
    checks();
    copies();
    names();
    return tap_done();
}
