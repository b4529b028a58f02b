/*
 * drydock: finds the command, reads its options on every rank alike, runs it, and turns its status into an
 * exit status. Owns the process: only here it exits.  Must not know what a command does.
 */
#include "config.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "command/command.h"
#include "config/options.h"
#include "parallel/comm.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Non-zero in the first process of a launch, or without one: told by the launcher, so that it is known before
 * MPI starts and for what needs no MPI. */
static int is_first(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank && *rank)
            return strcmp(rank, "0") == 0;
    }
    return 1;
}

static int flushed(FILE *out)
{
    if (fflush(out) == 0 && !ferror(out))
        return EXIT_SUCCESS;
    dry_error("standard output: %s", strerror(errno));
    return EXIT_FAILURE;
}

static int is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Non-zero when the words after a command ask for its help; a word behind -- or a flag's value is no such
 * wish. */
static int wants_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i]))
            return 1;
    return 0;
}

/* Help and version, which need neither MPI nor options. Non-zero when that was all; *status then is the exit
 * status. */
static int answer_at_once(int argc, char **argv, int *status)
{
    const char *first = argc > 1 ? argv[1] : "--help";
    const struct dry_command *command = NULL;
    const char *topic = NULL;

    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        int verbose = argc > 2 && (strcmp(argv[2], "-v") == 0 || strcmp(argv[2], "--verbose") == 0);
        if (is_first())
            dry_command_version(stdout, verbose);
        *status = is_first() ? flushed(stdout) : EXIT_SUCCESS;
        return 1;
    }
    if (is_help(first) || strcmp(first, "help") == 0)
        topic = argc > 2 ? argv[2] : NULL;
    else if (wants_help(argc, argv))
        topic = first;
    else
        return 0;
    if (!is_first()) { /* a launcher kills the first for a status of the others, before it has spoken */
        *status = EXIT_SUCCESS;
        return 1;
    }
    if (topic)
        command = dry_command_find(topic);
    *status = dry_status_exit(DRY_ERR_USAGE);
    if (command || !topic)
        dry_command_help(argc > 1 ? stdout : stderr, command);
    if ((command || !topic) && argc > 1)
        *status = flushed(stdout);
    return 1;
}

/* The one word that is no option: FILE.cfg. */
static enum dry_status take_file(struct dry_config *config, const struct dry_command *command,
                                 const char **word, int words)
{
    size_t n;

    if (words == 0)
        return DRY_OK;
    n = strlen(word[0]);
    if (n < 5 || strcmp(word[0] + n - 4, ".cfg") != 0) {
        dry_error("%s: a word without -- names a file of options, which ends in .cfg; usage: %s", word[0],
                  command->usage);
        return DRY_ERR_USAGE;
    }
    if (words > 1) {
        dry_error("%s: one file of options is enough, and %s is already named; usage: %s", word[1], word[0],
                  command->usage);
        return DRY_ERR_USAGE;
    }
    if (!dry_file_exists(word[0])) {
        dry_error("%s: there is no such file of options", word[0]);
        return DRY_ERR_USAGE;
    }
    return dry_config_file(config, word[0]);
}

/* Local. Everything that can be wrong about a command line and its file; call is filled but for the
 * communicator. */
static enum dry_status read_options(const struct dry_command *command, int ranks, struct dry_config *config,
                                    struct dry_call *call)
{
    enum dry_status status;

    status = dry_config_arguments(config, command->bit, call->argc - 2, call->argv + 2, call->positional,
                                  &call->positionals);
    if (status == DRY_OK && !command->paths) {
        status = take_file(config, command, call->positional, call->positionals);
        call->positionals = 0;
    }
    if (status == DRY_OK)
        status = dry_config_check(config, command->bit);
    if (status == DRY_OK)
        status = dry_config_check_ranks(config, command->bit, ranks);
    return status;
}

/* Collective. Ranks of one host that each took all of its processors would slow each other down; a number of
 * threads that the user has set stays. */
static enum dry_status set_threads(struct dry_comm *comm)
{
    const char *given = getenv("OMP_NUM_THREADS");
    int threads;
    enum dry_status status = dry_comm_processors(comm, &threads);

    if (!status && (!given || !*given))
        omp_set_num_threads(threads);
    return status;
}

static enum dry_status agree(struct dry_comm *comm, enum dry_status mine)
{
    if (comm)
        return dry_comm_agree(comm, mine);
    dry_log_flush();
    return mine;
}

/* Collective unless the command is alone. All ranks read, then agree before anything is done. */
static enum dry_status run(const struct dry_command *command, struct dry_call *call)
{
    static const char *const levels[] = {[DRY_LOG_ERROR] = "error",
                                         [DRY_LOG_WARN] = "warn",
                                         [DRY_LOG_INFO] = "info",
                                         [DRY_LOG_DEBUG] = "debug"};
    struct dry_comm *comm = call->comm;
    struct dry_config *config = NULL;
    char *text = NULL;
    enum dry_status status;

    dry_log_defer(1);
    call->positional = dry_alloc((size_t)call->argc, sizeof *call->positional, "command line");
    status = call->positional ? dry_config_create(&config) : DRY_ERR_MEMORY;
    if (status == DRY_OK)
        status = read_options(command, comm ? dry_comm_size(comm) : 1, config, call);
    if (status == DRY_OK)
        status = dry_config_text(config, &text);
    status = agree(comm, status);
    if (status == DRY_OK && comm)
        status = dry_comm_same(comm, "command and options", text);
    dry_log_defer(0);
    dry_free(text);
    if (status == DRY_OK) {
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
            if (strcmp(levels[i], config->log_level) == 0)
                dry_log_set_level((enum dry_log_level)i);
        call->config = config;
        status = command->run(call);
    }
    dry_config_destroy(config);
    dry_free(call->positional);
    return status;
}

int main(int argc, char **argv)
{
    struct dry_call call = {.started = dry_clock_now()};
    const struct dry_command *command;
    struct dry_comm *comm = NULL;
    enum dry_status status = DRY_OK;
    int exit_status;

    if (answer_at_once(argc, argv, &exit_status))
        return exit_status;
    if (!is_first())
        dry_log_defer(1); /* a wrong command is said once */
    command = dry_command_find(argv[1]);
    if (!is_first()) {
        dry_log_discard();
        dry_log_defer(0);
    }
    if (!command) /* the first says it, with the status: a launcher kills it for a status of the others */
        return is_first() ? dry_status_exit(DRY_ERR_USAGE) : EXIT_SUCCESS;
    if (command->alone && !is_first())
        return EXIT_SUCCESS;
    if (!command->alone)
        status = dry_comm_start(&argc, &argv, &comm);
    if (status == DRY_OK && comm)
        status = set_threads(comm);
    if (status == DRY_OK) {
        call.comm = comm;
        call.argc = argc;
        call.argv = argv;
        status = run(command, &call);
    }
    dry_comm_finish(comm);
    return dry_status_exit(status);
}
