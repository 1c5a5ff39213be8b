/*
 * The area that tlsdyno shares with this process (owner.h), whatever the library keeps in it. The mapping is made in
 * init and survives fork, setuid and chroot.
 */
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

void *area_map(const struct area_kind *kind, const struct section *section)
{
    const char *descriptor = section_want(section, "descriptor");
    const char *run_id = descriptor == NULL ? NULL : section_want(section, "acknowledge");
    const char *fault;
    void *area;

    if (run_id == NULL || !forget_slots_of_forks())
        return NULL;
    area = area_open(kind, descriptor, run_id, &fault);
    if (area == NULL)
        raise_error(REASON_NOT_ACKNOWLEDGED, "descriptor %s %s", descriptor, fault);
    return area;
}

void *area_find(const struct area_kind *kind, const struct section *section, const char *otherwise)
{
    void *area;

    ERR_set_mark();
    area = area_map(kind, section);
    if (area == NULL)
        errors_complain(otherwise);
    ERR_pop_to_mark();
    return area;
}
