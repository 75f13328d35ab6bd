/* A stand-in for libnvidia-ml.so.1, driven by a timeline file: what the real pynvml binding meets in tests.
 *
 * STANDIN_NVML_TIMELINE names the file. A line is a directive or a moment in seconds with what holds from then on:
 *
 *     gpus 2
 *     driver 580.95.05
 *     cuda 13000
 *     refresh_ms 100                        values change only on this grid
 *     noise power_mw 3000                   a value wanders by so much, anew each refresh
 *     error nvmlInitWithFlags 9             a function always returns this code
 *     slow nvmlDeviceGetCurrPcieLinkGeneration 3000      ... or takes so many microseconds
 *     0    pstate=8 sm_clock_mhz=210 name="NVIDIA GeForce RTX 4090"
 *     0.5  gpu=1 pstate=2 sm_clock_mhz=2520 power_average_mw=unsupported memory_temperature_c=error:999
 *     2.0  lost=1
 *
 * Without gpu=N a moment holds for every GPU. Keys and what they are without a timeline: `keys` below. Time zero is the
 * first nvmlInit of any process with this timeline, kept in TIMELINE.epoch (CLOCK_MONOTONIC, ns). At exit every process
 * appends "function calls failures" lines to TIMELINE.calls. A symbol is missing where it was compiled away
 * (-DnvmlX=absent_nvmlX). Setters abort: setters.h, made from the binding's own list, holds SETTER(name) for each.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { MAX_GPUS = 16, MAX_ENTRIES = 4096, MAX_RULES = 64 };

static const char *const keys[][2] = {
    {"name", "NVIDIA GeForce RTX 4090"}, {"uuid", ""}, {"mig_uuid", "unsupported"}, {"pci", ""}, {"cc", "8.9"},
    {"lost", "0"}, {"persistence", "0"}, {"compute_mode", "0"}, {"display_active", "0"}, {"mig_mode", "unsupported"},
    {"mig_pending", "0"}, {"mig_slots", "7"}, {"mig_devices", "0"}, {"ecc_mode", "unsupported"}, {"ecc_pending", "0"}, {"processes", ""},
    {"pstate", "8"}, {"sm_clock_mhz", "210"}, {"mem_clock_mhz", "405"}, {"sm_clock_max_mhz", "3105"},
    {"mem_clock_max_mhz", "10501"}, {"application_sm_clock_mhz", "unsupported"},
    {"application_mem_clock_mhz", "unsupported"}, {"power_mw", "21000"}, {"power_average_mw", "20000"},
    {"power_usage_mw", "20000"}, {"power_limit_mw", "450000"}, {"power_limit_default_mw", "450000"},
    {"temperature_c", "35"}, {"temperature_limit_c", "90"}, {"temperature_margin_c", "unsupported"},
    {"memory_temperature_c", "unsupported"}, {"event_reasons", "0x1"}, {"gpu_util_pct", "0"},
    {"memory_used_mib", "512"}, {"memory_total_mib", "24564"}, {"pcie_gen", "1"}, {"pcie_gen_max", "4"},
    {"pcie_width", "16"}, {"pcie_width_max", "16"}, {"sw_power_cap_us", "0"}, {"sync_boost_us", "0"},
    {"sw_thermal_slowdown_us", "0"}, {"hw_thermal_slowdown_us", "0"}, {"hw_power_brake_slowdown_us", "0"},
};
enum { KEYS = sizeof keys / sizeof *keys };

static struct entry { double at_s; int gpu, key; char value[256]; } entries[MAX_ENTRIES];
static struct rule { char function[96]; int code; long delay_us; } rules[MAX_RULES];
struct gpu { int index; };
static struct gpu gpus[MAX_GPUS], migs[MAX_GPUS];
static int n_entries, n_rules, n_gpus = 1, cuda_version = 13000;
static char driver[96] = "580.95.05", nvml_version[96] = "13.580.95.05";
static long refresh_ms;
static long noise[KEYS];
static long long epoch_ns;

static void die(const char *what, const char *which) {
    fprintf(stderr, "stand-in NVML: %s %s\n", what, which);
    abort();
}

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int key_of(const char *name) {
    for (int i = 0; i < KEYS; i++)
        if (!strcmp(keys[i][0], name)) return i;
    die("unknown key", name);
    return -1;
}

/* ---- the timeline ---- */

static void read_moment(double at_s, char *rest) {
    int gpu = -1;
    for (char *p = rest; *(p += strspn(p, " \t\r\n"));) {
        char *name = p, *equals = strchr(p, '=');
        if (!equals) die("not key=value:", p);
        char *value = equals + 1, *end;
        if (*value == '"') end = strchr(++value, '"');
        else end = value + strcspn(value, " \t\r\n");
        p = *end ? end + 1 : end;
        *equals = *end = 0;
        if (!strcmp(name, "gpu")) { gpu = atoi(value); continue; }
        if (n_entries == MAX_ENTRIES) die("timeline too long at", name);
        struct entry *entry = &entries[n_entries++];
        *entry = (struct entry){at_s, gpu, key_of(name), ""};
        snprintf(entry->value, sizeof entry->value, "%s", value);
    }
}

static void read_line(char *line) {
    char word[96], name[96] = "", value[96] = "", *end;
    line[strcspn(line, "#\n")] = 0;
    double at_s = strtod(line, &end);
    if (end != line) { read_moment(at_s, end); return; }
    if (sscanf(line, "%95s %95s %95s", word, name, value) < 1) return;
    if (!strcmp(word, "gpus")) n_gpus = atoi(name);
    else if (!strcmp(word, "driver")) snprintf(driver, sizeof driver, "%s", name);
    else if (!strcmp(word, "cuda")) cuda_version = atoi(name);
    else if (!strcmp(word, "refresh_ms")) refresh_ms = atol(name);
    else if (!strcmp(word, "noise")) noise[key_of(name)] = atol(value);
    else if (!strcmp(word, "error") || !strcmp(word, "slow")) {
        struct rule *rule = &rules[n_rules++];
        if (n_rules == MAX_RULES) die("too many rules at", name);
        snprintf(rule->function, sizeof rule->function, "%s", name);
        if (word[0] == 'e') rule->code = atoi(value);
        else rule->delay_us = atol(value);
    } else die("unknown directive", word);
}

static const char *beside(const char *suffix) {
    static char path[4096];
    snprintf(path, sizeof path, "%s%s", getenv("STANDIN_NVML_TIMELINE"), suffix);
    return path;
}

static void agree_on_epoch(void) {
    char mine[4200];
    snprintf(mine, sizeof mine, "%s.%d", beside(".epoch"), (int)getpid());
    FILE *file = fopen(mine, "w");
    if (!file) die("cannot write", mine);
    fprintf(file, "%lld\n", now_ns());
    fclose(file);
    (void)!link(mine, beside(".epoch")); /* fails where another process was first */
    unlink(mine);
    file = fopen(beside(".epoch"), "r");
    if (!file || fscanf(file, "%lld", &epoch_ns) != 1) die("cannot read", beside(".epoch"));
    fclose(file);
}

static void load(void) {
    char line[4096];
    if (epoch_ns) return;
    if (!getenv("STANDIN_NVML_TIMELINE")) die("not set:", "STANDIN_NVML_TIMELINE");
    FILE *file = fopen(beside(""), "r");
    if (!file) die("cannot read", beside(""));
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    for (int i = 0; i < MAX_GPUS; i++) gpus[i].index = migs[i].index = i;
    agree_on_epoch();
}

/* ---- values ---- */

static double elapsed_s(void) {
    double s = (now_ns() - epoch_ns) * 1e-9;
    return refresh_ms ? (long)(s * 1e3 / refresh_ms) * refresh_ms * 1e-3 : s;
}

static const char *text(const struct gpu *gpu, const char *name) {
    int key = key_of(name);
    double now_s = elapsed_s();
    const char *value = keys[key][1];
    for (int i = 0; i < n_entries; i++)
        if (entries[i].key == key && (entries[i].gpu < 0 || entries[i].gpu == gpu->index) && entries[i].at_s <= now_s)
            value = entries[i].value;
    return value;
}

/* The code a value stands for: "unsupported", "error:N", or OK for a plain value. */
static int code_of(const char *value) {
    if (!strcmp(value, "unsupported")) return NOT_SUPPORTED;
    return strncmp(value, "error:", 6) ? OK : atoi(value + 6);
}

static int number(const struct gpu *gpu, const char *name, long long *value) {
    const char *found = text(gpu, name);
    long amplitude = noise[key_of(name)];
    *value = strtoll(found, NULL, 0);
    if (amplitude) {
        unsigned long long tick = (unsigned long long)(elapsed_s() * 1e3) * 0x9E3779B97F4A7C15ULL;
        *value += (long)((tick >> 33) % (2 * amplitude + 1)) - amplitude;
    }
    return code_of(found);
}

/* ---- calls ---- */

struct call { const char *name; long calls, failures; const struct rule *rule; struct call *next; };
static struct call *called;

static int begin(struct call *call) {
    if (!call->calls++) {
        call->next = called;
        called = call;
        for (int i = 0; i < n_rules; i++)
            if (!strcmp(rules[i].function, call->name)) call->rule = &rules[i];
    }
    if (call->rule && call->rule->delay_us) usleep(call->rule->delay_us);
    return call->rule ? call->rule->code : OK;
}

static int end(struct call *call, int code) {
    call->failures += code != OK;
    return code;
}

__attribute__((destructor)) static void write_calls(void) {
    FILE *file = called ? fopen(beside(".calls"), "a") : NULL;
    for (struct call *call = called; file && call; call = call->next)
        fprintf(file, "%s %ld %ld\n", call->name, call->calls, call->failures);
    if (file) fclose(file);
}

#define BEGIN static struct call self = {.name = __func__}; int code = begin(&self)
#define END return end(&self, code)
#define BEGIN_GPU BEGIN; { long long lost; if (!code && !number(gpu, "lost", &lost) && lost) code = LOST; }

#define NUMBER(function, key) \
    int function(const struct gpu *gpu, unsigned *value) { \
        BEGIN_GPU; long long found = 0; \
        if (!code) code = number(gpu, key, &found); \
        *value = found; END; }
#define TWO_NUMBERS(function, key, other) \
    int function(const struct gpu *gpu, unsigned *value, unsigned *second) { \
        BEGIN_GPU; long long found = 0, pending = 0; \
        if (!code) code = number(gpu, key, &found); \
        if (!code) code = number(gpu, other, &pending); \
        *value = found; *second = pending; END; }
#define CLOCK(function, sm, mem) \
    int function(const struct gpu *gpu, unsigned type, unsigned *value) { \
        BEGIN_GPU; long long found = 0; \
        if (!code) code = number(gpu, type == 2 ? mem : sm, &found); \
        *value = found; END; }
#define TEXT(function, expression) \
    int function(char *value, unsigned size) { BEGIN; snprintf(value, size, "%s", expression); END; }
#define SETTER(function) void function(void) { die("a setter was called:", #function); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); BEGIN; END; }
int nvmlShutdown(void) { BEGIN; END; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "an error of the stand-in"; }
TEXT(nvmlSystemGetDriverVersion, driver)
TEXT(nvmlSystemGetNVMLVersion, nvml_version)
int nvmlSystemGetCudaDriverVersion(int *version) { BEGIN; *version = cuda_version; END; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN; *version = cuda_version; END; }
int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN; *count = n_gpus; END; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const struct gpu **gpu) {
    BEGIN;
    *gpu = &gpus[index % MAX_GPUS];
    if (!code && (int)index >= n_gpus) code = INVALID_ARGUMENT;
    END;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const struct gpu **device) {
    BEGIN;
    *device = NULL;
    for (int i = 0; i < n_gpus; i++)
        if (!strcmp(text(&gpus[i], "mig_uuid"), uuid)) *device = &migs[i];
    if (!code && !*device) code = NOT_FOUND;
    END;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const struct gpu *mig, const struct gpu **gpu) {
    BEGIN;
    *gpu = &gpus[mig->index];
    END;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const struct gpu *gpu, unsigned index, const struct gpu **mig) {
    BEGIN_GPU;
    long long found = 0;
    if (!code) code = number(gpu, "mig_devices", &found);
    if (!code && index >= found) code = NOT_FOUND;
    *mig = &migs[gpu->index];
    END;
}

int nvmlDeviceGetIndex(const struct gpu *gpu, unsigned *index) { BEGIN_GPU; *index = gpu->index; END; }

NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_slots")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetPowerUsage, "power_usage_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
TWO_NUMBERS(nvmlDeviceGetMigMode, "mig_mode", "mig_pending")
TWO_NUMBERS(nvmlDeviceGetEccMode, "ecc_mode", "ecc_pending")
CLOCK(nvmlDeviceGetClockInfo, "sm_clock_mhz", "mem_clock_mhz")
CLOCK(nvmlDeviceGetMaxClockInfo, "sm_clock_max_mhz", "mem_clock_max_mhz")
CLOCK(nvmlDeviceGetApplicationsClock, "application_sm_clock_mhz", "application_mem_clock_mhz")
CLOCK(nvmlDeviceGetTemperature, "temperature_c", "temperature_c")
CLOCK(nvmlDeviceGetTemperatureThreshold, "temperature_limit_c", "temperature_limit_c")

struct temperature { unsigned version, sensor; int temperature; };
struct utilization { unsigned gpu, memory; };
struct margin { unsigned version; int margin; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetUtilizationRates(const struct gpu *gpu, struct utilization *answer) {
    BEGIN_GPU;
    long long found = 0;
    if (!code) code = number(gpu, "gpu_util_pct", &found);
    answer->gpu = answer->memory = found;
    END;
}

int nvmlDeviceGetTemperatureV(const struct gpu *gpu, struct temperature *answer) {
    BEGIN_GPU;
    long long found = 0;
    if (!code) code = number(gpu, "temperature_c", &found);
    answer->temperature = found;
    END;
}

int nvmlDeviceGetMarginTemperature(const struct gpu *gpu, struct margin *answer) {
    BEGIN_GPU;
    long long found = 0;
    if (!code) code = number(gpu, "temperature_margin_c", &found);
    answer->margin = found;
    END;
}

#define REASONS(function) \
    int function(const struct gpu *gpu, unsigned long long *reasons) { \
        BEGIN_GPU; long long found = 0; \
        if (!code) code = number(gpu, "event_reasons", &found); \
        *reasons = found; END; }
REASONS(nvmlDeviceGetCurrentClocksEventReasons)
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons)

int nvmlDeviceGetName(const struct gpu *gpu, char *name, unsigned size) {
    BEGIN_GPU;
    snprintf(name, size, "%s", text(gpu, "name"));
    END;
}

int nvmlDeviceGetUUID(const struct gpu *gpu, char *uuid, unsigned size) {
    BEGIN_GPU;
    const char *given = text(gpu, "uuid");
    if (*given) snprintf(uuid, size, "%s", given);
    else snprintf(uuid, size, "GPU-%08x-0000-4000-8000-000000000000", gpu->index);
    END;
}

int nvmlDeviceGetPciInfo_v3(const struct gpu *gpu, struct pci *pci) {
    BEGIN_GPU;
    memset(pci, 0, sizeof *pci);
    pci->bus = gpu->index + 1;
    sscanf(text(gpu, "pci"), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    END;
}

int nvmlDeviceGetCudaComputeCapability(const struct gpu *gpu, int *major, int *minor) {
    BEGIN_GPU;
    if (!code) code = code_of(text(gpu, "cc"));
    sscanf(text(gpu, "cc"), "%d.%d", major, minor);
    END;
}

int nvmlDeviceGetMemoryInfo(const struct gpu *gpu, unsigned long long *memory) { /* total, free, used */
    BEGIN_GPU;
    long long used = 0, total = 0;
    if (!code) code = number(gpu, "memory_used_mib", &used);
    if (!code) code = number(gpu, "memory_total_mib", &total);
    memory[0] = total << 20, memory[1] = (total - used) << 20, memory[2] = used << 20;
    END;
}

struct field { unsigned id, scope; long long timestamp_us, latency_us; unsigned type; int code; union {
    double d; unsigned u; unsigned long long ull; } value; };

int nvmlDeviceGetFieldValues(const struct gpu *gpu, int count, struct field *fields) {
    static const struct { unsigned id; const char *key; int counter; } known[] = {
        {186, "power_mw", 0}, {185, "power_average_mw", 0}, {82, "memory_temperature_c", 0},
        {74, "sw_power_cap_us", 1}, {76, "sync_boost_us", 1}, {269, "sw_thermal_slowdown_us", 1},
        {270, "hw_thermal_slowdown_us", 1}, {271, "hw_power_brake_slowdown_us", 1}};
    BEGIN_GPU;
    for (int i = 0; i < count && !code; i++) {
        fields[i].code = NOT_SUPPORTED;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            if (known[k].id != fields[i].id) continue;
            long long found;
            fields[i].code = number(gpu, known[k].key, &found);
            fields[i].type = known[k].counter ? 3 : 1; /* unsigned long long | unsigned int */
            if (known[k].counter) fields[i].value.ull = found * 1000; /* NVML counts ns */
            else fields[i].value.u = found;
        }
    }
    END;
}

/* processes=PID:KIND:NAME:MIB,... with KIND C or G */
static int list_processes(const struct gpu *gpu, char kind, unsigned *count, struct process *list) {
    char copy[256], *rest = copy;
    unsigned found = 0, room = *count;
    snprintf(copy, sizeof copy, "%s", text(gpu, "processes"));
    if (code_of(copy)) return code_of(copy);
    for (char *one; (one = strsep(&rest, ","));) {
        unsigned pid, mib;
        char type;
        if (sscanf(one, "%u:%c:%*[^:]:%u", &pid, &type, &mib) != 3 || type != kind) continue;
        if (found < room) list[found].pid = pid, list[found].bytes = (unsigned long long)mib << 20;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES(function, kind) \
    int function(const struct gpu *gpu, unsigned *count, struct process *list) { \
        BEGIN_GPU; if (!code) code = list_processes(gpu, kind, count, list); END; }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 'C')
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 'C')
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G')
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G')

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
    BEGIN;
    code = NOT_FOUND;
    for (int i = 0; i < n_gpus; i++) {
        char copy[256], *rest = copy;
        snprintf(copy, sizeof copy, "%s", text(&gpus[i], "processes"));
        for (char *one; (one = strsep(&rest, ","));) {
            char found[200];
            if (sscanf(one, "%*u:%*c:%199[^:]", found) == 1 && (unsigned)atoi(one) == pid) {
                snprintf(name, size, "%s", found);
                code = OK;
            }
        }
    }
    END;
}

#include "setters.h"
