/* Clocks in nanoseconds. */
#ifndef TLSDYNO_CLOCK_H
#define TLSDYNO_CLOCK_H

#include <stdint.h>
#include <time.h>

/* None of the clocks that are read here can fail. */
static inline uint64_t clock_ns(clockid_t which)
{
    struct timespec now;

    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
