/*
 * Log lines as they come out of standard error, deferred and not; status codes; time as text.
 * Owns a temporary file that stands in for standard error.
 * Must not know of ranks but as numbers.
 */
#include "config.h"

#include "base/build.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static FILE *captured;

/* What was written to standard error since the last call. */
static const char *said(void)
{
    static char text[4096];

    fflush(stderr);
    rewind(captured);
    size_t size = fread(text, 1, sizeof text - 1, captured);
    text[size] = '\0';
    rewind(captured);
    if (ftruncate(fileno(captured), 0) != 0)
        abort();
    lseek(STDERR_FILENO, 0, SEEK_SET);
    return text;
}

static void lines(void)
{
    dry_error("cannot open %s", "x");
    tap_text(said(), "drydock: error: cannot open x\n", "an error line");
    dry_warn("two\nlines");
    tap_text(said(), "drydock: warning: two lines\n", "a message is one line");
    dry_info("step %d", 3);
    tap_text(said(), "drydock: step 3\n", "information");
    dry_debug("hidden");
    tap_text(said(), "", "debug lines are dropped by default");
    dry_log_set_level(DRY_LOG_DEBUG);
    dry_debug("shown");
    tap_text(said(), "drydock: debug: shown\n", "debug lines at level debug");
    dry_log_set_level(DRY_LOG_ERROR);
    dry_warn("hidden");
    dry_info("hidden");
    tap_text(said(), "", "level error drops the rest");
    dry_log_set_level(DRY_LOG_INFO);
    dry_log_set_rank(2, 3);
    dry_error("x");
    dry_warn("y");
    dry_info("z");
    tap_text(said(), "drydock: rank 2: error: x\ndrydock: rank 2: warning: y\n",
             "rank 2 names itself and informs nobody");
    dry_log_progress("dropped");
    tap_text(said(), "", "no progress line where there is no terminal");
    dry_log_set_rank(0, 3);
}

static void named(void)
{
    dry_log_prefix("rank=8");
    dry_info("step %d", 3);
    tap_text(said(), "drydock: [rank=8] step 3\n", "of several runs a line tells whose it is");
    dry_log_set_rank(1, 2);
    dry_error("x");
    dry_error_more("do this");
    tap_text(said(), "drydock: [rank=8] rank 1: error: x\n    do this\n",
             "an error too; a command can still be copied");
    dry_log_set_rank(0, 1);
    tap_text(dry_log_prefix_now(), "rank=8", "the name can be asked for");
    dry_log_defer(1);
    dry_error("kept");
    dry_log_prefix(NULL);
    dry_log_defer(0);
    tap_text(said(), "drydock: [rank=8] error: kept\n", "a kept line keeps the name that it was said under");
    tap_ok(dry_log_prefix_now() == NULL, "no name");
    dry_info("step");
    tap_text(said(), "drydock: step\n", "and lines as before");
}

static void deferred(void)
{
    dry_log_defer(1);
    dry_error("one");
    dry_error("two");
    tap_text(said(), "", "errors are kept while deferring");
    dry_log_flush();
    tap_text(said(), "drydock: error: one\ndrydock: error: two\n", "flush prints them in order");
    dry_error("three");
    dry_log_discard();
    dry_log_flush();
    tap_text(said(), "", "discard drops them");
    dry_error("four");
    dry_log_defer(0);
    tap_text(said(), "drydock: error: four\n", "ending the phase prints what is kept");
    dry_log_set_rank(1, 3);
    dry_log_defer(1);
    dry_warn("y");
    tap_text(said(), "", "only rank 0 warns while deferring");
    dry_log_defer(0);
    dry_log_set_rank(0, 1);
}

static void statuses(void)
{
    tap_equal(dry_status_exit(DRY_OK), 0, "done exits 0");
    tap_equal(dry_status_exit(DRY_STOPPED), 75, "stopped on request exits 75");
    tap_equal(dry_status_exit(DRY_ERR_USAGE), 2, "usage exits 2");
    tap_equal(dry_status_exit(DRY_ERR_IO), 1, "failure exits 1");
    tap_text(dry_status_name(DRY_ERR_INPUT), "input", "a status has a name");
    tap_text(dry_status_name((enum dry_status)99), "unknown", "no status has one too");
}

static void span(double seconds, const char *want)
{
    char text[32];

    dry_clock_span(seconds, text, sizeof text);
    tap_text(text, want, want);
}

static void times(void)
{
    char text[64];
    double t = dry_clock_now();

    tap_ok(dry_clock_now() >= t, "the clock does not run back");
    dry_clock_iso(text, sizeof text);
    tap_ok(strlen(text) == 24 && text[10] == 'T' && text[19] == '.' && text[23] == 'Z', "ISO 8601: %s", text);
    span(0, "0.0 s");
    span(3.44, "3.4 s");
    span(59.99, "1:00");
    span(123, "2:03");
    span(3723, "1:02:03");
    span(360000, "100:00:00");
    span(NAN, "unknown");
}

int main(void)
{
    captured = tmpfile();
    if (!captured || dup2(fileno(captured), STDERR_FILENO) < 0)
        return tap_skip_all("no temporary file");
    lines();
    named();
    deferred();
    statuses();
    times();
    tap_text(dry_build_version(), PACKAGE_VERSION, "the version");
    tap_ok(strstr(dry_build_summary(), "HDF5") != NULL, "configure's summary names the libraries");
    tap_ok(dry_build_revision() != NULL, "a revision, maybe empty");
    return tap_done();
}
