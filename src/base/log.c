/*
 * Writes lines for people to standard error, and keeps error lines while a phase is deferred.
 * Owns the level, the rank it was told, the kept lines and the state of the progress line.
 * Must not know of MPI, nor use memory.h, which logs through it.
 */
#include "config.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    enum dry_log_level level;
    int rank, size;
    int deferring;
    char *kept; /* lines with their newlines, or NULL */
    size_t kept_size;
    int progress;     /* a progress line stands without a newline */
    char prefix[256]; /* "[NAME] " or "" */
    char name[224];
} state = {.level = DRY_LOG_INFO, .size = 1};

void dry_log_set_rank(int rank, int size)
{
    state.rank = rank;
    state.size = size;
}

int dry_log_rank(void)
{
    return state.rank;
}

void dry_log_prefix(const char *name)
{
    snprintf(state.name, sizeof state.name, "%s", name ? name : "");
    snprintf(state.prefix, sizeof state.prefix, *state.name ? "[%s] " : "%s", state.name);
}

const char *dry_log_prefix_now(void)
{
    return *state.name ? state.name : NULL;
}

void dry_log_set_level(enum dry_log_level level)
{
    state.level = level;
}

enum dry_log_level dry_log_level_now(void)
{
    return state.level;
}

const char *dry_plural(long long count)
{
    return count == 1 ? "" : "s";
}

int dry_log_is_terminal(void)
{
    return !*state.name && isatty(STDERR_FILENO);
}

static void put(const char *lines, size_t size)
{
    if (state.progress) {
        fputc('\n', stderr);
        state.progress = 0;
    }
    fwrite(lines, 1, size, stderr);
    fflush(stderr);
}

/* "drydock: [[NAME] ][rank 3: ][error: ]TEXT\n" in new memory, *size without the NUL; NULL when memory is
 * short. No label: "    TEXT\n", which goes on with the line before it. Newlines inside become spaces: a
 * message is one line, whatever a file name or a library's text holds. */
static char *compose(const char *label, int with_rank, const char *format, va_list ap, size_t *size)
{
    char prefix[sizeof state.prefix + 64];
    va_list again;

    snprintf(prefix, sizeof prefix, "drydock: %s", state.prefix);
    if (!label) {
        strcpy(prefix, "    ");
        label = "";
    } else if (with_rank)
        snprintf(prefix + strlen(prefix), sizeof prefix - strlen(prefix), "rank %d: ", state.rank);
    va_copy(again, ap);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return NULL;
    size_t head = strlen(prefix) + strlen(label);
    char *line = malloc(head + (size_t)length + 2);
    if (!line)
        return NULL;
    strcpy(line, prefix);
    strcat(line, label);
    vsnprintf(line + head, (size_t)length + 1, format, ap);
    for (char *c = line + head; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    *size = head + (size_t)length;
    line[(*size)++] = '\n';
    line[*size] = '\0';
    return line;
}

static void say(const char *label, int with_rank, int keep, const char *format, va_list ap)
{
    size_t size;
    char *line = compose(label, with_rank, format, ap, &size);

    if (!line) {
        static const char poor[] = "drydock: error: out of memory while writing a message\n";
        put(poor, sizeof poor - 1);
        return;
    }
    if (keep) {
        char *grown = realloc(state.kept, state.kept_size + size);
        if (grown) {
            memcpy(grown + state.kept_size, line, size);
            state.kept = grown;
            state.kept_size += size;
            free(line);
            return;
        }
    }
    put(line, size);
    free(line);
}

void dry_error(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say("error: ", state.rank != 0, state.deferring, format, ap);
    va_end(ap);
}

void dry_error_more(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(NULL, 0, state.deferring, format, ap);
    va_end(ap);
}

void dry_warn(const char *format, ...)
{
    va_list ap;

    if (state.level < DRY_LOG_WARN || (state.deferring && state.rank != 0))
        return;
    va_start(ap, format);
    say("warning: ", state.rank != 0, 0, format, ap);
    va_end(ap);
}

void dry_info(const char *format, ...)
{
    va_list ap;

    if (state.level < DRY_LOG_INFO || state.rank != 0)
        return;
    va_start(ap, format);
    say("", 0, 0, format, ap);
    va_end(ap);
}

void dry_debug(const char *format, ...)
{
    va_list ap;

    if (state.level < DRY_LOG_DEBUG)
        return;
    va_start(ap, format);
    say("debug: ", state.size > 1, 0, format, ap);
    va_end(ap);
}

void dry_log_flush(void)
{
    if (state.kept_size)
        put(state.kept, state.kept_size);
    dry_log_discard();
}

void dry_log_discard(void)
{
    free(state.kept);
    state.kept = NULL;
    state.kept_size = 0;
}

void dry_log_defer(int on)
{
    state.deferring = on;
    if (!on)
        dry_log_flush();
}

void dry_log_progress(const char *text)
{
    if (!dry_log_is_terminal() || state.level < DRY_LOG_INFO)
        return;
    if (text) {
        fprintf(stderr, "\r%s\033[K", text);
        state.progress = 1;
    } else if (state.progress) {
        fputc('\n', stderr);
        state.progress = 0;
    }
    fflush(stderr);
}
