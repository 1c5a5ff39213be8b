/*
 * The area in this process: acknowledgement, settings and counters (../shim_record.h).
 *
 * The mapping is made before the server's first instruction and survives fork, setuid and chroot; the descriptor does
 * not stay open. Each thread claims a slot at its first count, so that counting is one relaxed atomic addition to a cache
 * line of its own.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Reads /proc/PID/stat into `text`, which is then terminated. */
static bool read_process_status(char *text, size_t size, uint64_t pid)
{
    char path[64];
    ssize_t length;
    int descriptor;

    snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    length = read(descriptor, text, size - 1);
    close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Whether the process lives and is the one that started at `start_ticks`: a pid alone may have been given to another. */
static bool process_lives(uint64_t pid, uint64_t start_ticks)
{
    enum { STATE_TO_START_FIELDS = 19 }; /* proc(5): state is field 3, start time field 22 */
    char text[1024];
    char *field;

    if (!read_process_status(text, sizeof(text), pid))
        return false;
    field = strrchr(text, ')'); /* the command name before it may hold spaces and brackets */
    if (field == NULL || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
        return false;
    field += 2;
    for (int i = 0; i < STATE_TO_START_FIELDS; i++) {
        field = strchr(field, ' ');
        if (field == NULL)
            return false;
        field++;
    }
    return strtoull(field, NULL, 10) == start_ticks;
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
