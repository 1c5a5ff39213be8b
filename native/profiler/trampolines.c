/*
 * Functions between libcrypto and the default provider, each of which calls one function of the provider and times the
 * call. A provider function does not know of which algorithm it is, so that each needs a trampoline of its own.
 *
 * They pass eight words on, whatever the function takes: none takes more, and none takes anything but integers and
 * pointers. Calling a function through another type is outside of the C standard; with the calling conventions of
 * x86-64 and AArch64 words that it does not take do no harm, and a word is what it answers with.
 *
 * Calls within calls (a random generator that asks its parent) belong to the outer one.
 */
#include "profiler.h"

typedef uintptr_t word;
typedef word words_function(word, word, word, word, word, word, word, word);

/* Filled in init, constant afterwards. */
static struct timed {
    words_function *real;
    unsigned char class;         /* enum profiler_class */
    unsigned char class_of_size; /* of a call that only asks how long the answer would be: its second word is none */
    signed char length_argument;
} timed[PROFILER_TRAMPOLINES];
static size_t used;

static const bool IS_SHORT[] = {
#define PROFILER_CLASS_IS_SHORT(id, stage, name, is_short) is_short,
    PROFILER_CLASSES(PROFILER_CLASS_IS_SHORT)
#undef PROFILER_CLASS_IS_SHORT
};

static _Thread_local bool is_within __attribute__((tls_model("initial-exec")));

/* Answers what the count was before. Where only this thread writes it, that needs no lock. */
static uint64_t add(const struct profiler_slot *slot, _Atomic uint64_t *count, uint64_t amount)
{
    uint64_t before;

    if (slot_is_shared(slot))
        return atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
    before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + amount, memory_order_relaxed);
    return before;
}

/* NULL: the call is passed on and left alone. */
static struct profiler_slot *slot_now(void)
{
    return mode_now() == 0 || is_within ? NULL : slot_of_thread();
}

static unsigned char class_of(const struct timed *of, const word arguments[8])
{
    return arguments[1] == 0 ? of->class_of_size : of->class;
}

/* Counts a call, and says whether it is to be timed. */
static bool count(struct profiler_slot *slot, const struct timed *of, const word arguments[8])
{
    unsigned char class = class_of(of, arguments);
    struct profiler_count *of_class = &slot->classes[class];
    uint64_t calls = add(slot, &of_class->calls, 1);

    if (of->length_argument >= 0)
        add(slot, &of_class->bytes, arguments[of->length_argument]);
    return !IS_SHORT[class] || calls % PROFILER_SHORT_EVERY == 0;
}

static bool was_too_long(const struct profiler_count *of_class, uint64_t ticks)
{
    uint64_t timed_so_far;

    if (ticks < interrupted_ticks())
        return false;
    timed_so_far = atomic_load_explicit(&of_class->timed, memory_order_relaxed);
    return timed_so_far >= PROFILER_INTERRUPTED_AFTER
           && ticks / PROFILER_INTERRUPTED_TIMES
                  > atomic_load_explicit(&of_class->ticks, memory_order_relaxed) / timed_so_far;
}

static void time_call(struct profiler_slot *slot, unsigned char class, uint64_t ticks, bool was_interrupted)
{
    struct profiler_count *of_class = &slot->classes[class];

    if (clock_counts_interruptions() && (was_interrupted || was_too_long(of_class, ticks))) {
        add(slot, &slot->interrupted, 1);
        return;
    }
    add(slot, &of_class->ticks, ticks);
    add(slot, &of_class->timed, 1);
}

#if defined(__clang__)
#define ANY_TYPE __attribute__((no_sanitize("undefined")))
#else
#define ANY_TYPE
#endif

static ANY_TYPE word pass(const struct timed *of, const word arguments[8])
{
    struct profiler_slot *slot = slot_now();
    bool is_timed = slot != NULL && count(slot, of, arguments);
    uint64_t began = 0;
    word answer;

    if (is_timed) {
        is_within = true;
        interruptions_watch();
        began = clock_ticks();
    }
    answer = of->real(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6],
                      arguments[7]);
    if (is_timed) {
        uint64_t ended = clock_ticks();

        is_within = false;
        time_call(slot, class_of(of, arguments), ended - began, interruptions_were_seen());
    }
    return answer;
}

/*
 * The arguments stand in memory of the trampoline's own, so that it keeps its frame while the call lasts: whoever walks
 * the stack finds there of what class a sample is.
 */
#define TRAMPOLINE(n)                                                                                                  \
    static ANY_TYPE word trampoline_##n(word a, word b, word c, word d, word e, word f, word g, word h)                \
    {                                                                                                                  \
        const word arguments[8] = {a, b, c, d, e, f, g, h};                                                            \
                                                                                                                       \
        return pass(&timed[0##n], arguments);                                                                          \
    }
/* Numbered in octal: three digits count to 512. */
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define SIXTY_FOUR(X, n)                                                                                               \
    EIGHT(X, n##0) EIGHT(X, n##1) EIGHT(X, n##2) EIGHT(X, n##3) EIGHT(X, n##4) EIGHT(X, n##5) EIGHT(X, n##6)           \
    EIGHT(X, n##7)
#define ALL(X)                                                                                                         \
    SIXTY_FOUR(X, 0) SIXTY_FOUR(X, 1) SIXTY_FOUR(X, 2) SIXTY_FOUR(X, 3) SIXTY_FOUR(X, 4) SIXTY_FOUR(X, 5)              \
    SIXTY_FOUR(X, 6) SIXTY_FOUR(X, 7)

ALL(TRAMPOLINE)

static words_function *const TRAMPOLINES[] = {
#define TRAMPOLINE_ENTRY(n) trampoline_##n,
    ALL(TRAMPOLINE_ENTRY)
#undef TRAMPOLINE_ENTRY
};
static_assert(sizeof(TRAMPOLINES) / sizeof(TRAMPOLINES[0]) == PROFILER_TRAMPOLINES, "one for each place");

function *trampoline_to(function *real, enum profiler_class class, enum profiler_class class_of_size,
                        int length_argument)
{
    if (used == PROFILER_TRAMPOLINES)
        return real;
    timed[used] = (struct timed){
        .real = (words_function *)real,
        .class = (unsigned char)class,
        .class_of_size = (unsigned char)class_of_size,
        .length_argument = (signed char)length_argument,
    };
    area_name_trampoline(used, class);
    return FUNCTION(TRAMPOLINES[used++]);
}
