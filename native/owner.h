/*
 * The head of an area that tlsdyno shares with the processes of a server (record.h, shim_record.h), and the rules by
 * which provider and shim accept one: it is the run's acknowledgement.
 *
 * An area is a memory file, sealed at its size and handed to the server as an open descriptor. So no other user can
 * open it, nobody can truncate it under the server, and a copy of it (a file) is refused. It works while its owner, the
 * tlsdyno process that made it, writes a heartbeat into it.
 *
 * In a header, because each library is linked from its own folder. native/src/area.rs is the other side.
 */
#ifndef TLSDYNO_OWNER_H
#define TLSDYNO_OWNER_H

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

#define TLSDYNO_RUN_ID_SIZE 64u
#define TLSDYNO_HEARTBEAT_MAX_AGE_NS 1000000000u /* the owner writes one every 100 ms */

struct tlsdyno_head {
    char magic[8];
    uint32_t abi_version;
    uint32_t slot_count;
    uint64_t owner_pid;
    uint64_t owner_start_ticks; /* clock ticks after boot: field 22 of /proc/PID/stat, proc(5) */
    char run_id[TLSDYNO_RUN_ID_SIZE]; /* NUL-padded; at least one NUL */
    _Atomic uint64_t heartbeat_ns; /* nanoseconds of CLOCK_MONOTONIC_COARSE: when the owner last lived */
    uint32_t owner_user; /* its effective user id */
    _Atomic uint32_t mode; /* bit set of the stages that are off now; only those that the area's library may switch */
    /*
     * Slots before this number belong, or belonged, to a thread. Of provider, doubler and shim it may be beyond the
     * last: a thread takes the number that it finds modulo slot_count.
     */
    _Atomic uint32_t slots_claimed;
    _Atomic uint32_t modes_ignored; /* readings of a mode with bits of other stages than may be off */
};

/* What a library demands of its area. */
struct area_kind {
    size_t size;
    char magic[8];
    uint32_t abi_version;
    uint32_t slots;
};

static_assert(ATOMIC_INT_LOCK_FREE == 2, "the mode is shared between processes, so it must be lock-free");

/* Reads /proc/PID/stat into `text`, which is then terminated. */
static inline bool read_process_status(char *text, size_t size, uint64_t pid)
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

/*
 * Whether the process lives and is the one that started at `start_ticks`: a pid alone may have been given to another.
 */
static inline bool process_lives(uint64_t pid, uint64_t start_ticks)
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

/*
 * Whether the owner has lived within the last second. Asked once for an operation of a handshake, never for a record.
 *
 * The coarse clock is a few instructions in the vDSO; owner and server read the same one, so a heartbeat never lies in
 * the future. The owner writes through the kernel, which does not promise that eight bytes appear at once: an old
 * heartbeat is read again before it counts.
 */
static inline bool owner_lives(const struct tlsdyno_head *head)
{
    enum { LOOKS = 3 };

    for (int look = 0; look < LOOKS; look++) {
        uint64_t heartbeat_ns = atomic_load_explicit(&head->heartbeat_ns, memory_order_acquire);

        if (clock_ns(CLOCK_MONOTONIC_COARSE) - heartbeat_ns <= TLSDYNO_HEARTBEAT_MAX_AGE_NS)
            return true;
    }
    return false;
}

/*
 * The area of `size` bytes behind the descriptor that `text` numbers, mapped; NULL if there is none. The descriptor
 * stays open: a server that executes itself anew (haproxy's master) needs it again.
 */
static inline void *area_from_descriptor(const char *text, size_t size)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct stat status;
    char *end;
    long descriptor = strtol(text, &end, 10);
    int found;
    void *mapping;

    if (end == text || *end != '\0' || descriptor < 0 || descriptor > INT32_MAX)
        return NULL;
    found = fcntl((int)descriptor, F_GET_SEALS);
    if (found < 0 || (found & seals) != seals || fstat((int)descriptor, &status) != 0 || status.st_size != (off_t)size)
        return NULL;
    mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, (int)descriptor, 0);
    return mapping == MAP_FAILED ? NULL : mapping;
}

/*
 * The stages that are off now: what the owner has written last, but never more than `may_be_off`, which was fixed when
 * the library was loaded. Other bits are ignored, and counted. All stages fit into one byte, so that a word that is
 * being written is never a mixture of two.
 */
static inline uint32_t mode_of(struct tlsdyno_head *head, uint32_t may_be_off)
{
    uint32_t mode = atomic_load_explicit(&head->mode, memory_order_relaxed);

    if ((mode & ~may_be_off) != 0)
        atomic_fetch_add_explicit(&head->modes_ignored, 1, memory_order_relaxed);
    return mode & may_be_off;
}

/* Why this area does not acknowledge the run in this process; NULL if it does. */
static inline const char *head_fault(const struct tlsdyno_head *head, const struct area_kind *kind, const char *run_id)
{
    if (memcmp(head->magic, kind->magic, sizeof(head->magic)) != 0)
        return "is not an area of this library";
    if (head->abi_version != kind->abi_version || head->slot_count != kind->slots)
        return "is of another version of tlsdyno";
    if (head->run_id[TLSDYNO_RUN_ID_SIZE - 1] != '\0' || strcmp(head->run_id, run_id) != 0)
        return "belongs to another run";
    /* What root starts may already have become the user of a server's workers. */
    if (head->owner_user != 0 && head->owner_user != geteuid())
        return "belongs to another user";
    if (!process_lives(head->owner_pid, head->owner_start_ticks))
        return "was made by a tlsdyno process that has ended";
    if (!owner_lives(head))
        return "was made by a tlsdyno process that has given no sign of life for a second";
    return NULL;
}

/* The area that acknowledges this run in this process; NULL, and why it is none, if it does not. */
static inline void *area_open(const struct area_kind *kind, const char *descriptor, const char *run_id,
                              const char **fault)
{
    void *area = area_from_descriptor(descriptor, kind->size);

    *fault = area == NULL ? "is not an area of tlsdyno; tlsdyno must start the server itself, without a program "
                            "between that closes descriptors (sudo, a service manager)"
                          : head_fault(area, kind, run_id);
    if (area == NULL || *fault == NULL)
        return area;
    munmap(area, kind->size);
    return NULL;
}

#endif
