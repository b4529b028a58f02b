/*
 * compare: finished runs side by side, when they can be compared.
 * Owns the list of runs.
 * Must not know how numbers are gathered or laid out.
 */
#include "config.h"

#include "command/command.h"
#include "command/compare.h"
#include "command/lengths.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <sys/stat.h>

/* What makes numbers of runs mean different things. */
enum { REFUSED = DRY_DIFFER_DATA | DRY_DIFFER_CONTRACT | DRY_DIFFER_VALIDATION | DRY_DIFFER_CACHE };

/* Validation sets of runs that do not tell their bytes: by the tokens that were validated. */
static enum dry_status look_at_validated(struct dry_compare *c)
{
    int64_t first = 0;
    int differs = 0;
    char(*text)[32];
    const char **list;
    enum dry_status status = DRY_ERR_MEMORY;

    for (int i = 0; i < c->differences.count; i++)
        if (c->differences.item[i].kind == DRY_DIFFER_VALIDATION)
            return DRY_OK;
    text = dry_alloc((size_t)c->runs, sizeof *text, "a difference");
    list = dry_alloc((size_t)c->runs, sizeof *list, "a difference");
    for (int r = 0; text && list && r < c->runs; r++) {
        const struct dry_history *h = c->run[r].h;
        int64_t tokens = h->validations ? h->validation[0].supervised : 0;

        snprintf(text[r], sizeof text[r], "%lld", (long long)tokens);
        list[r] = tokens ? text[r] : "-";
        differs = differs || (tokens && first && tokens != first);
        first = first ? first : tokens;
    }
    if (text && list)
        status = differs ? dry_differ_add(&c->differences, DRY_DIFFER_VALIDATION, "supervised tokens", list)
                         : DRY_OK;
    dry_free(text);
    dry_free(list);
    return status;
}

/* Refuses what cannot be compared. */
static enum dry_status check(struct dry_compare *c, const char *allow)
{
    json_t **manifest = dry_alloc((size_t)c->runs, sizeof *manifest, "the manifests");
    const char **name = dry_alloc((size_t)c->runs, sizeof *name, "the runs' names");
    enum dry_status status = manifest && name ? DRY_OK : DRY_ERR_MEMORY;
    unsigned allowed = 0;

    for (int r = 0; r < c->runs && !status; r++) {
        manifest[r] = c->run[r].h->run;
        name[r] = c->run[r].folder;
    }
    if (!status)
        status = dry_differ_allowed(allow, REFUSED, &allowed);
    if (!status)
        status = dry_differ_look(manifest, c->runs, REFUSED, &c->differences);
    if (!status)
        status = look_at_validated(c);
    if (!status)
        status = dry_differ_look(manifest, c->runs, DRY_DIFFER_VERSIONS | DRY_DIFFER_DEVICES, &c->others);
    if (!status)
        status = dry_differ_refuse(&c->differences, name, allowed, "these runs cannot be compared");
    dry_free(manifest);
    dry_free(name);
    return status;
}

/* A folder given twice is most often a slip of the hand. */
static void warn_of_same(const struct dry_compare *c)
{
    struct stat one, two;

    for (int a = 0; a < c->runs; a++)
        for (int b = a + 1; b < c->runs; b++)
            if (!stat(c->run[a].folder, &one) && !stat(c->run[b].folder, &two) && one.st_dev == two.st_dev &&
                one.st_ino == two.st_ino)
                dry_warn("%s and %s are one folder: the run is compared with itself", c->run[a].folder,
                         c->run[b].folder);
}

enum dry_status dry_command_compare(const struct dry_call *call)
{
    struct dry_compare c = {.runs = call->positionals};
    enum dry_status status = DRY_OK;

    if (c.runs < 2) {
        dry_error("compare needs two runs or more; usage: drydock compare RUN RUN... (folders that finetune "
                  "was given as --output)");
        return DRY_ERR_USAGE;
    }
    c.run = dry_alloc((size_t)c.runs, sizeof *c.run, "the runs");
    if (!c.run)
        return DRY_ERR_MEMORY;
    for (int r = 0; r < c.runs; r++)
        c.run[r].folder = call->positional[r];
    for (int r = 0; r < c.runs && !status; r++)
        status = dry_history_open(c.run[r].folder, &c.run[r].h);
    for (int r = 0; r < c.runs && !status; r++)
        if (!json_is_object(json_object_get(c.run[r].h->run, "contract"))) {
            dry_error("%s/run.json: has no contract (key \"contract\"), so what this run did is not known",
                      c.run[r].folder);
            status = DRY_ERR_INPUT;
        }
    if (!status)
        warn_of_same(&c);
    if (!status)
        status = check(&c, call->config->allow);
    if (!status)
        status = dry_compare_gather(&c);
    if (!status && call->config->json) {
        status = dry_print_json(dry_compare_json(&c));
    } else if (!status) {
        dry_compare_print(stdout, &c);
        status = dry_print_end();
    }
    dry_compare_release(&c);
    return status;
}
