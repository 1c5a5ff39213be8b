/*
 * The area in this process: acknowledgement, settings and counters (../shim_record.h).
 *
 * The mapping is made before the server's first instruction and survives fork, setuid and chroot; the descriptor does
 * not stay open. Each thread claims a slot at its first count, so that counting is one relaxed atomic addition to a cache
 * line of its own.
 */
#include "shim.h"
#include "../owner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct tlsdyno_shim_area *area;

uint32_t off_bits;
uint32_t flag_bits;

static SHIM_THREAD_LOCAL struct tlsdyno_shim_slot *own_slot;

void count(enum tlsdyno_shim_counter counter)
{
    if (own_slot == NULL)
        own_slot = &area->slots[atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed) % TLSDYNO_SHIM_SLOTS];
    atomic_fetch_add_explicit(&own_slot->counts[counter], 1, memory_order_relaxed);
}

/* The child's only thread is the one that forked; it must not share a slot with its parent. */
static void forget_slot_after_fork(void)
{
    own_slot = NULL;
}

static const char *fault_of(const struct tlsdyno_shim_area *candidate, const char *run_id)
{
    if (memcmp(candidate->magic, TLSDYNO_SHIM_MAGIC, sizeof(candidate->magic)) != 0)
        return "the file that TLSDYNO_SHIM names is no area of tlsdyno's shim";
    if (candidate->abi_version != TLSDYNO_SHIM_ABI_VERSION || candidate->slot_count != TLSDYNO_SHIM_SLOTS)
        return "the file that TLSDYNO_SHIM names is of another version of tlsdyno";
    if (candidate->run_id[TLSDYNO_SHIM_RUN_ID_SIZE - 1] != '\0' || strcmp(candidate->run_id, run_id) != 0)
        return "the file that TLSDYNO_SHIM names belongs to another run than TLSDYNO_SHIM_ACKNOWLEDGE";
    if (!process_lives(candidate->owner_pid, candidate->owner_start_ticks))
        return "the tlsdyno process that made the file that TLSDYNO_SHIM names has ended";
    return NULL;
}

static void *map_file(const char *path)
{
    struct stat status;
    void *mapping = MAP_FAILED;
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (descriptor < 0)
        return NULL;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == (off_t)sizeof(*area))
        mapping = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    return mapping == MAP_FAILED ? NULL : mapping;
}

const char *area_map(const char *path, const char *run_id)
{
    struct tlsdyno_shim_area *candidate;
    const char *fault;

    if (path == NULL || run_id == NULL)
        return "TLSDYNO_SHIM or TLSDYNO_SHIM_ACKNOWLEDGE is missing in its environment";
    if (path[0] != '/')
        return "TLSDYNO_SHIM must be an absolute path";
    candidate = map_file(path);
    if (candidate == NULL)
        return "the file that TLSDYNO_SHIM names cannot be mapped, or is no area of tlsdyno's shim";
    fault = fault_of(candidate, run_id);
    if (fault == NULL && pthread_atfork(NULL, NULL, forget_slot_after_fork) != 0)
        fault = "no memory for a fork handler";
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
