/*
 * A run's contract, versions and machine as names and texts.
 * Owns nothing.
 * Must not know whether they go to a page or to a text.
 */
#include "config.h"

#include "measure/report_parts.h"

#include "measure/words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 4, 5))) static void add(struct dry_report_fact *fact, int *count,
                                                      const char *name, const char *format, ...)
{
    va_list ap;

    if (*count == DRY_REPORT_FACTS)
        return;
    snprintf(fact[*count].name, sizeof fact->name, "%s", name);
    va_start(ap, format);
    vsnprintf(fact[*count].text, sizeof fact->text, format, ap);
    va_end(ap);
    if (fact[*count].text[0])
        (*count)++;
}

static const char *number(const struct dry_report *r, const char *path, char text[48])
{
    double value = dry_report_number_at(r, path);

    if (value == floor(value))
        snprintf(text, 48, "%s", dry_words_count(value).text);
    else
        snprintf(text, 48, "%g", value);
    return isfinite(value) ? text : "";
}

/* An option's value as it was given. */
static void add_option(const struct dry_report *r, struct dry_report_fact *fact, int *count, const char *name,
                       const char *key)
{
    char path[96], text[256];

    snprintf(path, sizeof path, "options.%s.value", key);
    dry_report_value(dry_report_at(r, path), text, sizeof text);
    add(fact, count, name, "%s", text);
}

static void add_cut(const struct dry_report *r, struct dry_report_fact *fact, int *count)
{
    double records = dry_report_number_at(r, "contract.micro_records"),
           tokens = dry_report_number_at(r, "contract.micro_tokens");

    if (records > 0)
        add(fact, count, "micro-batch", "%s records", dry_words_count(records).text);
    else if (tokens > 0)
        add(fact, count, "micro-batch", "up to %s tokens", dry_words_count(tokens).text);
}

int dry_report_contract(const struct dry_report *r, struct dry_report_fact *fact)
{
    int n = 0;
    char a[48], b[48];

    if (!dry_report_at(r, "contract"))
        return 0;
    add(fact, &n, "effective batch", "%s records per step", number(r, "contract.effective_batch", a));
    add_cut(r, fact, &n);
    add(fact, &n, "steps", "%s (%s an epoch)", number(r, "contract.steps", a),
        number(r, "contract.steps_per_epoch", b));
    add(fact, &n, "records", "%s, %s time%s each", number(r, "contract.records", a),
        number(r, "contract.epochs", b), dry_report_number_at(r, "contract.epochs") == 1 ? "" : "s");
    add(fact, &n, "record limit", "%s tokens", number(r, "contract.max_seq_length", a));
    add(fact, &n, "learning rate", "%s, %s", number(r, "contract.learning_rate", a),
        dry_report_text_at(r, "contract.schedule", ""));
    add(fact, &n, "warm-up", "%s steps", number(r, "contract.warmup_steps", a));
    add(fact, &n, "weight decay", "%s", number(r, "contract.weight_decay", a));
    add(fact, &n, "gradient norm", "clipped to %s", number(r, "contract.max_grad_norm", a));
    add_option(r, fact, &n, "LoRA rank", "rank");
    add_option(r, fact, &n, "LoRA alpha", "alpha");
    add_option(r, fact, &n, "LoRA dropout", "lora_dropout");
    add_option(r, fact, &n, "targets", "targets");
    add_option(r, fact, &n, "template", "template");
    add_option(r, fact, &n, "padding", "padding");
    add(fact, &n, "seed", "%.0f", dry_report_number_at(r, "contract.seed"));
    return n;
}

/* "name version" of each member of an object. */
static void add_members(const struct dry_report *r, struct dry_report_fact *fact, int *n, const char *path)
{
    const json_t *object = dry_report_at(r, path), *value;
    const char *key;
    char text[512];

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        dry_report_value(value, text, sizeof text);
        if (!strchr(text, '\n')) /* configure's summary has lines */
            add(fact, n, key, "%s", text);
    }
}

/* Equal devices of several ranks on one line. */
static void add_devices(const struct dry_report *r, struct dry_report_fact *fact, int *n)
{
    const json_t *devices = dry_report_at(r, "devices");
    size_t count = json_array_size(devices);

    for (size_t i = 0, same; i < count; i += same) {
        const json_t *d = json_array_get(devices, i);
        char name[128], driver[64], host[128], threads[32], ranks[64];

        for (same = 1; i + same < count; same++) {
            const json_t *other = json_array_get(devices, i + same);

            if (!json_equal(json_object_get(d, "device"), json_object_get(other, "device")) ||
                !json_equal(json_object_get(d, "host"), json_object_get(other, "host")))
                break;
        }
        dry_report_value(json_object_get(d, "device"), name, sizeof name);
        dry_report_value(json_object_get(d, "driver"), driver, sizeof driver);
        dry_report_value(json_object_get(d, "host"), host, sizeof host);
        dry_report_value(json_object_get(d, "threads"), threads, sizeof threads);
        snprintf(ranks, sizeof ranks, same > 1 ? "ranks %zu to %zu" : "rank %zu", i, i + same - 1);
        add(fact, n, ranks, "%s%s%s%s%s%s%s", name, *driver ? ", driver " : "", driver,
            !strstr(name, "thread") && *threads ? ", threads " : "", strstr(name, "thread") ? "" : threads,
            *host ? ", on " : "", host);
    }
}

static void add_storage(const struct dry_report *r, struct dry_report_fact *fact, int *n)
{
    double cached = dry_report_number_at(r, "page_cache.base");

    if (dry_report_at(r, "storage"))
        add(fact, n, "storage", "base %s, data %s, output %s",
            dry_report_text_at(r, "storage.base", "unknown"),
            dry_report_text_at(r, "storage.data", "unknown"),
            dry_report_text_at(r, "storage.output", "unknown"));
    if (isfinite(cached))
        add(fact, n, "base in memory at start", "%s of its files", dry_words_share(cached).text);
}

int dry_report_versions(const struct dry_report *r, struct dry_report_fact *fact)
{
    int n = 0;
    char text[512];

    dry_report_value(dry_report_at(r, "command_line"), text, sizeof text);
    for (char *c = text; *c; c++) /* words, as they were typed */
        if (c[0] == ',' && c[1] == ' ')
            memmove(c, c + 1, strlen(c));
    add(fact, &n, "command", "%s", text);
    add(fact, &n, "folder", "%s", r->h->folder);
    add(fact, &n, "base", "%s", dry_report_text_at(r, "base", ""));
    add(fact, &n, "training data", "%s",
        dry_report_text_at(r, "data.path", dry_report_text_at(r, "options.data.value", "")));
    add_option(r, fact, &n, "validation data", "validation_data");
    add(fact, &n, "backend", "%s", dry_report_text_at(r, "backend", ""));
    add(fact, &n, "host", "%s%s%s", dry_report_text_at(r, "host.name", ""),
        dry_report_at(r, "host.kernel") ? ", kernel " : "", dry_report_text_at(r, "host.kernel", ""));
    add(fact, &n, "processor", "%s", dry_report_text_at(r, "host.cpu", ""));
    add_devices(r, fact, &n);
    add_storage(r, fact, &n);
    add_members(r, fact, &n, "build");
    add_members(r, fact, &n, "libraries");
    add(fact, &n, "SHA-256 of the data", "%s", dry_report_text_at(r, "data.sha256", ""));
    add(fact, &n, "SHA-256 of the tokenizer", "%s", dry_report_text_at(r, "tokenizer", ""));
    add(fact, &n, "SHA-256 of the plan", "%s", dry_report_text_at(r, "plan_hash", ""));
    add(fact, &n, "SHA-256 of the adapter", "%s", dry_report_text_at(r, "results.adapter_sha256", ""));
    return n;
}
