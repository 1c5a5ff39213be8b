/*
 * The area that tlsdyno shares with this process (owner.h), whatever the library keeps in it. The mapping is made in
 * init and survives fork, setuid and chroot.
 */
#include "../owner.h"
#include "wrapping.h"

#include <pthread.h>

#include <openssl/err.h>

_Thread_local uint32_t slot_after_claim;

/* The child's only thread is the one that forked; it must not share a slot with its parent. */
static void forget_slot_after_fork(void)
{
    slot_after_claim = 0;
}

/* Once, as it cannot be taken back. */
static bool forget_slots_of_forks(void)
{
    static bool registered; /* under the lock of init */

    if (!registered)
        registered = pthread_atfork(NULL, NULL, forget_slot_after_fork) == 0;
    if (!registered)
        raise_error(REASON_NO_MEMORY, "fork handler");
    return registered;
}

void *area_map(const struct area_kind *kind, const char *descriptor, const char *run_id)
{
    void *area = area_from_descriptor(descriptor, kind->size);
    const char *fault;

    if (area == NULL) {
        raise_error(REASON_NOT_ACKNOWLEDGED,
                    "descriptor %s is not an area of tlsdyno; tlsdyno must start the server itself, without a program "
                    "between that closes descriptors (sudo, a service manager)",
                    descriptor);
        return NULL;
    }
    fault = head_fault(area, kind->magic, kind->abi_version, kind->slots, run_id);
    if (fault != NULL)
        raise_error(REASON_NOT_ACKNOWLEDGED, "the area at descriptor %s %s", descriptor, fault);
    else if (forget_slots_of_forks())
        return area;
    munmap(area, kind->size);
    return NULL;
}

void *area_find(const struct area_kind *kind, const struct section *section, const char *otherwise)
{
    const char *descriptor;
    const char *run_id;
    void *area;

    ERR_set_mark();
    descriptor = section_want(section, "descriptor");
    run_id = descriptor == NULL ? NULL : section_want(section, "acknowledge");
    area = run_id == NULL ? NULL : area_map(kind, descriptor, run_id);
    if (area == NULL)
        errors_complain(otherwise);
    ERR_pop_to_mark();
    return area;
}
