/* What is done when, by the states of libssl. The library tells of a step when it is about to leave its state: having
 * written a message, or having read the header of the next one. So the time since the moment before is what the message
 * of that state took. */
#include "stock_client.h"

#include "../clock.h"

void note(struct connection *connection, const char *what)
{
    if (connection->moments_count < MOMENTS_MAX) {
        connection->moments[connection->moments_count++] = (struct moment){
            .what = what,
            .at_ns = clock_ns(CLOCK_MONOTONIC),
            .cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID),
            .bytes = connection->message_bytes,
        };
    }
    connection->message_bytes = 0;
}

/* Messages by the names that the other client and the server's steps have. */
static const char *message(const SSL *ssl, OSSL_HANDSHAKE_STATE state)
{
    static const struct {
        OSSL_HANDSHAKE_STATE state;
        const char *name;
    } MESSAGES[] = {
        {TLS_ST_BEFORE, HELLO},
        {TLS_ST_CW_CLNT_HELLO, HELLO},
        {TLS_ST_CR_SRVR_HELLO, "ServerHello"},
        {TLS_ST_CR_ENCRYPTED_EXTENSIONS, "EncryptedExtensions"},
        {TLS_ST_CR_CERT, "Certificate"},
        {TLS_ST_CR_CERT_VRFY, "CertificateVerify"},
        {TLS_ST_CR_KEY_EXCH, "ServerKeyExchange"},
        {TLS_ST_CR_SRVR_DONE, "ServerHelloDone"},
        {TLS_ST_CR_SESSION_TICKET, "NewSessionTicket"},
        {TLS_ST_CR_CHANGE, "change_cipher_spec"},
        {TLS_ST_CR_FINISHED, "Finished"},
        {TLS_ST_CW_KEY_EXCH, "ClientKeyExchange made"},
        {TLS_ST_CW_CHANGE, "change_cipher_spec made"},
        {TLS_ST_CW_FINISHED, "Finished made"},
        {TLS_ST_OK, "end"},
    };

    for (size_t index = 0; index < sizeof(MESSAGES) / sizeof(MESSAGES[0]); index++) {
        if (MESSAGES[index].state == state) {
            return MESSAGES[index].name;
        }
    }
    return SSL_state_string_long(ssl);
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
