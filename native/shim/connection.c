/*
 * What the shim knows of one connection, and how a connection is set up.
 *
 * The state is allocated with the SSL and ends with it (application data of the SSL, so that its reference count
 * decides); nothing is allocated while data flow.
 */
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/sslerr.h>

static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static int own_index = -1;

static void connection_free(void *parent, void *own, CRYPTO_EX_DATA *data, int index, long number, void *pointer)
{
    struct connection *connection = own;

    (void)parent, (void)data, (void)index, (void)number, (void)pointer;
    if (connection == NULL)
        return;
    records_free(connection->records);
    free(connection->stamp);
    free(connection);
}

/* A copy of an SSL (SSL_dup) is not followed: two owners of one state would free it twice. */
static int connection_not_copied(CRYPTO_EX_DATA *to, const CRYPTO_EX_DATA *from, void **own, int index, long number,
                                 void *pointer)
{
    (void)to, (void)from, (void)index, (void)number, (void)pointer;
    *own = NULL;
    return 1;
}

/* Not in the constructor: a library that is preloaded does not initialise OpenSSL before its server does. */
static void prepare(void)
{
    if (boundary_prepare())
        own_index = SSL_get_ex_new_index(0, NULL, NULL, connection_not_copied, connection_free);
}

bool connection_new(SSL *ssl)
{
    uint32_t mode = mode_now();
    bool minimal = is_off(mode, SHIM_STAGE_SETUP);
    size_t input_size = minimal ? RECORD_SIZE_MAX : shim_moves_data(mode) ? INPUT_SIZE : 0;
    size_t behind = minimal ? RECORD_SIZE_MAX : is_off(mode, SHIM_STAGE_ROUND_TRIP) ? REPLY_MAX : 0;
    size_t size = sizeof(struct connection) + input_size + behind;
    struct connection *connection;

    if (pthread_once(&prepared, prepare) != 0 || own_index < 0)
        return false;
    connection = malloc(size);
    if (connection == NULL)
        return false;
    memset(connection, 0, sizeof(*connection));
    connection->ssl = ssl;
    connection->mode = mode;
    connection->input.bytes = connection->buffer;
    connection->input.size = input_size;
    connection->sealed = connection->buffer + input_size;
    connection->reply = connection->buffer + input_size;
    if (minimal)
        connection->records = records_new(area->suite, flag_is_set(SHIM_FLAG_ENCRYPT_THEN_MAC));
    if (flag_is_set(SHIM_FLAG_TIME_STAMPS))
        connection->stamp = stamp_new();
    if ((minimal && connection->records == NULL) || (flag_is_set(SHIM_FLAG_TIME_STAMPS) && connection->stamp == NULL)
        || SSL_set_ex_data(ssl, own_index, connection) != 1) {
        connection_free(NULL, connection, NULL, 0, 0, NULL);
        return false;
    }
    return true;
}

/* The SSL is used again for another connection (SSL_clear): its buffers, and so its mode, stay. */
void connection_clear(struct connection *connection)
{
    struct connection fresh = {
        .ssl = connection->ssl,
        .mode = connection->mode,
        .input = {.bytes = connection->input.bytes, .size = connection->input.size},
        .sealed = connection->sealed,
        .reply = connection->reply,
        .records = connection->records,
        .stamp = connection->stamp,
    };

    *connection = fresh;
    if (connection->records != NULL)
        records_restart(connection->records);
}

struct connection *connection_of(const SSL *ssl)
{
    return SSL_get_ex_data(ssl, own_index);
}

struct connection *outermost(const SSL *ssl)
{
    struct connection *connection = depth > 0 || ssl == NULL ? NULL : connection_of(ssl);

    /* One that is set up is known to be a server's. */
    return connection != NULL && (connection->set_up || SSL_is_server(ssl)) ? connection : NULL;
}

/* Where libssl moves all data there is nothing that it does not know itself. */
struct connection *outermost_moved(const SSL *ssl)
{
    struct connection *connection = shim_moves_data(may_be_off) ? outermost(ssl) : NULL;

    return connection != NULL && shim_moves_data(connection->mode) ? connection : NULL;
}

bool is_shims(const struct connection *connection)
{
    return connection->phase > PHASE_REAL;
}

/* Counts a set-up that failed, once. */
static void failed(struct connection *connection)
{
    if (!connection->failed && !connection->set_up)
        count(SHIM_COUNT_FAILED);
    connection->failed = true;
}

/* The reason is one that servers know as a client's fault, which they do not raise an alarm for. */
int broken(struct connection *connection, const char *why)
{
    failed(connection);
    connection->phase = PHASE_BROKEN;
    connection->error = SSL_ERROR_SSL;
    ERR_raise_data(ERR_LIB_SSL, SSL_R_UNEXPECTED_MESSAGE, "tlsdyno shim: %s", why);
    return -1;
}

void is_set_up(struct connection *connection, SSL *ssl, enum tlsdyno_shim_counter kind)
{
    int before = errno;

    connection->set_up = true;
    count(kind);
    if (is_off(connection->mode, SHIM_STAGE_MARSHALLING)) {
        count(SHIM_COUNT_PLAIN);
        connection->phase = PHASE_PLAIN;
    }
    stamp_end(connection, ssl, kind);
    errno = before;
}

void has_early_data(struct connection *connection, SSL *ssl)
{
    if (connection->set_up)
        return;
    stamp_call(connection);
    is_set_up(connection, ssl, SHIM_COUNT_RESUMED);
}

/* The rest of libssl's handshake would be the client's second flight, which does not come. */
static void fast_is_set_up(struct connection *connection, SSL *ssl)
{
    is_set_up(connection, ssl, SHIM_COUNT_FAST_RESUME);
    connection->in_record = true;
}

/* After every call of libssl that may have moved its handshake on. */
void follow_real_handshake(struct connection *connection, SSL *ssl, int result)
{
    int before = errno;

    if (connection->set_up)
        return;
    stamp_call(connection);
    if (real.SSL_is_init_finished(ssl)) {
        is_set_up(connection, ssl, SSL_session_reused(ssl) ? SHIM_COUNT_RESUMED : SHIM_COUNT_FULL);
    } else if (result <= 0) {
        int error;

        REALLY(error, real.SSL_get_error(ssl, result));
        if (error == SSL_ERROR_SSL || error == SSL_ERROR_SYSCALL)
            failed(connection);
        else if (is_resumed_fast(connection))
            fast_is_set_up(connection, ssl);
    }
    errno = before;
}

/* A handshake by libssl: with plain data after it, libssl must not read beyond it. */
static int begin_real(struct connection *connection, SSL *ssl)
{
    bool fast = is_off(connection->mode, SHIM_STAGE_ROUND_TRIP);
    bool filtered = connection->read_ahead || fast;

    connection->phase = PHASE_REAL;
    if (is_off(connection->mode, SHIM_STAGE_SESSION_CACHE))
        sessions_begin(ssl);
    if (is_off(connection->mode, SHIM_STAGE_MARSHALLING) && filtered && !boundary_insert(connection, ssl))
        return broken(connection, "no memory for the record boundary");
    if (fast && !boundary_hold(connection, ssl))
        return broken(connection, "no memory for the reply of a fast resumption");
    return 1;
}

int begin_set_up(struct connection *connection, SSL *ssl)
{
    if (connection->phase != PHASE_START)
        return connection->phase == PHASE_BROKEN ? -1 : 1;
    if (!acknowledged())
        return broken(connection, "the tlsdyno that started this server has ended");
    connection->read_ahead = SSL_get_read_ahead(ssl) != 0;
    stamp_begin(connection, ssl);
    if (is_off(connection->mode, SHIM_STAGE_SETUP)) {
        connection->phase = PHASE_MINIMAL;
        is_set_up(connection, ssl, SHIM_COUNT_MINIMAL);
    } else if (is_off(connection->mode, SHIM_STAGE_HANDSHAKE)) {
        connection->phase = PHASE_SCRIPT;
    } else {
        return begin_real(connection, ssl);
    }
    return 1;
}

/* Moves the set-up on; 1 when it is complete. `drive` is the function of libssl that the server called. */
int set_up(struct connection *connection, SSL *ssl, int (*drive)(SSL *))
{
    int result;

    if (connection->set_up && is_shims(connection))
        return 1;
    result = begin_set_up(connection, ssl);
    if (result > 0 && connection->phase == PHASE_REAL) {
        REALLY(result, drive(ssl));
        follow_real_handshake(connection, ssl, result);
        if (connection->phase == PHASE_PLAIN)
            return 1;
    } else if (result > 0 && connection->phase == PHASE_SCRIPT) {
        stamp_call(connection);
        result = script_step(connection, ssl);
    }
    if (connection->phase == PHASE_BROKEN)
        return -1;
    if (is_shims(connection) && connection->error == SSL_ERROR_SYSCALL)
        failed(connection);
    return result;
}
