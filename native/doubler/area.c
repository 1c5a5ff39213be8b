/*
 * The doubler's area in this process: mode, owner and call counters (doubler_record.h). As in native/provider/record.c,
 * but an area that is missing is no reason to refuse: the server then gets the default provider.
 */
#include "doubler.h"

#include <pthread.h>
#include <sys/mman.h>

static const uint32_t MODES = ((1u << STAGE_TOTAL) - 1) | DOUBLER_MODE_COPIES;

static struct doubler_record *area;
static _Thread_local struct doubler_slot *own_slot;

struct doubler_record *area_map(const char *descriptor, const char *run_id)
{
    struct doubler_record *record = area_from_descriptor(descriptor, sizeof(*record));
    const char *fault;

    if (record == NULL) {
        raise_error(REASON_NOT_ACKNOWLEDGED,
                    "descriptor %s is not an area of tlsdyno; tlsdyno must start the server itself, without a program "
                    "between that closes descriptors (sudo, a service manager)",
                    descriptor);
        return NULL;
    }
    fault = head_fault(&record->head, DOUBLER_MAGIC, DOUBLER_ABI_VERSION, DOUBLER_SLOTS, run_id);
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

bool area_use(struct doubler_record *record)
{
    if (pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0) {
        raise_error(REASON_NO_MEMORY, "fork handler");
        munmap(record, sizeof(*record));
        return false;
    }
    area = record;
    return true;
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
    uint32_t mode = mode_of(&area->head, MODES, &area->modes_ignored);

    return mode != 0 && owner_lives(&area->head) ? mode : 0;
}

static struct doubler_slot *slot(void)
{
    if (own_slot == NULL)
        own_slot
            = &area->slots[atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed) % DOUBLER_SLOTS];
    return own_slot;
}

void count_calls(enum doubler_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot()->calls[counter], amount, memory_order_relaxed);
}

void count_doubled(enum doubler_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot()->doubled[counter], amount, memory_order_relaxed);
}
