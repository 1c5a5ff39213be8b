/*
 * The arithmetic of the accelerator's engines in virtual time: nothing waits here. Threads that ask at the same instant
 * leave no gap and no overlap, so that N engines do N operations in each operation time.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "../provider/engines.h"
#include "check.h"

enum { ENGINES = 3, THREADS = 8, EACH = 300, OPERATION_NS = 1000, NOW_NS = 5000 };

static _Atomic uint64_t busy_until_ns[ENGINES];
static _Atomic uint32_t done_at[NOW_NS + THREADS * EACH + 1];

static void one_after_the_other(void)
{
    _Atomic uint64_t busy[2] = {0, 0};

    CHECK(engines_reserve(busy, 2, 100, 10) == 110);
    CHECK(engines_reserve(busy, 2, 100, 10) == 110); /* the other engine */
    CHECK(engines_reserve(busy, 2, 100, 10) == 120); /* both are taken */
    CHECK(engines_reserve(busy, 2, 113, 10) == 123); /* the second one is free since 110 */
    CHECK(engines_reserve(busy, 2, 500, 10) == 510); /* idle time is lost, as in hardware */
}

static void *ask(void *argument)
{
    (void)argument;
    for (int i = 0; i < EACH; i++) {
        uint64_t done = engines_reserve(busy_until_ns, ENGINES, NOW_NS, OPERATION_NS);

        CHECK((done - NOW_NS) % OPERATION_NS == 0 && done > NOW_NS);
        atomic_fetch_add(&done_at[(done - NOW_NS) / OPERATION_NS], 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    one_after_the_other();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int slot = 1; slot <= THREADS * EACH / ENGINES; slot++)
        CHECK(done_at[slot] == ENGINES);
    return 0;
}
