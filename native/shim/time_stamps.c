/*
 * Time stamps: when each connection was set up, how, with how many calls and bytes, and the steps of libssl's
 * handshake. Drawn up in the connection's own memory, then written into the ring of the area (../shim_record.h).
 */
#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void info_callback(const SSL *ssl, int where, int result);

struct stamp {
    uint64_t start_ns;
    uint64_t start_cpu_ns;
    uint16_t calls;
    uint32_t step_count;
    info_callback *servers_own; /* set on the SSL, and so hides that of the context */
    struct tlsdyno_step steps[TLSDYNO_SHIM_STEPS];
};

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* Of the process: a server may go on with a connection in another thread. */
static uint64_t cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

struct stamp *stamp_new(void)
{
    return calloc(1, sizeof(struct stamp));
}

/* States of compressed certificates, as OpenSSL 3.2 numbers them: it put them in between. */
enum {
    VERSION_WITH_COMPRESSED_CERTIFICATES = 0x30200000,
    CLIENT_READS_COMPRESSED = 5,
    CLIENT_WRITES_COMPRESSED = 15,
    SERVER_WRITES_COMPRESSED = 26,
    SERVER_READS_COMPRESSED = 31,
};

/* The state by the numbers of OpenSSL 3.0; that of a compressed certificate is the one of the certificate. */
uint16_t state_of(const SSL *ssl)
{
    int state = (int)SSL_get_state(ssl);

    if (OpenSSL_version_num() >= VERSION_WITH_COMPRESSED_CERTIFICATES)
        state -= (state >= CLIENT_READS_COMPRESSED) + (state >= CLIENT_WRITES_COMPRESSED)
                 + (state >= SERVER_WRITES_COMPRESSED) + (state >= SERVER_READS_COMPRESSED);
    return (uint16_t)state;
}

/* What a time stamp has room for. */
static uint32_t since(uint64_t now, uint64_t start)
{
    uint64_t passed = now - start;

    return passed < TLSDYNO_SHIM_TOO_LONG_NS ? (uint32_t)passed : TLSDYNO_SHIM_TOO_LONG_NS;
}

static void step(struct stamp *stamp, const SSL *ssl)
{
    struct tlsdyno_step *next = &stamp->steps[stamp->step_count];

    if (stamp->step_count == TLSDYNO_SHIM_STEPS)
        return;
    next->state = state_of(ssl);
    next->after_ns = since(now_ns(), stamp->start_ns);
    next->cpu_ns = since(cpu_ns(), stamp->start_cpu_ns);
    stamp->step_count++;
}

/* The server's own callback comes after ours, as it would without us. */
static void on_info(const SSL *ssl, int where, int result)
{
    struct connection *connection = connection_of(ssl);
    info_callback *servers = NULL;

    if (connection != NULL && connection->stamp != NULL) {
        if (!connection->set_up && (where & SSL_CB_LOOP) != 0)
            step(connection->stamp, ssl);
        servers = connection->stamp->servers_own;
    }
    if (servers == NULL)
        servers = SSL_CTX_get_info_callback(SSL_get_SSL_CTX(ssl));
    if (servers != NULL)
        servers(ssl, where, result);
}

void stamp_begin(struct connection *connection, SSL *ssl)
{
    struct stamp *stamp = connection->stamp;
    info_callback *before;

    if (stamp == NULL)
        return;
    before = SSL_get_info_callback(ssl);
    memset(stamp, 0, sizeof(*stamp));
    stamp->start_ns = now_ns();
    stamp->start_cpu_ns = cpu_ns();
    stamp->servers_own = before == on_info ? NULL : before;
    SSL_set_info_callback(ssl, on_info);
}

void stamp_call(struct connection *connection)
{
    if (connection->stamp != NULL && connection->stamp->calls < UINT16_MAX)
        connection->stamp->calls++;
}

/* Should two writers ever meet in one entry (a whole ring apart), a reader may see a mixture of both. */
void stamp_end(struct connection *connection, SSL *ssl, enum tlsdyno_shim_counter kind)
{
    const struct stamp *stamp = connection->stamp;
    struct tlsdyno_stamp *entry;
    uint64_t number;

    if (stamp == NULL)
        return;
    number = atomic_fetch_add(&area->stamps_written, 1);
    entry = &area->stamps[number % TLSDYNO_SHIM_STAMPS];
    atomic_store(&entry->number, 0);
    entry->start_ns = stamp->start_ns;
    entry->end_ns = now_ns();
    entry->bytes_received = BIO_number_read(transport_in(ssl));
    entry->bytes_sent = BIO_number_written(transport_out(ssl));
    entry->pid = (uint32_t)getpid();
    entry->kind = (uint16_t)kind;
    entry->calls = stamp->calls;
    entry->step_count = stamp->step_count;
    entry->cpu_ns = since(cpu_ns(), stamp->start_cpu_ns);
    memcpy(entry->steps, stamp->steps, sizeof(entry->steps));
    atomic_store_explicit(&entry->number, number + 1, memory_order_release);
}
