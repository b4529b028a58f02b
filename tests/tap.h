/*
 * TAP from C: ok lines, a plan at the end, and the exit status.
 */
#ifndef DRY_TESTS_TAP_H
#define DRY_TESTS_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failed;

/* One test point; prints "ok N - name" or "not ok N - name" and returns the condition. */
static inline int tap_ok(int condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int tap_ok(int condition, const char *format, ...)
{
    va_list ap;

    printf("%s %d - ", condition ? "ok" : "not ok", ++tap_count);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    if (!condition)
        tap_failed++;
    return condition;
}

static inline int tap_equal(long long got, long long want, const char *name)
{
    int good = tap_ok(got == want, "%s", name);
    if (!good)
        printf("# got %lld, want %lld\n", got, want);
    return good;
}

static inline int tap_text(const char *got, const char *want, const char *name)
{
    int good = tap_ok(got && want && strcmp(got, want) == 0, "%s", name);
    if (!good)
        printf("# got  %s\n# want %s\n", got ? got : "(null)", want ? want : "(null)");
    return good;
}

/* Passes if |got - want| <= tolerance; not-a-number fails. */
static inline int tap_near(double got, double want, double tolerance, const char *name)
{
    int good = tap_ok(fabs(got - want) <= tolerance, "%s", name);
    if (!good)
        printf("# got %.9g, want %.9g, tolerance %.3g\n", got, want, tolerance);
    return good;
}

/* The whole test is skipped, with a reason. */
static inline int tap_skip_all(const char *why)
{
    printf("1..0 # SKIP %s\n", why);
    return 0;
}

static inline int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}

#endif
