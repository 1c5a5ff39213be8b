/*
 * Signatures under an emulated accelerator or with CPU time burnt, in threads and forked processes. Prints how long the
 * work took by the monotonic clock and what CPU time it cost, in nanoseconds.
 *
 *     private_key PROCESSES THREADS SIGNATURES [job]
 *
 * `job`: each signature is made in an OpenSSL job, as a server does that goes on meanwhile.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/async.h>
#include <openssl/evp.h>

#include "check.h"

static EVP_PKEY *key;
static int signatures;
static bool in_job;

static uint64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int sign(void *argument)
{
    unsigned char signature[512];
    size_t size = sizeof(signature);
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    (void)argument;
    CHECK(context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1);
    CHECK(EVP_DigestSign(context, signature, &size, (const unsigned char *)"abc", 3) == 1 && size > 0);
    EVP_MD_CTX_free(context);
    return 1;
}

/* One wait context for all jobs, as a connection has. */
static void sign_in_jobs(void)
{
    ASYNC_WAIT_CTX *context = ASYNC_WAIT_CTX_new();

    CHECK(context != NULL && ASYNC_init_thread(1, 1) == 1);
    for (int i = 0; i < signatures; i++) {
        ASYNC_JOB *job = NULL;
        int result = 0;

        while (ASYNC_start_job(&job, context, &result, sign, NULL, 0) == ASYNC_PAUSE) {
            OSSL_ASYNC_FD descriptor = -1;
            size_t count = 1;
            struct pollfd wanted = {.events = POLLIN};

            CHECK(ASYNC_WAIT_CTX_get_all_fds(context, NULL, &count) == 1 && count == 1);
            CHECK(ASYNC_WAIT_CTX_get_all_fds(context, &descriptor, &count) == 1);
            wanted.fd = descriptor;
            CHECK(poll(&wanted, 1, 10000) == 1);
        }
        CHECK(result == 1);
    }
    ASYNC_WAIT_CTX_free(context);
    ASYNC_cleanup_thread();
}

static void *work(void *argument)
{
    (void)argument;
    if (in_job)
        sign_in_jobs();
    else
        for (int i = 0; i < signatures; i++)
            sign(NULL);
    return NULL;
}

static void run_threads(int count)
{
    pthread_t threads[64];

    CHECK(count <= 64);
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static uint64_t children_cpu_ns(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000u
           + ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
}

int main(int count, char **arguments)
{
    uint64_t began;
    int processes;

    CHECK(count == 4 || count == 5);
    processes = atoi(arguments[1]);
    signatures = atoi(arguments[3]);
    in_job = count == 5 && strcmp(arguments[4], "job") == 0;
    key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    CHECK(key != NULL);
    began = monotonic_ns();
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            run_threads(atoi(arguments[2]));
            _exit(0);
        }
    }
    for (int i = 0; i < processes; i++) {
        int status = -1;

        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("%llu %llu\n", (unsigned long long)(monotonic_ns() - began), (unsigned long long)children_cpu_ns());
    EVP_PKEY_free(key);
    return 0;
}
