/*
 * The way from options to tokenised records and their plan, alike for every command that reads data.
 * Owns nothing that outlives a call but what it hands out.
 * Must not know of weights, adapters or backends.
 */
#include "config.h"

#include "command/setup.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

enum dry_status dry_setup_tokenizer(const struct dry_call *call, char **dir, struct dry_tokenizer **t)
{
    char *found = NULL;
    enum dry_status st;

    dry_log_defer(1);
    st = dry_comm_agree(call->comm, dry_base_locate(call->config->base, &found));
    if (!st)
        st = dry_comm_agree(call->comm, dry_tokenizer_create(found, t));
    dry_log_defer(0);
    if (st) {
        dry_free(found);
        return st;
    }
    *dir = found;
    return DRY_OK;
}

enum dry_status dry_setup_rule(const struct dry_call *call, const struct dry_tokenizer *t,
                               struct dry_record_rule *rule)
{
    const struct dry_config *c = call->config;
    struct dry_record_rule r = {.template_name = c->template_name,
                                .prompt_field = c->prompt_field,
                                .completion_field = c->completion_field,
                                .separator = c->separator,
                                .special_text = c->special_text,
                                .limit = c->max_seq_length,
                                .truncate = strcmp(c->long_records, "truncate") == 0};
    enum dry_status st;

    dry_log_defer(1);
    st = dry_comm_agree(call->comm, dry_record_rule_check(&r, t));
    dry_log_defer(0);
    if (!st)
        *rule = r;
    return st;
}

/* Rule and policies: all that the options decide about which tokens a line becomes. */
static enum dry_status rule_hash(const struct dry_config *c, const struct dry_record_rule *rule,
                                 char hex[DRY_HASH_HEX])
{
    struct dry_hash *h;
    enum dry_status st = dry_hash_create(&h);

    if (st)
        return st;
    dry_record_rule_hash(rule, h);
    dry_hash_text(h, "bad records", c->bad_records);
    dry_hash_text(h, "long records", c->long_records);
    dry_hash_finish(h, hex);
    return DRY_OK;
}

/* Collective. Rank 0 reads the data file once for all. */
static enum dry_status make_source(const struct dry_call *call, const struct dry_tokenizer *t,
                                   const struct dry_record_rule *rule, const char *data_path,
                                   struct dry_cache_source *s)
{
    enum dry_status st = DRY_OK;

    memset(s, 0, sizeof *s);
    s->data_path = data_path;
    memcpy(s->tokenizer_hash, dry_tokenizer_hash(t), sizeof s->tokenizer_hash);
    if (dry_comm_rank(call->comm) == 0)
        st = dry_hash_file(data_path, s->data_hash);
    if (!st)
        st = rule_hash(call->config, rule, s->rule_hash);
    st = dry_comm_agree(call->comm, st);
    if (!st)
        st = dry_comm_agree(call->comm, dry_comm_bcast(call->comm, s->data_hash, sizeof s->data_hash, 0));
    return st;
}

/* DIR/0123456789abcdef.h5 in new memory. */
static enum dry_status cache_path(const struct dry_config *c, const struct dry_cache_source *s, char **folder,
                                  char **path)
{
    char key[DRY_HASH_HEX];
    enum dry_status st = dry_cache_key(s, key);

    if (st)
        return st;
    *folder = c->cache ? dry_strdup(c->cache) : dry_path_join(c->output, "cache");
    *path = *folder ? dry_format("%s/%.16s.h5", *folder, key) : NULL;
    return *path ? DRY_OK : DRY_ERR_MEMORY;
}

/* Collective. Rank 0 alone looks and makes the folder, so that all ranks take the same way. */
static enum dry_status look(struct dry_comm *comm, const char *folder, const char *path, int *there)
{
    enum dry_status st = DRY_OK;

    *there = 0;
    if (dry_comm_rank(comm) == 0) {
        *there = dry_file_exists(path);
        if (!*there)
            st = dry_dir_make(folder);
    }
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_comm_agree(comm, dry_comm_bcast(comm, there, sizeof *there, 0));
    return st;
}

/* Collective. The file of that name: built where it is not there, then opened and checked whole, a share by
 * each rank. */
static enum dry_status from_file(const struct dry_call *call, struct dry_tokenizer *t,
                                 const struct dry_record_rule *rule, const struct dry_cache_source *s,
                                 int bad_drop, int long_drop, struct dry_cache **cache, int *there)
{
    char *folder = NULL, *path = NULL;
    struct dry_cache *c = NULL;
    enum dry_status st = dry_comm_agree(call->comm, cache_path(call->config, s, &folder, &path));

    if (!st)
        st = look(call->comm, folder, path, there);
    if (!st && !*there)
        st = dry_cache_build(call->comm, t, rule, s, path, bad_drop, long_drop);
    if (!st)
        st = dry_comm_agree(call->comm, dry_cache_open(path, s, &c));
    if (!st)
        st = dry_comm_agree(call->comm,
                            dry_cache_check(c, dry_comm_rank(call->comm), dry_comm_size(call->comm)));
    if (st) {
        dry_cache_close(c);
        goto out;
    }
    dry_info("%s cache %s: %lld records, %lld tokens", *there ? "using" : "wrote", path,
             (long long)dry_cache_view(c)->records, (long long)dry_cache_view(c)->tokens);
    *cache = c;
out:
    dry_free(folder);
    dry_free(path);
    return st;
}

enum dry_status dry_setup_cache(const struct dry_call *call, struct dry_tokenizer *t,
                                const struct dry_record_rule *rule, const char *data_path,
                                struct dry_cache **cache)
{
    const struct dry_config *c = call->config;
    struct dry_cache_source s;
    int bad_drop = strcmp(c->bad_records, "drop") == 0, long_drop = strcmp(c->long_records, "drop") == 0;
    int there = 0;
    enum dry_status st;

    dry_log_defer(1);
    st = make_source(call, t, rule, data_path, &s);
    if (!st && (c->cache || c->output))
        st = from_file(call, t, rule, &s, bad_drop, long_drop, cache, &there);
    else if (!st)
        st = dry_cache_build_memory(call->comm, t, rule, &s, bad_drop, long_drop, cache);
    dry_log_defer(0);
    if (!st && !(there && dry_log_prefix_now())) /* of several runs at once, the one that wrote it has told */
        dry_cache_preflight(dry_cache_view(*cache));
    return st;
}

/* Collective. Makes a plan and compares it over the ranks. */
static enum dry_status make_plan(struct dry_comm *comm, const struct dry_plan_input *in, const char *what,
                                 struct dry_plan **plan)
{
    struct dry_plan *p = NULL;
    char hash[DRY_HASH_HEX] = "";
    enum dry_status st;

    dry_log_defer(1);
    st = dry_plan_create(in, &p);
    if (!st)
        st = dry_plan_hash(p, hash);
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_comm_same(comm, what, hash);
    dry_log_defer(0);
    if (st) {
        dry_plan_destroy(p);
        return st;
    }
    *plan = p;
    return DRY_OK;
}

enum dry_status dry_setup_plan(const struct dry_call *call, const struct dry_contract *k,
                               const struct dry_cache *cache, struct dry_plan **plan)
{
    const struct dry_cache_view *v = dry_cache_view(cache);
    struct dry_plan_input in = {.records = v->records,
                                .offset = v->offset,
                                .supervised = v->supervised_of,
                                .effective_batch = k->effective_batch,
                                .micro_records = k->micro_records,
                                .micro_tokens = k->micro_tokens,
                                .record_tokens = dry_contract_record_tokens(k),
                                .epochs = k->epochs,
                                .max_steps = k->steps,
                                .seed = (uint64_t)k->seed};

    return make_plan(call->comm, &in, "plan", plan);
}

enum dry_status dry_setup_validation_plan(const struct dry_call *call, const struct dry_contract *k,
                                          const struct dry_cache *cache, struct dry_plan **plan)
{
    const struct dry_cache_view *v = dry_cache_view(cache);
    struct dry_plan_input in = {.records = v->records,
                                .offset = v->offset,
                                .supervised = v->supervised_of,
                                .effective_batch = k->effective_batch,
                                .micro_records = k->micro_records,
                                .micro_tokens = k->micro_tokens,
                                .record_tokens = dry_contract_record_tokens(k),
                                .epochs = 1,
                                .ordered = 1};

    return make_plan(call->comm, &in, "validation plan", plan);
}
