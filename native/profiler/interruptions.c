/*
 * Whether a call was interrupted: whether its thread lost the processor meanwhile, by being preempted or by waiting.
 * The processor's counter runs on then.
 *
 * The kernel tells by restartable sequences (rseq(2), for which the C library registers each thread): a thread names a
 * piece of code, and the kernel forgets the name when the thread comes back to the processor and is elsewhere. So a
 * name that is still there says that the thread never left. The piece named here is never executed. That costs two
 * writes and a reading in the thread's own memory.
 *
 * x86-64 only: a kernel ends a thread whose piece does not carry the mark of its C library, which is not tried here for
 * other processors.
 */
#include "profiler.h"

#if defined(__x86_64__) && defined(__GLIBC__)

#include <dlfcn.h>

#include <linux/rseq.h>

enum { MARK = 0x53053053 }; /* RSEQ_SIG of glibc for x86-64 */

/* Where the named piece lies, and where it would be left: behind the mark. */
static const struct {
    uint32_t piece;
    uint32_t mark;
    uint32_t end;
} nowhere = {0, MARK, 0};

/* Filled in init, constant afterwards. */
static struct rseq_cs name;
static ptrdiff_t area_offset; /* of the thread's area from its thread pointer */
static bool is_known;

static struct rseq *thread_area(void)
{
    char *thread_pointer;

    __asm__("mov %%fs:0, %0" : "=r"(thread_pointer));
    return (struct rseq *)(void *)(thread_pointer + area_offset);
}

static volatile uint64_t *named(void)
{
    return (volatile uint64_t *)(void *)((char *)thread_area() + offsetof(struct rseq, rseq_cs));
}

/* A thread that the C library did not make is not registered. */
static bool thread_is_registered(void)
{
    return is_known && (int32_t)*(volatile uint32_t *)&thread_area()->cpu_id >= 0;
}

bool interruptions_look_for(void)
{
    /* Not by their names: the library would not load beside an older C library. */
    const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
    const unsigned int *size = dlsym(RTLD_DEFAULT, "__rseq_size");

    if (offset == NULL || size == NULL || *size < offsetof(struct rseq, rseq_cs) + sizeof(uint64_t))
        return false;
    area_offset = *offset;
    name.start_ip = (uintptr_t)&nowhere.piece;
    name.post_commit_offset = sizeof(nowhere.piece);
    name.abort_ip = (uintptr_t)&nowhere.end;
    is_known = true;
    return thread_is_registered();
}

void interruptions_watch(void)
{
    if (thread_is_registered())
        *named() = (uintptr_t)&name;
}

/* Somebody else's name says nothing: an allocator may use such sequences too. */
bool interruptions_were_seen(void)
{
    uint64_t found;

    if (!thread_is_registered())
        return false;
    found = *named();
    if (found == (uintptr_t)&name)
        *named() = 0;
    return found == 0;
}

#else

bool interruptions_look_for(void)
{
    return false;
}

void interruptions_watch(void)
{
}

bool interruptions_were_seen(void)
{
    return false;
}

#endif
