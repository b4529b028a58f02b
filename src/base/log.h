/*
 * Lines for people on standard error: lower case, one line each, cut by awk.
 * Owns the log level and the kept errors of a deferred phase; these and the abort communicator are the only
 * globals. Must not know of MPI: the rank is told to it.
 *
 * In a phase that all ranks run alike (reading the configuration, opening the base), the same error would be
 * printed by each of them.  dry_log_defer(1) makes dry_error keep its text instead; dry_comm_agree
 * (parallel/comm.h) then lets the lowest failing rank print what it kept.  Nothing is lost, nothing is said
 * twice.
 */
#ifndef DRY_BASE_LOG_H
#define DRY_BASE_LOG_H

#include <stdarg.h>

enum dry_log_level { DRY_LOG_ERROR, DRY_LOG_WARN, DRY_LOG_INFO, DRY_LOG_DEBUG };

#define DRY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Local. Rank and size for the prefix; size 1 and rank 0 until told. */
void dry_log_set_rank(int rank, int size);
int dry_log_rank(void);
/* Local. Where several runs speak at once: a name, of some 200 bytes at most, that every later line of this
 * rank tells ("drydock: [NAME] step 10 ..."); progress lines in place are then dropped, for they would
 * overwrite each other. Copied; NULL: none. */
void dry_log_prefix(const char *name);
/* Local. The name; NULL: none. */
const char *dry_log_prefix_now(void);
/* Local. Lines above this level are dropped; default DRY_LOG_INFO. */
void dry_log_set_level(enum dry_log_level level);
enum dry_log_level dry_log_level_now(void);

/* Local. One error line: cause, object, place, remedy ("drydock: error: ...", "drydock: rank 2: error: ...");
 * kept while deferring. A newline inside a message becomes a space. */
void dry_error(const char *format, ...) DRY_PRINTF(1, 2);
/* Local. A line under the last error line, indented and without prefix: a command that can be copied. */
void dry_error_more(const char *format, ...) DRY_PRINTF(1, 2);
/* Local. One warning line by any rank; rank prefix unless rank 0. While deferring only rank 0 prints. */
void dry_warn(const char *format, ...) DRY_PRINTF(1, 2);
/* Local. Information that rank 0 says for all; silent on other ranks. */
void dry_info(const char *format, ...) DRY_PRINTF(1, 2);
/* Local. Any rank, only at level debug. */
void dry_debug(const char *format, ...) DRY_PRINTF(1, 2);

/* Local. Starts (1) or ends (0) keeping error lines; ending prints what is still kept. */
void dry_log_defer(int on);
/* Local. Prints the kept error lines / drops them. */
void dry_log_flush(void);
void dry_log_discard(void);

/* Local. Writes or ends (text NULL) the progress line: rewritten in place on a terminal; dropped elsewhere. A
 * log line ends a progress line first. */
void dry_log_progress(const char *text);
/* Local. "" for 1, else "s": dry_info("%lld step%s", n, dry_plural(n)). */
const char *dry_plural(long long count);
/* Local. Non-zero when standard error is a terminal, and one run alone writes to it. */
int dry_log_is_terminal(void);

#endif
