/*
 * Puts together run.json: what was asked, on what machine and build, under which contract.
 * Owns nothing.
 * Must not know when it is written.
 */
#include "config.h"

#include "measure/manifest.h"

#include "base/build.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "measure/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

json_t *dry_build_json(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "drydock", dry_build_version(), "revision",
                     dry_build_revision(), "compiler", __VERSION__, "jansson", JANSSON_VERSION, "configured",
                     dry_build_summary());
}

/* "model name" of /proc/cpuinfo. */
static void cpu_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(name, size, "unknown");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            char *text = strchr(line, ':') + 1;

            text[strcspn(text, "\n")] = 0;
            snprintf(name, size, "%s", text + strspn(text, " "));
            break;
        }
    if (file)
        fclose(file);
}

json_t *dry_host_json(void)
{
    struct utsname u;
    char cpu[128], folder[4096];
    const char *threads = getenv("OMP_NUM_THREADS");

    cpu_name(cpu, sizeof cpu);
    if (uname(&u))
        memset(&u, 0, sizeof u);
    if (!getcwd(folder, sizeof folder))
        *folder = 0;
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s?, s:s}", "name", u.nodename, "system", u.sysname,
                     "kernel", u.release, "cpu", cpu, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN),
                     "OMP_NUM_THREADS", threads, "folder", folder);
}

/* What is told of a start when the next one takes its place in run.json. */
static json_t *brief(const json_t *earlier)
{
    static const char *const kept[] = {"command_line", "began",   "started", "finished",
                                       "exit",         "outcome", "ranks",   "resumed_from"};
    json_t *object = json_object();

    for (size_t i = 0; object && i < sizeof kept / sizeof *kept; i++) {
        json_t *value = json_object_get(earlier, kept[i]);

        if (value && json_object_set(object, kept[i], value)) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* An array of the run.json before, with one more entry (taken; NULL: none). */
static json_t *continued(const json_t *earlier, const char *key, json_t *more)
{
    json_t *before = json_object_get(earlier, key);
    json_t *array = json_is_array(before) ? json_deep_copy(before) : json_array();

    if (array && more && json_array_append_new(array, more)) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *words(int argc, char **argv)
{
    json_t *array = json_array();

    for (int i = 0; array && i < argc; i++) {
        json_t *word = json_string(argv[i]);

        /* An argument that is no UTF-8 (a path can be) is told as far as JSON can. */
        if (!word)
            word = json_string("?");
        if (json_array_append_new(array, word)) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* On what kind of file system things lie. */
static json_t *storage_json(const struct dry_manifest *m)
{
    char base[32], data[32], output[32];

    dry_machine_storage(m->base, base, sizeof base);
    dry_machine_storage(m->data, data, sizeof data);
    dry_machine_storage(m->output, output, sizeof output);
    return json_pack("{s:s, s:s, s:s}", "base", base, "data", data, "output", output);
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The matrix rates alone, by rank. */
static json_t *matrix_json(const json_t *devices)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < json_array_size(devices); i++)
        if (json_array_append(array, json_object_get(json_array_get(devices, i), "matrix"))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* What the run has to do with and how fast that is. */
static int add_machine(json_t *root, const struct dry_manifest *m)
{
    int bad = json_object_set_new(root, "devices", json_deep_copy(m->devices));

    bad = bad || json_object_set_new(root, "matrix", matrix_json(m->devices));
    bad = bad || json_object_set_new(root, "flops_per_token", json_real(m->flops_per_token));
    bad =
        bad || json_object_set_new(root, "flops_per_squared_length", json_real(m->flops_per_squared_length));
    bad = bad || json_object_set_new(root, "tokenizer", json_string(m->tokenizer_hash));
    bad = bad ||
          json_object_set_new(root, "data", json_pack("{s:s, s:s}", "path", m->data, "sha256", m->data_hash));
    if (m->validation)
        bad = bad || json_object_set_new(
                         root, "validation",
                         json_pack("{s:s, s:s}", "path", m->validation, "sha256", m->validation_hash));
    bad = bad || json_object_set_new(root, "storage", storage_json(m));
    return bad ||
           json_object_set_new(root, "page_cache", json_pack("{s:o}", "base", real_or_null(m->resident)));
}

json_t *dry_manifest_json(const struct dry_manifest *m, const json_t *earlier)
{
    json_t *root = json_object(), *change = m->change ? json_incref(m->change) : NULL;
    json_t *libraries = m->libraries ? json_loads(m->libraries, 0, NULL) : json_object();
    char now[40];
    int bad = !root;

    dry_clock_iso(now, sizeof now);
    bad = bad || json_object_set_new(root, "format_version", json_integer(1));
    bad = bad || json_object_set_new(root, "command", json_string(m->command));
    bad = bad || json_object_set_new(root, "command_line", words(m->argc, m->argv));
    bad = bad || json_object_set_new(root, "outcome", json_string("running"));
    bad = bad || json_object_set_new(root, "exit", json_null());
    bad = bad || json_object_set_new(root, "started", json_string(now));
    dry_clock_iso_at(m->began, now, sizeof now);
    bad = bad || json_object_set_new(root, "began", json_string(now));
    bad = bad || json_object_set_new(root, "finished", json_null());
    bad = bad || json_object_set_new(root, "ranks", json_integer(m->ranks));
    bad = bad || json_object_set_new(root, "resumed_from", json_integer(m->resumed_from));
    bad = bad || json_object_set_new(root, "contract", dry_contract_json(m->contract));
    bad = bad || json_object_set_new(root, "plan_hash", json_string(m->plan_hash));
    bad = bad || json_object_set_new(root, "base", json_string(m->base));
    bad = bad || json_object_set_new(root, "options", json_incref(m->options));
    bad = bad || json_object_set_new(root, "backend", json_string(m->backend));
    bad = bad || json_object_set_new(root, "host", dry_host_json());
    bad = bad || json_object_set_new(root, "build", dry_build_json());
    bad = bad || json_object_set_new(root, "libraries", libraries);
    bad = bad || add_machine(root, m);
    bad = bad || json_object_set_new(root, "changes", continued(earlier, "changes", change));
    bad = bad || json_object_set_new(root, "earlier_starts",
                                     continued(earlier, "earlier_starts", earlier ? brief(earlier) : NULL));
    if (!bad)
        return root;
    dry_error("run.json: no memory, or a text that is no UTF-8");
    json_decref(root);
    return NULL;
}

json_t *dry_manifest_stages(const struct dry_stages *stages, const double *before)
{
    json_t *object = json_object();

    for (int i = 0; object && i < DRY_STAGES; i++) {
        double seconds = stages->seconds[i] - (before ? before[i] : 0);

        if (seconds > 0 &&
            json_object_set_new(object, dry_stage_name((enum dry_stage)i), json_real(seconds))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
