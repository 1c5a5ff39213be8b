/*
 * The profiler's area in this process (profiler_record.h). As in native/doubler/area.c, a missing area is no reason to
 * refuse: the server then gets the default provider.
 */
#include "profiler.h"

#include <pthread.h>
#include <sys/mman.h>

static struct profiler_record *area;
static uint64_t suspicious_ticks; /* constant after init */

/* A slot of no thread: what has none. */
static struct profiler_slot no_slot;

/*
 * Static thread-local storage, as this is read in every call: the few bytes fit into what the loader keeps for
 * libraries that come late.
 */
static _Thread_local struct profiler_slot *own_slot __attribute__((tls_model("initial-exec")));

struct profiler_record *area_map(const char *descriptor, const char *run_id)
{
    struct profiler_record *record = area_from_descriptor(descriptor, sizeof(*record));
    const char *fault;

    if (record == NULL) {
        raise_error(REASON_NOT_ACKNOWLEDGED,
                    "descriptor %s is not an area of tlsdyno; tlsdyno must start the server itself, without a program "
                    "between that closes descriptors (sudo, a service manager)",
                    descriptor);
        return NULL;
    }
    fault = head_fault(&record->head, PROFILER_MAGIC, PROFILER_ABI_VERSION, PROFILER_SLOTS, run_id);
    if (fault == NULL)
        return record;
    raise_error(REASON_NOT_ACKNOWLEDGED, "the area at descriptor %s %s", descriptor, fault);
    munmap(record, sizeof(*record));
    return NULL;
}

/* The child's only thread is the one that forked; it must not share a slot with its parent. */
static void forget_slot_after_fork(void)
{
    own_slot = NULL;
}

bool area_use(struct profiler_record *record)
{
    uint64_t ticks_per_s;
    uint64_t empty_ticks;

    if (pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0) {
        raise_error(REASON_NO_MEMORY, "fork handler");
        munmap(record, sizeof(*record));
        return false;
    }
    clock_choose(record->clock);
    clock_calibrate(&ticks_per_s, &empty_ticks);
    suspicious_ticks = ticks_per_s / 1000000u * PROFILER_INTERRUPTED_NS / 1000u;
    atomic_store_explicit(&record->empty_ticks, empty_ticks, memory_order_relaxed);
    atomic_store_explicit(&record->ticks_per_s, ticks_per_s, memory_order_relaxed);
    area = record;
    return true;
}

bool area_is_there(void)
{
    return area != NULL;
}

void area_name_trampoline(size_t index, enum profiler_class class)
{
    area->trampoline_classes[index] = (unsigned char)(class + 1);
}

uint32_t mode_now(void)
{
    return mode_of(&area->head, PROFILER_MODE_TIMED, &area->modes_ignored);
}

static struct profiler_slot *claim_slot(void)
{
    uint32_t next = atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed);

    if (next < PROFILER_SLOTS)
        return &area->slots[next];
    atomic_fetch_add_explicit(&area->threads_lost, 1, memory_order_relaxed);
    return &no_slot;
}

struct profiler_slot *slot_of_thread(void)
{
    if (own_slot == NULL)
        own_slot = claim_slot();
    return own_slot == &no_slot ? NULL : own_slot;
}

uint64_t interrupted_ticks(void)
{
    return suspicious_ticks;
}
