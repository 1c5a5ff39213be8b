/* Threads that use everything at once; what they draw from the random generator never repeats. */
#include <pthread.h>
#include <stdint.h>

#include "work.h"

enum { THREADS = 8, ROUNDS = 50 };

static uint64_t words[THREADS * ROUNDS];

static void *run(void *argument)
{
    uint64_t *own = argument;

    for (size_t i = 0; i < ROUNDS; i++) {
        CHECK(RAND_bytes((unsigned char *)&own[i], sizeof(own[i])) == 1);
        work();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, words + i * ROUNDS) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    check_all_differ(words, THREADS * ROUNDS);
    return 0;
}
