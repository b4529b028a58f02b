/*
 * Makes the plan: which records share a step, and how a step is cut into micro-batches.
 * Owns the permutation of one epoch and the arrays of one step.
 * Must not know of tokens' values, files, or how many ranks there are.
 */
#include "config.h"

#include "data/plan.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A token costs as much as this many units of squared length: 4N operations against the attention's 6 layers
 * H per token of length puts the break-even of 0.1 to 70 billion parameters between some 5000 and 100000
 * tokens.  The figure only balances ranks; it never reaches a result. */
enum { COST_OF_TOKEN = 16384 };

struct entry {
    int64_t key, index;
};

struct dry_plan {
    struct dry_plan_input in;
    int64_t steps, steps_per_epoch;
    int64_t most;    /* records of the largest step */
    int64_t epoch;   /* that order holds; -1: none */
    int64_t *order;  /* [records], NULL when ordered */
    int64_t *record; /* [most] */
    struct entry *entry;
    struct dry_micro_batch *micro; /* [most] */
    int64_t *heaviest;             /* [most] */
    int surveyed;
    struct dry_plan_bounds bounds;
    char hash[DRY_HASH_HEX];
};

static enum dry_status check(const struct dry_plan_input *in)
{
    if (in->records < 1 || in->effective_batch < 1 || in->epochs < 1 || in->max_steps < 0 ||
        in->micro_records < 0 || in->micro_tokens < 0 || in->record_tokens < 0 ||
        (in->micro_records > 0) == (in->micro_tokens > 0)) {
        dry_error("plan: %lld records, effective batch %lld, %lld records or %lld tokens per micro-batch, "
                  "%lld epochs, "
                  "%lld steps: each must be positive, and one of the two cuts given",
                  (long long)in->records, (long long)in->effective_batch, (long long)in->micro_records,
                  (long long)in->micro_tokens, (long long)in->epochs, (long long)in->max_steps);
        return DRY_ERR_USAGE;
    }
    return DRY_OK;
}

enum dry_status dry_plan_create(const struct dry_plan_input *in, struct dry_plan **out)
{
    struct dry_plan *p;
    enum dry_status st = check(in);

    if (st)
        return st;
    p = dry_alloc(1, sizeof *p, "the plan");
    if (!p)
        return DRY_ERR_MEMORY;
    p->in = *in;
    p->epoch = -1;
    p->most = in->effective_batch < in->records ? in->effective_batch : in->records;
    p->steps_per_epoch = (in->records - 1) / in->effective_batch + 1;
    p->steps = in->max_steps;
    if (!p->steps && __builtin_mul_overflow(in->epochs, p->steps_per_epoch, &p->steps)) {
        dry_error("plan: %lld epochs of %lld steps are more steps than can be counted", (long long)in->epochs,
                  (long long)p->steps_per_epoch);
        dry_plan_destroy(p);
        return DRY_ERR_USAGE;
    }
    if (!in->ordered)
        p->order = dry_alloc((size_t)in->records, sizeof *p->order, "the plan's permutation");
    p->record = dry_alloc((size_t)p->most, sizeof *p->record, "a step's records");
    p->entry = dry_alloc((size_t)p->most, sizeof *p->entry, "a step's lengths");
    p->micro = dry_alloc((size_t)p->most, sizeof *p->micro, "a step's micro-batches");
    p->heaviest = dry_alloc((size_t)p->most, sizeof *p->heaviest, "a step's micro-batches by cost");
    if ((!in->ordered && !p->order) || !p->record || !p->entry || !p->micro || !p->heaviest) {
        dry_plan_destroy(p);
        return DRY_ERR_MEMORY;
    }
    *out = p;
    return DRY_OK;
}

void dry_plan_destroy(struct dry_plan *p)
{
    if (!p)
        return;
    dry_free(p->order);
    dry_free(p->record);
    dry_free(p->entry);
    dry_free(p->micro);
    dry_free(p->heaviest);
    dry_free(p);
}

int64_t dry_plan_steps(const struct dry_plan *p)
{
    return p->steps;
}

int64_t dry_plan_steps_per_epoch(const struct dry_plan *p)
{
    return p->steps_per_epoch;
}

/* Falling key, rising index: a total order, so that any sort gives one result. */
static int heavier(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* The tokens of computing that a record of this length takes. */
static int64_t room_of(const struct dry_plan *p, int64_t length)
{
    return dry_larger(length, p->in.record_tokens);
}

/* How many micro-batches the step's sorted records make when each is filled up to `most` tokens; a longer
 * record is one of its own. */
static int64_t count_filled(const struct dry_plan *p, int64_t records, int64_t most)
{
    int64_t micros = 0, room = 0;

    for (int64_t i = 0; i < records; i++) {
        int64_t length = room_of(p, p->entry[i].key);
        if (micros == 0 || length > room) {
            micros++;
            room = most;
        }
        room -= length;
    }
    return micros;
}

/* The least filling that makes no more micro-batches than micro_tokens does: as few as fit, and as even as
 * can be, so that ranks share a step evenly and the largest micro-batch is no larger than it must be. */
static int64_t even_filling(const struct dry_plan *p, int64_t records)
{
    int64_t low = 1, high = p->in.micro_tokens, micros = count_filled(p, records, high);

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (count_filled(p, records, middle) <= micros)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Cuts the step's records, sorted by falling length, into micro-batches; returns how many. */
static int64_t cut(struct dry_plan *p, int64_t records)
{
    struct dry_micro_batch *m = NULL;
    int64_t micros = 0, most = p->in.micro_tokens ? even_filling(p, records) : 0;

    for (int64_t i = 0; i < records; i++) {
        int64_t r = p->entry[i].index, length = p->entry[i].key, tokens = room_of(p, length);
        int full = m && (p->in.micro_records ? m->count == p->in.micro_records : m->tokens + tokens > most);
        if (!m || full) {
            m = &p->micro[micros++];
            memset(m, 0, sizeof *m);
            m->first = i;
        }
        p->record[i] = r;
        m->count++;
        m->useful += length;
        m->tokens += tokens;
        m->supervised += p->in.supervised[r];
        m->square += length * length;
        if (length > m->longest)
            m->longest = length;
    }
    for (int64_t i = 0; i < micros; i++)
        p->micro[i].tokens =
            (p->micro[i].tokens + DRY_ROW_MULTIPLE - 1) / DRY_ROW_MULTIPLE * DRY_ROW_MULTIPLE;
    return micros;
}

int64_t dry_plan_cost(const struct dry_micro_batch *m)
{
    return m->tokens * COST_OF_TOKEN + m->square;
}

enum dry_status dry_plan_step(struct dry_plan *p, int64_t step, struct dry_plan_step *s)
{
    int64_t epoch, first, left;

    assert(step >= 1 && step <= p->steps);
    memset(s, 0, sizeof *s);
    epoch = (step - 1) / p->steps_per_epoch;
    first = (step - 1) % p->steps_per_epoch * p->in.effective_batch;
    left = p->in.records - first;
    s->step = step;
    s->epoch = epoch;
    s->records = left < p->most ? left : p->most;
    if (!p->in.ordered && epoch != p->epoch) {
        dry_random_permutation(p->in.seed, DRY_RANDOM_PERMUTATION, (uint64_t)epoch, p->in.records, p->order);
        p->epoch = epoch;
    }
    for (int64_t i = 0; i < s->records; i++) {
        int64_t r = p->in.ordered ? first + i : p->order[first + i];
        p->entry[i] = (struct entry){p->in.offset[r + 1] - p->in.offset[r], r};
    }
    qsort(p->entry, (size_t)s->records, sizeof *p->entry, heavier);
    s->micros = cut(p, s->records);
    for (int64_t m = 0; m < s->micros; m++) {
        s->useful += p->micro[m].useful;
        s->tokens += p->micro[m].tokens;
        s->supervised += p->micro[m].supervised;
        p->entry[m] = (struct entry){dry_plan_cost(&p->micro[m]), m};
    }
    qsort(p->entry, (size_t)s->micros, sizeof *p->entry, heavier);
    for (int64_t m = 0; m < s->micros; m++)
        p->heaviest[m] = p->entry[m].index;
    s->record = p->record;
    s->micro = p->micro;
    s->heaviest = p->heaviest;
    return DRY_OK;
}

static void widen(int64_t *bound, int64_t value)
{
    if (value > *bound)
        *bound = value;
}

/* Walks the whole run once for bounds and hash. */
static enum dry_status survey(struct dry_plan *p)
{
    struct dry_hash *h;
    struct dry_plan_bounds b = {0};
    struct dry_plan_step s;
    enum dry_status st;

    if (p->surveyed)
        return DRY_OK;
    st = dry_hash_create(&h);
    if (st)
        return st;
    dry_hash_text(h, "plan", "1");
    if (p->in.record_tokens) /* a flat plan has the hash that it always had */
        dry_hash_field(h, "tokens of a record", &p->in.record_tokens, sizeof p->in.record_tokens);
    for (int64_t step = 1; step <= p->steps; step++) {
        st = dry_plan_step(p, step, &s);
        if (st) {
            dry_hash_destroy(h);
            return st;
        }
        dry_hash_field(h, "records", s.record, (size_t)s.records * sizeof *s.record);
        for (int64_t i = 0; i < s.micros; i++) {
            const struct dry_micro_batch *m = &s.micro[i];
            int64_t shape[3] = {m->count, m->useful, m->supervised};
            dry_hash_add(h, shape, sizeof shape);
            widen(&b.tokens, m->tokens);
            widen(&b.records, m->count);
            widen(&b.supervised, m->supervised);
            widen(&b.longest, m->longest);
        }
        widen(&b.micros, s.micros);
    }
    dry_hash_finish(h, p->hash);
    p->bounds = b;
    p->surveyed = 1;
    return DRY_OK;
}

enum dry_status dry_plan_bounds(struct dry_plan *p, struct dry_plan_bounds *b)
{
    enum dry_status st = survey(p);

    if (!st)
        *b = p->bounds;
    return st;
}

enum dry_status dry_plan_hash(struct dry_plan *p, char hex[65])
{
    enum dry_status st = survey(p);

    if (!st)
        memcpy(hex, p->hash, sizeof p->hash);
    return st;
}

void dry_plan_deal(const struct dry_plan_step *s, int ranks, int *owner)
{
    int64_t load[ranks]; /* some bytes per rank: no allocation inside the loop of training */

    assert(ranks >= 1);
    memset(load, 0, (size_t)ranks * sizeof *load);
    for (int64_t i = 0; i < s->micros; i++) {
        int64_t m = s->heaviest[i];
        int least = 0;
        for (int r = 1; r < ranks; r++)
            if (load[r] < load[least])
                least = r;
        owner[m] = least;
        load[least] += dry_plan_cost(&s->micro[m]);
    }
}
