/*
 * Reads the system's clocks and writes time as text.
 * Owns nothing.
 * Must not know what is timed.
 */
#include "config.h"

#include "base/clock.h"

#include <stdio.h>
#include <time.h>

double dry_clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void iso(struct timespec t, char *text, size_t size)
{
    struct tm utc;
    char seconds[32];

    gmtime_r(&t.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, size, "%s.%03ldZ", seconds, t.tv_nsec / 1000000);
}

void dry_clock_iso(char *text, size_t size)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    iso(t, text, size);
}

void dry_clock_iso_at(double then, char *text, size_t size)
{
    double ago = dry_clock_now() - then;
    struct timespec t;
    long long whole;

    clock_gettime(CLOCK_REALTIME, &t);
    whole = (long long)ago;
    t.tv_sec -= (time_t)whole;
    t.tv_nsec -= (long)(1e9 * (ago - (double)whole));
    if (t.tv_nsec < 0) {
        t.tv_nsec += 1000000000;
        t.tv_sec--;
    }
    iso(t, text, size);
}

void dry_clock_span(double seconds, char *text, size_t size)
{
    if (!(seconds >= 0 && seconds < 1e15)) {
        snprintf(text, size, "unknown");
        return;
    }
    if (seconds < 59.95) { /* below what would be printed as 60.0 */
        snprintf(text, size, "%.1f s", seconds);
        return;
    }
    long long whole = (long long)(seconds + 0.5);
    long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
    if (hours)
        snprintf(text, size, "%lld:%02lld:%02lld", hours, minutes, rest);
    else
        snprintf(text, size, "%lld:%02lld", minutes, rest);
}
