/* A stand-in for libcuda.so.1, as small as the tests allow: device memory is a memfd per allocation,
 * an exported descriptor is that memfd, and a device address is a host address that is mapped only
 * as far as cuMemSetAccess allowed. So bytes, sharing between processes, access and the lifetime of
 * memory behave as the driver's documentation says; speed, faults of kernels and real
 * fragmentation do not. What a caller does wrong is answered with the driver's own error.
 *
 * STANDIN_CUDA scripts it: init, init_after, total, foreign, largest, granularity, vmm,
 * lost_after (calls that copy), pin_most, pin_nth, pin_seconds, readonly; and which error a call
 * returns: reserve, map, access, export, stream.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "script.h"

#define SCRIPT(key, otherwise) scripted("STANDIN_CUDA", key, otherwise)
#define EXPORTED __attribute__((visibility("default")))

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
       INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ECC_UNCORRECTABLE = 214, INVALID_HANDLE = 400,
       NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, ALREADY_REGISTERED = 712, NOT_SUPPORTED = 801,
       DRIVER_MISMATCH = 803 };
enum { PINNED = 1, POSIX_FD = 1, DEVICE = 1, READ = 1, READ_WRITE = 3, MOST = 4096 };

typedef struct { int type, id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *meta;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;
typedef struct { int fd, handles, maps, is_exportable, is_ours; size_t size; } Memory;
typedef struct { uintptr_t address; size_t size; Memory *memory; int access; } Mapping;
typedef struct { uintptr_t address; size_t size; } Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *memories[MOST];
static Mapping mappings[MOST];
static Range reservations[MOST];
static struct { void *address; size_t size; } pins[MOST];
static int is_initialized, inits, copies, pin_calls, contexts, streams;
static size_t used;
static __thread void *current;

static long long granularity(void) { return SCRIPT("granularity", 2 << 20); }

static int ready(void) {
    if (!is_initialized) return NOT_INITIALIZED;
    return current ? OK : INVALID_CONTEXT;
}

static int find_memory(uint64_t handle) {
    return handle && handle < MOST && memories[handle] && memories[handle]->handles ? (int)handle : 0;
}

static uint64_t keep(Memory memory) {
    for (uint64_t handle = 1; handle < MOST; handle++)
        if (!memories[handle]) {
            memories[handle] = malloc(sizeof memory);
            *memories[handle] = memory;
            return handle;
        }
    abort();
}

static void drop_if_unused(Memory *memory) {
    if (memory->handles || memory->maps) return;
    if (memory->is_ours) used -= memory->size;
    close(memory->fd);
    for (int i = 1; i < MOST; i++)
        if (memories[i] == memory) memories[i] = NULL;
    free(memory);
}

EXPORTED int cuInit(unsigned flags) {
    long long after = SCRIPT("init_after", 0);
    if (flags) return INVALID_VALUE;
    inits++;
    if (SCRIPT("init", 0) && inits > after) return (int)SCRIPT("init", 0);
    is_initialized = 1;
    return OK;
}

EXPORTED int cuDriverGetVersion(int *version) { *version = 13000; return OK; }

EXPORTED int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == DRIVER_MISMATCH ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : error == ECC_UNCORRECTABLE ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR_UNKNOWN";
    return OK;
}

EXPORTED int cuGetErrorString(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory"
          : error == DRIVER_MISMATCH ? "system has unsupported display driver / cuda driver combination"
          : error == ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered" : "unknown error";
    return OK;
}

EXPORTED int cuDeviceGetCount(int *count) {
    if (!is_initialized) return NOT_INITIALIZED;
    *count = (int)SCRIPT("devices", 1);
    return OK;
}

EXPORTED int cuDeviceGet(int *device, int ordinal) {
    if (!is_initialized) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= SCRIPT("devices", 1)) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

EXPORTED int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "Stand-in %d", device);
    return OK;
}

EXPORTED int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(i + 1);
    uuid[15] = (unsigned char)device;
    return OK;
}

EXPORTED int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORTED int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 102 || attribute == 103 ? (int)SCRIPT("vmm", 1) : 0;
    return OK;
}

EXPORTED int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!is_initialized) return NOT_INITIALIZED;
    contexts++;
    *context = (void *)(uintptr_t)(0x1000 + device);
    return OK;
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (!contexts) return INVALID_CONTEXT;
    contexts--;
    return OK;
}

EXPORTED int cuCtxSetCurrent(void *context) { current = context; return OK; }

EXPORTED int cuCtxSynchronize(void) { return ready(); }

EXPORTED int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    if (ready()) return ready();
    *total = SCRIPT("total", 8LL << 30);
    *free_bytes = *total - SCRIPT("foreign", 0) - used;
    return OK;
}

EXPORTED int cuMemGetAllocationGranularity(size_t *size, const Properties *properties, int option) {
    if (!is_initialized) return NOT_INITIALIZED;
    if (properties->type != PINNED || properties->location.type != DEVICE || option > 1)
        return INVALID_VALUE;
    *size = granularity();
    return OK;
}

EXPORTED int cuMemCreate(uint64_t *handle, size_t size, const Properties *properties,
                         unsigned long long flags) {
    if (ready()) return ready();
    if (flags || !size || size % granularity() || properties->type != PINNED ||
        properties->location.type != DEVICE || properties->meta)
        return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    long long room = SCRIPT("total", 8LL << 30) - SCRIPT("foreign", 0) - (long long)used;
    if ((long long)size > room || (long long)size > SCRIPT("largest", room)) {
        pthread_mutex_unlock(&lock);
        return OUT_OF_MEMORY;
    }
    int fd = memfd_create("standin-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size)) abort();
    used += size;
    *handle = keep((Memory){fd, 1, 0, properties->handle_types & POSIX_FD, 1, size});
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORTED int cuMemRelease(uint64_t handle) {
    pthread_mutex_lock(&lock);
    int found = find_memory(handle);
    if (found) {
        memories[found]->handles--;
        drop_if_unused(memories[found]);
    }
    pthread_mutex_unlock(&lock);
    return found ? OK : INVALID_VALUE;
}

EXPORTED int cuMemAddressReserve(uintptr_t *address, size_t size, size_t alignment, uintptr_t hint,
                                 unsigned long long flags) {
    if (ready()) return ready();
    if (SCRIPT("reserve", OK)) return (int)SCRIPT("reserve", OK);
    if (!size || size % granularity() || alignment % granularity() || hint || flags) return INVALID_VALUE;
    /* Device addresses are aligned to the granularity, host addresses to pages. */
    size_t slack = granularity();
    char *found = mmap(NULL, size + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return OUT_OF_MEMORY;
    size_t before = (slack - (uintptr_t)found % slack) % slack;
    if (before) munmap(found, before);
    if (slack - before) munmap(found + before + size, slack - before);
    pthread_mutex_lock(&lock);
    *address = (uintptr_t)found + before;
    for (int i = 0; i < MOST; i++)
        if (!reservations[i].size) {
            reservations[i] = (Range){*address, size};
            break;
        }
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORTED int cuMemAddressFree(uintptr_t address, size_t size) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (mappings[i].size && mappings[i].address < address + size && mappings[i].address >= address) {
            pthread_mutex_unlock(&lock);
            return INVALID_VALUE;
        }
    for (int i = 0; i < MOST; i++)
        if (reservations[i].size && reservations[i].address == address && reservations[i].size == size) {
            munmap((void *)address, size);
            reservations[i].size = 0;
            result = OK;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static int is_reserved(uintptr_t address, size_t size) {
    for (int i = 0; i < MOST; i++)
        if (reservations[i].size && address >= reservations[i].address &&
            address + size <= reservations[i].address + reservations[i].size)
            return 1;
    return 0;
}

EXPORTED int cuMemMap(uintptr_t address, size_t size, size_t offset, uint64_t handle,
                      unsigned long long flags) {
    if (ready()) return ready();
    if (SCRIPT("map", OK)) return (int)SCRIPT("map", OK);
    pthread_mutex_lock(&lock);
    int found = find_memory(handle), result = INVALID_VALUE;
    if (found && !offset && !flags && size == memories[found]->size && is_reserved(address, size))
        for (int i = 0; i < MOST; i++)
            if (!mappings[i].size) {
                mappings[i] = (Mapping){address, size, memories[found], 0};
                memories[found]->maps++;
                result = OK;
                break;
            }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int cuMemUnmap(uintptr_t address, size_t size) {
    size_t done = 0;
    if (ready()) return ready();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (mappings[i].size && mappings[i].address >= address && mappings[i].address < address + size) {
            mmap((void *)mappings[i].address, mappings[i].size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            done += mappings[i].size;
            mappings[i].size = 0;
            mappings[i].memory->maps--;
            drop_if_unused(mappings[i].memory);
        }
    pthread_mutex_unlock(&lock);
    return done == size ? OK : INVALID_VALUE;
}

EXPORTED int cuMemSetAccess(uintptr_t address, size_t size, const Access *access, size_t count) {
    size_t done = 0;
    if (ready()) return ready();
    if (SCRIPT("access", OK)) return (int)SCRIPT("access", OK);
    if (count != 1 || access->location.type != DEVICE ||
        (access->flags != READ && access->flags != READ_WRITE))
        return INVALID_VALUE;
    if (access->flags == READ && !SCRIPT("readonly", 1)) return NOT_SUPPORTED;
    int protection = PROT_READ | (access->flags == READ_WRITE ? PROT_WRITE : 0);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (mappings[i].size && mappings[i].address >= address && mappings[i].address < address + size) {
            mmap((void *)mappings[i].address, mappings[i].size, protection, MAP_SHARED | MAP_FIXED,
                 mappings[i].memory->fd, 0);
            mappings[i].access = access->flags;
            done += mappings[i].size;
        }
    pthread_mutex_unlock(&lock);
    return done == size ? OK : INVALID_VALUE;
}

EXPORTED int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                          unsigned long long flags) {
    if (SCRIPT("export", OK)) return (int)SCRIPT("export", OK);
    pthread_mutex_lock(&lock);
    int found = find_memory(handle), result = INVALID_VALUE;
    if (found && type == POSIX_FD && !flags && memories[found]->is_exportable) {
        *(int *)shareable = dup(memories[found]->fd);
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type) {
    struct stat state;
    if (ready()) return ready();
    int fd = dup((int)(intptr_t)shareable);
    if (fd < 0 || type != POSIX_FD || fstat(fd, &state) || !state.st_size) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *handle = keep((Memory){fd, 1, 0, 0, 0, (size_t)state.st_size});
    pthread_mutex_unlock(&lock);
    return OK;
}

/* A copy needs the whole range mapped, with the access that it takes. */
static int may_copy(uintptr_t address, size_t size, int access) {
    if (ready()) return ready();
    if (SCRIPT("lost_after", 0) && ++copies > SCRIPT("lost_after", 0)) return ECC_UNCORRECTABLE;
    pthread_mutex_lock(&lock);
    size_t covered = 0;
    for (int i = 0; i < MOST; i++) {
        Mapping *m = &mappings[i];
        if (!m->size || m->address >= address + size || m->address + m->size <= address) continue;
        uintptr_t from = m->address > address ? m->address : address;
        uintptr_t to = m->address + m->size < address + size ? m->address + m->size : address + size;
        if ((m->access & access) == access) covered += to - from;
    }
    pthread_mutex_unlock(&lock);
    return covered == size ? OK : ILLEGAL_ADDRESS;
}

EXPORTED int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t size) {
    int result = may_copy(to, size, READ_WRITE);
    if (!result) memcpy((void *)to, from, size);
    return result;
}

EXPORTED int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t size, void *stream) {
    return stream ? cuMemcpyHtoD_v2(to, from, size) : INVALID_HANDLE;
}

EXPORTED int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t size) {
    int result = may_copy(from, size, READ);
    if (!result) memcpy(to, (void *)from, size);
    return result;
}

EXPORTED int cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    if (ready()) return ready();
    if (!size || flags > 7) return INVALID_VALUE;
    sleep((unsigned)SCRIPT("pin_seconds", 0));
    pthread_mutex_lock(&lock);
    int result = OUT_OF_MEMORY, failing = ++pin_calls == SCRIPT("pin_nth", 0);
    size_t pinned = size;
    for (int i = 0; i < MOST; i++) pinned += pins[i].size;
    if (!failing && (long long)pinned <= SCRIPT("pin_most", 1LL << 40))
        for (int i = 0; i < MOST; i++)
            if (!pins[i].size) {
                *address = malloc(size);
                pins[i].address = *address;
                pins[i].size = size;
                result = OK;
                break;
            }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int cuMemFreeHost(void *address) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (pins[i].size && pins[i].address == address) {
            free(address);
            pins[i].size = 0;
            result = OK;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int cuStreamCreate(void **stream, unsigned flags) {
    if (ready()) return ready();
    if (SCRIPT("stream", OK)) return (int)SCRIPT("stream", OK);
    if (flags > 1) return INVALID_VALUE;
    streams++;
    *stream = malloc(1);
    return OK;
}

EXPORTED int cuStreamDestroy_v2(void *stream) {
    if (!stream) return INVALID_HANDLE;
    streams--;
    free(stream);
    return OK;
}

EXPORTED int cuStreamSynchronize(void *stream) { return stream ? OK : INVALID_HANDLE; }

/* For tests: what a caller has not given back. */
EXPORTED void standin_live(long long counts[6]) {
    memset(counts, 0, 6 * sizeof *counts);
    for (int i = 0; i < MOST; i++) {
        counts[0] += memories[i] != NULL;
        counts[1] += mappings[i].size != 0;
        counts[2] += reservations[i].size != 0;
        counts[3] += pins[i].size != 0;
    }
    counts[4] = streams;
    counts[5] = contexts;
}

EXPORTED int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                 int *status) {
    char versioned[128];
    (void)version, (void)flags;
    snprintf(versioned, sizeof versioned, "%s_v2", symbol);
    *function = dlsym(RTLD_DEFAULT, versioned);
    if (!*function) *function = dlsym(RTLD_DEFAULT, symbol);
    if (status) *status = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
