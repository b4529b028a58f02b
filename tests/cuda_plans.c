/*
 * cuDNN accepts attention's graphs, on a description of a GPU: no GPU is needed.
 * Owns a folder with a link to the toolkit's stand-in for the driver's library, where that library is
 * missing: with it cuDNN goes as far as compiling the kernel, and fails only when it is to be loaded.
 */
#include "config.h"

#include "tap.h"

#include "cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static const char hopper[] =
    "{\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,"
    "\"totalGlobalMem\":150109880320,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]"
    ","
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":"
    "65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,"
    "\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":"
    "62914560}";

static const struct {
    const char *name;
    struct dry_cudnn_shape shape;
} shapes[] = {
    {"seven heads of 128 a key, rows wider than they need be", {6, 1024, 0, 28, 4, 128, 4672, 3648, 28}},
    {"the same, all of one length", {6, 1024, 1, 28, 4, 128, 4672, 3648, 28}},
    {"every head its own, 96", {3, 384, 0, 32, 32, 96, 9280, 3136, 32}},
};

/* Starts again where a driver's library is found, if only a stand-in. Returns when that is in vain. */
static void with_driver(char **argv)
{
    static const char *const folders[] = {"lib64/stubs", "lib/stubs", "targets/x86_64-linux/lib/stubs"};
    const char *home = getenv("CUDA_HOME");
    char dir[] = "/tmp/cuda-plans-XXXXXX", from[512], to[64];

    if (getenv("DRY_TEST_STAND_IN") || dlopen("libcuda.so.1", RTLD_LAZY))
        return;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(from, sizeof from, "%s/%s/libcuda.so", home ? home : "/usr/local/cuda", folders[i]);
        if (access(from, R_OK) || !mkdtemp(dir))
            continue;
        snprintf(to, sizeof to, "%s/libcuda.so.1", dir);
        if (symlink(from, to) == 0 && setenv("DRY_TEST_STAND_IN", dir, 1) == 0 &&
            setenv("LD_LIBRARY_PATH", dir, 1) == 0)
            execv("/proc/self/exe", argv);
        unlink(to);
        rmdir(dir);
        return;
    }
}

static void check(const char *name, int backward, cudnnBackendDescriptor_t device,
                  const struct dry_cudnn_shape *shape)
{
    struct dry_cudnn_plan *plan = NULL;
    char why[900] = "";
    int good = !dry_cudnn_plan_create(NULL, device, shape, backward, &plan, why, sizeof why);
    /* Without any driver's library cuDNN has no engine to offer, but it has read the graph; with a stand-in
     * it has made the kernel and cannot load it. */
    int read = strncmp(why, "an engine:", 10) == 0 && !getenv("DRY_TEST_STAND_IN");
    int compiled = strncmp(why, "a plan:", 7) == 0 && strstr(why, "CUDA_DRIVER");

    if (!tap_ok(good || compiled || read, "%s, %s: %s", name, backward ? "backward" : "forward",
                good       ? "a plan"
                : compiled ? "compiled"
                           : "the graph is taken"))
        printf("# %s\n", why);
    dry_cudnn_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    cudnnBackendDescriptor_t device = NULL;
    const char *stand_in;
    char path[96];

    (void)argc;
    with_driver(argv);
    if (!tap_ok(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) &&
                    !cudnnBackendSetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                              CUDNN_TYPE_CHAR, (int64_t)strlen(hopper), hopper) &&
                    !cudnnBackendFinalize(device),
                "a described device"))
        return tap_done();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int backward = 0; backward < 2; backward++)
            check(shapes[i].name, backward, device, &shapes[i].shape);
    (void)cudnnBackendDestroyDescriptor(device);
    stand_in = getenv("DRY_TEST_STAND_IN");
    if (stand_in) {
        snprintf(path, sizeof path, "%s/libcuda.so.1", stand_in);
        unlink(path);
        rmdir(stand_in);
    }
    return tap_done();
}
