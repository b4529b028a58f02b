/*
 * Signals that ask a process to stop.
 * Owns the flag that they set.
 * Must not know what is stopped, nor of other ranks.
 */
#include "config.h"

#include "command/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    asked_to_stop = number;
}

void dry_signals_watch(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

        if (numbers[i] == SIGINT)
            a.sa_flags |= (int)SA_RESETHAND;
        sigemptyset(&a.sa_mask);
        sigaction(numbers[i], &a, NULL);
    }
}

int dry_signals_asked(void)
{
    return asked_to_stop;
}
