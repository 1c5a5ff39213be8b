/*
 * The record area in this process: acknowledgement and call counters (record.h).
 *
 * The mapping is made in init and survives fork, setuid and chroot; the descriptor does not stay open. Each thread
 * claims a slot at its first counted call, so that counting is one relaxed atomic addition to a cache line of its own.
 */
#include "provider.h"
#include "../owner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tlsdyno_record *area;
static _Thread_local struct tlsdyno_slot *own_slot;

static bool acknowledged(const struct tlsdyno_record *record, const struct configuration *configuration)
{
    if (memcmp(record->magic, TLSDYNO_MAGIC, sizeof(record->magic)) != 0) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "%s is no record of tlsdyno", configuration->record_path);
        return false;
    }
    if (record->abi_version != TLSDYNO_ABI_VERSION || record->slot_count != TLSDYNO_SLOTS) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "%s is of another version of tlsdyno (layout %u, need %u)",
                    configuration->record_path, record->abi_version, TLSDYNO_ABI_VERSION);
        return false;
    }
    if (record->run_id[TLSDYNO_RUN_ID_SIZE - 1] != '\0' || strcmp(record->run_id, configuration->run_id) != 0) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "%s belongs to another run", configuration->record_path);
        return false;
    }
    if (!process_lives(record->owner_pid, record->owner_start_ticks)) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "the tlsdyno process %llu that made %s has ended",
                    (unsigned long long)record->owner_pid, configuration->record_path);
        return false;
    }
    return true;
}

static void *map_file(const char *path)
{
    struct stat status;
    void *mapping = MAP_FAILED;
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (descriptor < 0) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)
        && status.st_size == (off_t)sizeof(struct tlsdyno_record))
        mapping = mmap(NULL, sizeof(struct tlsdyno_record), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapping == MAP_FAILED) {
        raise_error(REASON_NOT_ACKNOWLEDGED, "%s is no record of tlsdyno, or cannot be mapped", path);
        return NULL;
    }
    return mapping;
}

struct tlsdyno_record *record_map(const struct configuration *configuration)
{
    struct tlsdyno_record *record;

    if (configuration->record_path[0] != '/') {
        raise_error(REASON_CONFIGURATION, "`record` must be an absolute path, not %s", configuration->record_path);
        return NULL;
    }
    record = map_file(configuration->record_path);
    if (record != NULL && !acknowledged(record, configuration)) {
        record_unmap(record);
        return NULL;
    }
    return record;
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

static struct tlsdyno_slot *slot(void)
{
    if (own_slot == NULL)
        own_slot = &area->slots[atomic_fetch_add_explicit(&area->slots_claimed, 1, memory_order_relaxed) % TLSDYNO_SLOTS];
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
