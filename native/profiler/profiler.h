/*
 * tlsdyno profiler: wraps OpenSSL's default provider and times the calls into it (docs/PROFILE.md). Nothing in it can
 * replace a component or change a result, so that a server with it is as secure as one without.
 *
 * A server must not be worse off for it: without an area, or when its owner has ended, it is the default provider.
 */
#ifndef TLSDYNO_PROFILER_H
#define TLSDYNO_PROFILER_H

/* The few bytes fit into what the loader keeps for libraries that come late. */
#define SLOT_STORAGE _Thread_local __attribute__((tls_model("initial-exec")))

#include "../profiler_record.h"
#include "../wrapping/wrapping.h"

/* area.c */
void area_look_for(const struct section *section);
bool area_is_there(void);
/* Tells the reader which functions stand behind a trampoline; in init only. */
void area_name_trampoline(size_t index, enum profiler_class class);
uint32_t mode_now(void);
/* The counts of the calling thread. */
struct profiler_slot *slot_of_thread(void);
/* Whether other threads write them too. */
bool slot_is_shared(const struct profiler_slot *slot);
/* Ticks from which on a call may have been interrupted. */
uint64_t interrupted_ticks(void);

/* interruptions.c: whether the calling thread had its processor all the time between these two calls. */
bool interruptions_look_for(void); /* whether that can be told; in init only */
void interruptions_watch(void);
bool interruptions_were_seen(void);

/* clock.c */
void clock_choose(uint32_t wanted);
uint64_t clock_ticks(void);
/* Whether it goes on while the thread does not. */
bool clock_counts_interruptions(void);
/* Ticks of a second, and between two readings with nothing in between. Takes some milliseconds. */
void clock_calibrate(uint64_t *ticks_per_s, uint64_t *empty_ticks);

/*
 * trampolines.c: a function that calls `real` and times it; `real` itself where there are no trampolines left.
 * `class_of_size`: of calls with nothing as second argument, which only ask for a size. `length_argument` numbers the
 * argument, from 0, that says on how many bytes it works; negative: none does.
 */
function *trampoline_to(function *real, enum profiler_class class, enum profiler_class class_of_size,
                        int length_argument);

/* operations.c: which functions of which algorithms of an operation are timed. NULL (raised) on failure. */
const OSSL_ALGORITHM *timed_algorithms(int operation, const OSSL_ALGORITHM *originals);

#endif
