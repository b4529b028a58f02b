/*
 * Encodes a data file's lines over all ranks and gathers the records on rank 0.
 * Owns one rank's share of the tables until it is gathered.
 * Must not know of files' formats other than through text/record.h.
 */
#include "config.h"

#include "data/tokenise.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing array of plain elements. */
struct column {
    void *data;
    size_t count, capacity, size;
    const char *what;
};

enum { TOKEN, LENGTH, SPAN, SPANS, SUPERVISED, LINE, DIGEST, COLUMNS };

static const struct {
    size_t size;
    const char *what;
} kind[COLUMNS] = {
    [TOKEN] = {sizeof(int32_t), "token ids"},
    [LENGTH] = {sizeof(int32_t), "record lengths"},
    [SPAN] = {sizeof(struct dry_span), "supervised spans"},
    [SPANS] = {sizeof(int32_t), "span counts"},
    [SUPERVISED] = {sizeof(int32_t), "label counts"},
    [LINE] = {sizeof(int64_t), "line numbers"},
    [DIGEST] = {sizeof(uint64_t), "record digests"},
};

/* What one rank made of its lines. */
struct share {
    struct column column[COLUMNS];
    struct dry_preflight preflight;
    struct dry_complaint list[DRY_COMPLAINTS * DRY_RECORD_OUTCOMES];
    size_t listed;
    int64_t largest_id;
};

static void share_reset(struct share *s)
{
    for (int i = 0; i < COLUMNS; i++)
        dry_free(s->column[i].data);
    memset(s, 0, sizeof *s);
}

static enum dry_status append(struct column *c, const void *elements, size_t count)
{
    if (c->capacity - c->count < count) {
        size_t more = c->capacity * 2 > c->count + count ? c->capacity * 2 : c->count + count + 1024;
        void *data = c->data ? dry_realloc(c->data, c->capacity, more, c->size, c->what)
                             : dry_alloc(more, c->size, c->what);
        if (!data)
            return DRY_ERR_MEMORY;
        c->data = data;
        c->capacity = more;
    }
    memcpy((char *)c->data + c->count * c->size, elements, count * c->size);
    c->count += count;
    return DRY_OK;
}

/* The first 64 bits of SHA-256 over the ids. */
static enum dry_status digest_of(const struct dry_ids *ids, uint64_t *digest)
{
    char hex[DRY_HASH_HEX];
    enum dry_status st = dry_hash_bytes(ids->id, ids->count * sizeof *ids->id, hex);

    if (st)
        return st;
    hex[16] = '\0';
    *digest = strtoull(hex, NULL, 16);
    return DRY_OK;
}

static enum dry_status keep(struct share *s, const struct dry_record *r)
{
    int32_t length = (int32_t)r->ids.count, spans = (int32_t)r->spans;
    uint64_t digest;
    enum dry_status st = digest_of(&r->ids, &digest);

    for (size_t i = 0; i < r->ids.count; i++)
        if (r->ids.id[i] > s->largest_id)
            s->largest_id = r->ids.id[i];
    if (!st)
        st = append(&s->column[TOKEN], r->ids.id, r->ids.count);
    if (!st)
        st = append(&s->column[LENGTH], &length, 1);
    if (!st)
        st = append(&s->column[SPAN], r->span, r->spans);
    if (!st)
        st = append(&s->column[SPANS], &spans, 1);
    if (!st)
        st = append(&s->column[SUPERVISED], &r->supervised, 1);
    if (!st)
        st = append(&s->column[LINE], &r->line, 1);
    if (!st)
        st = append(&s->column[DIGEST], &digest, 1);
    return st;
}

/* Where record n's text begins, in bytes after the first record's. */
static int64_t place_of(const struct dry_lines *l, int64_t n)
{
    const char *first, *text;
    size_t size;
    int64_t line;

    dry_lines_get(l, 0, &first, &size, &line);
    dry_lines_get(l, n, &text, &size, &line);
    return text - first;
}

/* The first record of a rank's share when the bytes are parted evenly. */
static int64_t first_of(const struct dry_lines *l, int rank, int size)
{
    int64_t count = dry_lines_count(l), low = 0, high = count, target;

    if (rank == size || count == 0)
        return count;
    target = (int64_t)((double)place_of(l, count - 1) * rank / size);
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (place_of(l, middle) >= target)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Rank 0 speaks for all: on a terminal five times a second, in a log every half minute. */
struct pace {
    double start, last; /* seconds */
    int ranks;
};

static void tell(struct pace *p, const char *path, int64_t done, int64_t mine)
{
    double now = dry_clock_now(), rate;
    char line[200];

    if (now - p->last < (dry_log_is_terminal() ? 0.2 : 30))
        return;
    p->last = now;
    rate = (double)done * p->ranks / (now - p->start);
    snprintf(line, sizeof line, "tokenising %.120s: %.0f %%, about %.0f records/s", path,
             100.0 * (double)done / (double)mine, rate);
    if (dry_log_is_terminal())
        dry_log_progress(line);
    else
        dry_info("%s", line);
}

static enum dry_status encode_share(struct dry_comm *comm, struct dry_tokenizer *tokenizer,
                                    const struct dry_record_rule *rule, const char *path, struct share *s)
{
    struct dry_lines *l = NULL;
    struct dry_record r = {0};
    struct pace pace = {.start = dry_clock_now(), .last = dry_clock_now(), .ranks = dry_comm_size(comm)};
    int64_t first, end;
    enum dry_status st = dry_lines_open(path, &l);

    if (st)
        return st;
    first = first_of(l, dry_comm_rank(comm), dry_comm_size(comm));
    end = first_of(l, dry_comm_rank(comm) + 1, dry_comm_size(comm));
    for (int64_t n = first; n < end && !st; n++) {
        const char *text;
        size_t size;
        int64_t line;
        dry_lines_get(l, n, &text, &size, &line);
        st = dry_record_encode(tokenizer, rule, text, size, line, &r);
        if (st)
            break;
        dry_preflight_add(&s->preflight, &r, s->list, &s->listed);
        if (r.outcome == DRY_RECORD_GOOD)
            st = keep(s, &r);
        if (dry_comm_rank(comm) == 0)
            tell(&pace, path, n + 1 - first, end - first);
    }
    if (dry_comm_rank(comm) == 0)
        dry_log_progress(NULL);
    dry_record_reset(&r);
    dry_lines_close(l);
    return st;
}

/* Collective. One column of all ranks, in rank order, on rank 0. Frees the share's own. */
static enum dry_status gather(struct dry_comm *comm, struct column *c, void **all, int64_t *count)
{
    int root = dry_comm_rank(comm) == 0;
    size_t *sizes = NULL, bytes = 0;
    void *data = NULL;
    enum dry_status st = DRY_OK;

    if (root) {
        sizes = dry_alloc((size_t)dry_comm_size(comm), sizeof *sizes, "sizes of the ranks' shares");
        st = sizes ? DRY_OK : DRY_ERR_MEMORY;
    }
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_comm_agree(comm, dry_comm_gather(comm, c->data, c->count * c->size, 0, &data, sizes));
    dry_free(c->data);
    c->data = NULL;
    if (!st && root) {
        for (int r = 0; r < dry_comm_size(comm); r++)
            bytes += sizes[r];
        *all = data;
        *count = (int64_t)(bytes / c->size);
    }
    dry_free(sizes);
    return st;
}

/* Collective. All ranks' records on rank 0. */
static enum dry_status gather_tables(struct dry_comm *comm, struct share *s, struct dry_tables *t)
{
    int32_t *length = NULL, *spans = NULL;
    int64_t count = 0;
    void *all[COLUMNS] = {0};
    int64_t counts[COLUMNS] = {0};
    enum dry_status st = dry_comm_agree(comm, dry_comm_max_i64(comm, &s->largest_id, 1));

    for (int i = 0; i < COLUMNS && !st; i++)
        st = gather(comm, &s->column[i], &all[i], &counts[i]);
    t->token = all[TOKEN];
    t->span = all[SPAN];
    t->supervised = all[SUPERVISED];
    t->line = all[LINE];
    t->digest = all[DIGEST];
    length = all[LENGTH];
    spans = all[SPANS];
    if (!st && dry_comm_rank(comm) == 0) {
        t->records = counts[LENGTH];
        t->tokens = counts[TOKEN];
        t->spans = counts[SPAN];
        t->largest_id = s->largest_id;
        st = dry_tables_offsets(length, t->records, "record offsets", &t->offset, &count);
        if (!st)
            st = dry_tables_offsets(spans, t->records, "span offsets", &t->span_offset, &count);
        if (!st)
            st = dry_tables_complete(t);
    }
    dry_free(length);
    dry_free(spans);
    return dry_comm_agree(comm, st);
}

enum dry_status dry_tokenise(struct dry_comm *comm, struct dry_tokenizer *tokenizer,
                             const struct dry_record_rule *rule, const char *path, struct dry_policy policy,
                             struct dry_tables *t)
{
    struct share *s = dry_alloc(1, sizeof *s, "a share of the records");
    struct dry_complaint *list = NULL;
    size_t count = 0;
    double start = dry_clock_now();
    enum dry_status st = s ? DRY_OK : DRY_ERR_MEMORY;

    if (s)
        for (int i = 0; i < COLUMNS; i++)
            s->column[i] = (struct column){.size = kind[i].size, .what = kind[i].what};
    if (!st)
        st = encode_share(comm, tokenizer, rule, path, s);
    st = dry_comm_agree(comm, st);
    if (!st)
        st = dry_preflight_gather(comm, &s->preflight, s->list, s->listed, &list, &count);
    if (st)
        goto out;
    if (dry_comm_rank(comm) == 0)
        st = dry_preflight_judge(&s->preflight, path, rule->limit, policy, list, count);
    st = dry_comm_agree(comm, st);
    if (st)
        goto out;
    if (dry_comm_rank(comm) == 0) {
        memcpy(t->outcome, s->preflight.outcome, sizeof t->outcome);
        t->special_text = s->preflight.special_text;
        t->truncated = s->preflight.truncated;
        t->limit = rule->limit;
    }
    st = gather_tables(comm, s, t);
    if (!st && dry_comm_rank(comm) == 0) {
        double seconds = dry_clock_now() - start;
        dry_info("tokenised %s: %lld records, %lld tokens in %.1f s on %d rank%s", path,
                 (long long)t->records, (long long)t->tokens, seconds, dry_comm_size(comm),
                 dry_comm_size(comm) == 1 ? "" : "s");
    }
out:
    if (st)
        dry_tables_reset(t);
    if (s)
        share_reset(s);
    dry_free(s);
    dry_free(list);
    return st;
}
