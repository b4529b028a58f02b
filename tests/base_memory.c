/*
 * Allocation, checked products, buffers, faults and delays on purpose.
 * Owns nothing.
 * Must not know of files.
 */
#include "config.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void products(void)
{
    size_t x = 7;

    tap_ok(dry_mul_size(3, 5, &x) == 0 && x == 15, "a product");
    tap_ok(dry_mul_size(SIZE_MAX / 2, 3, &x) == -1 && x == 15,
           "a product that does not fit leaves its target");
    tap_ok(dry_add_size(3, 5, &x) == 0 && x == 8, "a sum");
    tap_ok(dry_add_size(SIZE_MAX, 1, &x) == -1 && x == 8, "a sum that does not fit leaves its target");
}

static void blocks(void)
{
    unsigned char *m = dry_alloc(1000, 3, "a test");
    int zero = m != NULL;

    for (size_t i = 0; m && i < 3000; i++)
        zero = zero && m[i] == 0;
    tap_ok(zero, "new memory is zero");
    tap_ok((uintptr_t)m % 64 == 0, "new memory is aligned to 64 bytes");
    if (m)
        memset(m, 7, 3000);
    unsigned char *grown = dry_realloc(m, 1000, 2000, 3, "a test");
    int kept = grown != NULL;
    for (size_t i = 0; grown && i < 6000; i++)
        kept = kept && grown[i] == (i < 3000 ? 7 : 0);
    tap_ok(kept, "grown memory keeps the old and is zero after it");
    tap_ok((uintptr_t)grown % 64 == 0, "grown memory is aligned to 64 bytes");
    unsigned char *less = dry_realloc(grown, 2000, 1, 3, "a test");
    tap_ok(less && less[2] == 7, "shrunk memory keeps its beginning");
    dry_free(less);
    dry_free(NULL);
    void *none = dry_alloc(0, 8, "a test");
    tap_ok(none != NULL, "no elements are memory too");
    dry_free(none);
    dry_log_defer(1);
    tap_ok(dry_alloc(SIZE_MAX / 2, 4, "a test") == NULL, "a size that does not fit is refused");
    tap_ok(dry_alloc(SIZE_MAX, 1, "a test") == NULL, "more than there can be is refused");
    dry_log_discard();
    dry_log_defer(0);
}

static void texts(void)
{
    char *a = dry_strdup("anchor"), *b = dry_strndup("anchor", 3), *c = dry_format("%d-%s", 12, "x");

    tap_text(a, "anchor", "a copy");
    tap_text(b, "anc", "a copy of the beginning");
    tap_text(c, "12-x", "formatted");
    dry_free(a);
    dry_free(b);
    dry_free(c);
}

static void buffers(void)
{
    struct dry_buffer b = {0};
    int good = 1;

    for (int i = 0; i < 1000; i++)
        good = good && dry_buffer_append(&b, "0123456789", 10) == 0;
    tap_ok(good && b.len == 10000 && b.capacity > b.len && b.data[10000] == '\0', "a buffer grows");
    tap_ok(dry_buffer_printf(&b, "%s", "end") == 0 && strcmp(b.data + 10000, "end") == 0,
           "a buffer takes a format");
    dry_buffer_reset(&b);
    tap_ok(b.data == NULL && b.len == 0, "a buffer is empty after reset");
    tap_ok(dry_buffer_append(&b, NULL, 0) == 0 && b.data && b.data[0] == '\0',
           "nothing appended is an empty text");
    dry_buffer_reset(&b);
}

static void faults(void)
{
    dry_log_defer(1);
    setenv("DRY_FAULT", "write:1,alloc:3", 1);
    void *first = dry_alloc(1, 1, "a test"), *second = dry_alloc(1, 1, "a test");
    void *third = dry_alloc(1, 1, "a test"), *fourth = dry_alloc(1, 1, "a test");
    tap_ok(first && second && !third && fourth, "alloc:3 fails the third allocation only");
    dry_free(first);
    dry_free(second);
    dry_free(fourth);
    tap_ok(dry_fault("write") && !dry_fault("write"), "write:1 fails the first write only");
    setenv("DRY_FAULT", "kill-step:12,rank:1:kill-save:3", 1);
    tap_ok(!dry_fault_at("kill-step", 11) && dry_fault_at("kill-step", 12), "kill-step:12 is at 12");
    tap_ok(!dry_fault_at("kill-save", 3), "a fault of rank 1 is none on rank 0");
    dry_log_set_rank(1, 2);
    tap_ok(dry_fault_at("kill-save", 3), "a fault of rank 1 is one on rank 1");
    dry_log_set_rank(0, 1);
    unsetenv("DRY_FAULT");
    struct dry_buffer b = {0};
    (void)dry_buffer_append(&b, "kept", 4);
    char *long_text = dry_alloc(10000, 1, "a test");
    /* counters belong to places in the list; the third has counted nothing yet */
    setenv("DRY_FAULT", "none:1,none:1,alloc:1", 1);
    tap_ok(dry_buffer_append(&b, long_text, 10000) == -1 && b.len == 4 && strcmp(b.data, "kept") == 0,
           "a buffer that cannot grow is unchanged");
    unsetenv("DRY_FAULT");
    dry_free(long_text);
    dry_buffer_reset(&b);
    dry_log_discard();
    dry_log_defer(0);
}

/* Seconds that a delay of this kind takes after work of 10 ms. */
static double delayed(const char *list, const char *kind)
{
    double before = dry_clock_now();

    setenv("DRY_DELAY", list, 1);
    dry_delay(kind, before - 0.01);
    unsetenv("DRY_DELAY");
    return dry_clock_now() - before;
}

/* A list that is misspelt ends the process. */
static int refused(const char *list)
{
    int how = 0;
    pid_t child = fork();

    if (child == 0) {
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        freopen("/dev/null", "w", stderr);
        (void)delayed(list, "data");
        _exit(0);
    }
    return child > 0 && waitpid(child, &how, 0) == child && WIFSIGNALED(how);
}

static void delays(void)
{
    static const char *const wrong[] = {"dat:5",    "data",     "data:",    "data:x",         "data:x0.5",
                                        "data:-1",  "data:5;",  "data:nan", "rank:data:5",    "rank:1data:5",
                                        "data:5,,", "data:5ms", "data:inf", "checkpoint:5,x", ":5"};
    int all = 1;

    tap_ok(delayed("data:30", "data") >= 0.03, "data:30 takes 30 ms more");
    tap_ok(delayed("data:x4", "data") >= 0.03, "data:x4 takes four times as long as the work");
    tap_ok(delayed("data:20,data:x2", "data") >= 0.03, "two of a kind add up");
    tap_ok(delayed("data:3e5,rank:1:copy:3e5", "copy") < 60, "other kinds and other ranks are not delayed");
    setenv("DRY_DELAY", "rank:0:compute:x1", 1);
    tap_ok(dry_delay_asked("compute") && !dry_delay_asked("data"), "it is known what is delayed");
    unsetenv("DRY_DELAY");
    tap_ok(!dry_delay_asked("compute"), "without the variable nothing is");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!refused(wrong[i])) {
            printf("# taken: %s\n", wrong[i]);
            all = 0;
        }
    tap_ok(all, "a misspelt list ends the program");
}

int main(void)
{
    products();
    blocks();
    texts();
    buffers();
    faults();
    delays();
    return tap_done();
}
