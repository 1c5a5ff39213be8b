/* What is done when, by the states of libssl. The library tells of a step when it is about to leave its state: having
 * written a message, or having read the header of the next one. So the time since the moment before is what the message
 * of that state took. */
#include <time.h>

#include "stock_client.h"

static uint64_t clock_ns(clockid_t which)
{
    struct timespec now;

    (void)clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

void note(struct connection *connection, const char *what)
{
    if (connection->moments_count < MOMENTS_MAX) {
        connection->moments[connection->moments_count++] = (struct moment){
            .what = what,
            .at_ns = monotonic_ns(),
            .cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID),
            .bytes = connection->message_bytes,
        };
    }
    connection->message_bytes = 0;
}

/* Messages by the names that the other client and the server's steps have. */
static const char *message(const SSL *ssl, OSSL_HANDSHAKE_STATE state)
{
    switch (state) {
    case TLS_ST_BEFORE:
    case TLS_ST_CW_CLNT_HELLO:
        return HELLO;
    case TLS_ST_CR_SRVR_HELLO:
        return "ServerHello";
    case TLS_ST_CR_ENCRYPTED_EXTENSIONS:
        return "EncryptedExtensions";
    case TLS_ST_CR_CERT:
        return "Certificate";
    case TLS_ST_CR_CERT_VRFY:
        return "CertificateVerify";
    case TLS_ST_CR_KEY_EXCH:
        return "ServerKeyExchange";
    case TLS_ST_CR_SRVR_DONE:
        return "ServerHelloDone";
    case TLS_ST_CR_SESSION_TICKET:
        return "NewSessionTicket";
    case TLS_ST_CR_CHANGE:
        return "change_cipher_spec";
    case TLS_ST_CR_FINISHED:
        return "Finished";
    case TLS_ST_CW_KEY_EXCH:
        return "ClientKeyExchange made";
    case TLS_ST_CW_CHANGE:
        return "change_cipher_spec made";
    case TLS_ST_CW_FINISHED:
        return "Finished made";
    case TLS_ST_OK:
        return "end";
    default:
        return SSL_state_string_long(ssl);
    }
}

void note_state(struct connection *connection)
{
    OSSL_HANDSHAKE_STATE state = SSL_get_state(connection->ssl);
    /* Told already when it had to wait: what came since is the header of the next message. */
    bool waited = state == connection->told;

    connection->told = state;
    note(connection, waited ? WAITING : message(connection->ssl, state));
}

static void at_state(const SSL *ssl, int where, int value)
{
    struct connection *connection = SSL_get_app_data(ssl);

    (void)value;
    if ((where & SSL_CB_LOOP) != 0 && !connection->is_data) {
        note_state(connection);
    }
}

static void at_message(int written, int version, int kind, const void *content, size_t bytes, SSL *ssl, void *argument)
{
    struct connection *connection = argument;

    (void)written;
    (void)version;
    (void)content;
    (void)ssl;
    if (kind == SSL3_RT_HANDSHAKE && !connection->is_data) {
        connection->message_bytes += bytes;
    }
}

void watch(struct connection *connection)
{
    /* No state that is left: the first one that is told is none that was waited in. */
    connection->told = TLS_ST_OK;
    SSL_set_app_data(connection->ssl, connection);
    SSL_set_info_callback(connection->ssl, at_state);
    SSL_set_msg_callback(connection->ssl, at_message);
    SSL_set_msg_callback_arg(connection->ssl, connection);
}
