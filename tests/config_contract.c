/*
 * The contract: section 4 of doc/design.md, sentence by sentence.  The commands that a refusal prints are
 * read again and must be legal.
 */
#include "config.h"

#include "capture.h"
#include "tap.h"

#include "base/memory.h"
#include "config/contract.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum dry_status last;

/* A finetune command line, split at blanks, resolved on so many ranks over so many records. capture_text:
 * what was said. */
static struct dry_contract resolve(const char *line, int ranks, int64_t records)
{
    char *words = dry_strdup(line), *save = NULL, *argv[64];
    const char *positional[64];
    struct dry_contract k = {0};
    struct dry_config *c;
    int argc = 0, positionals = 0;

    for (char *w = strtok_r(words, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
        argv[argc++] = w;
    dry_config_create(&c);
    capture_begin();
    last = dry_config_arguments(c, DRY_CMD_FINETUNE, argc, argv, positional, &positionals);
    if (last == DRY_OK && positionals == 1)
        last = dry_config_file(c, positional[0]);
    if (last == DRY_OK)
        last = dry_contract_resolve(c, ranks, records, &k);
    capture_end();
    dry_config_destroy(c);
    dry_free(words);
    return k;
}

static void refused(const char *line, int ranks, const char *what)
{
    resolve(line, ranks, 7473);
    if (!tap_ok(last == DRY_ERR_USAGE && strstr(capture_text, what), "refused on %d: %s", ranks, line))
        printf("# status %s, said: %s# wanted: %s\n", dry_status_name(last), capture_text, what);
}

static void batch(const char *line, int ranks, int64_t effective, int64_t records, int64_t tokens)
{
    struct dry_contract k = resolve(line, ranks, 7473);

    if (!tap_ok(last == DRY_OK && k.effective_batch == effective && k.micro_records == records &&
                    k.micro_tokens == tokens,
                "on %d: %s", ranks, line))
        printf("# effective batch %lld, micro-batch %lld records %lld tokens; said: %s\n",
               (long long)k.effective_batch, (long long)k.micro_records, (long long)k.micro_tokens,
               capture_text);
}

static void stated(void)
{
    for (int ranks = 1; ranks <= 8; ranks += 2) {
        batch("--effective-batch 24", ranks, 24, 0, 4096);
        batch("--effective-batch 24 --per-device-batch-size 2", ranks, 24, 2, 0);
        batch("--per-device-batch-size 4", ranks, 32, 4, 0);
        batch("", ranks, 32, 0, 4096);
    }
    batch("--max-seq-length 512", 1, 32, 0, 2048);
    batch("--max-seq-length 512 --micro-batch-tokens 512", 1, 32, 0, 512);
    batch("--effective-batch 1", 8, 1, 0, 4096);
    refused("--max-seq-length 512 --micro-batch-tokens 511", 1, "cannot hold a record of max-seq-length 512");
    refused("--per-device-batch-size 2 --micro-batch-tokens 4096", 1, "leave one of them out");
    refused("--per-device-batch-size 64", 1,
            "give --effective-batch 64, or a --per-device-batch-size of 32 at most");
    refused("--per-device-batch-size 9 --effective-batch 8", 3,
            "larger than the effective batch of 8 (--effective-batch)");
}

static void accumulated(void)
{
    const char *three = "--per-device-batch-size 2 --gradient-accumulation-steps 4";

    batch(three, 1, 8, 2, 0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices 5", 1, 8, 2, 0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices cpu", 1, 8, 2, 0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices 0,1,2", 3, 24, 2, 0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices 0,1,2 --backend cpu", 3, 24, 2,
          0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 4 --effective-batch 24", 3, 24, 2, 0);
    batch("--per-device-batch-size 2 --gradient-accumulation-steps 0 --effective-batch 8", 3, 8, 2, 0);
    refused("--per-device-batch-size 2 --gradient-accumulation-steps 4 --effective-batch 32", 3,
            "asks for an effective batch of 32, but 3 ranks x 2 records x 4 micro-batches "
            "(--gradient-accumulation-steps) are 24; state one of them");
    refused("--gradient-accumulation-steps 4", 1, "--per-device-batch-size records, which is not given");
    refused("--per-device-batch-size 1000000 --gradient-accumulation-steps 1000000", 1,
            "the largest effective batch");
    refused(three, 3, "no --devices list confirms");
    refused("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices 0,1", 3,
            "--devices names 2");
    refused("--per-device-batch-size 2 --gradient-accumulation-steps 4 --devices cpu", 3, "open");
}

/* The n-th command line that the last refusal printed, after "drydock finetune"; new memory. */
static char *printed_command(int n, const char *start)
{
    const char *at = capture_text;

    while (n-- >= 0) {
        at = strstr(at, start);
        if (!at)
            return dry_strdup("--not-printed");
        at += strlen(start);
    }
    return dry_strndup(at, strcspn(at, "\n"));
}

static void legal_commands(const char *line, const char *kept, const char *grown)
{
    const char *start = "    mpirun -np 3 drydock finetune ";
    char *first, *second;

    resolve(line, 3, 1872);
    tap_equal(last, DRY_ERR_USAGE, "an ambiguous accumulation is refused");
    first = printed_command(0, start);
    second = printed_command(1, start);
    tap_text(first, kept, "the command that keeps the batch of one device");
    tap_text(second, grown, "the command that multiplies by the ranks");
    tap_ok(strstr(capture_text, "8 records per step, 234 steps per epoch, learning rate 2e-04 (kept)") !=
               NULL,
           "what the first does");
    tap_ok(strstr(capture_text,
                  "24 records per step, 78 steps per epoch; learning rate 2e-04 unless you change it: the "
                  "linear rule would ask for 6e-04, square root 3.46e-04") != NULL,
           "what the second does");
    batch(first, 3, 8, 2, 0);
    batch(second, 3, 24, 2, 0);
    dry_free(first);
    dry_free(second);
}

static void both_commands(void)
{
    char path[] = "/tmp/drydock-contract-XXXXXX", *name, *line, *kept, *grown;
    FILE *out;

    legal_commands(
        "--base b --per-device-batch-size 2 --gradient-accumulation-steps 4 --rslora --data d --output=o",
        "--base b --per-device-batch-size 2 --rslora --data d --output=o --effective-batch 8",
        "--base b --per-device-batch-size 2 --rslora --data d --output=o --effective-batch 24");
    close(mkstemp(path));
    unlink(path);
    name = dry_format("%s.cfg", path);
    out = fopen(name, "w");
    fprintf(out, "per_device_batch_size = 2; gradient_accumulation_steps = 4;\n");
    fclose(out);
    line = dry_format("%s --devices 0,1", name);
    kept = dry_format("%s --devices 0,1 --gradient-accumulation-steps 0 --effective-batch 8", name);
    grown = dry_format("%s --devices 0,1 --gradient-accumulation-steps 0 --effective-batch 24", name);
    legal_commands(line, kept, grown);
    tap_ok(1, "accumulation from a file is undone on the command line");
    unlink(name);
    dry_free(name);
    dry_free(line);
    dry_free(kept);
    dry_free(grown);
}

static void steps(void)
{
    struct dry_contract k = resolve("--effective-batch 32 --epochs 3", 3, 7473);

    tap_ok(k.steps_per_epoch == 234 && k.steps == 702 && k.epochs == 3 && k.warmup_steps == 22,
           "steps of epochs, the last one smaller; warm-up rounds up");
    k = resolve("--max-steps 500", 1, 7473);
    tap_ok(k.steps == 500 && k.epochs == 3 && k.warmup_steps == 15, "max-steps takes the epochs it needs");
    k = resolve("--max-steps 5 --epochs 7 --warmup-steps 2", 1, 7473);
    tap_ok(k.steps == 5 && k.epochs == 1 && k.warmup_steps == 2, "max-steps decides over epochs");
    k = resolve("--warmup-steps 0", 1, 7473);
    tap_equal(k.warmup_steps, 0, "no warm-up");
    k = resolve("--warmup-ratio 0.1", 1, 3200);
    tap_equal(k.warmup_steps, 10, "a ratio that is exact");
    k = resolve("", 1, 5);
    tap_ok(k.steps == 1 && k.effective_batch == 32, "fewer records than a step holds");
    resolve("", 1, 0);
    tap_equal(last, DRY_ERR_INPUT, "no record");
    resolve("--epochs 1000000 --effective-batch 1", 1, INT64_MAX / 2);
    tap_equal(last, DRY_ERR_USAGE, "too many steps to count");
    k = resolve(
        "--seed 7 --schedule linear --weight-decay 0.1 --max-grad-norm 0 --adam-beta1 0.8 --adam-beta2 0.9 "
        "--adam-epsilon 1e-6 --learning-rate 1e-3 --max-seq-length 99",
        1, 10);
    tap_ok(k.seed == 7 && !strcmp(k.schedule, "linear") && k.weight_decay == 0.1 && k.max_grad_norm == 0 &&
               k.adam_beta1 == 0.8 && k.adam_beta2 == 0.9 && k.adam_epsilon == 1e-6 &&
               k.learning_rate == 1e-3 && k.max_seq_length == 99 && k.records == 10 && !*k.data && !*k.base &&
               !*k.adapter,
           "plain copies");
}

static void padding(void)
{
    struct dry_contract flat = resolve("--max-seq-length 256", 1, 100),
                        fixed = resolve("--max-seq-length 256 --padding fixed", 1, 100);

    tap_equal(dry_contract_record_tokens(&flat), 0, "flat: a record takes its own tokens");
    tap_equal(dry_contract_record_tokens(&fixed), 256, "fixed: a record takes --max-seq-length tokens");
    tap_ok(fixed.micro_tokens == flat.micro_tokens && fixed.steps == flat.steps,
           "neither batch nor steps follow from padding");
}

static double factor;

static enum dry_status compare(const struct dry_contract *then, const struct dry_contract *now,
                               const char *accept)
{
    enum dry_status status;

    factor = -1;
    capture_begin();
    status = dry_contract_compare(then, now, accept, &factor);
    capture_end();
    return status;
}

static void differs(const char *line, const char *what)
{
    struct dry_contract then = resolve("", 1, 7473), now = resolve(line, 1, 7473);

    if (!tap_ok(compare(&then, &now, NULL) == DRY_ERR_USAGE && strstr(capture_text, what), "changed: %s",
                line))
        printf("# said: %s# wanted: %s\n", capture_text, what);
    tap_ok(compare(&then, &now, "keep") == DRY_ERR_USAGE, "and the rule for the batch does not excuse it");
}

static void comparisons(void)
{
    struct dry_contract then = resolve("--per-device-batch-size 2 --effective-batch 24", 3, 1872), now;

    now = resolve("--per-device-batch-size 2 --effective-batch 24", 1, 1872);
    tap_ok(compare(&then, &now, NULL) == DRY_OK && factor == 1 && !*capture_text,
           "another number of ranks changes nothing");
    tap_ok(compare(&then, &now, "linear") == DRY_OK && factor == 1, "a rule without a change does nothing");
    differs("--seed 43",
            "contract: seed is 42 in the run of this folder and would be 43 now; give --seed 42, or another "
            "--output");
    differs("--learning-rate 3e-4",
            "learning_rate is 0.0002 in the run of this folder and would be 0.0003 now; give "
            "--learning-rate 0.0002");
    differs("--schedule linear", "schedule is cosine in");
    differs("--epochs 2", "give --epochs 1");
    differs("--epochs 2", "steps is 234 in the run of this folder and would be 468 now");
    differs("--warmup-steps 1", "warmup_steps is 8 in the run of this folder and would be 1 now");
    differs("--max-seq-length 512 --micro-batch-tokens 4096", "give --max-seq-length 1024");
    differs("--weight-decay 0.1", "weight_decay is 0 in");
    differs("--adam-beta2 0.95", "give --adam-beta2 0.999");
    differs("--padding fixed",
            "padding is flat in the run of this folder and would be fixed now; give --padding flat");
    now = then;
    snprintf(now.base, sizeof now.base, "%064d", 7);
    tap_ok(compare(&then, &now, "keep") == DRY_ERR_USAGE &&
               strstr(capture_text, "give the base that the run began with"),
           "another base");
    now = then;
    now.records = 1871;
    snprintf(now.data, sizeof now.data, "%064d", 7);
    tap_ok(compare(&then, &now, NULL) == DRY_ERR_USAGE && strstr(capture_text, "records is 1872 in") &&
               strstr(capture_text, "contract: data is"),
           "other data: each difference is named");
}

static void batch_changes(void)
{
    struct dry_contract then = resolve("--per-device-batch-size 2 --effective-batch 24", 3, 1872), now;

    now = resolve("--per-device-batch-size 2 --effective-batch 8", 1, 1872);
    tap_ok(compare(&then, &now, NULL) == DRY_ERR_USAGE &&
               strstr(capture_text,
                      "has effective batch 24 in micro-batches of 2 records, 78 steps per epoch, learning "
                      "rate 2e-04; this start would have effective batch 8 in micro-batches of 2 records, "
                      "234 steps per epoch") &&
               strstr(capture_text, "--effective-batch 24 --per-device-batch-size 2") &&
               strstr(capture_text,
                      "--accept-batch-change keep, linear or sqrt (learning rate 2e-04, 6.67e-05 or "
                      "1.15e-04)"),
           "a batch change stops, with all numbers");
    tap_ok(strstr(capture_text, "steps is") == NULL && strstr(capture_text, "warmup_steps") == NULL,
           "what follows from it is not named apart");
    tap_ok(compare(&then, &now, "keep") == DRY_OK && factor == 1, "keep");
    tap_ok(compare(&then, &now, "linear") == DRY_OK && factor == 8.0 / 24, "linear");
    tap_ok(strstr(capture_text, "batch change accepted (linear)") &&
               strstr(capture_text, "learning rate 6.67e-05"),
           "it is logged");
    tap_ok(compare(&then, &now, "sqrt") == DRY_OK && factor == sqrt(8.0 / 24), "square root");
    tap_ok(compare(&then, &now, "cubic") == DRY_ERR_USAGE && factor == -1, "no other rule");
    now = resolve("--per-device-batch-size 4 --effective-batch 24", 1, 1872);
    tap_ok(compare(&then, &now, NULL) == DRY_ERR_USAGE && strstr(capture_text, "micro-batches of 4 records"),
           "another cut is a change too");
    tap_ok(compare(&then, &now, "linear") == DRY_OK && factor == 1, "which leaves the learning rate alone");
    now = resolve("--effective-batch 8", 1, 1872);
    tap_ok(compare(&then, &now, NULL) == DRY_ERR_USAGE &&
               strstr(capture_text, "micro-batches of 4096 tokens"),
           "records to tokens");
    now = resolve("--per-device-batch-size 2 --effective-batch 8 --epochs 2", 1, 1872);
    tap_ok(compare(&then, &now, "keep") == DRY_ERR_USAGE && strstr(capture_text, "epochs is 1 in"),
           "a batch change does not hide other epochs");
    then = resolve("--effective-batch 24 --max-steps 100", 1, 1872);
    now = resolve("--effective-batch 8 --max-steps 100", 1, 1872);
    tap_ok(compare(&then, &now, "keep") == DRY_OK, "the same steps may take other epochs");
    now = resolve("--effective-batch 8 --max-steps 99", 1, 1872);
    tap_ok(compare(&then, &now, "keep") == DRY_ERR_USAGE && strstr(capture_text, "give --max-steps 100"),
           "other steps may not");
}

static void json(void)
{
    struct dry_contract k = resolve("--learning-rate 1.2345678901234567e-5 --adam-epsilon 1e-17", 1, 7473),
                        back;
    json_t *object, *read;
    char *text;

    k.weight_decay = 0.1 + 0.2;
    k.max_grad_norm = 1e22;
    k.seed = 9007199254740992;
    memset(k.data, 'a', 64);
    memset(k.base, 'b', 64);
    memset(k.adapter, 'c', 64);
    object = dry_contract_json(&k);
    text = json_dumps(object, 0);
    read = json_loads(text, 0, NULL);
    tap_ok(dry_contract_from_json(read, "x.json", &back) == DRY_OK && memcmp(&k, &back, sizeof k) == 0,
           "to JSON and back, every bit");
    json_object_del(read, "padding");
    tap_ok(dry_contract_from_json(read, "x.json", &back) == DRY_OK && memcmp(&k, &back, sizeof k) == 0,
           "a contract from before there was padding is flat");
    json_object_set_new(
        read, "data", json_string("abcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcde"));
    capture_begin();
    tap_equal(dry_contract_from_json(read, "x.json", &back), DRY_ERR_INPUT, "a text that is too long");
    json_object_set_new(read, "data", json_string(""));
    json_object_set_new(read, "effective_batch", json_integer(0));
    tap_equal(dry_contract_from_json(read, "x.json", &back), DRY_ERR_INPUT, "no effective batch");
    json_object_del(read, "seed");
    tap_equal(dry_contract_from_json(read, "x.json", &back), DRY_ERR_INPUT, "a key lacks");
    capture_end();
    tap_ok(strstr(capture_text, "x.json: key \"data\"") && strstr(capture_text, "\"seed\""),
           "which is named");
    json_decref(read);
    json_decref(object);
    free(text);
}

int main(void)
{
    stated();
    accumulated();
    both_commands();
    steps();
    padding();
    comparisons();
    batch_changes();
    json();
    return tap_done();
}
