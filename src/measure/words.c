/*
 * Writes numbers with the digits that people take in.
 * Owns nothing.
 * Must not know what is counted.
 */
#include "config.h"

#include "measure/words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct dry_words unknown(void)
{
    return (struct dry_words){"unknown"};
}

/* Puts commas between the thousands of what stands before the point. */
static struct dry_words apart(const char *plain)
{
    struct dry_words w = {""};
    size_t digits = 0, at = 0, i = 0;

    if (plain[0] == '-')
        w.text[at++] = plain[i++];
    digits = strspn(plain + i, "0123456789");
    for (; plain[i] && at + 2 < sizeof w.text; i++) {
        w.text[at++] = plain[i];
        if (digits > 1 && --digits % 3 == 0)
            w.text[at++] = ',';
        else if (digits == 1)
            digits = 0;
    }
    w.text[at] = 0;
    return w;
}

struct dry_words dry_words_fixed(double x, int n)
{
    char plain[40];

    if (!isfinite(x) || fabs(x) >= 1e18)
        return unknown();
    snprintf(plain, sizeof plain, "%.*f", n, x);
    if (strspn(plain, "-0.") == strlen(plain)) /* no minus before a zero */
        return apart(plain + (plain[0] == '-'));
    return apart(plain);
}

struct dry_words dry_words_count(double n)
{
    return dry_words_fixed(n, 0);
}

struct dry_words dry_words_real(double x)
{
    struct dry_words w;
    double size = fabs(x);

    if (!isfinite(x))
        return unknown();
    if (size >= 1e15 || (size > 0 && size < 1e-3)) {
        int exponent = (int)floor(log10(size));
        double mantissa = x / pow(10, exponent);

        snprintf(w.text, sizeof w.text, "%.3ge%d", mantissa, exponent);
        return w;
    }
    return dry_words_fixed(x, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
}

struct dry_words dry_words_seconds(double s)
{
    struct dry_words w;
    long long whole = isfinite(s) && fabs(s) < 1e15 ? llround(s) : 0;

    if (!isfinite(s) || fabs(s) >= 1e15)
        return unknown();
    if (s <= 0)
        snprintf(w.text, sizeof w.text, "0 s");
    else if (s < 0.9995e-3)
        snprintf(w.text, sizeof w.text, "%.3g us", s * 1e6);
    else if (s < 0.9995)
        snprintf(w.text, sizeof w.text,
                 s < 9.995e-3   ? "%.2f ms"
                 : s < 99.95e-3 ? "%.1f ms"
                                : "%.0f ms",
                 s * 1e3);
    else if (s < 99.95)
        snprintf(w.text, sizeof w.text, s < 9.995 ? "%.2f s" : "%.1f s", s);
    else if (whole < 3600)
        snprintf(w.text, sizeof w.text, "%lld min %02lld s", whole / 60, whole % 60);
    else if (whole < 100 * 3600)
        snprintf(w.text, sizeof w.text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
    else
        snprintf(w.text, sizeof w.text, "%.44s h", dry_words_count((double)(whole / 3600)).text);
    return w;
}

static struct dry_words scaled(double x, double base, const char *const *units, int count, const char *unit)
{
    struct dry_words w;
    int i = 0;

    if (!isfinite(x))
        return unknown();
    while (i + 1 < count && fabs(x) >= 0.9995 * base) {
        x /= base;
        i++;
    }
    snprintf(w.text, sizeof w.text,
             i == 0 || fabs(x) >= 99.95 ? "%.0f %s%s"
             : fabs(x) >= 9.995         ? "%.1f %s%s"
                                        : "%.2f %s%s",
             x, units[i], unit);
    return w;
}

struct dry_words dry_words_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

    return scaled(bytes, 1024, units, 6, "");
}

struct dry_words dry_words_unit(double x, const char *unit)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};

    return scaled(x, 1000, units, 7, unit);
}

struct dry_words dry_words_share(double share)
{
    struct dry_words w;

    if (!isfinite(share))
        return unknown();
    snprintf(w.text, sizeof w.text, "%.1f %%", 100 * share);
    return w;
}
