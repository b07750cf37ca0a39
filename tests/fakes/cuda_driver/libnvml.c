/* A stand-in for libnvidia-ml.so.1: one card, or one with MIG instances.
 *
 * STANDIN_NVML scripts it: init, init_after (calls of init that succeed), memory (error of the
 * card's memory query), mig (number of instances), total, used, query (error of every query).
 */
#include <stdio.h>

#include "script.h"

#define SCRIPT(key, otherwise) scripted("STANDIN_NVML", key, otherwise)
#define EXPORTED __attribute__((visibility("default")))

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, GPU_IS_LOST = 15, MISMATCH = 18 };
typedef struct { unsigned long long total, free, used; } Memory;

static int sessions, inits;
static char cards[17];

static int ready(void) { return sessions ? (int)SCRIPT("query", OK) : UNINITIALIZED; }

EXPORTED int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (SCRIPT("init", OK) && ++inits > SCRIPT("init_after", 0)) return (int)SCRIPT("init", OK);
    sessions++;
    return OK;
}

EXPORTED int nvmlShutdown(void) {
    if (!sessions) return UNINITIALIZED;
    sessions--;
    return OK;
}

EXPORTED int standin_sessions(void) { return sessions; }

EXPORTED const char *nvmlErrorString(int error) {
    return error == MISMATCH ? "Driver/library version mismatch"
         : error == GPU_IS_LOST ? "GPU is lost" : "error";
}

EXPORTED int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return ready(); }

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) {
    *card = &cards[0];
    return index ? INVALID_ARGUMENT : ready();
}

EXPORTED int nvmlDeviceGetUUID(void *card, char *uuid, unsigned length) {
    int number = (int)((char *)card - cards);
    snprintf(uuid, length, number ? "MIG-01020304-0506-0708-090a-0b0c0d0e0f%02x"
                                  : "GPU-01020304-0506-0708-090a-0b0c0d0e0f%02x", number);
    return ready();
}

EXPORTED int nvmlDeviceGetMemoryInfo(void *card, Memory *memory) {
    int is_parent = card == (void *)cards;
    if (is_parent && SCRIPT("memory", OK)) return (int)SCRIPT("memory", OK);
    memory->total = SCRIPT("total", 8LL << 30) / (is_parent ? 1 : 2);
    memory->used = SCRIPT("used", 0);
    memory->free = memory->total - memory->used;
    return ready();
}

EXPORTED int nvmlDeviceGetMigMode(void *card, unsigned *now, unsigned *pending) {
    (void)card;
    *now = *pending = SCRIPT("mig", 0) > 0;
    return SCRIPT("mig", -1) < 0 ? NOT_SUPPORTED : ready();
}

EXPORTED int nvmlDeviceGetMaxMigDeviceCount(void *card, unsigned *count) {
    (void)card;
    *count = 7;
    return ready();
}

EXPORTED int nvmlDeviceGetMigDeviceHandleByIndex(void *card, unsigned index, void **instance) {
    (void)card;
    *instance = &cards[index + 1];
    return index < SCRIPT("mig", 0) ? ready() : NOT_FOUND;
}
