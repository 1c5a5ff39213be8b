/*
 * The record area: one sealed memory file, made by tlsdyno for one configuration of one run and mapped (MAP_SHARED) by
 * the provider in every process of the server. It is the provider's acknowledgement (owner.h), its settings, and the
 * place of the mode (which of its stages are off now) and of its call counters.
 *
 * tlsdyno learns this layout from layout.c. Whoever changes it raises TLSDYNO_ABI_VERSION. Nobody resets the area: init
 * may run twice (haproxy re-executes its master) and teardown runs first in a process that is not serving.
 */
#ifndef TLSDYNO_RECORD_H
#define TLSDYNO_RECORD_H

#include "owner.h"
#include "stages.h"

#define TLSDYNO_MAGIC "TLSDYNO" /* with its NUL: 8 bytes */
#define TLSDYNO_ABI_VERSION 7u
#define TLSDYNO_SLOTS 512u
#define TLSDYNO_SLOT_COUNTERS 32u
#define TLSDYNO_ENGINES_MAX 64u
#define TLSDYNO_BATCH_MAX 15u

/*
 * Behind the counters of the stages: what emulated hardware did. Times in nanoseconds.
 *     X(name in C, name in reports)
 */
#define TLSDYNO_HARDWARE_COUNTERS(X)                                                                                   \
    X(ACCELERATED, "accelerated")                 /* private-key operations of the accelerator */                      \
    X(ACCELERATOR_BATCHES, "accelerator_batches") /* batches that they made; of one at a time, as many */           \
    X(ACCELERATED_ASYNC, "accelerated_async")     /* those of them during which the server went on */                  \
    X(ACCELERATOR_WAIT_NS, "accelerator_wait_ns") /* between asking and the end of the operation, as reserved */       \
    X(BURNS, "burns")                             /* private-key operations that burnt CPU time in addition */         \
    X(BURNT_NS, "burnt_ns")                       /* CPU time that they burnt */

enum tlsdyno_counter {
#define TLSDYNO_COUNTER_ID(id, ...) TLSDYNO_COUNT_##id,
    TLSDYNO_COUNTERS(TLSDYNO_COUNTER_ID)
    TLSDYNO_HARDWARE_COUNTERS(TLSDYNO_COUNTER_ID)
#undef TLSDYNO_COUNTER_ID
    TLSDYNO_COUNTER_TOTAL
};

/* The last counter of a slot numbers the words that the no-op random generator has drawn; it is not a call counter. */
#define TLSDYNO_RANDOM_WORDS (TLSDYNO_SLOT_COUNTERS - 1)

/* The counters of one thread. A slot is shared by several threads once all are claimed, so every access is atomic. */
struct tlsdyno_slot {
    _Atomic uint64_t calls[TLSDYNO_SLOT_COUNTERS];
};

/* An emulated accelerator. Times in nanoseconds. */
struct tlsdyno_accelerator {
    uint32_t engines;      /* 0: no accelerator */
    uint32_t batch;        /* operations that an engine does at once, at most; 1: one */
    uint64_t operation_ns; /* of one private-key operation, or one batch, in one engine */
    uint64_t gather_ns;    /* how long the first of a batch waits for others; 0: only while its engine works */
};

/* What the provider is to do, written before a server starts and read once, in init. */
struct tlsdyno_settings {
    uint32_t may_be_off; /* bit set of enum stage: of these the mode chooses */
    struct tlsdyno_accelerator accelerator;
    uint64_t burn_ns; /* CPU time that each private-key operation burns in addition, at most; 0: none */
    uint64_t burn_instructions; /* executed in addition by each private-key operation that is computed; 0: none */
};

struct tlsdyno_record {
    struct tlsdyno_head head;
    struct tlsdyno_settings settings;
    _Atomic uint64_t burn_ns; /* what a private-key operation burns by now; at most the setting */
    /* The last batch of each engine of the emulated accelerator, by CLOCK_MONOTONIC (engines.h); 0: never used. */
    _Atomic uint64_t engine_words[TLSDYNO_ENGINES_MAX];
    unsigned char reserved[4096 - 176 - 8 * TLSDYNO_ENGINES_MAX];
    struct tlsdyno_slot slots[TLSDYNO_SLOTS];
};

static_assert(STAGE_TOTAL <= 8, "a mode that is being written would be a mixture of two");
static_assert(TLSDYNO_COUNTER_TOTAL <= TLSDYNO_RANDOM_WORDS, "a slot is too small");
static_assert(sizeof(struct tlsdyno_slot) == 256, "slots are multiples of a cache line");
static_assert(offsetof(struct tlsdyno_record, slots) == 4096, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters are shared between processes, so they must be lock-free");

#endif
