/*
 * The arithmetic of the accelerator's engines in virtual time: nothing waits here. Threads that ask at the same instant
 * leave no gap and no overlap, so that N engines do N operations in each operation time.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "../provider/engines.h"
#include "check.h"

/* Instants are multiples of 16 ns. */
enum { ENGINES = 3, THREADS = 8, EACH = 300, OPERATION_NS = 1600, NOW_NS = 8000 };

static _Atomic uint64_t words[ENGINES];
static _Atomic uint32_t done_at[NOW_NS + THREADS * EACH + 1];

static bool reserved(_Atomic uint64_t *of, const struct tlsdyno_accelerator *is, uint64_t now_ns, uint64_t done_ns,
                     uint64_t members)
{
    uint64_t word = engines_reserve(of, is, now_ns);

    return engines_done_ns(word) == done_ns && (word & ENGINES_MEMBERS_MASK) == members;
}

static void one_after_the_other(void)
{
    static const struct tlsdyno_accelerator TWO = {.engines = 2, .batch = 1, .operation_ns = 160};
    _Atomic uint64_t of[2] = {0, 0};

    CHECK(reserved(of, &TWO, 1600, 1760, 1));
    CHECK(reserved(of, &TWO, 1600, 1760, 1)); /* the other engine */
    CHECK(reserved(of, &TWO, 1600, 1920, 1)); /* both are taken */
    CHECK(reserved(of, &TWO, 1792, 1952, 1)); /* the second one is free since 1760 */
    CHECK(reserved(of, &TWO, 8000, 8160, 1)); /* idle time is lost, as in hardware */
    CHECK(reserved(of, &TWO, 9001, 9168, 1)); /* never less than its time */
}

static void in_batches(void)
{
    static const struct tlsdyno_accelerator GATHERS = {
        .engines = 1, .batch = 3, .operation_ns = 1600, .gather_ns = 320};
    static const struct tlsdyno_accelerator GOES_AT_ONCE = {.engines = 2, .batch = 2, .operation_ns = 1600};
    _Atomic uint64_t of[2] = {0, 0};

    CHECK(reserved(of, &GATHERS, 1600, 3520, 1));
    CHECK(reserved(of, &GATHERS, 1760, 3520, 2)); /* it has not begun */
    CHECK(reserved(of, &GATHERS, 1920, 5120, 1)); /* it begins now: the next one waits for the engine */
    CHECK(reserved(of, &GATHERS, 3000, 5120, 2));
    CHECK(reserved(of, &GATHERS, 3000, 5120, 3));
    CHECK(reserved(of, &GATHERS, 3000, 6720, 1)); /* the second one is full */
    CHECK(reserved(of, &GATHERS, 6720, 8640, 1)); /* idle again: it gathers */

    of[0] = 0;
    CHECK(reserved(of, &GOES_AT_ONCE, 1600, 3200, 1));
    CHECK(reserved(of, &GOES_AT_ONCE, 1600, 3200, 1)); /* an engine that is free is better than a batch */
    CHECK(reserved(of, &GOES_AT_ONCE, 1616, 4800, 1));
    CHECK(reserved(of, &GOES_AT_ONCE, 1632, 4800, 2)); /* who waits anyway goes together */
    CHECK(reserved(of, &GOES_AT_ONCE, 1648, 4800, 1));
}

static void *ask(void *argument)
{
    const struct tlsdyno_accelerator *is = argument;

    for (int i = 0; i < EACH; i++) {
        uint64_t done = engines_done_ns(engines_reserve(words, is, NOW_NS));

        CHECK((done - NOW_NS) % OPERATION_NS == 0 && done > NOW_NS);
        atomic_fetch_add(&done_at[(done - NOW_NS) / OPERATION_NS], 1);
    }
    return NULL;
}

/* All ask at the same instant: the engines, which are idle, begin with one operation each, then with full batches. */
static void together(uint32_t batch)
{
    struct tlsdyno_accelerator is = {.engines = ENGINES, .batch = batch, .operation_ns = OPERATION_NS};
    pthread_t threads[THREADS];
    uint32_t left = THREADS * EACH;

    memset(words, 0, sizeof(words));
    memset(done_at, 0, sizeof(done_at));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, &is) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int slot = 1; left > 0; slot++) {
        uint32_t most = ENGINES * (slot == 1 ? 1 : batch), expected = left < most ? left : most;

        CHECK(done_at[slot] == expected);
        left -= expected;
    }
}

int main(void)
{
    one_after_the_other();
    in_batches();
    together(1);
    together(4);
    return 0;
}
