/* What the test programs share: a check that says where it failed, hexadecimal output, and their end. */
#ifndef TLSDYNO_TEST_CHECK_H
#define TLSDYNO_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include <openssl/crypto.h>
#include <openssl/err.h>

/* Not assert(): it must hold in every build, and show OpenSSL's error queue. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                    \
            ERR_print_errors_fp(stderr);                                                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void print_hex(const char *key, const unsigned char *data, size_t length)
{
    printf("%s = ", key);
    for (size_t i = 0; i < length; i++)
        printf("%02x", data[i]);
    printf("\n");
}

/* OpenSSL 4.0 frees nothing by itself at a program's end. What it keeps for the main thread hangs on a thread-local
 * variable alone, so that a leak check that does not look at these would take it for leaked. */
__attribute__((destructor)) static void end_of_main_thread(void)
{
    OPENSSL_thread_stop();
}

#endif
