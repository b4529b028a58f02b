/*
 * Which backends this build has.
 * Owns the table; the only place of compute/ with a build condition for a backend.  Must not know how any of
 * them works.
 */
#include "config.h"

#include "compute/backend.h"

#include "base/log.h"
#include "compute/cpu/cpu.h"
#include "compute/probe.h"

#include <string.h>
#ifdef DRY_HAVE_CUDA
#include "cuda/entry.h"
#endif

static int always(void)
{
    return 1;
}

/* In order of preference for "auto": the first whose device is there. */
static const struct {
    const struct dry_backend_ops *ops;
    int (*found)(void);
} backends[] = {
#ifdef DRY_HAVE_CUDA
    {&dry_cuda_ops, dry_cuda_usable},
#endif
    {&dry_cpu_ops, always},
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

static const struct dry_probe_ops *const probes[] = {
#ifdef DRY_HAVE_CUDA
    &dry_nvml_ops,
#endif
    NULL,
};

enum dry_status dry_backend_find(const char *name, const struct dry_backend_ops **ops)
{
    for (int i = 0; i < BACKENDS; i++) {
        int match =
            strcmp(name, "auto") == 0 ? backends[i].found() : strcmp(name, backends[i].ops->name) == 0;
        if (match) {
            *ops = backends[i].ops;
            return DRY_OK;
        }
    }
    char list[128] = "auto";
    const char *const *names = dry_backend_names();
    for (int i = 0; names[i]; i++) {
        strncat(list, ", ", sizeof list - strlen(list) - 1);
        strncat(list, names[i], sizeof list - strlen(list) - 1);
    }
    dry_error("--backend %s: this build of drydock has %s", name, list);
    return DRY_ERR_USAGE;
}

const char *const *dry_backend_names(void)
{
    static const char *const names[] = {
#ifdef DRY_HAVE_CUDA
        "cuda",
#endif
        "cpu", NULL};

    _Static_assert(sizeof names / sizeof names[0] == BACKENDS + 1, "a name per backend");
    return names;
}

const struct dry_probe_ops *dry_probe_of(const char *backend)
{
    for (int i = 0; probes[i]; i++)
        if (strcmp(probes[i]->backend, backend) == 0)
            return probes[i];
    return NULL;
}
