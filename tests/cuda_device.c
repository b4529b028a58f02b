/*
 * A GPU as CUDA and NVML tell of it: what is refused, and what a probe reads.
 * Owns a stand-in for both: the linker gives it the calls that the code under test makes, so that no GPU is
 * needed.
 */
#include "config.h"

#include "capture.h"
#include "tap.h"

#include "cuda/entry.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

/* What the stand-in shows. */
static struct {
    cudaError_t count_error;
    int devices, driver, major;
    int library, old_library, start; /* is it there; does it lack a function; result of its start */
    int wrong_bus, part;             /* NVML knows no such bus; a MIG instance */
    int bare, narrow;                /* no sensors and counters; counters of 32 bits */
    unsigned long long counter;
    double now;
    int stopped, closed;
} fake;

cudaError_t __wrap_cudaGetDeviceCount(int *n);
cudaError_t __wrap_cudaGetDeviceCount(int *n)
{
    *n = fake.count_error ? 0 : fake.devices;
    return fake.count_error;
}

cudaError_t __wrap_cudaDriverGetVersion(int *version);
cudaError_t __wrap_cudaDriverGetVersion(int *version)
{
    *version = fake.driver;
    return cudaSuccess;
}

cudaError_t __wrap_cudaRuntimeGetVersion(int *version);
cudaError_t __wrap_cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? fake.major : 0;
    return cudaSuccess;
}

/* CUDA 12's header renames it. */
static cudaError_t properties(struct cudaDeviceProp *p)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Tesla V100");
    p->major = fake.major;
    for (size_t i = 0; i < sizeof p->uuid.bytes; i++)
        p->uuid.bytes[i] = (char)(0xa0 + i);
    return cudaSuccess;
}
cudaError_t dry_wrap_properties(struct cudaDeviceProp *p,
                                int device) __asm__("__wrap_cudaGetDeviceProperties");
cudaError_t dry_wrap_properties(struct cudaDeviceProp *p, int device)
{
    (void)device;
    return properties(p);
}
cudaError_t dry_wrap_properties_v2(struct cudaDeviceProp *p,
                                   int device) __asm__("__wrap_cudaGetDeviceProperties_v2");
cudaError_t dry_wrap_properties_v2(struct cudaDeviceProp *p, int device)
{
    (void)device;
    return properties(p);
}

cudaError_t __wrap_cudaDeviceGetPCIBusId(char *bus, int length, int device);
cudaError_t __wrap_cudaDeviceGetPCIBusId(char *bus, int length, int device)
{
    if (device >= fake.devices)
        return cudaErrorInvalidDevice;
    snprintf(bus, (size_t)length, "0000:0%d:00.0", device + 1);
    return cudaSuccess;
}

double __wrap_dry_clock_now(void);
double __wrap_dry_clock_now(void)
{
    return fake.now;
}

/* The library. Devices are small numbers: 1 + index; 99 is the part. */
static int start(void)
{
    return fake.start;
}
static int stop(void)
{
    fake.stopped++;
    return 0;
}
static int by_bus(const char *bus, void **device)
{
    if (fake.wrong_bus)
        return 6;
    *device = (void *)(uintptr_t)(bus[6] - '0');
    return 0;
}
static int by_uuid(const char *uuid, void **device)
{
    if (!fake.part || strcmp(uuid, "MIG-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf") != 0)
        return 6;
    *device = (void *)(uintptr_t)99;
    return 0;
}
static int number(void *device, unsigned *index)
{
    *index = 10 + (unsigned)(uintptr_t)device;
    return 0;
}
static int name(void *device, char *text, unsigned length)
{
    (void)device;
    snprintf(text, length, "NVIDIA H200");
    return 0;
}
static int driver(char *text, unsigned length)
{
    snprintf(text, length, "580.65.06");
    return 0;
}
static int utilization(void *device, unsigned *two)
{
    if (fake.bare || (uintptr_t)device == 99)
        return 3;
    two[0] = 87;
    two[1] = 41;
    return 0;
}
static int memory(void *device, unsigned long long *m) /* version 2: version, total, reserved, free, used */
{
    if (fake.bare || (m[0] & 0xffffffff) != (40 | 2U << 24))
        return 25;
    m[4] = (uintptr_t)device == 99 ? 5 << 20 : 3 << 20;
    return 0;
}
static int power(void *device, unsigned *value)
{
    (void)device;
    *value = 612345;
    return fake.bare ? 3 : 0;
}
static int energy(void *device, unsigned long long *value)
{
    (void)device;
    *value = 7500;
    return fake.bare ? 3 : 0;
}
static int clock_of(void *device, int type, unsigned *value)
{
    (void)device;
    *value = type == 1 ? 1830 : 1;
    return fake.bare ? 3 : 0;
}
static int temperature(void *device, int sensor, unsigned *value)
{
    (void)device;
    *value = sensor == 0 ? 61 : 1;
    return fake.bare ? 3 : 0;
}
static int reasons(void *device, unsigned long long *value)
{
    (void)device;
    *value = 0x4;
    return fake.bare ? 3 : 0;
}
static int pcie(void *device, int direction, unsigned *value)
{
    (void)device;
    *value = direction == 1 ? 200 : 100;
    return fake.bare ? 3 : 0;
}
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};
static int fields(void *device, int count, struct field *f)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        f[i].result = fake.bare ? 3 : 0;
        f[i].type = fake.narrow && f[i].id >= 197 ? 1 : 3;
        f[i].value = fake.counter * (f[i].id - 100);
    }
    return 0;
}

static char handle;
typedef void (*function)(void);
static const struct {
    const char *name;
    function f;
} functions[] = {
    {"nvmlInit_v2", (function)start},
    {"nvmlShutdown", (function)stop},
    {"nvmlDeviceGetHandleByPciBusId_v2", (function)by_bus},
    {"nvmlDeviceGetIndex", (function)number},
    {"nvmlDeviceGetHandleByUUID", (function)by_uuid},
    {"nvmlDeviceGetName", (function)name},
    {"nvmlSystemGetDriverVersion", (function)driver},
    {"nvmlDeviceGetUtilizationRates", (function)utilization},
    {"nvmlDeviceGetMemoryInfo_v2", (function)memory},
    {"nvmlDeviceGetPowerUsage", (function)power},
    {"nvmlDeviceGetTotalEnergyConsumption", (function)energy},
    {"nvmlDeviceGetClockInfo", (function)clock_of},
    {"nvmlDeviceGetTemperature", (function)temperature},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", (function)reasons},
    {"nvmlDeviceGetPcieThroughput", (function)pcie},
    {"nvmlDeviceGetFieldValues", (function)fields},
};

void *__wrap_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags)
{
    (void)flags;
    return fake.library && strcmp(file, "libnvidia-ml.so.1") == 0 ? &handle : NULL;
}

void *__wrap_dlsym(void *file, const char *what);
void *__wrap_dlsym(void *file, const char *what)
{
    void *found = NULL;

    if (file != &handle || (fake.old_library && strcmp(what, "nvmlInit_v2") == 0))
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, what) == 0)
            memcpy(&found, &functions[i].f, sizeof found);
    return found;
}

int __wrap_dlclose(void *file);
int __wrap_dlclose(void *file)
{
    fake.closed += file == &handle;
    return 0;
}

static void good(void)
{
    memset(&fake, 0, sizeof fake);
    fake.devices = 2;
    fake.driver = 13000;
    fake.major = 9;
    fake.library = 1;
    fake.now = 100;
}

static void no_probe(const char *what, int index, const char *says)
{
    struct dry_probe *p = NULL;
    const char *why = NULL, *said;
    enum dry_status status;

    capture_begin();
    status = dry_nvml_ops.open(index, &p, &why);
    said = capture_end();
    if (!tap_ok(status == DRY_ERR_DEVICE && !p && why && strstr(why, says), "%s: no probe, and why", what))
        printf("# %s\n", why ? why : "no reason");
    tap_text(said, "", "nothing is logged");
}

static void refused_probes(void)
{
    good();
    fake.library = 0;
    no_probe("no library", 0, "libnvidia-ml.so.1 is not there");
    good();
    fake.old_library = 1;
    no_probe("a library that lacks a function", 0, "too old");
    tap_equal(fake.closed, 1, "the library is let go");
    good();
    fake.start = 9;
    no_probe("a library without its driver", 0, "did not start");
    tap_equal(fake.stopped, 0, "what did not start is not stopped");
    good();
    fake.wrong_bus = 1;
    no_probe("a bus that NVML does not know", 0, "does not know the GPU");
    tap_equal(fake.stopped, 1, "what was started is stopped");
    good();
    no_probe("a device that CUDA does not know", 7, "does not know the GPU");
}

static struct dry_probe *open_probe(int index)
{
    struct dry_probe *p = NULL;
    const char *why = NULL;

    if (!tap_ok(!dry_nvml_ops.open(index, &p, &why) && p, "a probe"))
        printf("# %s\n", why ? why : "no reason");
    return p;
}

static void samples(void)
{
    struct dry_probe_sample s;
    struct dry_probe *p;

    good();
    p = open_probe(1);
    if (!p)
        return;
    tap_equal(dry_nvml_ops.number(p), 12, "the number that nvidia-smi shows");
    tap_text(dry_nvml_ops.name(p), "NVIDIA H200", "its name");
    tap_text(dry_nvml_ops.driver(p), "580.65.06", "the driver's version");
    fake.counter = 1000;
    dry_nvml_ops.sample(p, &s);
    tap_ok(isnan(s.pcie_in) && isnan(s.nvlink_out), "no rate at the first sample");
    fake.now += 0.5;
    fake.counter += 50;
    dry_nvml_ops.sample(p, &s);
    tap_near(s.busy, 87, 0, "busy");
    tap_near(s.memory_busy, 41, 0, "its memory");
    tap_near(s.memory, 3 << 20, 0, "memory in use, bytes");
    tap_near(s.power, 612.345, 1e-9, "power, W");
    tap_near(s.energy, 7.5, 1e-9, "energy, J");
    tap_near(s.clock, 1830, 0, "clock of the multiprocessors");
    tap_near(s.temperature, 61, 0, "temperature");
    tap_equal((long long)s.throttle, 4, "reasons for its clock, by the older name");
    tap_near(s.pcie_in, 50 * 98 / 0.5, 1e-6, "from the host, bytes a second");
    tap_near(s.pcie_out, 50 * 97 / 0.5, 1e-6, "to the host");
    tap_near(s.nvlink_in, 50 * 39 * 1024 / 0.5, 1e-6, "over links, in");
    tap_near(s.nvlink_out, 50 * 38 * 1024 / 0.5, 1e-6, "over links, out");
    fake.now += 0.5;
    fake.counter = 3;
    dry_nvml_ops.sample(p, &s);
    tap_ok(isnan(s.pcie_in) && isnan(s.nvlink_in), "a counter that went back gives no rate");
    fake.narrow = 1;
    dry_nvml_ops.sample(p, &s);
    tap_near(s.pcie_in, 200 * 1024, 0, "counters of 32 bits are not used: what the driver measures, in");
    tap_near(s.pcie_out, 100 * 1024, 0, "and out");
    fake.bare = 1;
    dry_nvml_ops.sample(p, &s);
    tap_ok(isnan(s.busy) && isnan(s.memory_busy) && isnan(s.memory) && isnan(s.power) && isnan(s.energy) &&
               isnan(s.clock) && isnan(s.temperature) && s.throttle == 0 && isnan(s.pcie_in) &&
               isnan(s.pcie_out) && isnan(s.nvlink_in) && isnan(s.nvlink_out),
           "what a card does not offer is not a number");
    dry_nvml_ops.close(p);
    tap_ok(fake.stopped == 1 && fake.closed == 1, "the library is stopped and let go");
    dry_nvml_ops.close(NULL);

    good();
    fake.part = 1;
    if (!(p = open_probe(0)))
        return;
    dry_nvml_ops.sample(p, &s);
    tap_ok(isnan(s.busy), "a part of a card does not say how busy it is");
    tap_near(s.memory, 5 << 20, 0, "its memory is the part's");
    tap_near(s.power, 612.345, 1e-9, "its power is the card's");
    dry_nvml_ops.close(p);
}

static void refuses(const char *what, const char *says)
{
    unsigned char id[DRY_DEVICE_ID];
    size_t room;
    enum dry_status status;
    const char *said;

    capture_begin();
    status = dry_cuda_ops.device(0, id, &room);
    said = capture_end();
    if (!tap_ok(status == DRY_ERR_DEVICE && strstr(said, says), "%s is refused with a sentence", what))
        printf("# %s\n", said);
}

static const char *usable(int *n)
{
    capture_begin();
    *n = dry_cuda_usable();
    return capture_end();
}

static void refused_devices(void)
{
    int n;

    good();
    fake.major = 7;
    refuses("a card that is too old", "GPU 0, Tesla V100, has compute capability 7.0; drydock needs 8.0");
    good();
    fake.count_error = cudaErrorInsufficientDriver;
    fake.driver = 12020;
    refuses("a driver that is too old",
            "the driver is for CUDA 12.2 and this build for 13.0; update the driver");
    fake.driver = 0;
    refuses("no driver", "nvidia-smi shows whether there is one");
    tap_text(usable(&n), "", "without a driver there is no GPU, and no word about it");
    tap_equal(n, 0, "none");
    fake.count_error = cudaErrorNoDevice;
    fake.driver = 13000;
    tap_text(usable(&n), "", "nor with a driver that shows none");
    fake.count_error = cudaErrorInsufficientDriver;
    fake.driver = 12020;
    tap_ok(strstr(usable(&n), "no GPU can be used: the driver is for CUDA 12.2") && n == 0,
           "a GPU whose driver is too old is not left aside without a word");
    tap_text(usable(&n), "", "said once");
    good();
    tap_text(usable(&n), "", "two cards that can be used");
    tap_equal(n, 2, "are two");
}

int main(void)
{
    refused_probes();
    samples();
    refused_devices();
    return tap_done();
}
