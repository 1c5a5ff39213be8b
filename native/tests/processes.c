/*
 * Forks while another thread uses the provider: the children go on working, and what parent and children draw from the
 * random generator never repeats. That thread uses only what is fetched and initialised already: libcrypto's own locks
 * are not made for such a fork and would stay locked in the child, with any provider. AddressSanitizer's allocator is
 * not either (clang 14), unlike glibc's and jemalloc's: under it the thread stands between two digests while the
 * process forks.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

enum { CHILDREN = 4, ROUNDS = 50 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STANDS_STILL_AT_FORK 1
#endif
#endif

static atomic_bool begun, stop;
#ifdef STANDS_STILL_AT_FORK
static pthread_mutex_t digesting = PTHREAD_MUTEX_INITIALIZER;
#endif

static void lock_digesting(void)
{
#ifdef STANDS_STILL_AT_FORK
    CHECK(pthread_mutex_lock(&digesting) == 0);
#endif
}

static void unlock_digesting(void)
{
#ifdef STANDS_STILL_AT_FORK
    CHECK(pthread_mutex_unlock(&digesting) == 0);
#endif
}

static void *keep_digesting(void *digest)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char out[EVP_MAX_MD_SIZE];

    CHECK(context != NULL);
    while (!stop) {
        lock_digesting();
        CHECK(EVP_DigestInit_ex(context, digest, NULL) == 1);
        CHECK(EVP_DigestFinal_ex(context, out, NULL) == 1);
        unlock_digesting();
        begun = true;
    }
    EVP_MD_CTX_free(context);
    return NULL;
}

static void draw(uint64_t *words)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        CHECK(RAND_bytes((unsigned char *)&words[i], sizeof(words[i])) == 1);
        work_digest();
    }
    work();
}

int main(void)
{
    size_t size = (CHILDREN + 1) * ROUNDS * sizeof(uint64_t);
    uint64_t *words = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EVP_MD *digest = EVP_MD_fetch(NULL, "SHA2-256", NULL);
    pthread_t worker;

    CHECK(words != MAP_FAILED && digest != NULL);
    work();
    CHECK(pthread_create(&worker, NULL, keep_digesting, digest) == 0);
    while (!begun)
        CHECK(sched_yield() == 0);
    for (size_t i = 0; i < CHILDREN; i++) {
        pid_t child;

        lock_digesting();
        child = fork();
        if (child != 0)
            unlock_digesting();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20); /* a lock that the fork left locked must not hang the test */
            draw(words + i * ROUNDS);
            _exit(0);
        }
    }
    draw(words + CHILDREN * ROUNDS);
    for (size_t i = 0; i < CHILDREN; i++) {
        int status = -1;

        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = true;
    CHECK(pthread_join(worker, NULL) == 0);
    EVP_MD_free(digest);
    check_all_differ(words, (CHILDREN + 1) * ROUNDS);
    return 0;
}
