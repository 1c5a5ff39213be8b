/*
 * The profiler's area in this process (profiler_record.h). As in native/doubler/area.c, a missing area is no reason to
 * refuse: the server then gets the default provider.
 */
#include "profiler.h"

static struct profiler_record *area;
static uint64_t suspicious_ticks; /* constant after init */

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
    clock_choose(area->clock);
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
    return mode_of(&area->head, PROFILER_MODE_TIMED, &area->modes_ignored);
}

struct profiler_slot *slot_of_thread(void)
{
    bool claims = slot_after_claim == 0;
    uint32_t number = slot_number(&area->slots_claimed);

    if (number < PROFILER_SLOTS)
        return &area->slots[number];
    if (claims)
        atomic_fetch_add_explicit(&area->threads_lost, 1, memory_order_relaxed);
    return NULL;
}

uint64_t interrupted_ticks(void)
{
    return suspicious_ticks;
}
