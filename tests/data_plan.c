/* The plan: every record once, the same grouping for any number of ranks, the same plan for the same input.
 */
#include "config.h"

#include "data/plan.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"

#include "tap.h"

#include <stdlib.h>

struct made {
    int64_t *offset;
    int32_t *supervised;
};

/* Lengths 2..most, skewed to short ones, from the counter-based generator. */
static struct made lengths(int64_t n, int64_t most)
{
    struct made m = {dry_alloc((size_t)n + 1, sizeof *m.offset, "offsets"),
                     dry_alloc((size_t)n, sizeof *m.supervised, "labels")};
    uint32_t w[4];

    for (int64_t i = 0; i < n; i++) {
        dry_random_words(7, DRY_RANDOM_SUBSET, (uint64_t)i, 0, w);
        double u = dry_random_unit(w[0]);
        int64_t length = 2 + (int64_t)(u * u * u * (double)(most - 1));
        m.offset[i + 1] = m.offset[i] + length;
        m.supervised[i] = (int32_t)(1 + (int64_t)w[1] % (length - 1));
    }
    return m;
}

static void drop(struct made m)
{
    dry_free(m.offset);
    dry_free(m.supervised);
}

static struct dry_plan_input input(struct made m, int64_t n)
{
    return (struct dry_plan_input){.records = n,
                                   .offset = m.offset,
                                   .supervised = m.supervised,
                                   .effective_batch = 32,
                                   .micro_tokens = 1024,
                                   .epochs = 2,
                                   .seed = 42};
}

/* What must hold of each micro-batch of a step; returns 0 and says why when it does not. */
static int step_is_sound(const struct dry_plan_input *in, const struct dry_plan_step *s)
{
    int64_t at = 0, useful = 0, tokens = 0, supervised = 0, before = INT64_MAX;

    for (int64_t i = 0; i < s->micros; i++) {
        const struct dry_micro_batch *m = &s->micro[i];
        int64_t sum = 0, labels = 0, longest = 0, square = 0;
        if (m->first != at || m->count < 1)
            return 0;
        for (int64_t j = 0; j < m->count; j++) {
            int64_t r = s->record[at++], length = in->offset[r + 1] - in->offset[r];
            if (length > before)
                return 0;
            before = length;
            sum += length;
            square += length * length;
            labels += in->supervised[r];
            longest = length > longest ? length : longest;
        }
        if (m->useful != sum || m->supervised != labels || m->longest != longest || m->square != square)
            return 0;
        if (m->tokens < sum || m->tokens >= sum + DRY_ROW_MULTIPLE || m->tokens % DRY_ROW_MULTIPLE)
            return 0;
        if (in->micro_records ? m->count > in->micro_records : m->count > 1 && sum > in->micro_tokens)
            return 0;
        useful += sum;
        tokens += m->tokens;
        supervised += labels;
    }
    return at == s->records && useful == s->useful && tokens == s->tokens && supervised == s->supervised;
}

static int each_once_per_epoch(const struct dry_plan_input *in)
{
    struct dry_plan *p;
    struct dry_plan_step s;
    int64_t *seen = dry_alloc((size_t)in->records, sizeof *seen, "seen");
    int good = dry_plan_create(in, &p) == DRY_OK;

    for (int64_t step = 1; good && step <= dry_plan_steps(p); step++) {
        good = dry_plan_step(p, step, &s) == DRY_OK && step_is_sound(in, &s) && s.step == step &&
               s.epoch == (step - 1) / dry_plan_steps_per_epoch(p);
        for (int64_t i = 0; good && i < s.records; i++)
            good = seen[s.record[i]]++ == s.epoch;
    }
    for (int64_t i = 0; good && i < in->records; i++)
        good = seen[i] == in->epochs;
    dry_free(seen);
    if (good)
        dry_plan_destroy(p);
    return good;
}

static void test_epochs(void)
{
    static const int64_t counts[] = {1, 2, 31, 32, 33, 64, 1000};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct made m = lengths(counts[i], 700);
        struct dry_plan_input in = input(m, counts[i]);
        tap_ok(each_once_per_epoch(&in), "%lld records: each once per epoch, cut by tokens",
               (long long)counts[i]);
        in.micro_tokens = 0;
        in.micro_records = 5;
        tap_ok(each_once_per_epoch(&in), "%lld records: each once per epoch, cut by records",
               (long long)counts[i]);
        in.effective_batch = 5000;
        tap_ok(each_once_per_epoch(&in), "%lld records: effective batch above them", (long long)counts[i]);
        in.ordered = 1;
        in.epochs = 1;
        in.effective_batch = 7;
        tap_ok(each_once_per_epoch(&in), "%lld records: in file order", (long long)counts[i]);
        drop(m);
    }
}

static void test_steps(void)
{
    struct made m = lengths(100, 300);
    struct dry_plan_input in = input(m, 100);
    struct dry_plan *p;
    struct dry_plan_step s;
    char first[DRY_HASH_HEX], again[DRY_HASH_HEX];

    dry_plan_create(&in, &p);
    tap_equal(dry_plan_steps_per_epoch(p), 4, "100 records in steps of 32: 4 a epoch");
    tap_equal(dry_plan_steps(p), 8, "2 epochs: 8 steps");
    dry_plan_step(p, 4, &s);
    tap_equal(s.records, 4, "the last step of an epoch is smaller");
    dry_plan_step(p, 5, &s);
    tap_ok(s.records == 32 && s.epoch == 1, "a step never spans two epochs");
    dry_plan_hash(p, first);
    int64_t kept = (dry_plan_step(p, 3, &s), s.record[0]);
    dry_plan_step(p, 8, &s);
    dry_plan_step(p, 3, &s);
    tap_equal(s.record[0], kept, "steps may be asked for in any order");
    dry_plan_destroy(p);

    dry_plan_create(&in, &p);
    dry_plan_hash(p, again);
    tap_text(again, first, "the same input, the same hash");
    dry_plan_destroy(p);
    in.seed = 43;
    dry_plan_create(&in, &p);
    dry_plan_hash(p, again);
    tap_ok(strcmp(first, again) != 0, "another seed, another hash");
    dry_plan_destroy(p);
    in.seed = 42;
    in.micro_tokens = 512;
    dry_plan_create(&in, &p);
    dry_plan_hash(p, again);
    tap_ok(strcmp(first, again) != 0, "another cut, another hash");
    dry_plan_destroy(p);

    in.max_steps = 11;
    dry_plan_create(&in, &p);
    dry_plan_step(p, 11, &s);
    tap_ok(dry_plan_steps(p) == 11 && s.epoch == 2, "max_steps reaches into further epochs");
    dry_plan_destroy(p);
    in.max_steps = 3;
    dry_plan_create(&in, &p);
    tap_equal(dry_plan_steps(p), 3, "max_steps ends before the epoch does");
    dry_plan_destroy(p);
    drop(m);
}

static void test_cuts_share_updates(void)
{
    struct made m = lengths(200, 300);
    struct dry_plan_input in = input(m, 200);
    struct dry_plan *a, *b;
    struct dry_plan_step s;
    int same = 1;

    dry_plan_create(&in, &a);
    in.micro_tokens = 0;
    in.micro_records = 1;
    dry_plan_create(&in, &b);
    for (int64_t step = 1; step <= dry_plan_steps(a); step++) {
        char member[200] = {0};
        dry_plan_step(a, step, &s);
        for (int64_t i = 0; i < s.records; i++)
            member[s.record[i]] = 1;
        dry_plan_step(b, step, &s);
        for (int64_t i = 0; i < s.records; i++)
            same = same && member[s.record[i]];
    }
    tap_ok(same, "how a step is cut never changes which records share an update");
    dry_plan_destroy(a);
    dry_plan_destroy(b);
    drop(m);
}

static void test_order(void)
{
    struct made m = lengths(50, 300);
    struct dry_plan_input in = input(m, 50);
    struct dry_plan *p;
    struct dry_plan_step s;
    int good = 1;

    in.ordered = 1;
    in.epochs = 1;
    in.effective_batch = 16;
    dry_plan_create(&in, &p);
    for (int64_t step = 1; step <= dry_plan_steps(p); step++) {
        dry_plan_step(p, step, &s);
        for (int64_t i = 0; i < s.records; i++)
            good = good && s.record[i] / 16 == step - 1;
    }
    tap_ok(good && dry_plan_steps(p) == 4, "file order: each step is the next records of the file");
    dry_plan_destroy(p);
    drop(m);
}

static void test_bounds(void)
{
    struct made m = lengths(500, 900);
    struct dry_plan_input in = input(m, 500);
    struct dry_plan *p;
    struct dry_plan_step s;
    struct dry_plan_bounds b, own = {0};

    dry_plan_create(&in, &p);
    dry_plan_bounds(p, &b);
    for (int64_t step = 1; step <= dry_plan_steps(p); step++) {
        dry_plan_step(p, step, &s);
        own.micros = s.micros > own.micros ? s.micros : own.micros;
        for (int64_t i = 0; i < s.micros; i++) {
            own.tokens = s.micro[i].tokens > own.tokens ? s.micro[i].tokens : own.tokens;
            own.records = s.micro[i].count > own.records ? s.micro[i].count : own.records;
            own.supervised = s.micro[i].supervised > own.supervised ? s.micro[i].supervised : own.supervised;
            own.longest = s.micro[i].longest > own.longest ? s.micro[i].longest : own.longest;
        }
    }
    tap_ok(memcmp(&b, &own, sizeof b) == 0, "bounds are the largest of every micro-batch");
    dry_plan_destroy(p);
    in.micro_tokens = 64; /* less than the longest record */
    dry_plan_create(&in, &p);
    dry_plan_bounds(p, &b);
    tap_ok(b.tokens >= b.longest && b.longest > 64,
           "a record above micro_tokens is a micro-batch of its own");
    dry_plan_destroy(p);
    drop(m);
}

/* Padding to a fixed length: a record counts as that many tokens in the cut, the shape and the cost. */
static void test_padded(void)
{
    struct made m = lengths(101, 500);
    struct dry_plan_input in = input(m, 101);
    struct dry_plan *flat, *padded;
    struct dry_plan_step s, as_flat;
    char one[DRY_HASH_HEX], two[DRY_HASH_HEX];
    int by_tokens = 1, by_records = 1, same_records = 1, costs = 1;

    in.epochs = 1;
    dry_plan_create(&in, &flat);
    in.record_tokens = 500;
    in.micro_tokens = 2000;
    dry_plan_create(&in, &padded);
    for (int64_t step = 1; step <= dry_plan_steps(padded); step++) {
        dry_plan_step(flat, step, &as_flat);
        dry_plan_step(padded, step, &s);
        same_records = same_records && s.useful == as_flat.useful && s.supervised == as_flat.supervised;
        by_tokens = by_tokens && s.micros == (s.records + 3) / 4;
        for (int64_t i = 0; i < s.micros; i++) {
            const struct dry_micro_batch *b = &s.micro[i];
            by_tokens =
                by_tokens && b->count <= 4 &&
                b->tokens == (b->count * 500 + DRY_ROW_MULTIPLE - 1) / DRY_ROW_MULTIPLE * DRY_ROW_MULTIPLE;
            costs = costs && dry_plan_cost(b) > dry_plan_cost(&(struct dry_micro_batch){.tokens = b->useful});
        }
    }
    tap_ok(same_records, "padded: the records of a step, its tokens and labels are those of the flat plan");
    tap_ok(by_tokens, "padded: 2000 tokens hold four records of 500, and are computed whole");
    tap_ok(costs, "padded: padding costs");
    dry_plan_destroy(padded);
    in.micro_tokens = 0;
    in.micro_records = 3;
    dry_plan_create(&in, &padded);
    for (int64_t step = 1; step <= dry_plan_steps(padded); step++) {
        dry_plan_step(padded, step, &s);
        for (int64_t i = 0; i < s.micros; i++)
            by_records = by_records && s.micro[i].count <= 3 && s.micro[i].tokens >= 500 * s.micro[i].count;
    }
    tap_ok(by_records, "padded: cut by records");
    dry_plan_hash(padded, one);
    dry_plan_destroy(padded);
    in.record_tokens = 512;
    dry_plan_create(&in, &padded);
    dry_plan_hash(padded, two);
    tap_ok(strcmp(one, two) != 0, "padded: the hash tells another length");
    dry_plan_destroy(padded);
    in.record_tokens = 16; /* under most lengths: a record still has room */
    dry_plan_create(&in, &padded);
    dry_plan_step(padded, 1, &s);
    tap_ok(s.tokens >= s.useful, "padded: no record is cut");
    dry_plan_destroy(padded);
    dry_plan_destroy(flat);
    in.record_tokens = -1;
    tap_equal(dry_plan_create(&in, &padded), DRY_ERR_USAGE, "padded: a negative length is refused");
    drop(m);
}

/* The least largest filling of `micros` micro-batches over lengths[0..n), by trying every cut. */
static int64_t best_filling(const int64_t *length, int64_t n, int64_t micros)
{
    int64_t best = INT64_MAX, sum = 0;

    if (micros == 1) {
        for (int64_t i = 0; i < n; i++)
            sum += length[i];
        return sum;
    }
    for (int64_t i = 1; i < n; i++) {
        sum += length[i - 1];
        int64_t rest = best_filling(length + i, n - i, micros - 1);
        int64_t most = sum > rest ? sum : rest;
        best = most < best ? most : best;
    }
    return best;
}

static void test_even(void)
{
    struct made m = lengths(240, 500);
    struct dry_plan_input in = input(m, 240);
    struct dry_plan *p;
    struct dry_plan_step s;
    int good = 1;

    in.effective_batch = 12;
    in.epochs = 1;
    dry_plan_create(&in, &p);
    for (int64_t step = 1; step <= dry_plan_steps(p); step++) {
        int64_t length[12], most = 0, greedy = 0, room = 0;
        dry_plan_step(p, step, &s);
        for (int64_t i = 0; i < s.records; i++) {
            length[i] = in.offset[s.record[i] + 1] - in.offset[s.record[i]];
            if (length[i] > room) {
                greedy++;
                room = in.micro_tokens;
            }
            room -= length[i];
        }
        for (int64_t i = 0; i < s.micros; i++)
            most = s.micro[i].useful > most ? s.micro[i].useful : most;
        good = good && s.micros == greedy && most == best_filling(length, s.records, s.micros);
    }
    tap_ok(good, "micro-batches are as few as fit, and the largest is as small as can be");
    dry_plan_destroy(p);
    drop(m);
}

static void test_deal(void)
{
    struct made m = lengths(997, 800);
    struct dry_plan_input in = input(m, 997);
    struct dry_plan *p;
    struct dry_plan_step s;
    static const int ranks[] = {1, 2, 3, 5, 8, 64};
    int owner[32];

    in.effective_batch = 32;
    in.micro_tokens = 0;
    in.micro_records = 1;
    dry_plan_create(&in, &p);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        int good = 1;
        for (int64_t step = 1; step <= dry_plan_steps(p); step++) {
            int64_t load[64] = {0}, most = 0, all = 0, heaviest = 0;
            dry_plan_step(p, step, &s);
            dry_plan_deal(&s, ranks[i], owner);
            for (int64_t k = 0; k < s.micros; k++) {
                int64_t cost = dry_plan_cost(&s.micro[k]);
                good = good && owner[k] >= 0 && owner[k] < ranks[i];
                load[owner[k]] += cost;
                all += cost;
                heaviest = cost > heaviest ? cost : heaviest;
            }
            for (int r = 0; r < ranks[i]; r++)
                most = load[r] > most ? load[r] : most;
            good = good && most <= all / ranks[i] + heaviest + 1;
        }
        tap_ok(good, "%d ranks: every micro-batch has an owner, and loads differ by one at most", ranks[i]);
    }
    dry_plan_step(p, 1, &s);
    dry_plan_deal(&s, 64, owner);
    int64_t used = 0;
    for (int r = 0; r < 64; r++)
        for (int64_t k = 0; k < s.micros; k++)
            if (owner[k] == r) {
                used++;
                break;
            }
    tap_equal(used, 32, "32 micro-batches on 64 ranks: half of them are idle");
    dry_plan_destroy(p);
    drop(m);
}

static void test_refusals(void)
{
    struct made m = lengths(10, 30);
    struct dry_plan_input in = input(m, 10);
    struct dry_plan *p;

    in.micro_records = 4;
    tap_equal(dry_plan_create(&in, &p), DRY_ERR_USAGE, "both cuts given: refused");
    in.micro_records = in.micro_tokens = 0;
    tap_equal(dry_plan_create(&in, &p), DRY_ERR_USAGE, "no cut given: refused");
    in = input(m, 10);
    in.epochs = INT64_MAX;
    tap_equal(dry_plan_create(&in, &p), DRY_OK, "very many epochs of one step");
    dry_plan_destroy(p);
    in.effective_batch = 1;
    tap_equal(dry_plan_create(&in, &p), DRY_ERR_USAGE, "more steps than can be counted: refused");
    drop(m);
}

static void test_large(void)
{
    int64_t n = 1000000;
    struct made m = lengths(n, 2000);
    struct dry_plan_input in = input(m, n);
    struct dry_plan *p;
    struct dry_plan_bounds b;
    double start = dry_clock_now();

    in.epochs = 1;
    in.micro_tokens = 8192;
    dry_plan_create(&in, &p);
    int good = dry_plan_bounds(p, &b) == DRY_OK;
    double seconds = dry_clock_now() - start;
    tap_ok(good && seconds < 5, "a million records are planned and hashed in seconds");
    printf("# %.2f s\n", seconds);
    dry_plan_destroy(p);
    drop(m);
}

int main(void)
{
    test_epochs();
    test_steps();
    test_cuts_share_updates();
    test_order();
    test_bounds();
    test_padded();
    test_even();
    test_deal();
    test_refusals();
    test_large();
    return tap_done();
}
