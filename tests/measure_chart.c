/*
 * Pages and charts: what is escaped, which points a thinned curve keeps, where axes have their ticks.
 */
#include "config.h"

#include "measure/chart.h"

#include "tests/tap.h"

#include <stdlib.h>

static void escaped(const char *text, const char *want, const char *name)
{
    struct dry_page p = {0};

    dry_page_text(&p, text);
    tap_text(p.text.data ? p.text.data : "", want, name);
    dry_buffer_reset(&p.text);
}

static void escapes(void)
{
    escaped("a<b>&\"c\"'d'", "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;", "markup");
    escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
            "characters beyond ASCII stay");
    escaped("a\xff\xfe-b\xc3", "a\xef\xbf\xbd\xef\xbf\xbd-b\xef\xbf\xbd", "bytes that are no UTF-8");
    escaped("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "a surrogate");
    escaped("a\x01\x1b\x7f\tb", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\tb", "control characters but the tab");
    escaped("\xc2\x85\xef\xbf\xbe", "\xef\xbf\xbd\xef\xbf\xbd", "what XML has no place for");
    escaped("", "", "nothing");
    escaped(NULL, "", "no text");
}

enum { MANY = 50000 };

static void thinning(void)
{
    static double x[MANY], y[MANY];
    size_t keep[DRY_CHART_POINTS], n;
    int low = 0, high = 0, rising = 1;

    for (int i = 0; i < MANY; i++) {
        x[i] = i * 0.5;
        y[i] = (i * 7919 % 1000) / 1000.0;
    }
    y[31234] = 99;
    y[44321] = -99;
    n = dry_chart_thin(x, y, MANY, DRY_CHART_POINTS, keep);
    for (size_t i = 0; i < n; i++) {
        high |= keep[i] == 31234;
        low |= keep[i] == 44321;
        rising = rising && (i == 0 || keep[i] > keep[i - 1]);
    }
    tap_ok(n > DRY_CHART_POINTS / 2 && n <= DRY_CHART_POINTS, "a long curve is thinned to what is allowed");
    tap_ok(high && low, "its least and most are kept");
    tap_ok(rising, "in order");
    tap_ok(keep[0] == 0 && keep[n - 1] == MANY - 1, "first and last are kept");
    n = dry_chart_thin(x, y, 10, DRY_CHART_POINTS, keep);
    tap_ok(n == 10 && keep[9] == 9, "a short curve is whole");
    y[0] = y[5] = y[9] = NAN;
    n = dry_chart_thin(x, y, 10, DRY_CHART_POINTS, keep);
    tap_ok(n == 7 && keep[0] == 1 && keep[6] == 8, "what is no number is left out");
    tap_equal((long long)dry_chart_thin(x, y, 0, DRY_CHART_POINTS, keep), 0, "an empty curve");
    for (int i = 0; i < MANY; i++)
        x[i] = i < MANY / 2 ? 0 : 1e9; /* all in two places */
    n = dry_chart_thin(x, y, MANY, 8, keep);
    tap_ok(n >= 2 && n <= 8, "a few points are few also where x is uneven");
}

static void axis(double least, double most, int ticks, enum dry_axis_kind kind, double want_least,
                 double want_most, double want_step, const char *name)
{
    struct dry_axis a = dry_axis_fit(least, most, ticks, kind, 0);

    tap_ok(fabs(a.least - want_least) <= 1e-9 * want_step && fabs(a.most - want_most) <= 1e-9 * want_step &&
               fabs(a.step - want_step) <= 1e-9 * want_step,
           "%s", name);
}

static void label(double least, double most, int ticks, enum dry_axis_kind kind, double value,
                  const char *want)
{
    struct dry_axis a = dry_axis_fit(least, most, ticks, kind, 0);
    char text[48];

    dry_axis_text(&a, value, text, sizeof text);
    tap_text(text, want, want);
}

static void axes(void)
{
    axis(0.31, 1.93, 5, DRY_AXIS_REAL, 0, 2, 0.5, "an axis of losses");
    axis(0, 2e-4, 4, DRY_AXIS_REAL, 0, 2e-4, 5e-5, "an axis of learning rates");
    axis(0, 7, 20, DRY_AXIS_WHOLE, 0, 7, 1, "steps have no halves");
    axis(0, 7400, 10, DRY_AXIS_TIME, 0, 8100, 900, "time in quarters of an hour");
    axis(NAN, INFINITY, 4, DRY_AXIS_REAL, 0, 1, 0.5, "no number at all");
    axis(5, 5, 4, DRY_AXIS_REAL, 4.5, 5.5, 0.5, "one number");
    label(0, 1e-4, 4, DRY_AXIS_REAL, 5e-5, "0.5e-4");
    label(0, 20000, 4, DRY_AXIS_REAL, 15000, "15,000");
    label(0, 7200, 8, DRY_AXIS_TIME, 5400, "1:30 h");
    label(0, 600, 10, DRY_AXIS_TIME, 120, "2 min");
    label(0, 90, 9, DRY_AXIS_TIME, 70, "1:10");
    label(0, 2, 8, DRY_AXIS_TIME, 0.5, "0.5 s");
}

int main(void)
{
    escapes();
    thinning();
    axes();
    return tap_done();
}
