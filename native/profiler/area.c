/*
 * The profiler's area in this process (profiler_record.h). As in native/doubler/area.c, a missing area is no reason to
 * refuse: the server then gets the default provider.
 */
#include "profiler.h"

#include <errno.h>
#include <pthread.h>

/* Constant after init. */
static struct profiler_record *area;
static uint64_t suspicious_ticks;
static pthread_key_t end_of_thread;
static bool ends_are_watched;

static SLOT_STORAGE uint32_t claim_of_slot;

/* Gives the slot of a thread that ends back, with what it holds. In a child of fork it is the parent's. */
static void give_slot_back(void *unused)
{
    uint32_t claim = claim_of_slot;

    (void)unused;
    if (slot_after_claim > PROFILER_SLOT_SHARED + 1)
        atomic_compare_exchange_strong_explicit(&area->slot_claims[slot_after_claim - 1], &claim, 0,
                                                memory_order_release, memory_order_relaxed);
    slot_after_claim = 0; /* other libraries' destructors may come later and call again */
}

/* Once, as it cannot be taken back. Without it a thread could not give a slot back, and so gets none of its own. */
static void watch_ends_of_threads(void)
{
    if (!ends_are_watched)
        ends_are_watched = pthread_key_create(&end_of_thread, give_slot_back) == 0;
}

void area_look_for(const struct section *section)
{
    static const struct area_kind kind
        = {sizeof(struct profiler_record), PROFILER_MAGIC, PROFILER_ABI_VERSION, PROFILER_SLOTS};
    uint64_t ticks_per_s;
    uint64_t empty_ticks;

    if (area != NULL)
        return;
    area = area_find(&kind, section, "tlsdyno times nothing in this process");
    if (area == NULL)
        return;
    watch_ends_of_threads();
    clock_choose(area->clock);
    atomic_store_explicit(&area->sees_interruptions, interruptions_look_for(), memory_order_relaxed);
    clock_calibrate(&ticks_per_s, &empty_ticks);
    suspicious_ticks = ticks_per_s / 1000000u * PROFILER_INTERRUPTED_NS / 1000u;
    atomic_store_explicit(&area->empty_ticks, empty_ticks, memory_order_relaxed);
    atomic_store_explicit(&area->ticks_per_s, ticks_per_s, memory_order_relaxed);
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
    return mode_of(&area->head, PROFILER_MODE_TIMED);
}

static void slot_is_used(uint32_t number)
{
    _Atomic uint32_t *slots_claimed = &area->head.slots_claimed;
    uint32_t before = atomic_load_explicit(slots_claimed, memory_order_relaxed);

    while (before <= number
           && !atomic_compare_exchange_weak_explicit(slots_claimed, &before, number + 1, memory_order_relaxed,
                                                     memory_order_relaxed))
        ;
}

/* A slot that nobody has, else the shared one. Whoever had it before has written all that it wrote. */
static uint32_t claim_slot(void)
{
    claim_of_slot = atomic_fetch_add_explicit(&area->claims, 1, memory_order_relaxed) + 1;
    if (claim_of_slot == 0 || !ends_are_watched || pthread_setspecific(end_of_thread, area) != 0)
        return PROFILER_SLOT_SHARED;
    for (uint32_t number = PROFILER_SLOT_SHARED + 1; number < PROFILER_SLOTS; number++) {
        uint32_t nobody = 0;

        if (atomic_load_explicit(&area->slot_claims[number], memory_order_relaxed) == 0
            && atomic_compare_exchange_strong_explicit(&area->slot_claims[number], &nobody, claim_of_slot,
                                                       memory_order_acquire, memory_order_relaxed))
            return number;
    }
    return PROFILER_SLOT_SHARED;
}

struct profiler_slot *slot_of_thread(void)
{
    if (slot_after_claim == 0) {
        int before = errno;

        slot_after_claim = claim_slot() + 1;
        slot_is_used(slot_after_claim - 1);
        errno = before;
    }
    return &area->slots[slot_after_claim - 1];
}

bool slot_is_shared(const struct profiler_slot *slot)
{
    return slot == &area->slots[PROFILER_SLOT_SHARED];
}

uint64_t interrupted_ticks(void)
{
    return suspicious_ticks;
}
