/*
 * Status codes: the one way in which a function says that it failed.
 * The function that detects an error logs one line (log.h) and returns a code; callers pass the code up.
 * Owns nothing.  Only main.c turns a code into an exit status.
 */
#ifndef DRY_BASE_STATUS_H
#define DRY_BASE_STATUS_H

/* Ordered by how much they tell: dry_comm_agree takes the largest over the ranks. */
enum dry_status {
    DRY_OK = 0,
    DRY_STOPPED,     /* asked to stop, and a checkpoint was written: exit 75 */
    DRY_ERR_USAGE,   /* wrong option or configuration: exit 2 */
    DRY_ERR_INPUT,   /* a file's content is not what it must be */
    DRY_ERR_IO,      /* the system refused: open, read, write, space */
    DRY_ERR_MEMORY,  /* allocation failed or would not fit */
    DRY_ERR_NUMERIC, /* not finite, or a sum left its range */
    DRY_ERR_COMM,    /* MPI or NCCL */
    DRY_ERR_DEVICE,  /* CUDA and its libraries */
    DRY_ERR_INTERNAL /* our own bug */
};

/* Local. A constant lower-case name, such as "input". */
const char *dry_status_name(enum dry_status status);

/* Local. The process's exit status: 0, 75, 2, or 1. */
int dry_status_exit(enum dry_status status);

#endif
