/*
 * The communicator over NCCL when something fails: it says what, aborts, and never waits for ever.
 * Owns a stand-in for NCCL, CUDA's events, the other ranks and the clock, which the linker gives the calls of
 * the code under test.
 */
#include "config.h"

#include "capture.h"
#include "tap.h"

#include "cuda/entry.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <setjmp.h>

static struct {
    double now;
    int never_done, cuda_error; /* of the event behind the sum */
    ncclResult_t init, sum, async;
    int polls; /* in progress for so many questions */
    int aborted, destroyed, finalized, calls;
    int others; /* ranks were all ended */
} fake;
static jmp_buf ended;

static void good(void)
{
    memset(&fake, 0, sizeof fake);
}

double __wrap_dry_clock_now(void);
double __wrap_dry_clock_now(void)
{
    return fake.now += 0.5;
}

int __wrap_dry_comm_rank(const struct dry_comm *c);
int __wrap_dry_comm_rank(const struct dry_comm *c)
{
    (void)c;
    return 0;
}
int __wrap_dry_comm_size(const struct dry_comm *c);
int __wrap_dry_comm_size(const struct dry_comm *c)
{
    (void)c;
    return 2;
}
enum dry_status __wrap_dry_comm_agree(struct dry_comm *c, enum dry_status mine);
enum dry_status __wrap_dry_comm_agree(struct dry_comm *c, enum dry_status mine)
{
    (void)c;
    return mine;
}
enum dry_status __wrap_dry_comm_bcast(struct dry_comm *c, void *bytes, size_t size, int root);
enum dry_status __wrap_dry_comm_bcast(struct dry_comm *c, void *bytes, size_t size, int root)
{
    (void)c, (void)bytes, (void)size, (void)root;
    return DRY_OK;
}
void __wrap_dry_comm_abort(struct dry_comm *c) __attribute__((noreturn));
void __wrap_dry_comm_abort(struct dry_comm *c)
{
    (void)c;
    fake.others++;
    longjmp(ended, 1);
}

cudaError_t __wrap_cudaSetDevice(int device);
cudaError_t __wrap_cudaSetDevice(int device)
{
    (void)device;
    return cudaSuccess;
}
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    *s = NULL;
    return cudaSuccess;
}
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = NULL;
    return cudaSuccess;
}
cudaError_t __wrap_cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)e, (void)s;
    return cudaSuccess;
}
cudaError_t __wrap_cudaEventQuery(cudaEvent_t e);
cudaError_t __wrap_cudaEventQuery(cudaEvent_t e)
{
    (void)e;
    if (fake.cuda_error)
        return cudaErrorIllegalAddress;
    return fake.never_done || fake.polls-- > 0 ? cudaErrorNotReady : cudaSuccess;
}

ncclResult_t __wrap_ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t __wrap_ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 1, sizeof *id);
    return ncclSuccess;
}
ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank,
                                           ncclConfig_t *config);
ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    (void)n, (void)id, (void)rank;
    *c = (ncclComm_t)&fake;
    tap_equal(config->blocking, 0, "the communicator does not block");
    return fake.init;
}
ncclResult_t __wrap_ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t c, cudaStream_t s);
ncclResult_t __wrap_ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    (void)count, (void)c, (void)s;
    fake.calls += from == to && type == ncclInt64 && op == ncclSum;
    return fake.sum;
}
ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *r);
ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *r)
{
    (void)c;
    *r = fake.polls-- > 0 ? ncclInProgress : fake.async;
    return ncclSuccess;
}
const char *__wrap_ncclGetLastError(ncclComm_t c);
const char *__wrap_ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return "socket closed by peer";
}
ncclResult_t __wrap_ncclCommAbort(ncclComm_t c);
ncclResult_t __wrap_ncclCommAbort(ncclComm_t c)
{
    (void)c;
    fake.aborted++;
    return ncclSuccess;
}
ncclResult_t __wrap_ncclCommFinalize(ncclComm_t c);
ncclResult_t __wrap_ncclCommFinalize(ncclComm_t c)
{
    (void)c;
    fake.finalized++;
    return ncclSuccess;
}
ncclResult_t __wrap_ncclCommDestroy(ncclComm_t c);
ncclResult_t __wrap_ncclCommDestroy(ncclComm_t c)
{
    (void)c;
    fake.destroyed++;
    return ncclSuccess;
}

static struct dry_device_comm *make(void)
{
    struct dry_device_comm *d = NULL;

    tap_ok(!dry_nccl_ops.create(NULL, 3, &d) && d, "made");
    return d;
}

/* A sum that fails: what is said, that NCCL is aborted, once, and the seconds until then. */
static void fails(const char *what, struct dry_device_comm *d, const char *says, double least, double most)
{
    int64_t word = 1;
    double began = fake.now;
    enum dry_status status;
    const char *said;

    capture_begin();
    status = dry_nccl_ops.sum_i64(d, &word, 1);
    said = capture_end();
    if (!tap_ok(status != DRY_OK && strstr(said, "GPU 3: ") && strstr(said, says), "%s is told", what))
        printf("# status %d: %s\n", (int)status, said);
    if (!tap_ok(fake.now - began >= least && fake.now - began <= most, "after %g to %g seconds", least, most))
        printf("# after %g\n", fake.now - began);
    tap_equal(fake.aborted, 1, "what still runs is aborted");
    dry_nccl_ops.destroy(d);
    tap_ok(fake.aborted == 1 && fake.destroyed == 0, "once");
}

static void sums(void)
{
    struct dry_device_comm *d;
    int64_t word = 1;

    good();
    d = make();
    fake.polls = 5;
    tap_equal(dry_nccl_ops.sum_i64(d, &word, 1), DRY_OK, "a sum that takes a while");
    tap_equal(fake.calls, 1, "of int64, in place");
    dry_nccl_ops.destroy(d);
    tap_ok(fake.finalized == 1 && fake.destroyed == 1 && fake.aborted == 0, "ended in order");

    good();
    d = make();
    fake.never_done = 1;
    fails("a rank that is lost in the first sum", d, "another rank did not come within 120 seconds", 120,
          130);
    good();
    d = make();
    (void)dry_nccl_ops.sum_i64(d, &word, 1);
    fake.never_done = 1;
    fails("a rank that is lost later", d, "another rank did not come within 8 seconds", 8, 10);
    good();
    d = make();
    fake.never_done = 1;
    fake.polls = 6;
    fake.async = ncclRemoteError;
    fails("an error of the network", d, "socket closed by peer", 0, 10);
    good();
    d = make();
    fake.sum = ncclInProgress;
    fake.async = ncclSystemError;
    fails("an error at the start of a sum", d, "ncclAllReduce failed: ", 0, 10);
    good();
    d = make();
    fake.cuda_error = 1;
    fails("a kernel that failed", d, "the sum over GPUs failed: ", 0, 10);
    dry_nccl_ops.destroy(NULL);
}

static void start_fails(const char *what, const char *says)
{
    struct dry_device_comm *d = NULL;
    const char *said;

    capture_begin();
    if (!setjmp(ended))
        (void)dry_nccl_ops.create(NULL, 3, &d);
    said = capture_end();
    if (!tap_ok(fake.others == 1 && strstr(said, says), "%s: told, and all ranks end", what))
        printf("# %s\n", said);
}

int main(void)
{
    sums();
    good();
    fake.init = ncclInvalidUsage;
    start_fails("NCCL does not start", "ncclCommInitRank failed: ");
    good();
    fake.init = ncclInProgress;
    fake.polls = 1 << 20;
    start_fails("a rank does not come at the start", "another rank did not come within 120 seconds");
    return tap_done();
}
