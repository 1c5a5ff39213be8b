/*
 * The engines of an emulated accelerator: arithmetic only, so that it can be tested in virtual time.
 *
 * An engine works on one batch at a time. Its word says when the last batch is done, and in the lowest bits how many
 * operations that has. A batch begins when the engine is free and its first operation has waited long enough; a full
 * one waits, too, so that the end is known to each operation when it joins.
 */
#ifndef TLSDYNO_ENGINES_H
#define TLSDYNO_ENGINES_H

#include <stdatomic.h>
#include <stdint.h>

#include "../record.h"

enum { ENGINES_MEMBERS_MASK = 15 };
static_assert(TLSDYNO_BATCH_MAX <= ENGINES_MEMBERS_MASK, "the members of a batch stand in the lowest bits");

/* When the last batch of an engine is done. */
static inline uint64_t engines_done_ns(uint64_t word)
{
    return word & ~(uint64_t)ENGINES_MEMBERS_MASK;
}

/*
 * The engine for an operation at `now_ns`: one whose last batch has not begun and is not full, and of those the first
 * to begin; else the one that is free first. Others may take it meanwhile: the caller finds out. Answers its next word.
 */
static inline uint64_t engines_choose(const _Atomic uint64_t *words, const struct tlsdyno_accelerator *is,
                                      uint64_t now_ns, uint32_t *chosen, uint64_t *seen)
{
    uint64_t first_ns = UINT64_MAX, begins_ns = now_ns + is->gather_ns;
    bool joins = false;

    for (uint32_t i = 0; i < is->engines; i++) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed), done_ns = engines_done_ns(word);
        bool open = done_ns > now_ns + is->operation_ns && (word & ENGINES_MEMBERS_MASK) < is->batch;

        if (open > joins || (open == joins && done_ns < first_ns)) {
            *chosen = i;
            *seen = word;
            first_ns = done_ns;
            joins = open;
        }
    }
    if (joins)
        return *seen + 1;
    /* Rounded up, so that an engine never works for less than an operation takes. */
    begins_ns = first_ns > begins_ns ? first_ns : begins_ns;
    return engines_done_ns(begins_ns + is->operation_ns + ENGINES_MEMBERS_MASK) + 1;
}

/*
 * Takes a place in a batch for one operation, and answers the word of its engine: when it will be done, and how many
 * the batch has by now. Lock-free between all threads and processes that share `words`.
 */
static inline uint64_t engines_reserve(_Atomic uint64_t *words, const struct tlsdyno_accelerator *is, uint64_t now_ns)
{
    while (1) {
        uint32_t engine = 0;
        uint64_t seen = 0, next = engines_choose(words, is, now_ns, &engine, &seen);

        if (atomic_compare_exchange_weak_explicit(&words[engine], &seen, next, memory_order_relaxed,
                                                  memory_order_relaxed))
            return next;
    }
}

#endif
