/*
 * Reads DRY_FAULT and says at which event something must fail.
 * Owns a counter for each fault of that list.
 * Must not know what an event is: its kind is a name to it.
 */
#include "config.h"

#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FAULTS = 16 };

static atomic_llong hits[MAX_FAULTS];

/* A test that asks for a fault and misspells it would pass without one. */
static void refuse(const char *list)
{
    dry_error("DRY_FAULT=%s: want [rank:R:]KIND:N, separated by commas, %d at most", list, MAX_FAULTS);
    dry_log_flush();
    abort();
}

static long long number(const char **at, const char *list)
{
    char *end;

    errno = 0;
    long long n = strtoll(*at, &end, 10);
    if (end == *at || errno)
        refuse(list);
    *at = end;
    return n;
}

/* Walks over the list. N of a fault of this kind on this rank is compared with event when numbered, else with
 * its counter. */
static int asked(const char *kind, int numbered, long long event)
{
    const char *list = getenv("DRY_FAULT");
    int answer = 0;

    if (!list || !*list)
        return 0;
    const char *at = list;
    for (int i = 0;; i++) {
        if (i == MAX_FAULTS)
            refuse(list);
        int here = 1;
        if (strncmp(at, "rank:", 5) == 0) {
            at += 5;
            here = number(&at, list) == dry_log_rank();
            if (*at++ != ':')
                refuse(list);
        }
        size_t length = strcspn(at, ":,");
        if (length == 0 || at[length] != ':')
            refuse(list);
        int same = strlen(kind) == length && memcmp(at, kind, length) == 0;
        at += length + 1;
        long long n = number(&at, list);
        if (here && same && (numbered ? event == n : atomic_fetch_add(&hits[i], 1) + 1 == n))
            answer = 1;
        if (*at == '\0')
            return answer;
        if (*at++ != ',')
            refuse(list);
    }
}

int dry_fault(const char *kind)
{
    return asked(kind, 0, 0);
}

int dry_fault_at(const char *kind, long long value)
{
    return asked(kind, 1, value);
}
