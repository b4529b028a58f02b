/*
 * Two contracts: what a later start would change, and the contract in JSON.
 * Owns the table of fields.  Must not know where contracts are kept.
 */
#include "config.h"

#include "config/contract_fields.h"

#include "base/log.h"
#include "base/memory.h"
#include "config/values.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* clang-format off */
#define FIELD(kind, member, what) \
    {#member, kind, offsetof(struct dry_contract, member), sizeof(((struct dry_contract *)NULL)->member), what, NULL}
static const struct dry_contract_field fields[] = {
    FIELD(DRY_FIELD_INT, effective_batch, NULL),
    FIELD(DRY_FIELD_INT, micro_records, NULL),
    FIELD(DRY_FIELD_INT, micro_tokens, NULL),
    FIELD(DRY_FIELD_INT, records, "train on the data that the run began with"),
    FIELD(DRY_FIELD_INT, epochs, "--epochs"),
    FIELD(DRY_FIELD_INT, steps, "--max-steps"),
    FIELD(DRY_FIELD_INT, steps_per_epoch, "train on the data that the run began with"),
    FIELD(DRY_FIELD_INT, warmup_steps, "--warmup-steps"),
    FIELD(DRY_FIELD_INT, seed, "--seed"),
    FIELD(DRY_FIELD_INT, max_seq_length, "--max-seq-length"),
    FIELD(DRY_FIELD_REAL, learning_rate, "--learning-rate"),
    FIELD(DRY_FIELD_REAL, weight_decay, "--weight-decay"),
    FIELD(DRY_FIELD_REAL, max_grad_norm, "--max-grad-norm"),
    FIELD(DRY_FIELD_REAL, adam_beta1, "--adam-beta1"),
    FIELD(DRY_FIELD_REAL, adam_beta2, "--adam-beta2"),
    FIELD(DRY_FIELD_REAL, adam_epsilon, "--adam-epsilon"),
    FIELD(DRY_FIELD_TEXT, schedule, "--schedule"),
    {"padding", DRY_FIELD_TEXT, offsetof(struct dry_contract, padding), sizeof(((struct dry_contract *)NULL)->padding),
     "--padding", "flat"},
    FIELD(DRY_FIELD_TEXT, data, "give the data, tokenizer and record options that the run began with"),
    FIELD(DRY_FIELD_TEXT, base, "give the base that the run began with"),
    FIELD(DRY_FIELD_TEXT, adapter, "give the rank, alpha, patterns, targets, dropout and initial adapter that the run "
                                   "began with"),
    {.name = NULL},
};
/* clang-format on */

const struct dry_contract_field *dry_contract_fields(void)
{
    return fields;
}

static const void *at(const struct dry_contract *k, const struct dry_contract_field *f)
{
    return (const char *)k + f->offset;
}

static int equal(const struct dry_contract *a, const struct dry_contract *b,
                 const struct dry_contract_field *f)
{
    if (f->type == DRY_FIELD_TEXT)
        return strncmp(at(a, f), at(b, f), f->size) == 0;
    return memcmp(at(a, f), at(b, f), f->size) == 0;
}

/* The value as it may be typed; a hash by its first digits. */
static void value_text(const struct dry_contract *k, const struct dry_contract_field *f, char text[32])
{
    if (f->type == DRY_FIELD_INT)
        snprintf(text, 32, "%lld", (long long)*(const int64_t *)at(k, f));
    else if (f->type == DRY_FIELD_REAL)
        dry_real_text(*(const double *)at(k, f), text);
    else
        snprintf(text, 32, "%.*s", f->size == DRY_HASH_HEX ? 12 : 31, (const char *)at(k, f));
}

static void name_difference(const struct dry_contract *then, const struct dry_contract *now,
                            const struct dry_contract_field *f)
{
    char before[32], after[32];

    value_text(then, f, before);
    value_text(now, f, after);
    if (strncmp(f->remedy, "--", 2) == 0)
        dry_error("contract: %s is %s in the run of this folder and would be %s now; give %s %s, or another "
                  "--output",
                  f->name, before, after, f->remedy, before);
    else
        dry_error(
            "contract: %s is %s in the run of this folder and would be %s now; %s, or give another --output",
            f->name, before, after, f->remedy);
}

/* "24 records in micro-batches of 2 records, 78 steps per epoch" */
static void batch_text(const struct dry_contract *k, char text[160])
{
    snprintf(text, 160, "effective batch %lld in micro-batches of %lld %s, %lld steps per epoch",
             (long long)k->effective_batch,
             (long long)(k->micro_records ? k->micro_records : k->micro_tokens),
             k->micro_records ? "records" : "tokens", (long long)k->steps_per_epoch);
}

static void refuse_batch(const struct dry_contract *then, const struct dry_contract *now)
{
    double ratio = (double)now->effective_batch / (double)then->effective_batch;
    char before[160], after[160], keep[32], linear[32], root[32];

    batch_text(then, before);
    batch_text(now, after);
    dry_rate_text(then->learning_rate, keep);
    dry_rate_text(then->learning_rate * ratio, linear);
    dry_rate_text(then->learning_rate * sqrt(ratio), root);
    dry_error("contract: the run of this folder has %s, learning rate %s; this start would have %s; "
              "keep it with --effective-batch %lld %s %lld (the accumulation is derived), or accept the "
              "change with "
              "--accept-batch-change keep, linear or sqrt (learning rate %s, %s or %s)",
              before, keep, after, (long long)then->effective_batch,
              then->micro_records ? "--per-device-batch-size" : "--micro-batch-tokens",
              (long long)(then->micro_records ? then->micro_records : then->micro_tokens), keep, linear,
              root);
}

/* Non-zero when steps differ only since both runs take all their epochs. */
static int steps_follow(const struct dry_contract *then, const struct dry_contract *now)
{
    return then->epochs == now->epochs && then->steps == then->epochs * then->steps_per_epoch &&
           now->steps == now->epochs * now->steps_per_epoch;
}

/* Non-zero when a difference in this field is the effective batch's doing. */
static int follows(const struct dry_contract *then, const struct dry_contract *now, const char *name)
{
    if (then->effective_batch == now->effective_batch || then->records != now->records)
        return 0;
    if (strcmp(name, "steps_per_epoch") == 0)
        return 1;
    if (strcmp(name, "steps") == 0)
        return steps_follow(then, now);
    if (strcmp(name, "epochs") == 0) /* --max-steps: the same steps take other epochs */
        return then->steps == now->steps;
    return strcmp(name, "warmup_steps") == 0 && then->steps != now->steps && steps_follow(then, now);
}

/* Options beside the batch that a command must give as the run has them, or it is refused again. */
struct others {
    const char *flag[sizeof fields / sizeof *fields];
    int flags;
    struct dry_buffer words; /* " --seed 42" */
};

static int find_others(const struct dry_contract *then, const struct dry_contract *now, struct others *o)
{
    int failed = 0;

    *o = (struct others){.flags = 0};
    for (const struct dry_contract_field *f = fields; f->name && !failed; f++) {
        char text[32];

        if (equal(then, now, f) || !f->remedy || strncmp(f->remedy, "--", 2) != 0 ||
            follows(then, now, f->name))
            continue;
        value_text(then, f, text);
        o->flag[o->flags++] = f->remedy + 2;
        failed = dry_buffer_printf(&o->words, " %s %s", f->remedy, text);
    }
    return failed;
}

/* The command line as it would state the run's own batch and cut. 0, or -1 for lack of memory. */
static int keeping_command(const struct dry_config *c, int ranks, const struct dry_contract *then,
                           const struct others *o, struct dry_buffer *b)
{
    const char *drop[5 + sizeof o->flag / sizeof *o->flag] = {
        "gradient-accumulation-steps", "effective-batch", "per-device-batch-size", "micro-batch-tokens"};
    int accumulated = dry_config_origin(c, "gradient-accumulation-steps") == DRY_ORIGIN_FILE,
        by_records = dry_config_origin(c, "per-device-batch-size") == DRY_ORIGIN_FILE,
        by_tokens = dry_config_origin(c, "micro-batch-tokens") == DRY_ORIGIN_FILE;
    struct dry_buffer add = {0};
    int failed;

    memcpy(drop + 4, o->flag, (size_t)o->flags * sizeof *drop);
    /* what a file says is undone on the command line */
    failed = dry_buffer_printf(&add, "%s--effective-batch %lld %s %lld%s%s",
                               accumulated ? "--gradient-accumulation-steps 0 " : "",
                               (long long)then->effective_batch,
                               then->micro_records ? "--per-device-batch-size" : "--micro-batch-tokens",
                               (long long)(then->micro_records ? then->micro_records : then->micro_tokens),
                               then->micro_records && by_tokens     ? " --micro-batch-tokens 0"
                               : !then->micro_records && by_records ? " --per-device-batch-size 0"
                                                                    : "",
                               o->flags ? o->words.data : "") ||
             dry_values_command(c, ranks, drop, add.data, b);
    dry_buffer_reset(&add);
    return failed;
}

/* And as it would take the new ones. */
static int changing_command(const struct dry_config *c, int ranks, const struct others *o,
                            struct dry_buffer *b)
{
    const char *drop[1 + sizeof o->flag / sizeof *o->flag] = {NULL};
    struct dry_buffer add = {0};
    int failed;

    memcpy(drop, o->flag, (size_t)o->flags * sizeof *drop);
    failed = dry_buffer_printf(&add, "--accept-batch-change keep%s", o->flags ? o->words.data : "") ||
             dry_values_command(c, ranks, drop, add.data, b);
    dry_buffer_reset(&add);
    return failed;
}

enum dry_status dry_contract_ways(const struct dry_config *c, int ranks, const struct dry_contract *then,
                                  const struct dry_contract *now)
{
    double ratio = (double)now->effective_batch / (double)then->effective_batch;
    struct dry_buffer keep = {0}, change = {0};
    struct others others;
    char rate[32], linear[32], root[32];
    enum dry_status status = DRY_ERR_MEMORY;

    if (find_others(then, now, &others) != 0 || keeping_command(c, ranks, then, &others, &keep) != 0 ||
        changing_command(c, ranks, &others, &change) != 0)
        goto out;
    dry_rate_text(then->learning_rate, rate);
    dry_rate_text(then->learning_rate * ratio, linear);
    dry_rate_text(then->learning_rate * sqrt(ratio), root);
    dry_error_more("%s", keep.data);
    dry_error_more("    keeps the contract: %lld record%s per step, %lld step%s per epoch, learning rate %s",
                   (long long)then->effective_batch, dry_plural(then->effective_batch),
                   (long long)then->steps_per_epoch, dry_plural(then->steps_per_epoch), rate);
    dry_error_more("%s", change.data);
    dry_error_more(
        "    changes it from here on: %lld record%s per step, %lld step%s per epoch, learning rate %s; "
        "with linear in place of keep %s, with sqrt %s",
        (long long)now->effective_batch, dry_plural(now->effective_batch), (long long)now->steps_per_epoch,
        dry_plural(now->steps_per_epoch), rate, linear, root);
    status = DRY_OK;
out:
    dry_buffer_reset(&keep);
    dry_buffer_reset(&change);
    dry_buffer_reset(&others.words);
    return status;
}

int dry_contract_same_batch(const struct dry_contract *a, const struct dry_contract *b)
{
    return a->effective_batch == b->effective_batch && a->micro_records == b->micro_records &&
           a->micro_tokens == b->micro_tokens;
}

static enum dry_status accept_batch(const struct dry_contract *then, const struct dry_contract *now,
                                    const char *rule, double *rate_factor)
{
    double ratio = (double)now->effective_batch / (double)then->effective_batch, factor = 1;
    char before[160], after[160], rate[32], changed[32];

    if (strcmp(rule, "linear") == 0)
        factor = ratio;
    else if (strcmp(rule, "sqrt") == 0)
        factor = sqrt(ratio);
    else if (strcmp(rule, "keep") != 0) {
        dry_error("--accept-batch-change: \"%s\" is not one of keep, linear, sqrt", rule);
        return DRY_ERR_USAGE;
    }
    batch_text(then, before);
    batch_text(now, after);
    dry_rate_text(then->learning_rate, rate);
    dry_rate_text(then->learning_rate * factor, changed);
    dry_info("batch change accepted (%s): from %s, learning rate %s to %s, learning rate %s", rule, before,
             rate, after, changed);
    *rate_factor = factor;
    return DRY_OK;
}

enum dry_status dry_contract_compare(const struct dry_contract *then, const struct dry_contract *now,
                                     const char *accept_batch_change, double *rate_factor)
{
    enum dry_status status = DRY_OK;
    int batch = 0;

    for (const struct dry_contract_field *f = fields; f->name; f++) {
        if (equal(then, now, f))
            continue;
        if (!f->remedy) {
            batch = 1;
        } else if (!follows(then, now, f->name)) {
            name_difference(then, now, f);
            status = DRY_ERR_USAGE;
        }
    }
    if (batch && !accept_batch_change) {
        refuse_batch(then, now);
        status = DRY_ERR_USAGE;
    }
    if (status != DRY_OK)
        return status;
    if (batch)
        return accept_batch(then, now, accept_batch_change, rate_factor);
    *rate_factor = 1;
    return DRY_OK;
}

json_t *dry_contract_json(const struct dry_contract *k)
{
    json_t *all = json_object();

    for (const struct dry_contract_field *f = fields; all && f->name; f++) {
        json_t *one = f->type == DRY_FIELD_INT    ? json_integer(*(const int64_t *)at(k, f))
                      : f->type == DRY_FIELD_REAL ? json_real(*(const double *)at(k, f))
                                                  : json_string(at(k, f));
        if (json_object_set_new(all, f->name, one) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    if (!all)
        dry_error("not enough memory for the contract");
    return all;
}

enum dry_status dry_contract_from_json(const json_t *object, const char *where, struct dry_contract *k)
{
    struct dry_contract r = {0};
    enum dry_status status = DRY_OK;

    for (const struct dry_contract_field *f = fields; status == DRY_OK && f->name; f++) {
        char *to = (char *)&r + f->offset;
        const char *text = NULL;
        if (f->type == DRY_FIELD_INT) {
            status = dry_json_int(object, f->name, 1, 0, where, (int64_t *)to);
        } else if (f->type == DRY_FIELD_REAL) {
            status = dry_json_real(object, f->name, 1, 0, where, (double *)to);
        } else {
            status = dry_json_text(object, f->name, !f->otherwise, f->otherwise, where, &text);
            if (status == DRY_OK && strlen(text) >= f->size) {
                dry_error("%s: key \"%s\": longer than %zu bytes", where, f->name, f->size - 1);
                status = DRY_ERR_INPUT;
            } else if (status == DRY_OK) {
                memcpy(to, text, strlen(text) + 1);
            }
        }
    }
    if (status == DRY_OK &&
        (r.effective_batch < 1 || r.steps_per_epoch < 1 || (r.micro_records > 0) == (r.micro_tokens > 0))) {
        dry_error(
            "%s: effective_batch, steps_per_epoch and one of micro_records and micro_tokens must be positive",
            where);
        status = DRY_ERR_INPUT;
    }
    if (status == DRY_OK)
        *k = r;
    return status;
}
