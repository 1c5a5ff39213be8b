/* Usage: tlsdyno-primitives LIBCRYPTO LIBSSL CERTIFICATE KEY
 *
 * Says the version of the library first. Then each line of standard input, `KIND NAME BYTES NANOSECONDS`, is answered
 * by a line: `CALLS CPU_NS ELAPSED_NS`, or `! REASON`. Ends with its input. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>

#include "primitives.h"

#include "../clock.h"

/* Batches last so long at least: what a reading of the CPU clock takes, a system call, is then not seen. */
#define BATCH_NS 200000
#define BYTES_MAX (1024 * 1024)
/* A block cipher may write one block more than it is given. */
#define BUFFER_BYTES (BYTES_MAX + EVP_MAX_BLOCK_LENGTH)
#define REASON_BYTES 300

/* Does steps until so much CPU time is used, and says how many. */
static bool measure(struct operation *operation, uint64_t for_ns)
{
    uint64_t started_ns = clock_ns(CLOCK_MONOTONIC);
    uint64_t first_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t calls = 0;
    uint64_t batch = 1;
    uint64_t now_ns = first_ns;

    while (now_ns - first_ns < for_ns) {
        uint64_t before_ns = now_ns;

        for (uint64_t step = 0; step < batch; step++) {
            if (!operation->step(operation)) {
                return false;
            }
        }
        calls += batch;
        now_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        if (now_ns - before_ns < BATCH_NS) {
            batch *= 2;
        }
    }
    (void)printf("%llu %llu %llu\n", (unsigned long long)calls, (unsigned long long)(now_ns - first_ns),
                 (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - started_ns));
    return true;
}

static bool begin(struct operation *operation, const char *kind, const char *name)
{
    if (strcmp(kind, "cipher") == 0) {
        return begin_cipher(operation, name);
    }
    if (strcmp(kind, "digest") == 0) {
        return begin_digest(operation, name);
    }
    if (strcmp(kind, "hmac") == 0) {
        return begin_hmac(operation, name);
    }
    return strcmp(kind, "record") == 0 && begin_record(operation, name);
}

/* What the library says went wrong. */
static void refuse(const char *what)
{
    char text[REASON_BYTES] = "it says no more";
    unsigned long error = lib.ERR_get_error();

    if (error != 0) {
        lib.ERR_error_string_n(error, text, sizeof(text));
    }
    lib.ERR_clear_error();
    (void)printf("! %s: %s\n", what, text);
}

static void answer(const char *line, unsigned char *buffer)
{
    char kind[16];
    char name[64];
    size_t bytes = 0;
    unsigned long long for_ns = 0;
    struct operation operation = {.buffer = buffer};

    if (sscanf(line, "%15s %63s %zu %llu", kind, name, &bytes, &for_ns) != 4 || bytes == 0 || bytes > BYTES_MAX) {
        (void)printf("! not a command: %s\n", line);
        return;
    }
    operation.bytes = bytes;
    if (!begin(&operation, kind, name)) {
        refuse("the library does not have it");
        return;
    }
    if (!measure(&operation, for_ns)) {
        refuse("a call failed");
    }
    operation.end(&operation);
}

int main(int count, char **arguments)
{
    static unsigned char buffer[BUFFER_BYTES];
    char reason[REASON_BYTES];
    char line[256];

    if (count != 5) {
        (void)fprintf(stderr, "usage: tlsdyno-primitives LIBCRYPTO LIBSSL CERTIFICATE KEY\n");
        return 2;
    }
    if (!open_libraries(arguments[1], arguments[2], reason, sizeof(reason))) {
        (void)printf("! %s\n", reason);
        return 1;
    }
    set_identity(arguments[3], arguments[4]);
    /* What the server's own configuration says of providers is not asked for: primitives are those of the library. */
    (void)lib.OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    OSSL_PROVIDER *defaults = lib.OSSL_PROVIDER_load(NULL, "default");
    /* Where it is not installed, what it has is refused by name. */
    OSSL_PROVIDER *legacy = lib.OSSL_PROVIDER_load(NULL, "legacy");

    lib.ERR_clear_error();
    (void)printf("%s\n", lib.OpenSSL_version(OPENSSL_VERSION));
    (void)fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        answer(line, buffer);
        (void)fflush(stdout);
    }
    /* OpenSSL 3.5 does not free at its end what is still loaded. NULL is none. */
    (void)lib.OSSL_PROVIDER_unload(legacy);
    (void)lib.OSSL_PROVIDER_unload(defaults);
    return 0;
}
