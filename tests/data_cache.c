/* The cache file: what is written comes back, and each kind of damage or staleness is named. */
#include "config.h"

#include "data/batch.h"
#include "data/cache_file.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include "tap.h"

#include <hdf5.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECORDS = 300, LIMIT = 200 };

static char folder[] = "/tmp/drydock-cache.XXXXXX", path[64], captured[4096];

/* What the calls between said on standard error. */
static int saved = -1;
static FILE *sink;

static void listen_begin(void)
{
    fflush(stderr);
    sink = tmpfile();
    saved = dup(2);
    dup2(fileno(sink), 2);
}

static void listen_end(void)
{
    size_t n;

    fflush(stderr);
    rewind(sink);
    n = fread(captured, 1, sizeof captured - 1, sink);
    captured[n] = '\0';
    dup2(saved, 2);
    close(saved);
    fclose(sink);
}

static void hash_text(char hex[DRY_HASH_HEX], const char *text)
{
    dry_hash_bytes(text, strlen(text), hex);
}

static struct dry_cache_source source(void)
{
    struct dry_cache_source s = {.data_path = "some/data.jsonl"};

    hash_text(s.data_hash, "data");
    hash_text(s.tokenizer_hash, "tokenizer");
    hash_text(s.rule_hash, "rule");
    return s;
}

static struct dry_cache_origin origin(void)
{
    struct dry_cache_source s = source();
    struct dry_cache_origin o = {.data_path = "some/data.jsonl", .template_name = "plain"};

    memcpy(o.data_hash, s.data_hash, sizeof o.data_hash);
    memcpy(o.tokenizer_hash, s.tokenizer_hash, sizeof o.tokenizer_hash);
    memcpy(o.rule_hash, s.rule_hash, sizeof o.rule_hash);
    dry_cache_key(&s, o.key);
    return o;
}

/* Record r: 3 + r % 150 tokens; two spans, [1, 2) and the last one. */
static struct dry_tables tables(void)
{
    struct dry_tables t = {.records = RECORDS, .spans = 2 * RECORDS, .limit = LIMIT, .largest_id = 1 << 20};

    t.offset = dry_alloc(RECORDS + 1, sizeof *t.offset, "offset");
    t.span_offset = dry_alloc(RECORDS + 1, sizeof *t.span_offset, "span offset");
    t.span = dry_alloc(2 * RECORDS, sizeof *t.span, "span");
    t.line = dry_alloc(RECORDS, sizeof *t.line, "line");
    t.supervised = dry_alloc(RECORDS, sizeof *t.supervised, "supervised");
    t.digest = dry_alloc(RECORDS, sizeof *t.digest, "digest");
    for (int r = 0; r < RECORDS; r++) {
        int32_t length = 3 + r % 150;
        t.offset[r + 1] = t.offset[r] + length;
        t.span_offset[r + 1] = t.span_offset[r] + 2;
        t.span[2 * r] = (struct dry_span){1, 2};
        t.span[2 * r + 1] = (struct dry_span){length - 1, length};
        t.supervised[r] = 2;
        t.line[r] = 1 + 2 * r;
        t.digest[r] = (uint64_t)(r % 290); /* the last ten repeat the first */
    }
    t.tokens = t.offset[RECORDS];
    t.token = dry_alloc((size_t)t.tokens, sizeof *t.token, "token");
    for (int64_t i = 0; i < t.tokens; i++)
        t.token[i] = (int32_t)(i * 7 % (1 << 20));
    t.outcome[DRY_RECORD_GOOD] = RECORDS;
    t.outcome[DRY_RECORD_EMPTY_COMPLETION] = 4;
    t.special_text = 5;
    t.truncated = 6;
    dry_tables_complete(&t);
    return t;
}

/* Writes the file after `change` has spoiled it; NULL: as it should be. */
static void write_file(void (*change)(struct dry_tables *, struct dry_cache_origin *))
{
    struct dry_tables t = tables();
    struct dry_cache_origin o = origin();

    if (change)
        change(&t, &o);
    if (dry_cache_file_write(path, &o, &t) != DRY_OK)
        tap_ok(0, "the file is written");
    dry_tables_reset(&t);
}

static void test_round_trip(void)
{
    struct dry_cache_source s = source();
    struct dry_tables t = tables();
    struct dry_cache *c = NULL;
    int32_t ids[LIMIT];
    struct dry_span span[2];
    int64_t spans;
    int good = 1;

    write_file(NULL);
    if (!tap_equal(dry_cache_open(path, &s, &c), DRY_OK, "a written cache opens"))
        return;
    const struct dry_cache_view *v = dry_cache_view(c);
    tap_ok(v->records == RECORDS && v->tokens == t.tokens && v->supervised == 2 * RECORDS,
           "counts come back");
    tap_ok(v->outcome[DRY_RECORD_EMPTY_COMPLETION] == 4 && v->special_text == 5 && v->truncated == 6 &&
               v->limit == LIMIT && v->largest_id == 1 << 20,
           "the preflight's counts come back");
    tap_equal(v->duplicates, 10, "repeated records are counted");
    tap_text(v->data_path, "some/data.jsonl", "the data's path comes back");
    for (int r = RECORDS - 1; r >= 0; r--) {
        int64_t length = t.offset[r + 1] - t.offset[r];
        good = good && dry_cache_read(c, r, ids, span, &spans) == DRY_OK && spans == 2 &&
               dry_cache_spans(c, r) == 2 &&
               memcmp(ids, t.token + t.offset[r], (size_t)length * sizeof *ids) == 0 &&
               memcmp(span, t.span + 2 * r, sizeof span) == 0 && v->line[r] == t.line[r] &&
               v->bucket_length[v->bucket[r]] >= length &&
               (v->bucket[r] == 0 || v->bucket_length[v->bucket[r] - 1] < length);
    }
    tap_ok(good, "every record comes back, in its bucket");
    tap_ok(v->buckets == 4 && v->bucket_length[0] == 64 && v->bucket_length[1] == 128 &&
               v->bucket_length[2] == 192 && v->bucket_length[3] == LIMIT,
           "bucket lengths up to the limit");
    good = 1;
    for (int part = 0; part < 7; part++)
        good = good && dry_cache_check(c, part, 7) == DRY_OK;
    tap_ok(good, "every share of the tokens passes the check");
    dry_cache_close(c);
    dry_tables_reset(&t);
}

/* Opens (and, when that works, checks the tokens of) the file: must fail with INPUT and say each of the
 * words. */
static void refused(const char *name, const char *first, const char *second)
{
    struct dry_cache_source s = source();
    struct dry_cache *c = NULL;
    enum dry_status st;

    listen_begin();
    st = dry_cache_open(path, &s, &c);
    if (!st)
        st = dry_cache_check(c, 0, 1);
    dry_cache_close(c);
    listen_end();
    int good = tap_ok(st == DRY_ERR_INPUT && strstr(captured, first) && strstr(captured, second) &&
                          strchr(captured, '\n') == strrchr(captured, '\n'),
                      "%s", name);
    if (!good)
        printf("# status %s, said: %s", dry_status_name(st), captured);
}

static void other_data(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)t;
    hash_text(o->data_hash, "other");
}
static void other_tokenizer(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)t;
    hash_text(o->tokenizer_hash, "other");
}
static void other_rule(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)t;
    hash_text(o->rule_hash, "other");
}
static void other_key(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)t;
    hash_text(o->key, "other");
}
static void falling_offset(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->offset[10] = t->offset[12];
}
static void far_offset(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->offset[10] = INT64_MAX;
}
static void long_record(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->limit = 100;
}
static void span_outside(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->span[41].end += 1;
}
static void span_backward(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->span[40].begin = 2;
}
static void wrong_labels(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->supervised[7] = 3;
}
static void negative_id(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->token[1234] = -1;
}
static void large_id(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->token[1234] = t->largest_id + 1;
}
static void wrong_bucket(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->bucket[149] = 0;
}
static void wrong_line(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->line[5] = t->line[4];
}
static void fewer_tokens(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->tokens -= 1;
}
static void fewer_rows(struct dry_tables *t, struct dry_cache_origin *o)
{
    (void)o;
    t->records -= 1; /* of every table by record: the offsets then end too early */
}

static void test_content(void)
{
    static const struct {
        void (*change)(struct dry_tables *, struct dry_cache_origin *);
        const char *name, *first, *second;
    } cases[] = {
        {other_data, "made from other data", "is stale", "data_hash"},
        {other_tokenizer, "made with another tokenizer", "is stale", "tokenizer_hash"},
        {other_rule, "made by another rule", "is stale", "rule_hash"},
        {other_key, "a key that is not that of the fields", "attribute key", "delete the file"},
        {falling_offset, "offsets that fall", "/offset", "record 10"},
        {far_offset, "an offset beyond the tokens", "/offset", "record 9"},
        {long_record, "a record longer than the limit", "/offset", "longer than the limit"},
        {span_outside, "a span that leaves its record", "/span", "record 20"},
        {span_backward, "a span that ends before it begins", "/span", "record 20"},
        {wrong_labels, "a count of labels that is not that of the spans", "/supervised", "record 7"},
        {negative_id, "a negative id", "/tokens", "id -1"},
        {large_id, "an id above the largest", "/tokens", "id 1048577"},
        {wrong_bucket, "a bucket too short for its record", "/bucket", "record 149"},
        {wrong_line, "line numbers that do not rise", "/line", "record 5"},
        {fewer_tokens, "fewer tokens than the offsets say", "/offset", "record 299"},
        {fewer_rows, "fewer records than tokens say", "/offset", "record 299"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(cases[i].change);
        refused(cases[i].name, cases[i].first, cases[i].second);
    }
}

/* Flips a bit in the file, at the first place that holds these bytes. */
static void flip(const void *bytes, size_t size)
{
    char *data;
    size_t length;

    if (dry_file_read(path, &data, &length) != DRY_OK)
        return;
    char *at = memmem(data, length, bytes, size);
    if (at) {
        at[1] ^= 4;
        dry_file_write(path, data, length);
    } else {
        tap_ok(0, "the bytes to damage are there");
    }
    dry_free(data);
}

static void test_bytes(void)
{
    static const char *const lost[] = {"tokens", "offset", "span",       "span_offset",  "line",
                                       "digest", "bucket", "supervised", "bucket_length"};
    struct dry_tables t = tables();
    int64_t version = 2;
    char *data;
    size_t size;
    hid_t file, a;

    write_file(NULL);
    flip(t.token + 1000, 64);
    refused("a flipped bit in /tokens", "dataset /tokens is damaged", "delete the file");
    write_file(NULL);
    flip(t.offset + 100, 64);
    refused("a flipped bit in /offset", "dataset /offset is damaged", "delete the file");
    write_file(NULL);
    flip("data_path", 9);
    refused("a flipped bit in the metadata", "cache /tmp", "delete the file");

    write_file(NULL);
    dry_file_read(path, &data, &size);
    dry_file_write(path, data, size - 1);
    refused("a file that lacks its end", "not a whole HDF5 file", "delete the file");
    dry_file_write(path, data, 0);
    refused("an empty file", "not a whole HDF5 file", "delete the file");
    dry_file_write(path, "{\"prompt\": 1}\n", 14);
    refused("a file of another kind", "not a whole HDF5 file", "delete the file");
    dry_free(data);

    write_file(NULL);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    a = H5Aopen(file, "format_version", H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_INT64, &version);
    H5Aclose(a);
    H5Fclose(file);
    refused("another format version", "format_version is 2", "reads 1");
    write_file(NULL);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    H5Adelete(file, "limit");
    H5Fclose(file);
    refused("an attribute that is missing", "attribute limit is missing", "delete the file");
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        char want[64];
        write_file(NULL);
        file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        H5Ldelete(file, lost[i], H5P_DEFAULT);
        H5Fclose(file);
        snprintf(want, sizeof want, "dataset /%s", lost[i]);
        refused("a dataset that is missing", want, "delete the file");
    }
    dry_tables_reset(&t);
}

static void test_faults(void)
{
    struct dry_tables t = tables();
    struct dry_cache_origin o = origin();
    char **names;
    size_t count;

    unlink(path);
    setenv("DRY_FAULT", "write:1", 1);
    listen_begin();
    enum dry_status st = dry_cache_file_write(path, &o, &t);
    listen_end();
    unsetenv("DRY_FAULT");
    tap_equal(st, DRY_ERR_IO, "a failing write is an error");
    tap_ok(strstr(captured, path) && strstr(captured, "No space left"), "it names file and cause");
    dry_dir_list(folder, &names, &count);
    tap_equal((long long)count, 0, "and leaves nothing behind");
    dry_dir_free(names, count);
    dry_tables_reset(&t);
}

/* Two records side by side: rows, labels and positions as section 4 of the design defines them. */
static void test_batch(void)
{
    struct dry_cache_source s = source();
    struct dry_cache *c;
    struct dry_plan *p;
    struct dry_plan_step step;
    struct dry_plan_bounds b;
    struct dry_loader *l;
    const struct dry_batch *batch;
    int good = 1;

    write_file(NULL);
    if (dry_cache_open(path, &s, &c))
        return;
    const struct dry_cache_view *v = dry_cache_view(c);
    struct dry_plan_input in = {.records = v->records,
                                .offset = v->offset,
                                .supervised = v->supervised_of,
                                .effective_batch = 16,
                                .micro_tokens = 300,
                                .epochs = 1,
                                .seed = 1};
    dry_plan_create(&in, &p);
    dry_plan_bounds(p, &b);
    tap_equal(dry_loader_create(c, &b, &l), DRY_OK, "a loader for the plan's bounds");
    for (int64_t k = 1; k <= dry_plan_steps(p); k++) {
        dry_plan_step(p, k, &step);
        for (int64_t m = 0; m < step.micros && good; m++) {
            int64_t rows = 0;
            good = dry_loader_load(l, &step, m, &batch) == DRY_OK && batch->tokens % DRY_ROW_MULTIPLE == 0 &&
                   batch->records == step.micro[m].count && batch->step == k;
            for (int64_t i = 0; good && i < batch->records; i++) {
                int64_t r = batch->record[i], first = batch->offset[i], n = v->offset[r + 1] - v->offset[r];
                good = batch->offset[i + 1] - first == n && batch->row[rows] == first &&
                       batch->label[rows] == batch->id[first + 1] && batch->row[rows + 1] == first + n - 2 &&
                       batch->label[rows + 1] == batch->id[first + n - 1];
                rows += 2;
                for (int64_t t = 0; good && t < n; t++)
                    good = batch->position[first + t] == t &&
                           batch->id[first + t] == (int32_t)((v->offset[r] + t) * 7 % (1 << 20));
            }
            good = good && rows == batch->rows && batch->offset[batch->records] == batch->useful;
            for (int64_t t = batch->useful; good && t < batch->tokens; t++)
                good = batch->id[t] == 0 && batch->position[t] == 0;
        }
    }
    tap_ok(good, "ids, positions, rows and labels of every micro-batch");
    dry_loader_destroy(l);
    dry_plan_destroy(p);
    dry_cache_close(c);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/c.h5", folder);
    test_round_trip();
    test_content();
    test_bytes();
    test_batch();
    test_faults();
    unlink(path);
    rmdir(folder);
    return tap_done();
}
