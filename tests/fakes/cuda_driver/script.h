/* A stand-in's script: words "key=number" in one environment variable. */
#ifndef STAND_IN_SCRIPT_H
#define STAND_IN_SCRIPT_H

#include <stdlib.h>
#include <string.h>

static long long scripted(const char *variable, const char *key, long long otherwise) {
    const char *at = getenv(variable);
    size_t length = strlen(key);
    while (at && *at) {
        if (!strncmp(at, key, length) && at[length] == '=') return atoll(at + length + 1);
        at = strchr(at, ' ');
        if (at) at++;
    }
    return otherwise;
}

#endif
