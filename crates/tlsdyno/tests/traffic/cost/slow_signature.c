/* A library in front of OpenSSL's, whose signatures take 500 µs of CPU time more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int EVP_DigestSign(void *context, unsigned char *signature, size_t *length, const unsigned char *data, size_t size)
{
    static int (*real)(void *, unsigned char *, size_t *, const unsigned char *, size_t);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "EVP_DigestSign");
    }
    /* Asked without a place for the signature, it tells a length only. */
    for (long end = now_ns() + 500000; signature != NULL && now_ns() < end;) {
    }
    return real(context, signature, length, data, size);
}
