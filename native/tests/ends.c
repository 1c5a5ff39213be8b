/*
 * More threads than the profiler has slots, one after the other and then all at once: each of them generates two keys,
 * and so does each of a few children, one of which is forked from a thread.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

enum { IN_ALL = 600, AT_ONCE = 300, CHILDREN = 3 };

static pthread_barrier_t all_are_there;

static void generate(void)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519", NULL);

    CHECK(key != NULL);
    EVP_PKEY_free(key);
}

static void *alone(void *unused)
{
    generate();
    generate();
    return unused;
}

static void *among_others(void *unused)
{
    generate();
    pthread_barrier_wait(&all_are_there);
    generate();
    return unused;
}

/* In a child: its first thread ends like any other, and the process only then. */
static void *outlives(void *first)
{
    CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
    _exit(0);
}

static void *forks(void *unused)
{
    static pthread_t first, second;
    pid_t child;
    int status;

    generate();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        generate();
        generate();
        first = pthread_self();
        CHECK(pthread_create(&second, NULL, outlives, &first) == 0);
        pthread_exit(NULL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    generate();
    return unused;
}

static void run(void *(*what)(void *), size_t count)
{
    pthread_t threads[AT_ONCE];

    for (size_t i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, what, NULL) == 0);
    for (size_t i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    CHECK(pthread_barrier_init(&all_are_there, NULL, AT_ONCE) == 0);
    for (size_t i = 0; i < IN_ALL; i++)
        run(alone, 1);
    run(among_others, AT_ONCE);
    for (size_t i = 0; i < CHILDREN; i++)
        run(forks, 1);
    printf("keys %d\n", 2 * (IN_ALL + AT_ONCE + 2 * CHILDREN));
    return 0;
}
