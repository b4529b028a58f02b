/*
 * The communicator between GPUs over NCCL: one sum of int64 in place, watched.
 * Owns its NCCL communicator, stream and event.  Must not know what is added up.
 *
 * NCCL alone would wait for a lost rank for ever.  So the communicator is non-blocking: this side asks for
 * its state until the deadline, aborts it and says what happened.
 */
#include "config.h"

#include "cuda/cuda.h"
#include "cuda/entry.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <nccl.h>
#include <stdlib.h>
#include <time.h>

enum { PIECE = 1 << 30 }; /* values of one call */

/* Seconds that a rank may be late.  Ranks have met over MPI just before, so they all are there: what takes
 * time is the start of NCCL's threads, connections (some only in the first sum) and kernels, and the sum's
 * bytes over the slowest network that is worth using. */
static const double start_deadline = 120, sum_deadline = 8, slowest_bytes = 50e6;

struct nccl {
    struct dry_device_comm comm; /* first */
    struct dry_cuda device;      /* only its number, for messages */
    ncclComm_t nccl;
    cudaStream_t stream;
    cudaEvent_t done;
    int summed; /* once */
    int broken;
};

static struct nccl *nccl_of(struct dry_device_comm *d)
{
    return (struct nccl *)d;
}

static void pause_briefly(double waited)
{
    struct timespec t = {.tv_nsec = waited < 0.01 ? 2000 : 200000};

    nanosleep(&t, NULL);
}

static enum dry_status fail(struct nccl *n, ncclResult_t r, const char *call)
{
    const char *last = n->nccl ? ncclGetLastError(n->nccl) : NULL;

    dry_error("GPU %d: %s failed: %s%s%s", n->device.device, call, ncclGetErrorString(r),
              last && *last ? ": " : "", last ? last : "");
    n->broken = 1;
    return DRY_ERR_COMM;
}

static enum dry_status late(struct nccl *n, double deadline, const char *call)
{
    dry_error("GPU %d: %s: another rank did not come within %.0f seconds: it is gone or hangs, or the "
              "network between "
              "the GPUs fails; NCCL_DEBUG=WARN shows what NCCL saw",
              n->device.device, call, deadline);
    n->broken = 1;
    return DRY_ERR_COMM;
}

/* What the communicator says of itself: it was told of errors of the network and of other ranks. */
static ncclResult_t state(struct nccl *n)
{
    ncclResult_t async = ncclSuccess, r = ncclCommGetAsyncError(n->nccl, &async);

    if (n->device.faults && dry_fault("nccl"))
        return ncclRemoteError;
    return r ? r : async;
}

/* Until the communicator has done what was begun. */
static enum dry_status settle(struct nccl *n, ncclResult_t r, double deadline, const char *call)
{
    double began = dry_clock_now();

    while (r == ncclInProgress) {
        double waited = dry_clock_now() - began;
        if (waited > deadline)
            return late(n, deadline, call);
        pause_briefly(waited);
        r = state(n);
    }
    return r == ncclSuccess ? DRY_OK : fail(n, r, call);
}

static void nccl_destroy(struct dry_device_comm *d)
{
    struct nccl *n = d ? nccl_of(d) : NULL;

    if (!n)
        return;
    if (n->nccl && n->broken)
        (void)ncclCommAbort(n->nccl);
    else if (n->nccl) {
        ncclResult_t r = ncclCommFinalize(n->nccl);
        if (r == ncclInProgress && settle(n, r, sum_deadline, "ncclCommFinalize"))
            (void)ncclCommAbort(n->nccl);
        else
            (void)ncclCommDestroy(n->nccl);
    }
    if (n->done)
        (void)cudaEventDestroy(n->done);
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    dry_free(n);
}

static enum dry_status nccl_create(struct dry_comm *c, int device, struct dry_device_comm **d)
{
    struct nccl *n = dry_alloc(1, sizeof *n, "the communicator between GPUs");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t r = ncclSuccess;
    enum dry_status status = n ? DRY_OK : DRY_ERR_MEMORY;

    if (n) {
        n->comm.ops = &dry_nccl_ops;
        n->device.device = device;
        n->device.faults = getenv("DRY_FAULT") != NULL;
        status = dry_cuda_check(&n->device, cudaSetDevice(device), "cudaSetDevice");
    }
    if (!status)
        status = dry_cuda_check(&n->device, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking),
                                "cudaStreamCreate");
    if (!status)
        status = dry_cuda_check(&n->device, cudaEventCreateWithFlags(&n->done, cudaEventDisableTiming),
                                "cudaEventCreate");
    if (!status && dry_comm_rank(c) == 0 && (r = ncclGetUniqueId(&id)) != ncclSuccess)
        status = fail(n, r, "ncclGetUniqueId");
    status = dry_comm_agree(c, status);
    if (!status)
        status = dry_comm_bcast(c, &id, sizeof id, 0);
    if (!status) {
        config.blocking = 0;
        r = ncclCommInitRankConfig(&n->nccl, dry_comm_size(c), id, dry_comm_rank(c), &config);
        status = settle(n, r, start_deadline, "ncclCommInitRank");
        if (status)
            dry_comm_abort(c); /* the others wait inside of NCCL, not for an agreement */
    }
    if (status) {
        if (n)
            nccl_destroy(&n->comm);
        return status;
    }
    *d = &n->comm;
    return DRY_OK;
}

/* Until the stream has come to the event; errors of the network show in the communicator, not in the stream.
 */
static enum dry_status wait_for(struct nccl *n, double deadline)
{
    double began = dry_clock_now();

    for (;;) {
        cudaError_t e = cudaEventQuery(n->done);
        ncclResult_t r = state(n);
        double waited = dry_clock_now() - began;
        if (r != ncclSuccess && r != ncclInProgress)
            return fail(n, r, "ncclAllReduce");
        if (e == cudaSuccess)
            return DRY_OK;
        if (e != cudaErrorNotReady) {
            n->broken = 1;
            return dry_cuda_check(&n->device, e, "the sum over GPUs");
        }
        if (waited > deadline)
            return late(n, deadline, "ncclAllReduce");
        pause_briefly(waited);
    }
}

static enum dry_status nccl_sum_i64(struct dry_device_comm *d, int64_t *block, size_t count)
{
    struct nccl *n = nccl_of(d);
    double deadline =
        (n->summed ? sum_deadline : start_deadline) + (double)count * sizeof *block / slowest_bytes;
    enum dry_status status = DRY_OK;

    for (size_t done = 0; done < count && !status; done += PIECE) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        ncclResult_t r =
            ncclAllReduce(block + done, block + done, piece, ncclInt64, ncclSum, n->nccl, n->stream);
        status = settle(n, r, deadline, "ncclAllReduce");
    }
    if (!status)
        status = dry_cuda_check(&n->device, cudaEventRecord(n->done, n->stream), "cudaEventRecord");
    if (!status)
        status = wait_for(n, deadline);
    n->summed = 1;
    if (status && n->nccl) {
        (void)ncclCommAbort(n->nccl); /* what still runs would hold the GPU */
        n->nccl = NULL;
    }
    return status;
}

const struct dry_device_comm_ops dry_nccl_ops = {
    .name = "nccl",
    .backend = "cuda",
    .create = nccl_create,
    .destroy = nccl_destroy,
    .sum_i64 = nccl_sum_i64,
};
