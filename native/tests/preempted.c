/*
 * Signs on one processor beside another process that never rests there, and prints the CPU time that it took.
 *
 *     preempted CPU
 */
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

enum { SIGNATURES = 300 };

static uint64_t cpu_ns(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static pid_t begin_to_disturb(void)
{
    pid_t parent = getpid();
    pid_t child = fork();

    CHECK(child >= 0);
    while (child == 0) {
        if (getppid() != parent)
            _exit(0);
    }
    return child;
}

static void sign(EVP_PKEY *key)
{
    unsigned char signature[256];
    size_t size = sizeof(signature);
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    CHECK(context != NULL && EVP_DigestSignInit_ex(context, NULL, "SHA2-256", NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(context, signature, &size, (const unsigned char *)"abc", 3) == 1);
    EVP_MD_CTX_free(context);
}

int main(int count, char **arguments)
{
    cpu_set_t one;
    EVP_PKEY *key;
    uint64_t began_ns;
    pid_t child;

    CHECK(count == 2);
    CPU_ZERO(&one);
    CPU_SET((size_t)atoi(arguments[1]), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384"); /* a signature takes most of a millisecond */
    CHECK(key != NULL);
    child = begin_to_disturb();
    began_ns = cpu_ns();
    for (int i = 0; i < SIGNATURES; i++)
        sign(key);
    printf("signed_ns %llu\n", (unsigned long long)(cpu_ns() - began_ns));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    EVP_PKEY_free(key);
    return 0;
}
