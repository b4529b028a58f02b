/*
 * The contract from the options: effective batch, cut, steps, warm-up; refusals with the commands that are
 * legal instead. Owns nothing.  Must not know tokens, files of the run, or devices beyond their count.
 */
#include "config.h"

#include "config/contract.h"

#include "base/log.h"
#include "config/contract_fields.h"
#include "config/values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void dry_rate_text(double rate, char text[32])
{
    char *e, *s;

    snprintf(text, 32, "%.2e", rate);
    e = strchr(text, 'e');
    if (!e)
        return;
    for (s = e; s[-1] == '0'; s--)
        ;
    s -= s[-1] == '.';
    memmove(s, e, strlen(e) + 1);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

enum dry_status dry_contract_cut(const struct dry_config *c, int64_t *micro_records, int64_t *micro_tokens)
{
    int64_t tokens = c->micro_batch_tokens > 0 ? c->micro_batch_tokens : 4 * c->max_seq_length;

    if (c->per_device_batch_size > 0 && c->micro_batch_tokens > 0) {
        dry_error("%s and %s both say how a step is cut into micro-batches; leave one of them out or set it "
                  "to 0",
                  dry_config_place(c, "per-device-batch-size"), dry_config_place(c, "micro-batch-tokens"));
        return DRY_ERR_USAGE;
    }
    if (c->per_device_batch_size > 0) {
        *micro_records = c->per_device_batch_size;
        *micro_tokens = 0;
        return DRY_OK;
    }
    if (tokens < c->max_seq_length) {
        dry_error("%s: a micro-batch of %lld tokens cannot hold a record of max-seq-length %lld; raise the "
                  "one or lower "
                  "the other",
                  dry_config_place(c, "micro-batch-tokens"), (long long)tokens, (long long)c->max_seq_length);
        return DRY_ERR_USAGE;
    }
    *micro_records = 0;
    *micro_tokens = tokens;
    return DRY_OK;
}

/* The command line as it would state the effective batch. 0, or -1 for lack of memory. */
static int stated_command(const struct dry_config *c, int ranks, int64_t effective, struct dry_buffer *b)
{
    static const char *const drop[] = {"gradient-accumulation-steps", "effective-batch", NULL};
    const char *undo = dry_config_origin(c, "gradient-accumulation-steps") == DRY_ORIGIN_FILE
                           ? "--gradient-accumulation-steps 0 "
                           : "";
    char add[128];

    snprintf(add, sizeof add, "%s--effective-batch %lld", undo, (long long)effective);
    return dry_values_command(c, ranks, drop, add, b);
}

/* Under an error: a command that states this effective batch, and what it does. `from`: the batch that the
 * learning rate was chosen for. */
static enum dry_status offer(const struct dry_config *c, int ranks, int64_t records, int64_t effective,
                             int64_t from, const char *as)
{
    double ratio = (double)effective / (double)from;
    int64_t steps = divide_up(records, effective);
    struct dry_buffer command = {0};
    char rate[32], linear[32], root[32];

    if (stated_command(c, ranks, effective, &command) != 0) {
        dry_buffer_reset(&command);
        return DRY_ERR_MEMORY;
    }
    dry_rate_text(c->learning_rate, rate);
    dry_rate_text(c->learning_rate * ratio, linear);
    dry_rate_text(c->learning_rate * sqrt(ratio), root);
    dry_error_more("%s", command.data);
    if (effective == from)
        dry_error_more("    %s: %lld record%s per step, %lld step%s per epoch, learning rate %s (kept)", as,
                       (long long)effective, dry_plural(effective), (long long)steps, dry_plural(steps),
                       rate);
    else
        dry_error_more("    %s: %lld record%s per step, %lld step%s per epoch; learning rate %s unless you "
                       "change it: the linear rule would ask for %s, square root %s",
                       as, (long long)effective, dry_plural(effective), (long long)steps, dry_plural(steps),
                       rate, linear, root);
    dry_buffer_reset(&command);
    return DRY_OK;
}

static enum dry_status refuse_ambiguous(const struct dry_config *c, int ranks, int64_t records)
{
    int64_t one = c->per_device_batch_size * c->gradient_accumulation_steps, all = one * ranks;
    int devices = dry_config_devices(c, NULL, 0);
    char why[96];
    enum dry_status status;

    if (devices > 0)
        snprintf(why, sizeof why, "--devices names %d and drydock runs as %d ranks", devices, ranks);
    else
        snprintf(why, sizeof why, "drydock runs as %d ranks and no --devices list confirms that number",
                 ranks);
    dry_error("%s: %lld micro-batch%s of %lld record%s per rank leave%s the effective batch open, since %s; "
              "state it, with "
              "one of these two commands:",
              dry_config_place(c, "gradient-accumulation-steps"), (long long)c->gradient_accumulation_steps,
              c->gradient_accumulation_steps == 1 ? "" : "es", (long long)c->per_device_batch_size,
              dry_plural(c->per_device_batch_size), c->gradient_accumulation_steps == 1 ? "s" : "", why);
    status = offer(c, ranks, records, one, one, "as on one device");
    if (!status)
        status = offer(c, ranks, records, all, one, "times the ranks");
    return status ? status : DRY_ERR_USAGE;
}

/* Both are stated, and they disagree. */
static enum dry_status refuse_conflict(const struct dry_config *c, int ranks, int64_t records)
{
    int64_t all = c->per_device_batch_size * c->gradient_accumulation_steps * ranks;
    enum dry_status status;

    dry_error("%s asks for an effective batch of %lld, but %d rank%s x %lld record%s x %lld micro-batch%s "
              "(%s) are %lld; state one of them, with one of these two commands:",
              dry_config_place(c, "effective-batch"), (long long)c->effective_batch, ranks, dry_plural(ranks),
              (long long)c->per_device_batch_size, dry_plural(c->per_device_batch_size),
              (long long)c->gradient_accumulation_steps, c->gradient_accumulation_steps == 1 ? "" : "es",
              dry_config_place(c, "gradient-accumulation-steps"), (long long)all);
    status = offer(c, ranks, records, c->effective_batch, c->effective_batch,
                   "as the effective batch says, the accumulation derived");
    if (!status)
        status = offer(c, ranks, records, all, c->effective_batch, "as the accumulation says");
    return status ? status : DRY_ERR_USAGE;
}

/* Accumulation is given: what the effective batch is by it, or a refusal. */
static enum dry_status from_accumulation(const struct dry_config *c, int ranks, int64_t records,
                                         int64_t *effective)
{
    int64_t one = c->per_device_batch_size * c->gradient_accumulation_steps, all = one * ranks;
    const char *accumulation = dry_config_place(c, "gradient-accumulation-steps");
    int stated = dry_config_origin(c, "effective-batch") != DRY_ORIGIN_DEFAULT;
    int devices = dry_config_devices(c, NULL, 0);
    double most = dry_option_table()[dry_option_find("effective-batch")].most;

    if (c->per_device_batch_size == 0) {
        dry_error("%s counts micro-batches of --per-device-batch-size records, which is not given; give it, "
                  "or state "
                  "--effective-batch alone and leave the accumulation to drydock",
                  accumulation);
        return DRY_ERR_USAGE;
    }
    if (!((double)all <= most)) {
        dry_error(
            "%s: %d ranks x %lld records x %lld micro-batches is more than the largest effective batch, %.0f",
            accumulation, ranks, (long long)c->per_device_batch_size,
            (long long)c->gradient_accumulation_steps, most);
        return DRY_ERR_USAGE;
    }
    if (stated && all != c->effective_batch)
        return refuse_conflict(c, ranks, records);
    if (!stated && ranks > 1 && devices != ranks)
        return refuse_ambiguous(c, ranks, records);
    *effective = all;
    return DRY_OK;
}

static enum dry_status effective_batch(const struct dry_config *c, int ranks, int64_t records,
                                       int64_t *effective)
{
    enum dry_status status = DRY_OK;

    *effective = c->effective_batch;
    if (c->gradient_accumulation_steps > 0)
        status = from_accumulation(c, ranks, records, effective);
    if (status == DRY_OK && c->per_device_batch_size > *effective) {
        dry_error("%s: a micro-batch of %lld records is larger than the effective batch of %lld (%s); give "
                  "--effective-batch %lld, or a --per-device-batch-size of %lld at most",
                  dry_config_place(c, "per-device-batch-size"), (long long)c->per_device_batch_size,
                  (long long)*effective, dry_config_place(c, "effective-batch"),
                  (long long)c->per_device_batch_size, (long long)*effective);
        status = DRY_ERR_USAGE;
    }
    return status;
}

int64_t dry_contract_record_tokens(const struct dry_contract *k)
{
    return strcmp(k->padding, "fixed") == 0 ? k->max_seq_length : 0;
}

enum dry_status dry_contract_resolve(const struct dry_config *c, int ranks, int64_t records,
                                     struct dry_contract *k)
{
    struct dry_contract r = {.records = records,
                             .seed = c->seed,
                             .max_seq_length = c->max_seq_length,
                             .learning_rate = c->learning_rate,
                             .weight_decay = c->weight_decay,
                             .max_grad_norm = c->max_grad_norm,
                             .adam_beta1 = c->adam_beta1,
                             .adam_beta2 = c->adam_beta2,
                             .adam_epsilon = c->adam_epsilon};
    enum dry_status status;

    if (records < 1) {
        dry_error("%s: there is no record to train on", c->data ? c->data : "data");
        return DRY_ERR_INPUT;
    }
    status = dry_contract_cut(c, &r.micro_records, &r.micro_tokens);
    if (status == DRY_OK)
        status = effective_batch(c, ranks, records, &r.effective_batch);
    if (status != DRY_OK)
        return status;
    r.steps_per_epoch = divide_up(records, r.effective_batch);
    if (c->max_steps > 0) {
        r.steps = c->max_steps;
        r.epochs = divide_up(r.steps, r.steps_per_epoch);
    } else {
        r.epochs = c->epochs;
        if (__builtin_mul_overflow(r.epochs, r.steps_per_epoch, &r.steps)) {
            dry_error("%s: %lld epochs of %lld steps are too many", dry_config_place(c, "epochs"),
                      (long long)r.epochs, (long long)r.steps_per_epoch);
            return DRY_ERR_USAGE;
        }
    }
    r.warmup_steps =
        c->warmup_steps >= 0 ? c->warmup_steps : (int64_t)ceil(c->warmup_ratio * (double)r.steps);
    snprintf(r.schedule, sizeof r.schedule, "%s", c->schedule);
    snprintf(r.padding, sizeof r.padding, "%s", c->padding);
    *k = r;
    return DRY_OK;
}
