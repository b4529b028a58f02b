/*
 * The configurations of a sweep: a file each, or one for each combination of --vary, or both.
 * Owns their texts and options until released.
 * Must not know how a configuration is trained.
 */
#include "config.h"

#include "command/sweep.h"

#include "command/setup.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MOST = 200 };

/* What may stand in a folder's name without a shell minding. */
static int plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("._=+-", c);
}

/* "demo_learning-rate=1e-4_rank=8" */
static enum dry_status make_name(struct dry_sweep_run *r, const struct dry_sweep_grid *g, int64_t point)
{
    struct dry_buffer b = {0};
    const char *base = r->file ? dry_path_base(r->file) : "";
    int failed = r->file ? dry_buffer_append(&b, base, strlen(base) - strlen(".cfg")) : 0;

    for (int a = 0; a < g->axes && !failed; a++)
        failed = dry_buffer_printf(&b, "%s%s=%s", b.len ? "_" : "", g->axis[a].flag,
                                   dry_sweep_grid_value(g, point, a));
    if (failed)
        goto out;
    for (size_t i = 0; i < b.len; i++)
        if (!plain(b.data[i]) || (i == 0 && b.data[i] == '.'))
            b.data[i] = '-';
    r->name = b.data;
    if (b.len > NAME_MOST) {
        dry_error(
            "%s: too long for the name of a folder in --output; give shorter values, or a file of options "
            "for each configuration",
            r->name);
        return DRY_ERR_USAGE;
    }
    if (strcmp(r->name, "cache") == 0 || strcmp(r->name, "sweep.json") == 0) {
        dry_error("%s: no configuration can have this name, the sweep itself writes %s in --output; give its "
                  "file another name",
                  r->name, r->name);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
out:
    dry_buffer_reset(&b);
    return DRY_ERR_MEMORY;
}

static enum dry_status add_word(struct dry_sweep_run *r, char *word)
{
    if (!word)
        return DRY_ERR_MEMORY;
    r->word[r->words++] = word;
    return DRY_OK;
}

/* The command line of a plain finetune that does the same; the file's cache stays where it names one. */
static enum dry_status make_words(const struct dry_sweep *s, struct dry_sweep_run *r,
                                  const struct dry_sweep_grid *g, int64_t point)
{
    char **given = NULL;
    int n = 0;
    enum dry_status status = dry_config_words(s->call->config, DRY_CMD_FINETUNE, 0, &given, &n);

    if (!status && !(r->word = dry_alloc((size_t)n + (size_t)g->axes + 6, sizeof *r->word, "a command line")))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = add_word(r, dry_strdup(s->call->argv[0]));
    if (!status)
        status = add_word(r, dry_strdup("finetune"));
    if (!status && r->file)
        status = add_word(r, dry_strdup(r->file));
    for (int i = 0; i < n && !status; i++)
        if (strncmp(given[i], "--output=", strlen("--output=")) != 0)
            status = add_word(r, dry_strdup(given[i]));
    for (int a = 0; a < g->axes && !status; a++)
        status = add_word(r, dry_format("--%s=%s", g->axis[a].flag, dry_sweep_grid_value(g, point, a)));
    if (!status)
        status = add_word(r, dry_format("--output=%s", r->output));
    dry_config_words_free(given, n);
    return status;
}

static enum dry_status read_words(struct dry_sweep_run *r)
{
    int rest = 0;

    return dry_config_arguments(r->config, DRY_CMD_FINETUNE, r->words - 2, r->word + 2, r->rest, &rest);
}

/* Options that are the sweep's own do nothing in a configuration's file. */
static enum dry_status refuse_own(const struct dry_config *c)
{
    static const char *const own[] = {"vary", "ranks-each"};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (dry_config_origin(c, own[i]) == DRY_ORIGIN_FILE) {
            dry_error("%s: is the whole sweep's and belongs on the command line",
                      dry_config_place(c, own[i]));
            return DRY_ERR_USAGE;
        }
    return DRY_OK;
}

/* Reads one configuration, and the cache that all share where it names none. */
static enum dry_status read_one(const struct dry_sweep *s, struct dry_sweep_run *r)
{
    enum dry_status status = dry_config_create(&r->config);

    if (!status && !(r->rest = dry_alloc((size_t)r->words, sizeof *r->rest, "a command line")))
        status = DRY_ERR_MEMORY;
    if (!status)
        status = read_words(r);
    if (!status && r->file)
        status = dry_config_file(r->config, r->file);
    if (!status)
        status = refuse_own(r->config);
    if (!status && dry_config_origin(r->config, "cache") == DRY_ORIGIN_DEFAULT) {
        status = add_word(r, dry_format("--cache=%s/cache", s->call->config->output));
        if (!status)
            status = read_words(r);
    }
    if (!status)
        status = dry_config_check(r->config, DRY_CMD_FINETUNE);
    if (!status)
        status = dry_config_check_ranks(r->config, DRY_CMD_FINETUNE, dry_comm_size(s->call->comm));
    return status;
}

static enum dry_status check_file(const char *path)
{
    size_t n = strlen(path);

    if (n < 5 || strcmp(path + n - 4, ".cfg") != 0) {
        dry_error("%s: a word without -- names a file of options, which ends in .cfg", path);
        return DRY_ERR_USAGE;
    }
    if (!dry_file_exists(path)) {
        dry_error("%s: there is no such file of options", path);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

/* Files times points of the grid. Goes on past a wrong one, so that all are named. */
static enum dry_status read_all(struct dry_sweep *s, const struct dry_sweep_grid *g)
{
    const struct dry_call *call = s->call;
    int files = call->positionals > 0 ? call->positionals : 1;
    enum dry_status worst = DRY_OK;

    s->run = dry_alloc((size_t)files * (size_t)g->points, sizeof *s->run, "the configurations");
    if (!s->run)
        return DRY_ERR_MEMORY;
    for (int f = 0; f < files; f++) {
        const char *file = call->positionals > 0 ? call->positional[f] : NULL;
        enum dry_status status = file ? check_file(file) : DRY_OK;

        for (int64_t p = 0; p < g->points && !status; p++) {
            struct dry_sweep_run *r = &s->run[s->runs++];
            enum dry_status one;

            r->file = file;
            one = make_name(r, g, p);
            if (!one && !(r->output = dry_path_join(call->config->output, r->name)))
                one = DRY_ERR_MEMORY;
            dry_log_prefix(r->name);
            if (!one)
                one = make_words(s, r, g, p);
            if (!one)
                one = read_one(s, r);
            dry_log_prefix(NULL);
            worst = one > worst ? one : worst;
        }
        worst = status > worst ? status : worst;
    }
    return worst;
}

/* Two configurations in one folder would be one. */
static enum dry_status check_names(const struct dry_sweep *s)
{
    enum dry_status status = DRY_OK;

    for (int a = 0; a < s->runs; a++)
        for (int b = a + 1; b < s->runs; b++)
            if (strcmp(s->run[a].name, s->run[b].name) == 0) {
                dry_error(
                    "two configurations are named %s%s%s%s%s; their folders in --output would be one: give "
                    "their files different names",
                    s->run[a].name, s->run[a].file ? ", of " : "", s->run[a].file ? s->run[a].file : "",
                    s->run[b].file ? " and " : "", s->run[b].file ? s->run[b].file : "");
                status = DRY_ERR_USAGE;
            }
    return status;
}

static int differs(const struct dry_sweep *s, const char *flag)
{
    char first[32], other[32];
    const char *a = dry_config_value(s->run[0].config, flag, first);

    for (int i = 1; i < s->runs; i++) {
        const char *b = dry_config_value(s->run[i].config, flag, other);
        if (!a != !b || (a && strcmp(a, b) != 0))
            return 1;
    }
    return 0;
}

/* " separator=\\n": a value on one line of a table. */
static int append_value(struct dry_buffer *b, const char *flag, const char *value)
{
    int failed = dry_buffer_printf(b, "%s%s=", b->len ? " " : "", flag);

    for (const char *c = value; *c && !failed; c++)
        failed = *c == '\n'                                ? dry_buffer_printf(b, "\\n")
                 : *c == '\t'                              ? dry_buffer_printf(b, "\\t")
                 : (unsigned char)*c < ' ' || *c == '\x7f' ? dry_buffer_printf(b, "\\x%02x", *c)
                                                           : dry_buffer_append(b, c, 1);
    return failed;
}

/* What tells the configurations apart, as text for each. */
static enum dry_status find_differences(struct dry_sweep *s)
{
    const struct dry_option *o = dry_option_table();
    struct dry_buffer *b = dry_alloc((size_t)s->runs, sizeof *b, "the differences of configurations");
    int failed = !b;

    for (int i = 0; i < s->runs; i++)
        failed = !(s->run[i].values = json_object()) || failed;
    for (; o->flag && !failed; o++) {
        if (!(o->commands & DRY_CMD_FINETUNE) || strcmp(o->flag, "output") == 0 || !differs(s, o->flag))
            continue;
        for (int i = 0; i < s->runs && !failed; i++) {
            char buffer[32];
            const char *value = dry_config_value(s->run[i].config, o->flag, buffer);
            failed = append_value(&b[i], o->flag, value ? value : "none") ||
                     json_object_set_new(s->run[i].values, o->flag, value ? json_string(value) : json_null());
        }
    }
    for (int i = 0; b && i < s->runs; i++) {
        if (!b[i].data && !failed)
            b[i].data = dry_strdup("");
        s->run[i].differs = b[i].data;
        failed = failed || !b[i].data;
    }
    dry_free(b);
    return failed ? DRY_ERR_MEMORY : DRY_OK;
}

/* Rank 0. What can be refused without tokens and weights is refused before anything starts. */
static enum dry_status check_early(const struct dry_sweep *s)
{
    enum dry_status worst = DRY_OK;
    int wrong = 0;

    for (int i = 0; i < s->runs; i++) {
        enum dry_status one;

        dry_log_prefix(s->run[i].name);
        one = dry_setup_early_on(s->run[i].config, s->each);
        dry_log_prefix(NULL);
        wrong += one != DRY_OK;
        worst = one > worst ? one : worst;
    }
    if (wrong)
        dry_error("sweep: %d of %d configuration%s cannot be run; none was started", wrong, s->runs,
                  dry_plural(s->runs));
    return worst;
}

/* Ranks for each, and how many at once. */
static enum dry_status share_ranks(struct dry_sweep *s)
{
    int ranks = dry_comm_size(s->call->comm);
    int64_t each = s->call->config->ranks_each;

    if (each > ranks) {
        dry_error("--ranks-each: %lld ranks for each configuration are more than the %d that drydock runs as",
                  (long long)each, ranks);
        return DRY_ERR_USAGE;
    }
    s->each = each > 0 ? (int)each : s->runs < ranks ? ranks / s->runs : 1;
    s->groups = ranks / s->each < s->runs ? ranks / s->each : s->runs;
    return DRY_OK;
}

/* Collective. Files may differ from node to node. */
static enum dry_status compare_ranks(const struct dry_sweep *s)
{
    enum dry_status status = DRY_OK;

    for (int i = 0; i < s->runs && !status; i++) {
        char *text = NULL;

        status = dry_comm_agree(s->call->comm, dry_config_text(s->run[i].config, &text));
        if (!status)
            status = dry_comm_same(s->call->comm, s->run[i].name, text);
        dry_free(text);
    }
    return status;
}

enum dry_status dry_sweep_list(struct dry_sweep *s)
{
    const struct dry_config *c = s->call->config;
    struct dry_sweep_grid grid = {0};
    enum dry_status status = DRY_OK;

    dry_log_defer(1);
    if (s->call->positionals == 0 && !c->vary) {
        dry_error(
            "sweep needs configurations: several FILE.cfg, or --vary \"learning-rate=1e-4,2e-4;rank=8,16\"");
        status = DRY_ERR_USAGE;
    }
    if (!status)
        status = dry_sweep_grid_read(c, &grid);
    if (!status)
        status = read_all(s, &grid);
    if (!status)
        status = check_names(s);
    if (!status)
        status = find_differences(s);
    if (!status)
        status = share_ranks(s);
    status = dry_comm_agree(s->call->comm, status);
    if (!status)
        status = compare_ranks(s);
    if (!status)
        status = dry_comm_agree(s->call->comm, dry_comm_rank(s->call->comm) == 0 ? check_early(s) : DRY_OK);
    dry_log_defer(0);
    dry_sweep_grid_release(&grid);
    return status;
}

void dry_sweep_release(struct dry_sweep *s)
{
    for (int i = 0; i < s->runs; i++) {
        struct dry_sweep_run *r = &s->run[i];

        dry_config_destroy(r->config);
        dry_config_words_free(r->word, r->words);
        dry_free(r->rest);
        json_decref(r->values);
        dry_free(r->differs);
        dry_free(r->output);
        dry_free(r->name);
    }
    dry_free(s->run);
}
