/*
 * merge: every merged weight against the sum in double precision, other tensors untouched, shards, and
 * refusals.
 */
#include "config.h"

#include "state/merge.h"

#include "base/file.h"
#include "base/memory.h"
#include "capture.h"
#include "scratch.h"
#include "tap.h"
#include "tiny.h"

#include <dirent.h>

struct subject {
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values;
};

static int open_subject(const char *dir, const struct tiny_spec *spec, struct subject *s)
{
    struct dry_adapter_request r = {.rank = 3, .alpha = 5, .targets = 127, .rank_pattern = "o_proj=5"};

    memset(s, 0, sizeof *s);
    if (tiny_base_write(dir, spec) || dry_base_open(dir, &s->base) ||
        dry_adapter_create(&s->base->arch, &r, &s->adapter))
        return 0;
    s->values = dry_alloc((size_t)s->adapter->parameters, sizeof *s->values, "values");
    dry_adapter_init(s->adapter, 1, s->values);
    for (int64_t i = 0; i < s->adapter->parameters; i++)
        s->values[i] += (float)(i * 37 % 101 - 50) / 400;
    return 1;
}

static void close_subject(struct subject *s)
{
    dry_free(s->values);
    dry_adapter_destroy(s->adapter);
    dry_base_close(s->base);
}

/* The largest difference from W + scale B A, in units of what rounding once to the type and sums in float32
 * allow; -1: the type differs. */
static double check_layer(const struct subject *s, const struct dry_base *merged, enum dry_dtype to,
                          double unit)
{
    double worst = 0;

    for (int64_t i = 0; i < s->adapter->parts; i++) {
        const struct dry_adapter_part *p = &s->adapter->part[i];
        const struct dry_tensor *from = s->base->layer[p->layer].weight[p->proj];
        const struct dry_tensor *is = merged->layer[p->layer].weight[p->proj];

        if (is->dtype != to)
            return -1;
        for (int64_t e = 0; e < from->elements; e++) {
            int64_t row = e / p->in, column = e % p->in;
            float w, got;
            double sum = 0, size = 0, want;

            dry_to_f32(from->dtype, (const char *)from->data + (size_t)e * dry_dtype_size(from->dtype), 1,
                       &w);
            dry_to_f32(to, (const char *)is->data + (size_t)e * dry_dtype_size(to), 1, &got);
            for (int64_t k = 0; k < p->rank; k++) {
                double product =
                    (double)s->values[p->b + row * p->rank + k] * s->values[p->a + k * p->in + column];

                sum += product;
                size += fabs(product);
            }
            want = w + (double)p->scale * sum;
            size = fabs(w) + (double)p->scale * size;
            size = ldexp(size, -22) + (to == DRY_F16 ? ldexp(1, -25) : 0);
            worst = fmax(worst, fabs(got - want) / (unit * fabs(want) + size));
        }
    }
    return worst;
}

static void merges(const char *name, const struct tiny_spec *spec, enum dry_dtype to, double unit)
{
    const char *dir = scratch_path("base"), *out = scratch_path("merged");
    enum dry_dtype written = to == DRY_OTHER ? spec->dtype : to;
    struct dry_base *merged = NULL;
    struct subject s;
    double worst;

    scratch_remove(dir);
    scratch_remove(out);
    tap_ok(open_subject(dir, spec, &s) && !dry_merge(s.base, s.adapter, s.values, out, to, INT64_MAX) &&
               !dry_base_open(out, &merged),
           "%s: merged and opened", name);
    if (merged) {
        worst = check_layer(&s, merged, written, unit);
        tap_ok(worst >= 0 && worst <= 1, "%s: W + scale B A, rounded once (%.3f)", name, worst);
        tap_ok(merged->arch.tied == s.base->arch.tied && merged->norm->dtype == written &&
                   dry_tensors_count(merged->tensors) == dry_tensors_count(s.base->tensors),
               "%s: the other tensors are there", name);
        tap_ok(to != DRY_OTHER || memcmp(merged->embed->data, s.base->embed->data, merged->embed->bytes) == 0,
               "%s: and unchanged", name);
        tap_text(merged->arch.dtype,
                 written == DRY_F32    ? "float32"
                 : written == DRY_BF16 ? "bfloat16"
                                       : "float16",
                 "config.json says the type");
    }
    dry_base_close(merged);
    close_subject(&s);
}

static int count_files(const char *dir, const char *part)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return n;
}

static void sharded(void)
{
    const char *dir = scratch_path("base"), *one = scratch_path("one"), *many = scratch_path("many");
    struct tiny_spec spec = {.family = "qwen2", .layers = 3, .dtype = DRY_BF16, .shards = 2};
    struct dry_base *a = NULL, *b = NULL;
    struct subject s;
    int same = 1, most = 1;

    scratch_remove(dir);
    tap_ok(open_subject(dir, &spec, &s), "a base of two shards");
    scratch_write(scratch_path("base/tokenizer.json"), "{}", 2);
    tap_ok(!dry_merge(s.base, s.adapter, s.values, one, DRY_OTHER, INT64_MAX) &&
               !dry_merge(s.base, s.adapter, s.values, many, DRY_OTHER, 3000) && !dry_base_open(one, &a) &&
               !dry_base_open(many, &b),
           "merged into one file and into shards");
    tap_ok(count_files(one, ".safetensors") == 1 && count_files(many, ".safetensors") > 4 &&
               count_files(many, "index.json") == 1 && count_files(many, "tokenizer.json") == 1,
           "with index and tokenizer");
    for (size_t i = 0; a && b && i < dry_tensors_count(a->tensors); i++) {
        const struct dry_tensor *x = dry_tensors_at(a->tensors, i),
                                *y = dry_tensors_find(b->tensors, x->name);

        same &= y && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
    }
    tap_ok(a && b && same, "both have the same bytes");
    for (int f = 0; b && f < dry_tensors_files(b->tensors); f++) {
        int64_t size = 0, tensors = 0;

        dry_file_size(dry_tensors_file(b->tensors, f), &size);
        for (size_t i = 0; i < dry_tensors_count(b->tensors); i++)
            tensors += dry_tensors_at(b->tensors, i)->file == f;
        most &= size < 3000 + 2000 || tensors == 1;
    }
    tap_ok(most, "no shard is over the limit, but for one of a single tensor");
    dry_base_close(a);
    dry_base_close(b);

    capture_begin();
    tap_ok(dry_merge(s.base, s.adapter, s.values, one, DRY_OTHER, INT64_MAX) == DRY_ERR_USAGE,
           "a folder that holds weights is refused");
    tap_ok(dry_merge(s.base, s.adapter, s.values, dir, DRY_OTHER, INT64_MAX) == DRY_ERR_USAGE,
           "the base itself too");
    for (int64_t i = 0; i < s.adapter->parameters; i++)
        s.values[i] = 1e10f;
    tap_ok(dry_merge(s.base, s.adapter, s.values, scratch_path("inf"), DRY_F16, INT64_MAX) == DRY_ERR_NUMERIC,
           "a value over the range of the type is refused");
    capture_end();
    tap_ok(count_files(scratch_path("inf"), ".safetensors") == 0 &&
               count_files(scratch_path("inf"), "config.json") == 0,
           "and leaves no weights");
    close_subject(&s);
}

int main(void)
{
    struct tiny_spec plain = {.family = "llama"},
                     half = {.family = "qwen3", .dtype = DRY_BF16, .old_keys = 1};
    struct tiny_spec tied = {.family = "mistral", .tied = 1, .dtype = DRY_F16, .hidden = 32, .ffn = 1500};

    scratch_begin();
    setenv("OMP_NUM_THREADS", "2", 1);
    merges("float32", &plain, DRY_OTHER, ldexp(1, -24));
    merges("bfloat16", &half, DRY_OTHER, ldexp(1, -8));
    merges("bfloat16 to float32", &half, DRY_F32, ldexp(1, -24));
    merges("float16, tied, long rows", &tied, DRY_OTHER, ldexp(1, -11));
    merges("float32 to bfloat16", &plain, DRY_BF16, ldexp(1, -8));
    sharded();
    return tap_done();
}
