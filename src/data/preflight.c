/*
 * Counts what became of each line, names the bad ones, and judges whether the rest may be used.
 * Owns nothing.
 * Must not know how records are encoded or where they are kept.
 */
#include "config.h"

#include "data/preflight.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

void dry_preflight_add(struct dry_preflight *p, const struct dry_record *r, struct dry_complaint *list,
                       size_t *listed)
{
    p->outcome[r->outcome]++;
    if (r->outcome == DRY_RECORD_TOO_LONG && r->full_length > p->longest) {
        p->longest = r->full_length;
        p->longest_line = r->line;
    }
    if (r->outcome == DRY_RECORD_GOOD) {
        p->special_text += r->special_text;
        p->truncated += r->full_length > (int64_t)r->ids.count;
    } else if (p->outcome[r->outcome] <= DRY_COMPLAINTS) {
        struct dry_complaint *c = &list[(*listed)++];
        memset(c, 0, sizeof *c);
        c->line = r->line;
        c->outcome = (int32_t)r->outcome;
        memcpy(c->why, r->why, sizeof c->why);
        c->why[sizeof c->why - 1] = '\0';
    }
}

enum dry_status dry_preflight_gather(struct dry_comm *comm, struct dry_preflight *p,
                                     const struct dry_complaint *mine, size_t listed,
                                     struct dry_complaint **list, size_t *count)
{
    int64_t longest = p->longest, line;
    size_t *sizes = NULL;
    void *all = NULL;
    enum dry_status st = dry_comm_agree(comm, dry_comm_max_i64(comm, &longest, 1));

    if (st)
        return st;
    /* The first of several longest records: the largest of the negated lines. */
    line = p->longest == longest ? -p->longest_line : INT64_MIN;
    st = dry_comm_agree(comm, dry_comm_max_i64(comm, &line, 1));
    if (!st)
        st = dry_comm_agree(comm, dry_comm_sum_i64(comm, p->outcome, DRY_RECORD_OUTCOMES));
    if (!st)
        st = dry_comm_agree(comm, dry_comm_sum_i64(comm, &p->special_text, 1));
    if (!st)
        st = dry_comm_agree(comm, dry_comm_sum_i64(comm, &p->truncated, 1));
    if (st)
        return st;
    p->longest = longest;
    p->longest_line = -line;
    if (dry_comm_rank(comm) == 0) {
        sizes = dry_alloc((size_t)dry_comm_size(comm), sizeof *sizes, "sizes of the ranks' complaints");
        st = sizes ? DRY_OK : DRY_ERR_MEMORY;
    }
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_comm_agree(comm, dry_comm_gather(comm, mine, listed * sizeof *mine, 0, &all, sizes));
    if (!st && dry_comm_rank(comm) == 0) {
        *list = all;
        *count = 0;
        for (int r = 0; r < dry_comm_size(comm); r++)
            *count += sizes[r] / sizeof *mine;
    }
    dry_free(sizes);
    return st;
}

/* The first bad records of one kind, each with its line, then how many more there are. */
static void name_kind(const struct dry_preflight *p, const char *path, enum dry_outcome kind,
                      const struct dry_complaint *list, size_t count)
{
    int64_t named = 0;

    for (size_t i = 0; i < count && named < DRY_COMPLAINTS; i++) {
        if (list[i].outcome != (int32_t)kind)
            continue;
        named++;
        dry_warn("%s:%lld: %s%s%s", path, (long long)list[i].line, dry_outcome_name(kind),
                 list[i].why[0] ? ": " : "", list[i].why);
    }
    if (p->outcome[kind] > named)
        dry_warn("%s: %lld more: %s", path, (long long)(p->outcome[kind] - named), dry_outcome_name(kind));
}

/* "3 broken JSON, 2 empty completion" of the kinds that bad_records decides on. */
static int64_t list_bad(const struct dry_preflight *p, struct dry_buffer *text)
{
    int64_t bad = 0;

    for (int k = DRY_RECORD_GOOD + 1; k < DRY_RECORD_OUTCOMES; k++) {
        if (k == DRY_RECORD_TOO_LONG || !p->outcome[k])
            continue;
        if (dry_buffer_printf(text, "%s%lld %s", bad ? ", " : "", (long long)p->outcome[k],
                              dry_outcome_name(k)))
            return -1;
        bad += p->outcome[k];
    }
    return bad;
}

enum dry_status dry_preflight_judge(const struct dry_preflight *p, const char *path, int64_t limit,
                                    struct dry_policy policy, const struct dry_complaint *list, size_t count)
{
    enum dry_status st = DRY_OK;
    struct dry_buffer text = {0};
    int64_t all = 0, bad, too_long = p->outcome[DRY_RECORD_TOO_LONG];

    for (int k = 0; k < DRY_RECORD_OUTCOMES; k++) {
        all += p->outcome[k];
        if (k != DRY_RECORD_GOOD && p->outcome[k])
            name_kind(p, path, k, list, count);
    }
    bad = list_bad(p, &text);
    if (bad < 0)
        return DRY_ERR_MEMORY;
    if (bad && !policy.bad_drop) {
        dry_error(
            "%s: %lld of %lld records are bad (%s); correct them, or leave them out with --bad-records drop",
            path, (long long)bad, (long long)all, text.data);
        st = DRY_ERR_INPUT;
    }
    if (too_long && !policy.long_drop) {
        dry_error(
            "%s: %lld of %lld records are longer than %lld tokens (the longest, line %lld, has %lld); raise "
            "--max-seq-length to %lld, or choose --long-records drop or --long-records truncate",
            path, (long long)too_long, (long long)all, (long long)limit, (long long)p->longest_line,
            (long long)p->longest, (long long)p->longest);
        st = DRY_ERR_INPUT;
    }
    if (!st && p->outcome[DRY_RECORD_GOOD] == 0) {
        dry_error("%s: none of %lld records can be used (%s%s%lld over %lld tokens)", path, (long long)all,
                  bad ? text.data : "", bad ? ", " : "", (long long)too_long, (long long)limit);
        st = DRY_ERR_INPUT;
    }
    dry_buffer_reset(&text);
    return st;
}

static double share(int64_t part, int64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

void dry_cache_preflight(const struct dry_cache_view *v)
{
    int64_t lines = 0, longest = 0;

    for (int k = 0; k < DRY_RECORD_OUTCOMES; k++)
        lines += v->outcome[k];
    for (int64_t i = 0; i < v->records; i++)
        if (v->offset[i + 1] - v->offset[i] > longest)
            longest = v->offset[i + 1] - v->offset[i];
    dry_info("preflight of %s", v->data_path);
    dry_info("  %-28s %12lld", "lines with a record", (long long)lines);
    for (int k = 0; k < DRY_RECORD_OUTCOMES; k++)
        if (k == DRY_RECORD_GOOD || v->outcome[k])
            dry_info("  %-28s %12lld%s", dry_outcome_name(k), (long long)v->outcome[k],
                     k == DRY_RECORD_GOOD ? "" : "  left out");
    dry_info("  %-28s %12lld  (mean %.1f, longest %lld)", "tokens", (long long)v->tokens,
             (double)v->tokens / (double)v->records, (long long)longest);
    dry_info("  %-28s %12lld  (%.1f %%)", "supervised tokens", (long long)v->supervised,
             share(v->supervised, v->tokens));
    dry_info("  %-28s %12lld", "special tokens in the text", (long long)v->special_text);
    dry_info("  %-28s %12lld", "cut to the limit", (long long)v->truncated);
    dry_info("  %-28s %12lld", "repeats of another record", (long long)v->duplicates);
}
