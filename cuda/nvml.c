/*
 * What NVML, the driver's library for watching GPUs, says of a GPU while it works.
 * Owns the library's handle and, for each GPU that is watched, the counters of the sample before.
 * Must not know who asks: the sampler's thread and its clock are in measure/.
 *
 * The library comes with the driver, not with the toolkit, so a machine that builds or only plans has none:
 * it is looked for when it is needed.  The few declarations below are those of its stable interface.
 */
#include "config.h"

#include "cuda/entry.h"

#include "base/clock.h"
#include "base/memory.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUS_ID = 32, NAME = 96, VERSION = 81 }; /* bytes of a text */

/* nvml.h's, by value: results, clocks, sensors, directions, types of values and identifiers of fields. */
enum {
    GOOD = 0,
    CLOCK_SM = 1,
    SENSOR_GPU = 0,
    PCIE_TX = 0,
    PCIE_RX = 1,
    TYPE_UNSIGNED_LONG = 2,
    TYPE_UNSIGNED_LONG_LONG = 3,
    FIELD_NVLINK_TX = 138, /* KiB of data since the driver was loaded */
    FIELD_NVLINK_RX = 139,
    FIELD_PCIE_TX = 197, /* bytes, likewise */
    FIELD_PCIE_RX = 198,
};
static const unsigned all_links = ~0U;

typedef struct nvml_device *device_t;
struct utilization {
    unsigned gpu, memory;
};
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    union {
        unsigned long long whole;
        double real;
    } value;
};
_Static_assert(sizeof(struct field) == 40 && sizeof(struct memory_v2) == 40, "as nvml.h lays them out");

/* What is used of the library; a driver may lack all but the first four. */
struct library {
    int (*start)(void);
    int (*stop)(void);
    int (*by_bus)(const char *bus_id, device_t *device);
    int (*index)(device_t device, unsigned *index);
    int (*by_uuid)(const char *uuid, device_t *device);
    int (*name)(device_t device, char *name, unsigned length);
    int (*driver)(char *version, unsigned length);
    int (*utilization)(device_t device, struct utilization *u);
    int (*memory_v2)(device_t device, struct memory_v2 *m);
    int (*memory)(device_t device, struct memory *m);
    int (*power)(device_t device, unsigned *milliwatts);
    int (*energy)(device_t device, unsigned long long *millijoules);
    int (*clock)(device_t device, int type, unsigned *mhz);
    int (*temperature)(device_t device, int sensor, unsigned *celsius);
    int (*reasons)(device_t device, unsigned long long *bits);
    int (*pcie)(device_t device, int counter, unsigned *kib_per_second);
    int (*fields)(device_t device, int count, struct field *f);
};

/* A function's names, the newer one first. */
static const struct {
    size_t at;
    int must;
    const char *name[2];
} functions[] = {
    {offsetof(struct library, start), 1, {"nvmlInit_v2", NULL}},
    {offsetof(struct library, stop), 1, {"nvmlShutdown", NULL}},
    {offsetof(struct library, by_bus), 1, {"nvmlDeviceGetHandleByPciBusId_v2", NULL}},
    {offsetof(struct library, index), 1, {"nvmlDeviceGetIndex", NULL}},
    {offsetof(struct library, by_uuid), 0, {"nvmlDeviceGetHandleByUUID", NULL}},
    {offsetof(struct library, name), 0, {"nvmlDeviceGetName", NULL}},
    {offsetof(struct library, driver), 0, {"nvmlSystemGetDriverVersion", NULL}},
    {offsetof(struct library, utilization), 0, {"nvmlDeviceGetUtilizationRates", NULL}},
    {offsetof(struct library, memory_v2), 0, {"nvmlDeviceGetMemoryInfo_v2", NULL}},
    {offsetof(struct library, memory), 0, {"nvmlDeviceGetMemoryInfo", NULL}},
    {offsetof(struct library, power), 0, {"nvmlDeviceGetPowerUsage", NULL}},
    {offsetof(struct library, energy), 0, {"nvmlDeviceGetTotalEnergyConsumption", NULL}},
    {offsetof(struct library, clock), 0, {"nvmlDeviceGetClockInfo", NULL}},
    {offsetof(struct library, temperature), 0, {"nvmlDeviceGetTemperature", NULL}},
    {offsetof(struct library, reasons),
     0,
     {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}},
    {offsetof(struct library, pcie), 0, {"nvmlDeviceGetPcieThroughput", NULL}},
    {offsetof(struct library, fields), 0, {"nvmlDeviceGetFieldValues", NULL}},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* A counter that only grows, and what it was. */
struct counter {
    unsigned field, scope;
    double unit;             /* bytes */
    unsigned long long last; /* value at `at` */
    double at;               /* NAN: not read yet, or not offered */
};
enum { COUNT_PCIE_IN, COUNT_PCIE_OUT, COUNT_NVLINK_IN, COUNT_NVLINK_OUT, COUNTERS };

struct dry_probe {
    void *file;
    struct library nvml;
    device_t device;
    device_t part; /* the MIG instance that this process computes on, or the device */
    unsigned index;
    char name[NAME], driver[VERSION];
    struct counter counter[COUNTERS];
};

/* POSIX lets a pointer to an object hold one to a function; C does not convert between them. */
static int find_functions(void *file, struct library *l)
{
    for (size_t i = 0; i < FUNCTIONS; i++) {
        void *f = NULL;
        for (size_t n = 0; n < 2 && !f && functions[i].name[n]; n++)
            f = dlsym(file, functions[i].name[n]);
        if (!f && functions[i].must)
            return 0;
        memcpy((char *)l + functions[i].at, &f, sizeof f);
    }
    return 1;
}

/* CUDA numbers devices by its own rule and by CUDA_VISIBLE_DEVICES; the bus tells which one it is. */
static int find_device(struct dry_probe *p, int index)
{
    char bus[BUS_ID], uuid[] = "MIG-01234567-0123-0123-0123-0123456789ab";
    struct cudaDeviceProp prop;
    const unsigned char *u = (const unsigned char *)prop.uuid.bytes;

    if (cudaDeviceGetPCIBusId(bus, (int)sizeof bus, index) || cudaGetDeviceProperties(&prop, index)) {
        (void)cudaGetLastError();
        return 0;
    }
    if (p->nvml.by_bus(bus, &p->device) || p->nvml.index(p->device, &p->index))
        return 0;
    snprintf(uuid, sizeof uuid, "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    if (!p->nvml.by_uuid || p->nvml.by_uuid(uuid, &p->part))
        p->part = p->device; /* the whole GPU */
    return 1;
}

static void nvml_close(struct dry_probe *p)
{
    if (!p)
        return;
    if (p->nvml.stop)
        (void)p->nvml.stop();
    if (p->file)
        (void)dlclose(p->file);
    dry_free(p);
}

static const char *open_library(struct dry_probe *p)
{
    struct library l = {.start = NULL};

    p->file = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!p->file)
        return "the driver's libnvidia-ml.so.1 is not there (a container gets it with "
               "NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    if (!find_functions(p->file, &l))
        return "the driver's libnvidia-ml.so.1 is too old";
    if (l.start())
        return "NVML did not start: the driver is not loaded or does not match its library";
    p->nvml = l;
    return NULL;
}

static enum dry_status nvml_open(int index, struct dry_probe **p, const char **why)
{
    struct dry_probe *n = dry_alloc(1, sizeof *n, "the probe of a GPU");

    if (!n) {
        *why = "there is no memory for the probe";
        return DRY_ERR_MEMORY;
    }
    *why = open_library(n);
    if (!*why && !find_device(n, index))
        *why = "NVML does not know the GPU that CUDA uses";
    if (*why) {
        nvml_close(n);
        return DRY_ERR_DEVICE;
    }
    if (!n->nvml.name || n->nvml.name(n->device, n->name, sizeof n->name))
        n->name[0] = '\0';
    if (!n->nvml.driver || n->nvml.driver(n->driver, sizeof n->driver))
        n->driver[0] = '\0';
    n->counter[COUNT_PCIE_IN] = (struct counter){FIELD_PCIE_RX, 0, 1, 0, NAN};
    n->counter[COUNT_PCIE_OUT] = (struct counter){FIELD_PCIE_TX, 0, 1, 0, NAN};
    n->counter[COUNT_NVLINK_IN] = (struct counter){FIELD_NVLINK_RX, all_links, 1024, 0, NAN};
    n->counter[COUNT_NVLINK_OUT] = (struct counter){FIELD_NVLINK_TX, all_links, 1024, 0, NAN};
    *p = n;
    return DRY_OK;
}

static int nvml_number(const struct dry_probe *p)
{
    return (int)p->index;
}

static const char *nvml_name(const struct dry_probe *p)
{
    return p->name;
}

static const char *nvml_driver(const struct dry_probe *p)
{
    return p->driver;
}

/* Bytes a second since the sample before. rate stays NAN at the first one and where a field is not offered;
 * *offered: it is. Counters of 32 bits would wrap between samples, so they are not used. */
static void count(struct dry_probe *p, double rate[COUNTERS], int offered[COUNTERS])
{
    struct field f[COUNTERS];

    memset(f, 0, sizeof f);
    for (int i = 0; i < COUNTERS; i++) {
        f[i].id = p->counter[i].field;
        f[i].scope = p->counter[i].scope;
        rate[i] = NAN;
        offered[i] = 0;
    }
    if (!p->nvml.fields || p->nvml.fields(p->device, COUNTERS, f))
        return;
    double now = dry_clock_now();
    for (int i = 0; i < COUNTERS; i++) {
        struct counter *c = &p->counter[i];
        offered[i] =
            f[i].result == GOOD && (f[i].type == TYPE_UNSIGNED_LONG || f[i].type == TYPE_UNSIGNED_LONG_LONG);
        if (offered[i] && now > c->at && f[i].value.whole >= c->last)
            rate[i] = (double)(f[i].value.whole - c->last) * c->unit / (now - c->at);
        c->last = f[i].value.whole;
        c->at = offered[i] ? now : NAN;
    }
}

/* The driver's own measurement, which takes 20 ms. */
static double pcie_now(const struct dry_probe *p, int direction)
{
    unsigned kib = 0;

    return p->nvml.pcie && !p->nvml.pcie(p->device, direction, &kib) ? (double)kib * 1024 : NAN;
}

static double memory_used(const struct dry_probe *p)
{
    struct memory_v2 m2 = {.version = sizeof m2 | 2U << 24};
    struct memory m;

    if (p->nvml.memory_v2 && !p->nvml.memory_v2(p->part, &m2))
        return (double)m2.used;
    return p->nvml.memory && !p->nvml.memory(p->part, &m) ? (double)m.used : NAN;
}

static void nvml_sample(struct dry_probe *p, struct dry_probe_sample *s)
{
    const struct library *n = &p->nvml;
    struct utilization u;
    unsigned value = 0;
    unsigned long long large = 0;
    double rate[COUNTERS];
    int offered[COUNTERS], busy = n->utilization && !n->utilization(p->part, &u);

    s->busy = busy ? u.gpu : NAN;
    s->memory_busy = busy ? u.memory : NAN;
    s->memory = memory_used(p);
    s->power = n->power && !n->power(p->device, &value) ? value / 1e3 : NAN;
    s->energy = n->energy && !n->energy(p->device, &large) ? (double)large / 1e3 : NAN;
    s->clock = n->clock && !n->clock(p->device, CLOCK_SM, &value) ? value : NAN;
    s->temperature = n->temperature && !n->temperature(p->device, SENSOR_GPU, &value) ? value : NAN;
    s->throttle = n->reasons && !n->reasons(p->device, &large) ? large : 0;
    count(p, rate, offered);
    s->pcie_in = offered[COUNT_PCIE_IN] ? rate[COUNT_PCIE_IN] : pcie_now(p, PCIE_RX);
    s->pcie_out = offered[COUNT_PCIE_OUT] ? rate[COUNT_PCIE_OUT] : pcie_now(p, PCIE_TX);
    s->nvlink_in = rate[COUNT_NVLINK_IN];
    s->nvlink_out = rate[COUNT_NVLINK_OUT];
}

const struct dry_probe_ops dry_nvml_ops = {
    .backend = "cuda",
    .open = nvml_open,
    .close = nvml_close,
    .number = nvml_number,
    .name = nvml_name,
    .driver = nvml_driver,
    .sample = nvml_sample,
};
