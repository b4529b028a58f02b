/* Length report, buckets, overlap, and what a plan means for ranks. */
#include "config.h"

#include "data/lengths.h"
#include "data/shares.h"
#include "data/tables.h"

#include "tap.h"

enum { N = 200 };

static int64_t offset[N + 1];
static int32_t supervised[N];
static uint64_t digest[N];

/* Records of 1, 2, ... N tokens, in falling order. */
static struct dry_cache_view view(void)
{
    for (int i = 0; i < N; i++) {
        offset[i + 1] = offset[i] + N - i;
        supervised[i] = 1;
        digest[i] = (uint64_t)i;
    }
    return (struct dry_cache_view){.records = N,
                                   .tokens = offset[N],
                                   .supervised = N,
                                   .offset = offset,
                                   .supervised_of = supervised,
                                   .digest = digest};
}

static void test_lengths(void)
{
    struct dry_cache_view v = view();
    struct dry_lengths l;

    dry_lengths_of(&v, 150, &l);
    tap_ok(l.least == 1 && l.most == 200, "least and most");
    tap_ok(l.p50 == 100 && l.p90 == 180 && l.p95 == 190 && l.p99 == 198, "percentiles by nearest rank");
    tap_near(l.mean, 100.5, 1e-12, "mean");
    tap_equal(l.over_limit, 50, "records over the limit");
    tap_equal(l.fixed_positions, 200 * 150, "positions at the limit");
    tap_equal(l.fixed_tokens, 150 * 151 / 2 + 50 * 150, "tokens of them, long ones cut");
    tap_equal(l.bucket_positions, 64 * 64 + 64 * 128 + 64 * 192 + 8 * 200, "positions by bucket");
    tap_ok(l.buckets == 4 && l.bucket[1].length == 128 && l.bucket[1].records == 64 &&
               l.bucket[1].tokens == (65 + 128) * 64 / 2,
           "a bucket's records and tokens");
    v.records = 1;
    v.tokens = 200;
    dry_lengths_of(&v, 150, &l);
    tap_ok(l.least == 200 && l.p50 == 200 && l.p99 == 200 && l.most == 200, "one record");
}

static void test_buckets(void)
{
    static const int32_t want[] = {64, 128, 192, 256, 384, 512, 768, 1000};
    int32_t length[64];

    tap_equal(dry_bucket_lengths(1000, NULL), 8, "buckets under a limit of 1000");
    dry_bucket_lengths(1000, length);
    tap_ok(memcmp(length, want, sizeof want) == 0, "powers of two, halfway between them, and the limit");
    tap_ok(dry_bucket_lengths(10, length) == 1 && length[0] == 10, "a limit below the least");
    tap_ok(dry_bucket_lengths(64, length) == 1 && length[0] == 64, "a limit that is the least");
    tap_ok(dry_bucket_lengths(96, length) == 2 && length[1] == 96, "a limit between two");
    int64_t n = dry_bucket_lengths(INT32_MAX, length);
    tap_ok(n <= 64 && length[n - 1] == INT32_MAX, "the largest limit");
}

static void test_overlap(void)
{
    static const uint64_t some[] = {5, 1000, 5, 199};
    struct dry_cache_view a = view(), b = {.records = 4, .digest = some};
    int64_t found = -1;

    dry_cache_overlap(&a, &b, &found);
    tap_equal(found, 3, "records of one cache that also stand in another");
}

static void test_shares(void)
{
    struct dry_cache_view v = view();
    struct dry_plan_input in = {.records = N,
                                .offset = v.offset,
                                .supervised = v.supervised_of,
                                .effective_batch = 30,
                                .micro_records = 10,
                                .epochs = 1,
                                .seed = 3};
    struct dry_plan *p;
    struct dry_plan_totals t;
    struct dry_plan_share s;

    dry_plan_create(&in, &p);
    dry_plan_total(p, dry_plan_steps(p), &t);
    tap_ok(t.steps == 7 && t.records == N && t.useful == v.tokens && t.supervised == N, "totals of an epoch");
    tap_ok(t.micros == 20 && t.micros_least == 2 && t.micros_most == 3,
           "micro-batches: 3 a step, 2 in the last");
    dry_plan_shares(p, 7, 1, &s);
    tap_ok(s.least == 2 && s.most == 3 && s.idle_most == 0, "one rank does them all");
    tap_near(s.balance, 1, 1e-12, "and waits for nobody");
    dry_plan_shares(p, 7, 2, &s);
    tap_ok(s.least == 1 && s.most == 2 && s.idle_most == 0, "two ranks: one or two each");
    tap_near(s.mean, 20.0 / 14, 1e-12, "mean per rank and step");
    dry_plan_shares(p, 7, 4, &s);
    tap_ok(s.least == 0 && s.most == 1 && s.idle_most == 2, "four ranks: one or two are idle");
    tap_near(s.idle, 8.0 / 7, 1e-12, "idle ranks per step");
    tap_ok(s.balance > 0.3 && s.balance < 0.75, "balance at most three quarters");
    dry_plan_destroy(p);
}

int main(void)
{
    test_lengths();
    test_buckets();
    test_overlap();
    test_shares();
    return tap_done();
}
