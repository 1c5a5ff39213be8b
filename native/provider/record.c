/*
 * The record area in this process: acknowledgement and call counters (record.h).
 *
 * The mapping is made in init and survives fork, setuid and chroot. Each thread claims a slot at its first counted
 * call, so that counting is one relaxed atomic addition to a cache line of its own.
 */
#include "provider.h"

#include <pthread.h>
#include <sys/mman.h>

static struct tlsdyno_record *area;
static _Thread_local struct tlsdyno_slot *own_slot;

struct tlsdyno_record *record_map(const struct configuration *configuration)
{
    struct tlsdyno_record *record = area_from_descriptor(configuration->record_descriptor, sizeof(*record));
    const char *fault;

    if (record == NULL) {
        raise_error(REASON_NOT_ACKNOWLEDGED,
                    "descriptor %s is not an area of tlsdyno; tlsdyno must start the server itself, without a program "
                    "between that closes descriptors (sudo, a service manager)",
                    configuration->record_descriptor);
        return NULL;
    }
    fault = head_fault(&record->head, TLSDYNO_MAGIC, TLSDYNO_ABI_VERSION, TLSDYNO_SLOTS, configuration->run_id);
    if (fault == NULL)
        return record;
    raise_error(REASON_NOT_ACKNOWLEDGED, "the area at descriptor %s %s", configuration->record_descriptor, fault);
    record_unmap(record);
    return NULL;
}

void record_unmap(struct tlsdyno_record *record)
{
    munmap(record, sizeof(*record));
}

/* The child's only thread is the one that forked; it must not share a slot with its parent. */
static void forget_slot_after_fork(void)
{
    own_slot = NULL;
}

bool record_use(struct tlsdyno_record *record)
{
    if (pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0) {
        raise_error(REASON_NO_MEMORY, "fork handler");
        return false;
    }
    area = record;
    return true;
}

bool acknowledged(void)
{
    if (owner_lives(&area->head))
        return true;
    raise_error(REASON_NOT_ACKNOWLEDGED, "the tlsdyno process %llu has given no sign of life for a second",
                (unsigned long long)area->head.owner_pid);
    return false;
}

uint32_t mode_now(void)
{
    return mode_of(&area->head, settings()->may_be_off, &area->modes_ignored);
}

uint64_t burn_ns_now(uint64_t most_ns)
{
    uint64_t wanted_ns = atomic_load_explicit(&area->burn_ns, memory_order_relaxed);

    return wanted_ns < most_ns ? wanted_ns : most_ns;
}

static struct tlsdyno_slot *slot(void)
{
    if (own_slot == NULL)
        own_slot
            = &area->slots[atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed) % TLSDYNO_SLOTS];
    return own_slot;
}

void count_amount(enum tlsdyno_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot()->calls[counter], amount, memory_order_relaxed);
}

void count_call(enum tlsdyno_counter counter)
{
    count_amount(counter, 1);
}

/* Shared by all processes of the server, like the engines of a real accelerator. */
_Atomic uint64_t *engines_busy_until_ns(void)
{
    return area->engine_busy_until_ns;
}

/*
 * The first of `words` numbers that no other thread or process of this run draws: slot index above, the slot's own
 * count below.
 */
uint64_t next_counter_words(size_t words)
{
    struct tlsdyno_slot *mine = slot();
    uint64_t first = atomic_fetch_add_explicit(&mine->calls[TLSDYNO_RANDOM_WORDS], words, memory_order_relaxed);

    return ((uint64_t)(mine - area->slots) << 48) + first;
}
