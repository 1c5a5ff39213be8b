/*
 * The clock that calls are timed with: the processor's time-stamp counter, where tlsdyno has found that it runs at one
 * rate whatever the processor does, else the CPU time of the thread, which costs ten times as much to read.
 *
 * The counter is read without waiting for the instructions before it (RDTSC, not RDTSCP): that costs half, and moves
 * the ends of a call of microseconds by some nanoseconds.
 */
#include "profiler.h"

static uint32_t chosen = PROFILER_CLOCK_THREAD; /* written in init, under its lock */

#if defined(__x86_64__)
static inline uint64_t counter(void)
{
    return __builtin_ia32_rdtsc();
}
static const bool HAS_COUNTER = true;
#elif defined(__aarch64__)
static inline uint64_t counter(void)
{
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
static const bool HAS_COUNTER = true;
#else
static inline uint64_t counter(void)
{
    return 0;
}
static const bool HAS_COUNTER = false;
#endif

void clock_choose(uint32_t wanted)
{
    chosen = wanted == PROFILER_CLOCK_TSC && HAS_COUNTER ? PROFILER_CLOCK_TSC : PROFILER_CLOCK_THREAD;
}

bool clock_counts_interruptions(void)
{
    return chosen == PROFILER_CLOCK_TSC;
}

uint64_t clock_ticks(void)
{
    return chosen == PROFILER_CLOCK_TSC ? counter() : clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void clock_calibrate(uint64_t *ticks_per_s, uint64_t *empty_ticks)
{
    enum { READINGS = 2000, CALIBRATION_NS = 5000000 };
    uint64_t began_ns = clock_ns(CLOCK_MONOTONIC_RAW);
    uint64_t began = counter();
    uint64_t sum = 0;
    uint64_t now_ns;

    for (int i = 0; i < READINGS; i++) {
        uint64_t first = clock_ticks();

        sum += clock_ticks() - first;
    }
    *empty_ticks = sum / READINGS;
    do
        now_ns = clock_ns(CLOCK_MONOTONIC_RAW);
    while (now_ns - began_ns < CALIBRATION_NS);
    *ticks_per_s = 1000000000u;
    if (chosen == PROFILER_CLOCK_TSC)
        *ticks_per_s = (uint64_t)((double)(counter() - began) * 1e9 / (double)(now_ns - began_ns));
}
