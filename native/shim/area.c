/*
 * The area in this process: acknowledgement, settings and counters (../shim_record.h).
 *
 * The mapping is made before the server's first instruction and survives fork, setuid and chroot. Each thread claims a
 * slot at its first count, so that counting is one relaxed atomic addition to a cache line of its own.
 */
#include "shim.h"

#include <pthread.h>

struct tlsdyno_shim_area *area;

uint32_t may_be_off;
uint32_t flag_bits;

static SHIM_THREAD_LOCAL struct tlsdyno_shim_slot *own_slot;

void count(enum tlsdyno_shim_counter counter)
{
    if (own_slot == NULL)
        own_slot = area->slots
                   + atomic_fetch_add_explicit(&area->head.slots_claimed, 1, memory_order_relaxed) % TLSDYNO_SHIM_SLOTS;
    atomic_fetch_add_explicit(&own_slot->counts[counter], 1, memory_order_relaxed);
}

/* The child's only thread is the one that forked; it must not share a slot with its parent. */
static void forget_slot_after_fork(void)
{
    own_slot = NULL;
}

bool acknowledged(void)
{
    return owner_lives(&area->head);
}

/* Skeleton handshakes negotiate no keys. */
static uint32_t with_what_they_imply(uint32_t stages)
{
    return is_off(stages, SHIM_STAGE_HANDSHAKE) ? stages | 1u << SHIM_STAGE_MARSHALLING : stages;
}

/*
 * A word that is no mode by itself becomes one: the perfect cache rewrites the server's SSL_CTX for good, and so is the
 * same in every mode; minimal set-up leaves nothing for other stages to do; a fast resumption is followed by plain
 * data.
 */
uint32_t mode_now(void)
{
    uint32_t mode = with_what_they_imply(mode_of(&area->head, may_be_off));

    if (is_off(mode, SHIM_STAGE_SETUP))
        mode = 1u << SHIM_STAGE_SETUP;
    if (!is_off(mode, SHIM_STAGE_MARSHALLING))
        mode &= ~(1u << SHIM_STAGE_ROUND_TRIP);
    return mode | (may_be_off & 1u << SHIM_STAGE_SESSION_CACHE);
}

const char *area_map(const char *descriptor, const char *run_id)
{
    static const struct area_kind kind
        = {sizeof(*area), TLSDYNO_SHIM_MAGIC, TLSDYNO_SHIM_ABI_VERSION, TLSDYNO_SHIM_SLOTS};
    const char *fault;

    if (descriptor == NULL || run_id == NULL)
        return "TLSDYNO_SHIM or TLSDYNO_SHIM_ACKNOWLEDGE is missing in its environment";
    if (pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0)
        return "it finds no memory for a fork handler";
    area = area_open(&kind, descriptor, run_id, &fault);
    if (area == NULL)
        return fault;
    may_be_off = with_what_they_imply(area->stages_off);
    flag_bits = area->flags;
    return NULL;
}
