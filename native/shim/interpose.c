/*
 * The interposed functions of libssl. Each passes on what libssl itself calls, and what does not belong to a server's
 * connection; where libssl moves the bytes it is asked, where the shim moves them the shim answers as libssl would.
 */
#include "shim.h"

#include <openssl/err.h>

#define INTERPOSED __attribute__((visibility("default")))

INTERPOSED SSL *SSL_new(SSL_CTX *context)
{
    SSL *ssl;

    if (depth > 0 || area == NULL)
        return real.SSL_new(context);
    REALLY(ssl, real.SSL_new(context));
    if (ssl != NULL && SSL_is_server(ssl) && !connection_new(ssl)) {
        real.SSL_free(ssl);
        ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
        return NULL;
    }
    return ssl;
}

/* An SSL that was never shut down makes libssl forget its session, with which the client means to come back. */
INTERPOSED void SSL_free(SSL *ssl)
{
    struct connection *connection = outermost(ssl);

    if (connection != NULL && connection->phase == PHASE_PLAIN)
        SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    depth++;
    real.SSL_free(ssl);
    depth--;
}

INTERPOSED int SSL_clear(SSL *ssl)
{
    struct connection *connection = outermost(ssl);
    int result;

    if (connection != NULL && connection->phase == PHASE_PLAIN)
        SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    REALLY(result, real.SSL_clear(ssl));
    if (connection != NULL)
        connection_clear(connection);
    return result;
}

INTERPOSED int SSL_do_handshake(SSL *ssl)
{
    struct connection *connection = outermost(ssl);

    if (connection == NULL)
        return real.SSL_do_handshake(ssl);
    return set_up(connection, ssl, real.SSL_do_handshake);
}

INTERPOSED int SSL_accept(SSL *ssl)
{
    struct connection *connection = outermost(ssl);

    if (connection == NULL)
        return real.SSL_accept(ssl);
    return set_up(connection, ssl, real.SSL_accept);
}

/* There is no early data where the shim moves the data: the server goes on with the handshake. */
INTERPOSED int SSL_read_early_data(SSL *ssl, void *into, size_t size, size_t *got)
{
    struct connection *connection = outermost(ssl);
    int result;

    if (connection == NULL)
        return real.SSL_read_early_data(ssl, into, size, got);
    if (shim_moves_data(connection->mode)) {
        *got = 0;
        return SSL_READ_EARLY_DATA_FINISH;
    }
    if (begin_set_up(connection, ssl) <= 0)
        return SSL_READ_EARLY_DATA_ERROR;
    REALLY(result, real.SSL_read_early_data(ssl, into, size, got));
    /*
     * The server may answer early data, and close, before the client's Finished comes: nothing later would count this
     * connection.
     */
    if (result == SSL_READ_EARLY_DATA_SUCCESS)
        has_early_data(connection, ssl);
    else
        follow_real_handshake(connection, ssl, result == SSL_READ_EARLY_DATA_ERROR ? -1 : 1);
    return result;
}

/* Servers may leave the handshake to their first read or write. */
static int shim_read(struct connection *connection, SSL *ssl, void *into, size_t size, bool peek, size_t *got)
{
    int result = connection->set_up ? 1 : set_up(connection, ssl, real.SSL_do_handshake);

    *got = 0;
    if (result <= 0)
        return result;
    if (connection->phase == PHASE_PLAIN)
        return plain_read(connection, ssl, into, size, peek, got);
    return connection->phase == PHASE_MINIMAL ? minimal_read(connection, ssl, into, size, peek, got) : -1;
}

static int shim_write(struct connection *connection, SSL *ssl, const void *data, size_t size, size_t *put)
{
    int result = connection->set_up ? 1 : set_up(connection, ssl, real.SSL_do_handshake);

    *put = 0;
    if (result <= 0)
        return result;
    if (connection->phase == PHASE_PLAIN)
        return plain_write(connection, ssl, data, size, put);
    return connection->phase == PHASE_MINIMAL ? minimal_write(connection, ssl, data, size, put) : -1;
}

/* A call by which libssl moves data, and perhaps its handshake too. */
#define PASS_ON(result, call)                                                                                          \
    do {                                                                                                               \
        bool is_new = !connection->set_up;                                                                             \
                                                                                                                       \
        if (is_new && begin_set_up(connection, ssl) <= 0) {                                                            \
            result = 0;                                                                                                \
            break;                                                                                                     \
        }                                                                                                              \
        REALLY(result, call);                                                                                          \
        if (is_new)                                                                                                    \
            follow_real_handshake(connection, ssl, result);                                                            \
    } while (0)

INTERPOSED int SSL_read(SSL *ssl, void *into, int size)
{
    struct connection *connection = outermost(ssl);
    size_t got;
    int result;

    if (connection == NULL || size < 0)
        return real.SSL_read(ssl, into, size);
    if (shim_moves_data(connection->mode)) {
        result = shim_read(connection, ssl, into, (size_t)size, false, &got);
        return result > 0 ? (int)got : result;
    }
    PASS_ON(result, real.SSL_read(ssl, into, size));
    return result;
}

INTERPOSED int SSL_read_ex(SSL *ssl, void *into, size_t size, size_t *got)
{
    struct connection *connection = outermost(ssl);
    int result;

    if (connection == NULL)
        return real.SSL_read_ex(ssl, into, size, got);
    if (shim_moves_data(connection->mode))
        return shim_read(connection, ssl, into, size, false, got) > 0;
    PASS_ON(result, real.SSL_read_ex(ssl, into, size, got));
    return result;
}

INTERPOSED int SSL_peek(SSL *ssl, void *into, int size)
{
    struct connection *connection = outermost(ssl);
    size_t got;
    int result;

    if (connection == NULL || size < 0)
        return real.SSL_peek(ssl, into, size);
    if (shim_moves_data(connection->mode)) {
        result = shim_read(connection, ssl, into, (size_t)size, true, &got);
        return result > 0 ? (int)got : result;
    }
    PASS_ON(result, real.SSL_peek(ssl, into, size));
    return result;
}

INTERPOSED int SSL_peek_ex(SSL *ssl, void *into, size_t size, size_t *got)
{
    struct connection *connection = outermost(ssl);
    int result;

    if (connection == NULL)
        return real.SSL_peek_ex(ssl, into, size, got);
    if (shim_moves_data(connection->mode))
        return shim_read(connection, ssl, into, size, true, got) > 0;
    PASS_ON(result, real.SSL_peek_ex(ssl, into, size, got));
    return result;
}

INTERPOSED int SSL_write(SSL *ssl, const void *data, int size)
{
    struct connection *connection = outermost(ssl);
    size_t put;
    int result;

    if (connection == NULL || size < 0)
        return real.SSL_write(ssl, data, size);
    if (shim_moves_data(connection->mode)) {
        result = shim_write(connection, ssl, data, (size_t)size, &put);
        return result > 0 ? (int)put : result;
    }
    PASS_ON(result, real.SSL_write(ssl, data, size));
    return result;
}

INTERPOSED int SSL_write_ex(SSL *ssl, const void *data, size_t size, size_t *put)
{
    struct connection *connection = outermost(ssl);
    int result;

    if (connection == NULL)
        return real.SSL_write_ex(ssl, data, size, put);
    if (shim_moves_data(connection->mode))
        return shim_write(connection, ssl, data, size, put) > 0;
    PASS_ON(result, real.SSL_write_ex(ssl, data, size, put));
    return result;
}

/* ---- What libssl would say of a connection that it does not know to be open ---- */

INTERPOSED int SSL_get_error(const SSL *ssl, int result)
{
    struct connection *connection = outermost_moved(ssl);
    int error;

    if (connection != NULL && is_shims(connection))
        return result > 0 ? SSL_ERROR_NONE : connection->error;
    REALLY(error, real.SSL_get_error(ssl, result));
    return error;
}

/* Bytes that a read would give without asking the transport. */
static size_t readable(const struct connection *connection)
{
    return connection->phase == PHASE_MINIMAL ? connection->opened_left
           : connection->phase == PHASE_PLAIN ? input_left(connection)
                                              : 0;
}

INTERPOSED int SSL_pending(const SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);

    return connection == NULL || !is_shims(connection) ? real.SSL_pending(ssl) : (int)readable(connection);
}

INTERPOSED int SSL_has_pending(const SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);

    if (connection == NULL || !is_shims(connection))
        return real.SSL_has_pending(ssl);
    return readable(connection) > 0 || input_left(connection) > 0;
}

INTERPOSED int SSL_is_init_finished(const SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);

    return connection == NULL || !is_shims(connection) ? real.SSL_is_init_finished(ssl) : connection->set_up;
}

INTERPOSED int SSL_in_init(const SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);

    return connection == NULL || !is_shims(connection) ? real.SSL_in_init(ssl) : !connection->set_up;
}

/* Neither end says goodbye where data are in plain or in records of the shim; the stream just ends. */
INTERPOSED int SSL_shutdown(SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);
    int result;

    if (connection != NULL && is_shims(connection)) {
        SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        return 1;
    }
    REALLY(result, real.SSL_shutdown(ssl));
    return result;
}

/* The server's own BIO: nginx compares it with the one for writing. */
INTERPOSED BIO *SSL_get_rbio(const SSL *ssl)
{
    struct connection *connection = outermost_moved(ssl);

    return connection == NULL ? real.SSL_get_rbio(ssl) : transport_in(ssl);
}
