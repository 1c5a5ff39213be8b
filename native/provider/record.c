/*
 * The record area in this process: acknowledgement, settings and call counters (record.h). Each thread claims a slot at
 * its first counted call, so that counting is one relaxed atomic addition to a cache line of its own.
 */
#include "provider.h"

#include <sys/mman.h>

static struct tlsdyno_record *area;
static struct tlsdyno_settings kept;

bool record_map(const struct section *section, bool again)
{
    static const struct area_kind kind
        = {sizeof(struct tlsdyno_record), TLSDYNO_MAGIC, TLSDYNO_ABI_VERSION, TLSDYNO_SLOTS};
    const char *run_id;

    if (!again) {
        area = area_map(&kind, section);
        if (area != NULL)
            kept = area->settings;
        return area != NULL;
    }
    /* A second library context of this process reads the same openssl.cnf: there is one state. */
    run_id = section_want(section, "acknowledge");
    if (run_id == NULL || strcmp(run_id, area->head.run_id) == 0)
        return run_id != NULL;
    raise_error(REASON_CONFIGURATION, "this process already loaded the provider with other settings");
    return false;
}

void record_unmap(void)
{
    munmap(area, sizeof(*area));
    area = NULL;
}

const struct tlsdyno_settings *settings(void)
{
    return &kept;
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
    return mode_of(&area->head, kept.may_be_off);
}

uint64_t burn_ns_now(uint64_t most_ns)
{
    uint64_t wanted_ns = atomic_load_explicit(&area->burn_ns, memory_order_relaxed);

    return wanted_ns < most_ns ? wanted_ns : most_ns;
}

static struct tlsdyno_slot *slot(void)
{
    return &area->slots[slot_number(&area->head.slots_claimed) % TLSDYNO_SLOTS];
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
_Atomic uint64_t *engine_words(void)
{
    return area->engine_words;
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
