/*
 * The doubler's area: one sealed memory file, made by tlsdyno and mapped (MAP_SHARED) by the doubler in every process
 * of the server. It is the place of the mode (which stages are computed twice now) and of the call counters.
 *
 * The mode has the bits of the stages in the order of stages.h, and DOUBLER_MODE_COPIES.
 *
 * tlsdyno learns this layout from layout.c. Whoever changes it raises DOUBLER_ABI_VERSION. Nobody resets the area
 * (record.h).
 */
#ifndef TLSDYNO_DOUBLER_RECORD_H
#define TLSDYNO_DOUBLER_RECORD_H

#include "owner.h"
#include "stages.h"

#define DOUBLER_MAGIC "TLSDYN2" /* with its NUL: 8 bytes */
#define DOUBLER_ABI_VERSION 3u
#define DOUBLER_SLOTS 512u
#define DOUBLER_SLOT_COUNTERS 24u

/*
 * Of records whose protection is not doubled: the second buffer and the copy of the input all the same, so that what
 * doubling costs besides computing can be measured. It stands behind the byte of the stages: of a word that is being
 * written one byte may be old, which is a mode, too.
 */
#define DOUBLER_MODE_COPIES 0x100u

/*
 * Behind the counters of the stages: what belongs to none.
 *     X(name in C, name in reports)
 */
#define DOUBLER_EVENTS(X)                                                                                              \
    X(COPIES, "copies") /* records that were copied and not computed twice */                                          \
    X(HALVES, "halves") /* contexts of AEADs and stitched CBC with only one of cipher and mac doubled: not doubled */  \
    X(LOST, "lost")     /* second computations that failed, or did not fit */

enum doubler_counter {
#define DOUBLER_COUNTER_ID(id, ...) DOUBLER_COUNT_##id,
    DOUBLER_COUNTERS(DOUBLER_COUNTER_ID)
    DOUBLER_EVENTS(DOUBLER_COUNTER_ID)
#undef DOUBLER_COUNTER_ID
    DOUBLER_COUNTER_TOTAL
};

/* The counters of one thread. A slot is shared by several threads once all are claimed, so every access is atomic. */
struct doubler_slot {
    _Atomic uint64_t calls[DOUBLER_SLOT_COUNTERS];
    _Atomic uint64_t doubled[DOUBLER_SLOT_COUNTERS]; /* those of them that were computed twice */
};

struct doubler_record {
    struct tlsdyno_head head;
    unsigned char reserved[4096 - 120];
    struct doubler_slot slots[DOUBLER_SLOTS];
};

static_assert(DOUBLER_COUNTER_TOTAL <= DOUBLER_SLOT_COUNTERS, "a slot is too small");
static_assert(sizeof(struct doubler_slot) == 384, "slots are multiples of a cache line");
static_assert(offsetof(struct doubler_record, slots) == 4096, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters are shared between processes, so they must be lock-free");

#endif
