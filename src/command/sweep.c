/*
 * sweep: several configurations side by side in one allocation, each on its own ranks.
 * Owns the sweep while it runs.
 * Must not know how one configuration is trained: each is a finetune on a part of the ranks.
 */
#include "config.h"

#include "command/sweep.h"

#include "command/setup.h"
#include "command/signals.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

/* ---- records ---- */

/* Two configurations whose records become the same tokens share a cache file. */
static int same_records(const struct dry_config *a, const char *path, const struct dry_config *b,
                        const char *other)
{
    static const char *const flags[] = {
        "base",      "cache",        "template",       "prompt-field", "completion-field",
        "separator", "special-text", "max-seq-length", "long-records", "bad-records"};
    char one[32], two[32];

    if (!path || !other || strcmp(path, other) != 0)
        return 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *x = dry_config_value(a, flags[i], one), *y = dry_config_value(b, flags[i], two);
        if (!x != !y || (x && strcmp(x, y) != 0))
            return 0;
    }
    return 1;
}

/* Has an earlier configuration prepared these records? */
static int prepared(const struct dry_sweep *s, int run, const char *path)
{
    for (int i = 0; i < run; i++) {
        const struct dry_config *c = s->run[i].config;
        if (!s->run[i].outcome && (same_records(c, c->data, s->run[run].config, path) ||
                                   same_records(c, c->validation_data, s->run[run].config, path)))
            return 1;
    }
    return 0;
}

/* Collective. Tokenises one configuration's records, where no earlier one has them. */
static enum dry_status prepare_one(const struct dry_sweep *s, int run)
{
    const struct dry_config *c = s->run[run].config;
    const char *path[] = {c->data, c->validation_data};
    struct dry_call call = *s->call;
    struct dry_tokenizer *tokenizer = NULL;
    struct dry_record_rule rule;
    char *dir = NULL;
    enum dry_status status = DRY_OK;

    call.config = s->run[run].config;
    for (size_t i = 0; i < sizeof path / sizeof *path && !status; i++) {
        struct dry_cache *cache = NULL;

        if (!path[i] || prepared(s, run, path[i]) || (i == 1 && strcmp(path[0], path[1]) == 0))
            continue;
        if (!tokenizer)
            status = dry_setup_tokenizer(&call, &dir, &tokenizer);
        if (!status)
            status = dry_setup_rule(&call, tokenizer, &rule);
        if (!status)
            status = dry_setup_cache(&call, tokenizer, &rule, path[i], &cache);
        dry_cache_close(cache);
    }
    dry_tokenizer_destroy(tokenizer);
    dry_free(dir);
    return status;
}

/* Collective. All ranks tokenise together, so that no two configurations write one cache at once. Records
 * that cannot be had end the configurations that want them, and no other. */
static void prepare(struct dry_sweep *s)
{
    for (int i = 0; i < s->runs; i++) {
        dry_log_prefix(s->run[i].name);
        s->run[i].outcome = prepare_one(s, i);
        dry_log_prefix(NULL);
    }
}

/* ---- runs ---- */

/* Collective over part. */
static enum dry_status train(struct dry_sweep_run *r, struct dry_comm *part)
{
    struct dry_call call = {
        .comm = part, .config = r->config, .argc = r->words, .argv = r->word, .started = dry_clock_now()};
    int64_t asked = dry_signals_asked();
    enum dry_status status = dry_comm_max_i64(part, &asked, 1);

    if (status || asked) /* what is not begun is begun when the command is started again */
        return status ? status : DRY_STOPPED;
    r->begun = 1;
    status = dry_command_finetune(&call);
    if (status && status != DRY_STOPPED && dry_comm_rank(part) == 0)
        dry_warn("this configuration failed; the others go on");
    return status;
}

/* Collective over all ranks. Each group of ranks works through its share of the configurations. */
static enum dry_status train_all(struct dry_sweep *s)
{
    struct dry_comm *world = s->call->comm, *part = NULL;
    int group = dry_comm_rank(world) / s->each;
    enum dry_status status;

    group = group < s->groups ? group : -1;
    status = dry_comm_split(world, group, &part);
    if (status)
        return status;
    if (part)
        dry_log_set_rank(dry_comm_rank(part), dry_comm_size(part));
    for (int i = group; part && i < s->runs; i += s->groups) {
        if (s->run[i].outcome)
            continue;
        dry_log_prefix(s->run[i].name);
        s->run[i].outcome = train(&s->run[i], part);
        dry_log_prefix(NULL);
    }
    dry_log_set_rank(dry_comm_rank(world), dry_comm_size(world));
    status = dry_comm_rest(world);
    dry_comm_destroy(part);
    return status;
}

/* Collective. What became of each, on all ranks; and of the whole. */
static enum dry_status agree_outcomes(struct dry_sweep *s, enum dry_status *whole)
{
    int64_t *word = dry_alloc((size_t)s->runs, 2 * sizeof *word, "the outcomes");
    enum dry_status status = dry_comm_agree(s->call->comm, word ? DRY_OK : DRY_ERR_MEMORY);
    int stopped = 0, failed = 0;

    if (status) {
        dry_free(word);
        return status;
    }
    for (int i = 0; i < s->runs; i++) {
        word[2 * i] = s->run[i].outcome;
        word[2 * i + 1] = s->run[i].begun;
    }
    status = dry_comm_max_i64(s->call->comm, word, 2 * (size_t)s->runs);
    for (int i = 0; i < s->runs; i++) {
        s->run[i].outcome = (enum dry_status)word[2 * i];
        s->run[i].begun = (int)word[2 * i + 1];
        stopped += s->run[i].outcome == DRY_STOPPED;
        failed += s->run[i].outcome > DRY_STOPPED;
    }
    dry_free(word);
    /* a stop is the end of this start only; the failed are tried again with the rest */
    *whole = stopped ? DRY_STOPPED : failed ? DRY_ERR_INPUT : DRY_OK;
    return status;
}

/* ---- the order ---- */

static void say_shares(const struct dry_sweep *s)
{
    int ranks = dry_comm_size(s->call->comm), left = ranks - s->each * s->groups;
    int rounds = (s->runs + s->groups - 1) / s->groups;

    dry_info("sweep: %d configuration%s, %d at once on %d rank%s each%s", s->runs, dry_plural(s->runs),
             s->groups, s->each, dry_plural(s->each), rounds > 1 ? ", the others as ranks come free" : "");
    if (left > 0)
        dry_info("sweep: %d of %d rank%s without work", left, ranks, left == 1 ? " is" : "s are");
}

/* Collective. Whether the ranks' devices are their own: in the groups, ranks of other groups are not seen. */
static enum dry_status check_devices(const struct dry_sweep *s)
{
    const struct dry_backend_ops *ops;
    struct dry_call call = *s->call;
    int device, first;
    enum dry_status status;

    call.config = s->run[0].config;
    dry_log_defer(1);
    status = dry_comm_agree(call.comm, dry_setup_backend(call.config, &ops));
    if (!status)
        status = dry_setup_device(&call, ops, &device, &first);
    dry_log_defer(0);
    return status;
}

static enum dry_status run(struct dry_sweep *s)
{
    struct dry_comm *world = s->call->comm;
    enum dry_status whole = DRY_OK, status = dry_sweep_list(s);

    if (!status)
        status = check_devices(s);
    if (!status)
        status =
            dry_comm_agree(world, dry_comm_rank(world) == 0 ? dry_dir_make(s->call->config->output) : DRY_OK);
    if (status)
        return status;
    say_shares(s);
    dry_signals_watch();
    prepare(s);
    status = train_all(s);
    if (!status)
        status = agree_outcomes(s, &whole);
    if (!status && dry_comm_rank(world) == 0)
        status = dry_sweep_tell(s, whole);
    status = dry_comm_agree(world, status);
    return status ? status : whole;
}

enum dry_status dry_command_sweep(const struct dry_call *call)
{
    struct dry_sweep s = {.call = call};
    enum dry_status status;

    dry_clock_iso(s.started, sizeof s.started);
    status = run(&s);
    dry_sweep_release(&s);
    return status;
}
