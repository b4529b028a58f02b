/*
 * Reads DRY_FAULT and says at which event something must fail; reads DRY_DELAY and loses time.
 * Owns a counter for each fault of that list.
 * Must not know what an event is: its kind is a name to it.
 */
#include "config.h"

#include "base/fault.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ITEMS = 16 };

static atomic_llong hits[MAX_ITEMS];

/* A list at work, and its present item: [rank:R:]KIND: and then a value, which the caller reads from `at`. */
struct list {
    const char *variable, *want, *text, *at;
    int index, here; /* item; is it this rank's? */
    const char *kind;
    size_t length; /* of kind */
};

/* A test that asks for a fault and misspells it would pass without one. */
static void refuse(const struct list *l)
{
    dry_error("%s=%s: want %s, separated by commas, %d at most", l->variable, l->text, l->want, MAX_ITEMS);
    dry_log_flush();
    abort();
}

static long long number(struct list *l)
{
    char *end;

    errno = 0;
    long long n = strtoll(l->at, &end, 10);
    if (end == l->at || errno)
        refuse(l);
    l->at = end;
    return n;
}

/* The first item; zero when there is none. */
static int head(struct list *l)
{
    if (l->index == MAX_ITEMS)
        refuse(l);
    l->here = 1;
    if (strncmp(l->at, "rank:", 5) == 0) {
        l->at += 5;
        l->here = number(l) == dry_log_rank();
        if (*l->at++ != ':')
            refuse(l);
    }
    l->kind = l->at;
    l->length = strcspn(l->at, ":,");
    if (l->length == 0 || l->at[l->length] != ':')
        refuse(l);
    l->at += l->length + 1;
    return 1;
}

static int first(struct list *l)
{
    l->text = l->at = getenv(l->variable);
    l->index = 0;
    return l->text && *l->text ? head(l) : 0;
}

/* Behind a value: the next item; zero at the end. */
static int next(struct list *l)
{
    if (*l->at == '\0')
        return 0;
    if (*l->at++ != ',')
        refuse(l);
    l->index++;
    return head(l);
}

static int is(const struct list *l, const char *kind)
{
    return strlen(kind) == l->length && memcmp(l->kind, kind, l->length) == 0;
}

/* N of a fault of this kind on this rank is compared with event when numbered, else with its counter. */
static int asked(const char *kind, int numbered, long long event)
{
    struct list l = {.variable = "DRY_FAULT", .want = "[rank:R:]KIND:N"};
    int answer = 0;

    for (int more = first(&l); more; more = next(&l)) {
        int mine = l.here && is(&l, kind);
        long long n = number(&l);

        if (mine && (numbered ? event == n : atomic_fetch_add(&hits[l.index], 1) + 1 == n))
            answer = 1;
    }
    return answer;
}

int dry_fault(const char *kind)
{
    return asked(kind, 0, 0);
}

int dry_fault_at(const char *kind, long long value)
{
    return asked(kind, 1, value);
}

/* Seconds that the list adds to work of this kind that took `worked`; *any is set when there is an item. */
static double added(const char *kind, double worked, int *any)
{
    static const char *const kinds[] = {"start-up", "data",       "copy",      "compute",
                                        "reduce",   "checkpoint", "validation"};
    struct list l = {.variable = "DRY_DELAY",
                     .want =
                         "[rank:R:]KIND:MILLISECONDS or [rank:R:]KIND:xFACTOR, factor 1 or more, with KIND "
                         "start-up, data, copy, compute, reduce, checkpoint or validation"};
    double seconds = 0;

    for (int more = first(&l); more; more = next(&l)) {
        int known = 0, times = *l.at == 'x';
        char *end;

        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            known = known || is(&l, kinds[i]);
        l.at += times;
        double value = strtod(l.at, &end);
        if (!known || end == l.at || !(value >= times && value <= 1e9))
            refuse(&l);
        l.at = end;
        if (!l.here || !is(&l, kind))
            continue;
        *any = 1;
        seconds += times ? (value - 1) * worked : value / 1000;
    }
    return seconds;
}

void dry_delay(const char *kind, double since)
{
    int any = 0;
    double seconds = added(kind, dry_clock_now() - since, &any);
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    if (!any)
        return;
    while (nanosleep(&t, &t) && errno == EINTR)
        continue;
}

int dry_delay_asked(const char *kind)
{
    int any = 0;

    (void)added(kind, 0, &any);
    return any;
}
