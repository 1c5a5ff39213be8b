/*
 * The profiler's area: one sealed memory file, made by tlsdyno and mapped (MAP_SHARED) by the profiler in every process
 * of the server. It is the place of the mode (whether calls are timed now), of the clock's rate, and of what each class
 * of provider functions has taken.
 *
 * tlsdyno learns this layout from layout.c. Whoever changes it raises PROFILER_ABI_VERSION. Nobody resets the area
 * (record.h).
 */
#ifndef TLSDYNO_PROFILER_RECORD_H
#define TLSDYNO_PROFILER_RECORD_H

#include "owner.h"
#include "stages.h"

#define PROFILER_MAGIC "TLSDYN3" /* with its NUL: 8 bytes */
#define PROFILER_ABI_VERSION 3u
#define PROFILER_SLOTS 256u
#define PROFILER_SLOT_SHARED 0u
#define PROFILER_CLASSES_MAX 31u
#define PROFILER_TRAMPOLINES 512u

/* Bits of the mode. */
#define PROFILER_MODE_TIMED 0x01u

/*
 * Of calls that are shorter than 0.3 us one in so many is timed, and all are counted: the clock would cost as much as
 * they do.
 */
#define PROFILER_SHORT_EVERY 16u

/*
 * A call during which the processor was given to somebody else is left out of the times, and counted. The kernel says
 * which ones those are (interruptions.c); where it does not, and for what a hypervisor takes, it is a call that took
 * this long, and so many times the mean of its class.
 */
#define PROFILER_INTERRUPTED_NS 50000u
#define PROFILER_INTERRUPTED_TIMES 8u
#define PROFILER_INTERRUPTED_AFTER 16u /* timed calls of its class, before which there is no mean */

enum profiler_class {
#define PROFILER_CLASS_ID(id, ...) PROFILER_CLASS_##id,
    PROFILER_CLASSES(PROFILER_CLASS_ID)
#undef PROFILER_CLASS_ID
    PROFILER_CLASS_TOTAL
};

/* What one thread has done in one class of functions while calls were timed. */
struct profiler_count {
    _Atomic uint64_t calls;
    _Atomic uint64_t timed; /* calls of them that were timed */
    _Atomic uint64_t ticks; /* of those */
    _Atomic uint64_t bytes; /* that all of them worked on, where the function has a length */
};

/*
 * The counts of one thread, and of those before it that had the slot: a thread gives it back when it ends. Only their
 * own thread writes them, so that an addition needs no lock, except in the slot PROFILER_SLOT_SHARED: that belongs to
 * all threads that found no other, and every access to it is atomic.
 */
struct profiler_slot {
    struct profiler_count classes[PROFILER_CLASSES_MAX];
    _Atomic uint64_t interrupted; /* timed calls that are in no time, with the clock of the processor only */
    uint64_t reserved[3];
};

struct profiler_record {
    struct tlsdyno_head head;
    _Atomic uint32_t claims; /* of slots so far */
    uint32_t clock; /* which clock to read: PROFILER_CLOCK_; tlsdyno's choice */
    _Atomic uint64_t ticks_per_s; /* of that clock; 0: not loaded yet */
    _Atomic uint64_t empty_ticks; /* between two readings with nothing in between */
    /* For each trampoline the class of its function, plus one; 0: unused. Set before the provider is handed out. */
    unsigned char trampoline_classes[PROFILER_TRAMPOLINES];
    /* The claim by which a thread has its slot; 0: nobody has it. Who ends gives back its own claim and no other. */
    _Atomic uint32_t slot_claims[PROFILER_SLOTS];
    _Atomic uint32_t sees_interruptions; /* 1: the kernel tells which calls were interrupted */
    unsigned char reserved[4096 - 148 - PROFILER_TRAMPOLINES - 4 * PROFILER_SLOTS];
    struct profiler_slot slots[PROFILER_SLOTS];
};

/* The processor's own clock, where it is invariant; else the CPU time of the calling thread. */
#define PROFILER_CLOCK_THREAD 0u
#define PROFILER_CLOCK_TSC 1u

static_assert(PROFILER_CLASS_TOTAL <= PROFILER_CLASSES_MAX, "a slot is too small");
static_assert(sizeof(struct profiler_slot) == 1024, "slots are multiples of a cache line");
static_assert(offsetof(struct profiler_record, slots) == 4096, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counts are shared between processes, so they must be lock-free");

#endif
