/*
 * Every golden case as a user runs it: drydock finetune for ten steps, then order of records, losses, norms,
 * rates, held-out loss and the adapter against Transformers and PEFT. Owns a scratch folder. Must not know
 * how the program computes; it is only started.
 */
#include "config.h"

#include "golden_case.h"
#include "tap.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/plan.h"
#include "model/base.h"
#include "state/peft.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Losses relative to the golden number; the adapter relative to its largest golden entry. */
static const double loss_tolerance = 1e-5, adapter_tolerance = 1e-4, norm_tolerance = 1e-4;
enum { WORDS = 64 };

static const json_t *steps_of(const struct golden_case *c)
{
    return json_object_get(c->golden, "steps");
}

static double number(const json_t *object, const char *key)
{
    const json_t *x = json_object_get(object, key);

    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

/* Value of --flag in the case's arguments, or NULL. */
static const char *argument(const struct golden_case *c, const char *flag)
{
    const json_t *words = json_object_get(c->golden, "arguments");

    for (size_t i = 0; i + 1 < json_array_size(words); i += 2)
        if (strcmp(json_string_value(json_array_get(words, i)), flag) == 0)
            return json_string_value(json_array_get(words, i + 1));
    return NULL;
}

/* Are a step's records the golden ones, in any order? */
static int same_records(const struct dry_plan_step *s, const json_t *want)
{
    if (json_array_size(want) != (size_t)s->records)
        return 0;
    for (size_t i = 0; i < json_array_size(want); i++) {
        int found = 0;
        for (int64_t k = 0; k < s->records; k++)
            found |= s->record[k] == json_integer_value(json_array_get(want, i));
        if (!found)
            return 0;
    }
    return 1;
}

/* The golden files hold their own implementation of the permutation; a plan over records of one token each
 * shows it. */
static void compare_order(const struct golden_case *c, int64_t records)
{
    int64_t *offset = dry_alloc((size_t)records + 1, sizeof *offset, "offsets");
    int32_t *supervised = dry_alloc((size_t)records, sizeof *supervised, "supervised");
    struct dry_plan_input in = {
        .records = records, .offset = offset, .supervised = supervised, .micro_tokens = 1, .epochs = 1};
    struct dry_plan *p = NULL;
    int same = offset && supervised;

    for (int64_t i = 0; same && i < records; i++)
        offset[i + 1] = i + 1;
    in.effective_batch = atoll(argument(c, "--effective-batch"));
    in.max_steps = (int64_t)json_array_size(steps_of(c));
    in.seed = strtoull(argument(c, "--seed"), NULL, 10);
    same = same && dry_plan_create(&in, &p) == DRY_OK;
    for (int64_t step = 1; same && step <= in.max_steps; step++) {
        struct dry_plan_step s;
        same = dry_plan_step(p, step, &s) == DRY_OK &&
               same_records(&s, json_object_get(json_array_get(steps_of(c), (size_t)step - 1), "records"));
        if (!same)
            printf("# step %lld has other records\n", (long long)step);
    }
    tap_ok(same, "%s: the same records in each step", c->name);
    dry_plan_destroy(p);
    dry_free(offset);
    dry_free(supervised);
}

/* Starts the program and waits; its output goes to a file in the output folder's parent. */
static int start(const char *const words[], const char *log)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(127);
        execv(words[0], (char *const *)words); /* which does not write them */
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int finetune(const struct golden_case *c, const char *output)
{
    const char *build = getenv("top_builddir");
    const json_t *given = json_object_get(c->golden, "arguments");
    char program[400], base[600], data[600], held_out[600], init[600], log[700];
    const char *words[WORDS] = {
        program,    "finetune", "--base",         base, "--data",    data, "--validation-data", held_out,
        "--output", NULL,       "--init-adapter", init, "--backend", "cpu"};
    int count = 14;
    int status;

    snprintf(program, sizeof program, "%s/drydock", build ? build : ".");
    words[9] = output;
    golden_path(c, "base", base);
    golden_path(c, "train.jsonl", data);
    golden_path(c, "validation.jsonl", held_out);
    golden_path(c, "init", init);
    for (size_t i = 0; i < json_array_size(given) && count + 1 < WORDS; i++)
        words[count++] = json_string_value(json_array_get(given, i));
    words[count] = NULL;
    snprintf(log, sizeof log, "%s.log", output);
    status = start(words, log);
    if (status != 0) {
        char *text = NULL;
        size_t size;
        if (dry_file_read(log, &text, &size) == DRY_OK)
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                printf("# %s\n", line);
        dry_free(text);
    }
    return status;
}

/* Lines of metrics.jsonl against the golden steps. */
static void compare_metrics(const struct golden_case *c, const char *output)
{
    double loss = 0, norm = 0, rate = 0, held_out = NAN;
    size_t seen = 0;
    char path[700], line[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        json_t *got = json_loads(line, 0, NULL);
        const json_t *want = json_array_get(steps_of(c), seen);

        if (json_object_get(got, "validation_loss")) {
            held_out = number(got, "validation_loss");
        } else if (want && json_integer_value(json_object_get(got, "step")) == (json_int_t)++seen) {
            double l = fabs(number(got, "loss") / number(want, "loss") - 1);
            double n = fabs(number(got, "norm") / number(want, "norm") - 1);
            double r = fabs(number(got, "learning_rate") - number(want, "rate"));
            loss = l <= loss ? loss : l;
            norm = n <= norm ? norm : n;
            rate = r <= rate ? rate : r;
            if (json_integer_value(json_object_get(got, "supervised")) !=
                json_integer_value(json_object_get(want, "supervised")))
                loss = NAN;
        }
        json_decref(got);
    }
    if (f)
        fclose(f);
    tap_equal((long long)seen, (long long)json_array_size(steps_of(c)), "every step has its line");
    if (!tap_ok(loss <= loss_tolerance, "%s: losses of all steps within %g", c->name, loss_tolerance))
        printf("# worst: %.3g\n", loss);
    if (!tap_ok(norm <= norm_tolerance, "%s: gradient norms within %g", c->name, norm_tolerance))
        printf("# worst: %.3g\n", norm);
    if (!tap_ok(rate <= 1e-9, "%s: learning rates", c->name))
        printf("# worst: %.3g\n", rate);
    if (!tap_ok(fabs(held_out / number(c->golden, "validation_after") - 1) <= loss_tolerance,
                "%s: held-out loss after the last step within %g", c->name, loss_tolerance))
        printf("# got %.9g, want %.9g\n", held_out, number(c->golden, "validation_after"));
}

static void compare_adapter(const struct golden_case *c, const char *output)
{
    struct dry_base *base = NULL;
    struct dry_adapter *a = NULL;
    float *want = NULL, *got = NULL;
    double worst = 0, largest = 0;
    char path[600], adapter[700];
    int read;

    snprintf(adapter, sizeof adapter, "%s/adapter", output);
    read = dry_base_open(golden_path(c, "base", path), &base) == DRY_OK &&
           dry_peft_open(adapter, &base->arch, &a) == DRY_OK;
    want = read ? dry_alloc((size_t)a->parameters, sizeof *want, "golden adapter") : NULL;
    got = read ? dry_alloc((size_t)a->parameters, sizeof *got, "adapter") : NULL;
    read = want && got && dry_peft_values(adapter, a, got) == DRY_OK &&
           golden_adapter_read(golden_path(c, "final.safetensors", path), a, want) == DRY_OK;
    for (int64_t i = 0; read && i < a->parameters; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        worst = d <= worst ? worst : d;
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    }
    if (!tap_ok(read && worst <= adapter_tolerance * largest, "%s: adapter within %g of its largest entry",
                c->name, adapter_tolerance))
        printf("# worst: %.3g, largest entry: %.3g\n", worst, largest);
    dry_free(want);
    dry_free(got);
    dry_adapter_destroy(a);
    dry_base_close(base);
}

static void run_case(const char *name, const char *scratch)
{
    struct golden_case c;
    struct golden_records r;
    char output[600];

    snprintf(output, sizeof output, "%s/%s", scratch, name);
    if (!tap_ok(golden_open(name, &c) == DRY_OK && golden_records_read(&c, "train.jsonl", &r) == DRY_OK,
                "%s: opens", name))
        return;
    compare_order(&c, r.count);
    golden_records_free(&r);
    if (tap_ok(finetune(&c, output) == 0, "%s: finetune ends well", name)) {
        compare_metrics(&c, output);
        compare_adapter(&c, output);
    }
    golden_close(&c);
}

int main(void)
{
    const char *parent = getenv("TMPDIR");
    char scratch[400], remove[500];
    char **names = NULL;
    size_t count = 0;

    snprintf(scratch, sizeof scratch, "%s/drydock-golden.XXXXXX", parent ? parent : "/tmp");
    if (!tap_ok(mkdtemp(scratch) && golden_list(&names, &count) == DRY_OK && count > 0,
                "golden cases are there"))
        return tap_done();
    for (size_t i = 0; i < count; i++)
        run_case(names[i], scratch);
    dry_dir_free(names, count);
    snprintf(remove, sizeof remove, "rm -rf '%s'", scratch);
    if (system(remove) != 0)
        printf("# %s stays\n", scratch);
    return tap_done();
}
