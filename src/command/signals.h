/*
 * Requests to stop: signals, seen by whoever asks.
 * Owns the flag that the handler sets, for a handler can reach nothing but a global.
 */
#ifndef DRY_COMMAND_SIGNALS_H
#define DRY_COMMAND_SIGNALS_H

/* Local. From here on SIGTERM, SIGINT and SIGUSR1 mean: finish the step, save, exit 75. Before, there is
 * nothing to save, and they end the process. A second SIGINT ends it too. */
void dry_signals_watch(void);
/* Local. Non-zero once this process was asked to stop. */
int dry_signals_asked(void);

#endif
