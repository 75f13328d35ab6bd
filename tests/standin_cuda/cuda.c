/* A libcuda.so.1 for tests on machines without a GPU: what gpuwarm/measure/cuda.py calls, done at once on the host.
 *
 * Environment: STANDIN_CUDA_INIT (what cuInit returns), _VERSION (13000), _MHZ (1500), _STEP_NS (32) of the timer,
 * _SMS (1: SMs that launches go round), _FAIL (name of a function that returns 700), _GPUS (1).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int Result;
enum { SUCCESS = 0, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, NO_DEVICE = 101 };

static long setting(const char *name, long otherwise) {
    char full[64];
    snprintf(full, sizeof full, "STANDIN_CUDA_%s", name);
    const char *value = getenv(full);
    return value ? atol(value) : otherwise;
}
static Result outcome(const char *function) {
    const char *failing = getenv("STANDIN_CUDA_FAIL");
    return failing && strcmp(failing, function) == 0 ? ILLEGAL_ADDRESS : SUCCESS;
}
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

Result cuInit(unsigned flags) { (void)flags; return (Result)setting("INIT", 0); }
Result cuDriverGetVersion(int *version) { *version = (int)setting("VERSION", 13000); return SUCCESS; }
Result cuGetErrorName(Result error, const char **name) {
    *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return SUCCESS;
}
Result cuDeviceGetCount(int *count) { *count = (int)setting("GPUS", 1); return SUCCESS; }
Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < setting("GPUS", 1) ? SUCCESS : NO_DEVICE;
}
Result cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Stand-in %d", device);
    return SUCCESS;
}
Result cuDeviceGetPCIBusId(char *id, int length, int device) {
    snprintf(id, (size_t)length, "0000:%02X:00.0", 0xA0 + device);
    return SUCCESS;
}
Result cuDeviceGetUuid(char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (char)(i * 16 + device);
    return SUCCESS;
}
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return SUCCESS;
}
Result cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { (void)device; (void)flags; return SUCCESS; }
Result cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = (void *)1;
    return outcome("cuDevicePrimaryCtxRetain");
}
Result cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
Result cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)0x51; return SUCCESS; }
Result cuStreamSynchronize(void *stream) { (void)stream; return outcome("cuStreamSynchronize"); }
Result cuEventCreate(uint64_t **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return SUCCESS;
}
Result cuEventRecord(uint64_t *event, void *stream) { (void)stream; *event = now_ns(); return SUCCESS; }
Result cuEventSynchronize(uint64_t *event) { (void)event; return outcome("cuEventSynchronize"); }
Result cuEventElapsedTime(float *ms, uint64_t *begin, uint64_t *end) {
    *ms = (float)((double)(*end - *begin) * 1e-6);
    return SUCCESS;
}
Result cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
    (void)flags;
    *memory = calloc(1, size);
    return SUCCESS;
}
Result cuMemHostGetDevicePointer(uint64_t *device, void *host, unsigned flags) {
    (void)flags;
    *device = (uint64_t)host;
    return SUCCESS;
}
Result cuMemAlloc(uint64_t *device, size_t size) { *device = (uint64_t)calloc(1, size); return SUCCESS; }
Result cuMemcpyHtoDAsync(uint64_t to, const void *from, size_t size, void *stream) {
    (void)stream;
    memcpy((void *)to, from, size);
    return SUCCESS;
}
Result cuMemcpyDtoHAsync(void *to, uint64_t from, size_t size, void *stream) {
    (void)stream;
    memcpy(to, (void *)from, size);
    return SUCCESS;
}
Result cuModuleLoadData(void **module, const char *ptx) {
    *module = (void *)ptx;
    return strstr(ptx, ".visible .entry stamp(") ? outcome("cuModuleLoadData") : NOT_FOUND;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)(intptr_t)(strcmp(name, "stamp") == 0 ? 1 : 2);
    return SUCCESS;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra) {
    (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    static unsigned launches;
    uint64_t *to = *(uint64_t **)parameters[0], step = (uint64_t)setting("STEP_NS", 32), ns = now_ns();
    if (function == (void *)2) {
        to[0] = step;
        return SUCCESS;
    }
    to[0] = ns * (uint64_t)setting("MHZ", 1500) / 1000;
    to[1] = ns / step * step;
    to[2] = launches++ % (unsigned)setting("SMS", 1);
    to[3] = 1;
    return outcome("cuLaunchKernel");
}
Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version; (void)flags;
    *function = strcmp(name, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2 : dlsym(RTLD_DEFAULT, name);
    if (*function == NULL) *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
    if (status) *status = *function ? 0 : 1;
    return SUCCESS;
}
