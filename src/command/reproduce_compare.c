/*
 * Bits of a run and of the run that did it again.
 * Owns nothing that outlives a call.
 * Must not know how either was made.
 */
#include "config.h"

#include "command/lengths.h"
#include "command/reproduce.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/checkpoint.h"
#include "state/peft.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- steps ---- */

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void differ_at(struct dry_reproduced *out, int64_t step, const char *what, double then, double now)
{
    if (out->step == 0 || step < out->step)
        *out = (struct dry_reproduced){
            .compared = out->compared, .step = step, .what = what, .value_then = then, .value_now = now};
}

/* Steps after `from` up to `to` that both tell of; each is looked at by its loss, norm and learning rate. */
static void compare_steps(const struct dry_reproduce *r, struct dry_reproduced *out)
{
    const struct dry_history *a = r->then, *b = r->now;
    size_t j = 0;

    for (size_t i = 0; i < a->steps && !out->step; i++) {
        const struct dry_history_step *s = &a->step[i], *t;

        if (s->step <= r->from || s->step > r->to)
            continue;
        while (j < b->steps && b->step[j].step < s->step)
            j++;
        if (j == b->steps || b->step[j].step != s->step)
            continue;
        t = &b->step[j];
        out->compared++;
        if (!same(s->loss, t->loss))
            differ_at(out, s->step, "loss", s->loss, t->loss);
        else if (!same(s->norm, t->norm))
            differ_at(out, s->step, "gradient norm", s->norm, t->norm);
        else if (!same(s->rate, t->rate))
            differ_at(out, s->step, "learning rate", s->rate, t->rate);
    }
}

/* With other validation data the losses say nothing. */
static void compare_validations(const struct dry_reproduce *r, struct dry_reproduced *out)
{
    const struct dry_history *a = r->then, *b = r->now;

    for (int i = 0; i < r->differences.count; i++)
        if (strncmp(r->differences.item[i].name, "validation", 10) == 0)
            return;
    for (size_t i = 0; i < a->validations; i++)
        for (size_t j = 0; j < b->validations; j++)
            if (a->validation[i].step == b->validation[j].step && a->validation[i].step > r->from &&
                !same(a->validation[i].loss, b->validation[j].loss))
                differ_at(out, a->validation[i].step, "validation loss", a->validation[i].loss,
                          b->validation[j].loss);
}

/* ---- adapters and checkpoints ---- */

static enum dry_status adapter_hash(const char *output, char hex[DRY_HASH_HEX])
{
    char *folder = dry_path_join(output, "adapter");
    enum dry_status status = folder ? dry_peft_hash(folder, hex) : DRY_ERR_MEMORY;

    dry_free(folder);
    return status;
}

/* Over the bytes of values and moments, whatever else the file tells. */
static enum dry_status checkpoint_hash(const struct dry_reproduce *r, const char *output,
                                       char hex[DRY_HASH_HEX])
{
    size_t n = (size_t)r->adapter->parameters;
    struct dry_checkpoint c = {.values = dry_alloc(3 * n, sizeof(float), "a checkpoint")};
    char step[32], *path = NULL;
    enum dry_status status = c.values ? DRY_OK : DRY_ERR_MEMORY;

    snprintf(step, sizeof step, "%lld", (long long)r->to);
    if (!status) {
        c.m = c.values + n;
        c.v = c.m + n;
        status = dry_checkpoint_find(output, step, NULL, &path);
    }
    if (!status)
        status = dry_checkpoint_load(path, r->adapter, &c);
    if (!status)
        status = dry_hash_bytes(c.values, 3 * n * sizeof(float), hex);
    dry_checkpoint_release(&c);
    dry_free(c.values);
    dry_free(path);
    return status;
}

enum dry_status dry_reproduce_compare(struct dry_reproduce *r, struct dry_reproduced *out)
{
    enum dry_status status = dry_history_open(r->output, &r->now);
    char then[DRY_HASH_HEX], now[DRY_HASH_HEX];

    memset(out, 0, sizeof *out);
    if (!status)
        status = r->from ? checkpoint_hash(r, r->folder, then) : adapter_hash(r->folder, then);
    if (!status)
        status = r->from ? checkpoint_hash(r, r->output, now) : adapter_hash(r->output, now);
    if (status)
        return status;
    compare_steps(r, out);
    compare_validations(r, out);
    memcpy(out->hash_then, then, sizeof then);
    memcpy(out->hash_now, now, sizeof now);
    return DRY_OK;
}

/* ---- what came out ---- */

static json_t *tell_json(const struct dry_reproduce *r, const struct dry_reproduced *out, int equal)
{
    json_t *first = json_null();

    if (out->step)
        first = json_pack("{s:I, s:s, s:f, s:f}", "step", (json_int_t)out->step, "what", out->what, "run",
                          out->value_then, "now", out->value_now);
    return json_pack("{s:b, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:o, s:o}", "equal", equal, "run",
                     r->folder, "output", r->output, "from_step", (json_int_t)r->from, "to_step",
                     (json_int_t)r->to, "steps_compared", (json_int_t)out->compared, "compared",
                     r->from ? "checkpoint" : "adapter", "sha256_run", out->hash_then, "sha256_now",
                     out->hash_now, "first_difference", first, "differences",
                     dry_differ_json(&r->differences));
}

static void tell(const struct dry_reproduce *r, const struct dry_reproduced *out, int equal)
{
    const char *what = r->from ? "values and moments after the last step" : "adapter_model.safetensors";

    printf("%s: %s against %s, ", equal ? "equal" : "not equal", r->output, r->folder);
    if (r->to > r->from + 1)
        printf("steps %lld to %lld\n", (long long)r->from + 1, (long long)r->to);
    else
        printf("step %lld\n", (long long)r->to);
    printf("  %s: sha256 %s\n", what, out->hash_then);
    if (strcmp(out->hash_then, out->hash_now) != 0)
        printf("  %*s  now sha256 %s\n", (int)strlen(what) - 4, "", out->hash_now);
    else
        printf("  now the same\n");
    printf("  loss, gradient norm and learning rate of %lld step%s: ", (long long)out->compared,
           dry_plural(out->compared));
    if (out->step)
        printf("step %lld is the first that differs: %s %.17g in the run, %.17g now\n", (long long)out->step,
               out->what, out->value_then, out->value_now);
    else
        printf("%s\n", out->compared ? "the same" : "no line in both metrics.jsonl");
}

/* What of the contract is not what it was: the reason, most likely. */
static enum dry_status tell_reasons(struct dry_reproduce *r)
{
    json_t *pair[] = {r->then->run, r->now->run};
    struct dry_differences d = {0};
    const char *then, *now;
    enum dry_status status = dry_differ_look(
        pair, 2, DRY_DIFFER_CONTRACT | DRY_DIFFER_DATA | DRY_DIFFER_VERSIONS | DRY_DIFFER_DEVICES, &d);

    for (int i = 0; i < d.count && !status; i++)
        dry_warn("%s: %s is %s in %s, %s in %s", dry_differ_name(d.item[i].kind), d.item[i].name,
                 d.item[i].value[0], r->folder, d.item[i].value[1], r->output);
    then = json_string_value(json_object_get(r->then->run, "plan_hash"));
    now = json_string_value(json_object_get(r->now->run, "plan_hash"));
    if (!status && then && now && strcmp(then, now) != 0)
        dry_warn("plan: its hash is %.12s in %s, %.12s in %s: steps take other records than they did", then,
                 r->folder, now, r->output);
    else if (!status && d.count == 0)
        dry_warn("contract, data, versions and devices are the same in both run.json: this machine computes "
                 "otherwise, the base's weights (of which names and shapes are compared, not values) were "
                 "others, or %s is not what the run left",
                 r->folder);
    dry_differ_release(&d);
    return status;
}

enum dry_status dry_reproduce_tell(struct dry_reproduce *r, const struct dry_reproduced *out)
{
    int bits = strcmp(out->hash_then, out->hash_now) == 0, equal = bits && !out->step;
    enum dry_status status;

    if (r->call->config->json) {
        status = dry_print_json(tell_json(r, out, equal));
    } else {
        tell(r, out, equal);
        status = dry_print_end();
    }
    if (status || equal)
        return status;
    if (out->step)
        dry_error("%s is not reproduced: step %lld is the first that differs, %s %.17g in it and %.17g now",
                  r->folder, (long long)out->step, out->what, out->value_then, out->value_now);
    else
        dry_error("%s is not reproduced: no step of metrics.jsonl differs, but the %s does", r->folder,
                  r->from ? "checkpoint" : "adapter");
    status = tell_reasons(r);
    return status ? status : DRY_ERR_NUMERIC;
}
