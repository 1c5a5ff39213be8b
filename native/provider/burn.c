/*
 * Burns a known amount of CPU time: a cost of which the truth is known, to calibrate the instrument with.
 */
#include "provider.h"

/* CPU time of this thread, which preemption does not count in. */
static uint64_t thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * Reads the clock until the time is up. Readings are the work: n of them after the first span n times the cost of one,
 * and what lies before the first and after the last adds up to one more. It ends when one more would miss the wanted
 * time by more than stopping does, so that the mean over many operations is what was asked for.
 */
void burn_cpu(uint64_t wanted_ns)
{
    uint64_t start = thread_cpu_ns();
    uint64_t readings = 0;
    uint64_t spent, each;

    do {
        readings++;
        spent = thread_cpu_ns() - start;
        each = spent / readings;
    } while (spent + each + each / 2 < wanted_ns);
    count_call(TLSDYNO_COUNT_BURNS);
    count_amount(TLSDYNO_COUNT_BURNT_NS, spent + each);
}

/* Instructions of a turn of the loop below, as gcc and clang make it: subtract, jump. */
enum { BURN_TURN = 2 };

/* Of these the number is known whatever the machine does, for whoever counts instructions instead of time. */
void burn_instructions(uint64_t wanted)
{
    for (uint64_t left = wanted / BURN_TURN; left != 0; left--)
        __asm__ volatile("" : "+r"(left));
}
