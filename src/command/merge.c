/*
 * merge: an adapter into its base, as a new Hugging Face folder.
 * Owns nothing.
 * Must not know how the sum is made.
 */
#include "config.h"

#include "command/setup.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/merge.h"

#include <string.h>

static enum dry_dtype find_type(const char *name)
{
    if (strcmp(name, "float32") == 0)
        return DRY_F32;
    if (strcmp(name, "bfloat16") == 0)
        return DRY_BF16;
    return strcmp(name, "float16") == 0 ? DRY_F16 : DRY_OTHER;
}

/* Collective. Where the base lies. */
static enum dry_status locate(const struct dry_call *call, char **dir)
{
    enum dry_status s;

    dry_log_defer(1);
    s = dry_comm_agree(call->comm, dry_base_locate(call->config->base, dir));
    dry_log_defer(0);
    return s;
}

enum dry_status dry_command_merge(const struct dry_call *call)
{
    const struct dry_config *c = call->config;
    struct dry_adapter *adapter = NULL;
    struct dry_base *base = NULL;
    float *values = NULL;
    char *dir = NULL, span[32];
    double start = dry_clock_now();
    enum dry_status s = locate(call, &dir);

    if (!s)
        s = dry_setup_base(call, dir, &base);
    if (!s)
        s = dry_setup_peft(call, c->adapter, base, &adapter, &values);
    if (!s) {
        if (dry_comm_rank(call->comm) == 0)
            s = dry_merge(base, adapter, values, c->output, find_type(c->dtype), c->shard_bytes);
        s = dry_comm_agree(call->comm, s);
    }
    if (!s) {
        dry_clock_span(dry_clock_now() - start, span, sizeof span);
        dry_info("merged %s into %s: %s, %s", c->adapter, c->base, c->output, span);
    }
    dry_free(values);
    dry_adapter_destroy(adapter);
    dry_base_close(base);
    dry_free(dir);
    return s;
}
