/*
 * The engines of an emulated accelerator: arithmetic only, so that it can be tested in virtual time.
 */
#ifndef TLSDYNO_ENGINES_H
#define TLSDYNO_ENGINES_H

#include <stdatomic.h>
#include <stdint.h>

/* The engine that is free first. Others may take it meanwhile: the caller finds out. */
static inline uint32_t engines_first_free(const _Atomic uint64_t *busy_until_ns, uint32_t engines, uint64_t *until_ns)
{
    uint32_t first = 0;

    *until_ns = UINT64_MAX;
    for (uint32_t i = 0; i < engines; i++) {
        uint64_t until = atomic_load_explicit(&busy_until_ns[i], memory_order_relaxed);

        if (until < *until_ns) {
            *until_ns = until;
            first = i;
        }
    }
    return first;
}

/*
 * Takes the engine that is free first for one operation that cannot begin before `now_ns`, and answers when it will be
 * done. Lock-free between all threads and processes that share `busy_until_ns`.
 */
static inline uint64_t engines_reserve(_Atomic uint64_t *busy_until_ns, uint32_t engines, uint64_t now_ns,
                                       uint64_t operation_ns)
{
    while (1) {
        uint64_t until = 0;
        uint32_t engine = engines_first_free(busy_until_ns, engines, &until);
        uint64_t done = (until > now_ns ? until : now_ns) + operation_ns;

        if (atomic_compare_exchange_weak_explicit(&busy_until_ns[engine], &until, done, memory_order_relaxed,
                                                  memory_order_relaxed))
            return done;
    }
}

#endif
