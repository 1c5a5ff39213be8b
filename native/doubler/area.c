/*
 * The doubler's area in this process: mode, owner and call counters (doubler_record.h). An area that is missing is no
 * reason to refuse: the server then gets the default provider.
 */
#include "doubler.h"

static const uint32_t MODES = ((1u << STAGE_TOTAL) - 1) | DOUBLER_MODE_COPIES;

static struct doubler_record *area;

void area_look_for(const struct section *section)
{
    static const struct area_kind kind
        = {sizeof(struct doubler_record), DOUBLER_MAGIC, DOUBLER_ABI_VERSION, DOUBLER_SLOTS};

    if (area == NULL)
        area = area_find(&kind, section, "tlsdyno doubles nothing in this process");
}

bool area_is_there(void)
{
    return area != NULL;
}

bool area_is_alive(void)
{
    return owner_lives(&area->head);
}

uint32_t mode_now(void)
{
    uint32_t mode = mode_of(&area->head, MODES);

    return mode != 0 && owner_lives(&area->head) ? mode : 0;
}

static struct doubler_slot *slot(void)
{
    return &area->slots[slot_number(&area->head.slots_claimed) % DOUBLER_SLOTS];
}

void count_calls(enum doubler_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot()->calls[counter], amount, memory_order_relaxed);
}

void count_doubled(enum doubler_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot()->doubled[counter], amount, memory_order_relaxed);
}
