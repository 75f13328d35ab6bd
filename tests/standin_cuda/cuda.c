/* A libcuda.so.1 for tests on machines without a GPU: what gpuwarm/measure/cuda.py calls. Its one stream is a thread
 * that does what is put into it in order, so that, as on a GPU, nothing is there before it was waited for.
 *
 * Time on it goes by what the work takes, not by how busy the tests' machine is: a busy wait its length, a stamp 2 us, a
 * copy 1 ns a byte. It stands still while the stream waits, unless STANDIN_CUDA_IDLES is 1.
 *
 * Environment: STANDIN_CUDA_INIT (what cuInit returns), _VERSION (13000), _GPUS (1), _MHZ (1500), _STEP_NS (32, of the
 * timer), _SMS (1: SMs that launches go round), _FAIL (name of a function that returns 700).
 *
 * Not in CUDA: standin_busy(us, to, from, size) puts work of that length into the stream, then copies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, NO_DEVICE = 101 };
enum { BLOCKS = 4, EVENT_BLOCKS = 1 };

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

/* The stream. */
typedef struct { uint64_t at_ns; unsigned flags; uint64_t position; } Event;
typedef struct { enum { RECORD, COPY, STAMP, STEP, BUSY } what; Event *event; void *to; const void *from; size_t size; } Work;
enum { ROOM = 1024 };
static Work queue[ROOM];
static uint64_t put, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned context_flags;

static uint64_t gpu_ns = 1000000000;
enum { STAMP_NS = 2000 };

static void stamp(volatile uint64_t *to) {
    static unsigned launches;
    uint64_t step = (uint64_t)setting("STEP_NS", 32);
    to[0] = gpu_ns * (uint64_t)setting("MHZ", 1500) / 1000;
    to[1] = gpu_ns / step * step;
    to[2] = launches++ % (unsigned)setting("SMS", 1);
    usleep(20); /* so that it is not there yet when the inference is over */
    to[3] = 1;
}
static void work_on(Work *work) {
    uint64_t begun = now_ns();
    switch (work->what) {
    case RECORD: work->event->at_ns = gpu_ns; break;
    case COPY: memcpy(work->to, work->from, work->size); gpu_ns += work->size; break;
    case STAMP: stamp(work->to); gpu_ns += STAMP_NS; break;
    case STEP: *(uint64_t *)work->to = (uint64_t)setting("STEP_NS", 32); break;
    case BUSY: while (now_ns() < begun + work->size) ; gpu_ns += work->size; break;
    }
}
static void *run_stream(void *unused) {
    (void)unused;
    while (1) {
        pthread_mutex_lock(&lock);
        uint64_t idle = now_ns();
        while (done == put) pthread_cond_wait(&changed, &lock);
        idle = now_ns() - idle;
        if (setting("IDLES", 0)) gpu_ns += idle;
        Work work = queue[done % ROOM];
        pthread_mutex_unlock(&lock);
        work_on(&work);
        pthread_mutex_lock(&lock);
        done++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
static uint64_t enqueue(Work work) {
    pthread_mutex_lock(&lock);
    while (put - done == ROOM) pthread_cond_wait(&changed, &lock);
    queue[put++ % ROOM] = work;
    uint64_t position = put;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return position;
}
static void wait_for(uint64_t position) {
    pthread_mutex_lock(&lock);
    while (done < position) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Devices. */
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

/* A context. */
Result cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { (void)device; context_flags = flags; return SUCCESS; }
Result cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = (void *)1;
    return outcome("cuDevicePrimaryCtxRetain");
}
Result cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
Result cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    pthread_t thread;
    *stream = (void *)0x51;
    return pthread_create(&thread, NULL, run_stream, NULL) == 0 ? SUCCESS : NOT_FOUND;
}
Result cuStreamSynchronize(void *stream) { (void)stream; wait_for(put); return outcome("cuStreamSynchronize"); }

/* Events. One that does not wait as its context does is a mistake here. */
Result cuEventCreate(Event **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    (*event)->flags = flags;
    return (flags == EVENT_BLOCKS) == (context_flags == BLOCKS) ? SUCCESS : INVALID_VALUE;
}
Result cuEventRecord(Event *event, void *stream) {
    (void)stream;
    event->position = enqueue((Work){RECORD, event, NULL, NULL, 0});
    return SUCCESS;
}
Result cuEventSynchronize(Event *event) { wait_for(event->position); return outcome("cuEventSynchronize"); }
Result cuEventElapsedTime(float *ms, Event *begin, Event *end) {
    *ms = (float)((double)(end->at_ns - begin->at_ns) * 1e-6);
    return done >= end->position ? SUCCESS : INVALID_VALUE;
}

/* Memory. */
typedef struct { uint64_t start; size_t size; } Range;
static Range ranges[256];
static unsigned allocated;
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
Result cuMemAlloc(uint64_t *device, size_t size) {
    *device = (uint64_t)calloc(1, size);
    ranges[allocated++ % 256] = (Range){*device, size};
    return SUCCESS;
}
Result cuMemGetAddressRange(uint64_t *start, size_t *size, uint64_t address) {
    for (unsigned i = 0; i < 256; i++)
        if (ranges[i].start == address) {
            *start = address;
            *size = ranges[i].size;
            return SUCCESS;
        }
    return NOT_FOUND;
}
Result cuMemcpyHtoDAsync(uint64_t to, const void *from, size_t size, void *stream) {
    (void)stream;
    enqueue((Work){COPY, NULL, (void *)to, from, size});
    return SUCCESS;
}
Result cuMemcpyDtoHAsync(void *to, uint64_t from, size_t size, void *stream) {
    (void)stream;
    enqueue((Work){COPY, NULL, to, (void *)from, size});
    return SUCCESS;
}

/* Kernels. */
Result cuModuleLoadData(void **module, const char *ptx) {
    *module = (void *)ptx;
    return strstr(ptx, ".visible .entry stamp(") ? outcome("cuModuleLoadData") : NOT_FOUND;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)(intptr_t)(strcmp(name, "stamp") == 0 ? STAMP : STEP);
    return SUCCESS;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra) {
    (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    enqueue((Work){(int)(intptr_t)function, NULL, *(void **)parameters[0], NULL, 0});
    return outcome("cuLaunchKernel");
}
void standin_busy(unsigned us, void *to, const void *from, size_t size) {
    enqueue((Work){BUSY, NULL, NULL, NULL, us * 1000u});
    enqueue((Work){COPY, NULL, to, from, size});
}

Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version; (void)flags;
    *function = strcmp(name, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2 : dlsym(RTLD_DEFAULT, name);
    if (*function == NULL) *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
    if (status) *status = *function ? 0 : 1;
    return SUCCESS;
}
