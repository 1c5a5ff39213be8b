/*
 * The area in this process: acknowledgement, settings and counters (../shim_record.h).
 *
 * The mapping is made before the server's first instruction and survives fork, setuid and chroot. Each thread claims a
 * slot at its first count, so that counting is one relaxed atomic addition to a cache line of its own.
 */
#include "shim.h"

#include <pthread.h>
#include <sys/mman.h>

struct tlsdyno_shim_area *area;

uint32_t off_bits;
uint32_t flag_bits;

static SHIM_THREAD_LOCAL struct tlsdyno_shim_slot *own_slot;

void count(enum tlsdyno_shim_counter counter)
{
    if (own_slot == NULL)
        own_slot = area->slots
                   + atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed) % TLSDYNO_SHIM_SLOTS;
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

const char *area_map(const char *descriptor, const char *run_id)
{
    struct tlsdyno_shim_area *candidate;
    const char *fault;

    if (descriptor == NULL || run_id == NULL)
        return "TLSDYNO_SHIM or TLSDYNO_SHIM_ACKNOWLEDGE is missing in its environment";
    candidate = area_from_descriptor(descriptor, sizeof(*candidate));
    if (candidate == NULL)
        return "the descriptor that TLSDYNO_SHIM numbers is not an area of tlsdyno; tlsdyno must start the server "
               "itself, without a program between that closes descriptors (sudo, a service manager)";
    fault = head_fault(&candidate->head, TLSDYNO_SHIM_MAGIC, TLSDYNO_SHIM_ABI_VERSION, TLSDYNO_SHIM_SLOTS, run_id);
    if (fault == NULL && pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0)
        fault = "finds no memory for a fork handler";
    if (fault != NULL) {
        munmap(candidate, sizeof(*candidate));
        return fault;
    }
    area = candidate;
    off_bits = candidate->stages_off;
    if (stage_is_off(SHIM_STAGE_HANDSHAKE)) /* no keys were negotiated */
        off_bits |= 1u << SHIM_STAGE_MARSHALLING;
    flag_bits = candidate->flags;
    return NULL;
}
