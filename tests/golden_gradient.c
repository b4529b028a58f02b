/*
 * Step 1 of every golden case: loss, gradient of every adapter tensor, held-out loss, against Transformers
 * and PEFT in float32, with the step as one micro-batch and with a micro-batch per record. Owns the backend
 * of one case; DRY_TEST_BACKEND names another than "cpu". Must not know how the golden numbers were made.
 */
#include "config.h"

#include "golden_case.h"
#include "tap.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/plan.h"
#include "state/peft.h"
#include "train/engine.h"

#include <stdlib.h>

/* Relative to the golden number, and to the largest entry of the golden tensor. A backend of bfloat16 rounds
 * weights and activations to 8 bits: these models' gradients move by some hundredths of their largest entry.
 */
static const struct tolerance {
    double loss, gradient;
} wide_tolerance = {1e-5, 1e-4}, narrow_tolerance = {2e-3, 8e-2};

struct bench {
    struct golden_case c;
    struct golden_records train, held_out;
    struct dry_base *base;
    struct dry_adapter *adapter;
    struct dry_backend *backend;
    struct dry_engine *engine;
    float *values, *want, *got;
    int64_t *chosen;
    int64_t count; /* records of step 1 */
    struct tolerance tolerance;
};

static const json_t *first_step(const struct bench *b)
{
    return json_array_get(json_object_get(b->c.golden, "steps"), 0);
}

static double golden_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void bench_close(struct bench *b)
{
    dry_engine_destroy(b->engine);
    if (b->backend)
        b->backend->ops->destroy(b->backend);
    dry_free(b->values);
    dry_free(b->want);
    dry_free(b->got);
    dry_free(b->chosen);
    dry_adapter_destroy(b->adapter);
    dry_base_close(b->base);
    golden_records_free(&b->train);
    golden_records_free(&b->held_out);
    golden_close(&b->c);
}

/* The limits of the largest micro-batch below: all of step 1, or one held-out record. */
static struct dry_limits limits_of(const struct bench *b)
{
    struct dry_limits l = {.records = b->count > 1 ? b->count : 1, .training = 1};

    for (int64_t i = 0; i < b->count; i++) {
        const struct dry_record *r = &b->train.record[b->chosen[i]];
        l.tokens += (int64_t)r->ids.count;
        l.rows += r->supervised;
        l.longest = (int64_t)r->ids.count > l.longest ? (int64_t)r->ids.count : l.longest;
    }
    for (int64_t i = 0; i < b->held_out.count; i++) {
        const struct dry_record *r = &b->held_out.record[i];
        l.tokens = (int64_t)r->ids.count > l.tokens ? (int64_t)r->ids.count : l.tokens;
        l.rows = r->supervised > l.rows ? r->supervised : l.rows;
        l.longest = (int64_t)r->ids.count > l.longest ? (int64_t)r->ids.count : l.longest;
    }
    l.tokens = (l.tokens + DRY_ROW_MULTIPLE - 1) / DRY_ROW_MULTIPLE * DRY_ROW_MULTIPLE;
    return l;
}

static enum dry_status bench_open(const char *name, const char *backend, struct bench *b)
{
    const struct dry_backend_ops *ops = NULL;
    enum dry_status status;
    char path[600];

    memset(b, 0, sizeof *b);
    if ((status = golden_open(name, &b->c)) ||
        (status = golden_records_read(&b->c, "train.jsonl", &b->train)) ||
        (status = golden_records_read(&b->c, "validation.jsonl", &b->held_out)) ||
        (status = dry_base_open(golden_path(&b->c, "base", path), &b->base)) ||
        (status = dry_peft_open(golden_path(&b->c, "init", path), &b->base->arch, &b->adapter)))
        return status;
    const json_t *records = json_object_get(first_step(b), "records");
    size_t parameters = (size_t)b->adapter->parameters;
    b->count = (int64_t)json_array_size(records);
    b->chosen = dry_alloc((size_t)b->count, sizeof *b->chosen, "step 1");
    b->values = dry_alloc(parameters, sizeof *b->values, "values");
    b->want = dry_alloc(parameters, sizeof *b->want, "golden gradient");
    b->got = dry_alloc(parameters, sizeof *b->got, "gradient");
    if (!b->chosen || !b->values || !b->want || !b->got)
        return DRY_ERR_MEMORY;
    for (int64_t i = 0; i < b->count; i++)
        b->chosen[i] = json_integer_value(json_array_get(records, (size_t)i));
    struct dry_limits limits = limits_of(b);
    if ((status = dry_peft_values(golden_path(&b->c, "init", path), b->adapter, b->values)) ||
        (status =
             golden_adapter_read(golden_path(&b->c, "gradient.safetensors", path), b->adapter, b->want)) ||
        (status = dry_backend_find(backend, &ops)))
        return status;
    b->tolerance = ops->act_bytes < sizeof(float) ? narrow_tolerance : wide_tolerance;
    if ((status = ops->create(&(struct dry_backend_options){.seed = 1}, &b->backend)) ||
        (status = dry_engine_create(b->backend, b->base, b->adapter, &limits, &b->engine)))
        return status;
    return ops->state_set(b->backend, b->values, NULL, NULL);
}

/* Runs chosen records, `each` per micro-batch; sums are left in the backend. */
static enum dry_status sums_of(struct bench *b, const struct golden_records *r, const int64_t *chosen,
                               int64_t count, int64_t each, int backward, int64_t words[DRY_SUMS])
{
    const struct dry_backend_ops *ops = b->backend->ops;
    enum dry_status status = ops->sums_clear(b->backend);

    for (int64_t i = 0; i < count && !status; i += each) {
        struct dry_batch batch = {.tokens = 0};

        status = golden_batch(r, chosen + i, each < count - i ? each : count - i, DRY_ROW_MULTIPLE, &batch);
        if (!status)
            status = dry_engine_batch(b->engine, &batch, backward);
        if (!status)
            status = backward ? dry_engine_forward(b->engine) : dry_engine_evaluate(b->engine);
        if (!status && backward)
            status = dry_engine_backward(b->engine);
        golden_batch_free(&batch);
    }
    return status ? status : ops->sums_read(b->backend, words);
}

/* Largest difference of one tensor over its largest golden entry; a tensor that must be zero: the difference
 * itself. */
static double difference(const float *want, const float *got, int64_t n, double scale)
{
    double worst = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs(got[i] * scale - want[i]);
        worst = d <= worst ? worst : d; /* not a number stays */
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    }
    return largest > 0 ? worst / largest : worst;
}

static void compare_gradient(struct bench *b, int64_t tokens, const char *how)
{
    double worst = 0;
    const struct dry_adapter_part *at = NULL;
    int worst_b = 0;

    if (b->backend->ops->gradient_get(b->backend, b->got)) {
        tap_ok(0, "%s, %s: gradient read", b->c.name, how);
        return;
    }
    for (int64_t i = 0; i < 2 * b->adapter->parts; i++) {
        const struct dry_adapter_part *part = &b->adapter->part[i / 2];
        int is_b = (int)(i % 2);
        int64_t begin = is_b ? part->b : part->a, n = part->rank * (is_b ? part->out : part->in);
        double d = difference(b->want + begin, b->got + begin, n, 1.0 / (double)tokens);

        if (!(d <= worst)) {
            worst = d;
            at = part;
            worst_b = is_b;
        }
    }
    if (!tap_ok(worst <= b->tolerance.gradient,
                "%s, %s: gradient of %lld tensors within %g of each one's largest entry", b->c.name, how,
                (long long)(2 * b->adapter->parts), b->tolerance.gradient) &&
        at)
        printf("# worst: %.3g in layer %lld %s %c\n", worst, (long long)at->layer, dry_proj_name(at->proj),
               worst_b ? 'B' : 'A');
}

static void compare_step(struct bench *b, int64_t each, const char *how)
{
    int64_t words[DRY_SUMS], tokens = json_integer_value(json_object_get(first_step(b), "supervised"));
    double want = golden_number(first_step(b), "loss");
    char name[160];

    if (!tap_ok(sums_of(b, &b->train, b->chosen, b->count, each, 1, words) == DRY_OK, "%s, %s: runs",
                b->c.name, how))
        return;
    snprintf(name, sizeof name, "%s, %s: supervised tokens", b->c.name, how);
    if (!tap_equal(words[DRY_SUM_TOKENS], tokens, name))
        return;
    snprintf(name, sizeof name, "%s, %s: loss", b->c.name, how);
    tap_near(ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS) / (double)tokens, want,
             b->tolerance.loss * want, name);
    compare_gradient(b, tokens, how);
}

static void compare_held_out(struct bench *b)
{
    double want = golden_number(b->c.golden, "validation_before");
    int64_t words[DRY_SUMS], all[64];
    char name[160];

    for (int64_t i = 0; i < b->held_out.count && i < 64; i++)
        all[i] = i;
    snprintf(name, sizeof name, "%s: held-out loss", b->c.name);
    if (sums_of(b, &b->held_out, all, b->held_out.count, 1, 0, words))
        tap_ok(0, "%s", name);
    else
        tap_near(ldexp((double)words[DRY_SUM_LOSS], -DRY_LOSS_BITS) / (double)words[DRY_SUM_TOKENS], want,
                 b->tolerance.loss * want, name);
}

int main(void)
{
    const char *backend = getenv("DRY_TEST_BACKEND");
    char **names = NULL;
    size_t count = 0;

    if (!tap_ok(golden_list(&names, &count) == DRY_OK && count > 0, "golden cases are there"))
        return tap_done();
    for (size_t i = 0; i < count; i++) {
        struct bench b;

        if (tap_ok(bench_open(names[i], backend ? backend : "cpu", &b) == DRY_OK, "%s: opens", names[i])) {
            compare_step(&b, b.count, "one micro-batch");
            compare_step(&b, 1, "a micro-batch per record");
            compare_held_out(&b);
        }
        bench_close(&b);
    }
    dry_dir_free(names, count);
    return tap_done();
}
