/*
 * Fast resumption (stage round_trip off, handshake on): libssl's own resumed handshake up to the server's Finished, and
 * the client's second flight left out. The request comes with the hello, in a record of its own type; libssl's flight
 * goes with the first data of the response. Where libssl does not resume, the handshake is a full one: the request is
 * skipped, and the client sends it again.
 */
#include "shim.h"

#include <string.h>

/* States by the numbers of OpenSSL 3.0: TLS_ST_SW_FINISHED, TLS_ST_EARLY_DATA. */
enum { OWN_RECORD = 0xd5, SERVER_WROTE_FINISHED = 36, SERVER_BEHIND_FINISHED = 46 };

/* A handshake of libssl that may do without the client's second flight. */
bool is_fast(const struct connection *connection)
{
    return connection->phase == PHASE_REAL && is_off(connection->mode, SHIM_STAGE_ROUND_TRIP);
}

/* libssl has resumed the session and made the last of its flight: in TLS 1.2 its Finished, in TLS 1.3 what follows. */
bool is_resumed_fast(const struct connection *connection)
{
    uint16_t state;

    if (!is_fast(connection) || connection->set_up || SSL_session_reused(connection->ssl) != 1)
        return false;
    state = state_of(connection->ssl);
    return state == SERVER_WROTE_FINISHED || state == SERVER_BEHIND_FINISHED;
}

/* Of the input, which is not empty. */
bool begins_as_own_record(const struct connection *connection)
{
    return connection->input.bytes[connection->input.start] == OWN_RECORD;
}

/* Sends what waits for data, without any. The result is that of BIO_write. */
int reply_release(struct connection *connection, BIO *bio)
{
    while (connection->reply_sent < connection->reply_size) {
        int result = BIO_write(bio, connection->reply + connection->reply_sent,
                               (int)(connection->reply_size - connection->reply_sent));

        if (result <= 0)
            return result;
        connection->reply_sent += (size_t)result;
    }
    connection->reply_made = connection->reply_size = connection->reply_sent = 0;
    return 1;
}

/*
 * Takes the header of the client's first record from the input, if it begins so. A client that sent no request with its
 * hello waits for the server's flight. 1: what follows is data.
 */
int unwrap_request(struct connection *connection, BIO *bio)
{
    while (input_left(connection) < RECORD_HEADER_SIZE
           && (input_left(connection) == 0 || begins_as_own_record(connection))) {
        int result = input_fill(connection, bio, RECORD_HEADER_SIZE);

        if (result <= 0) {
            /* Before anything is written: it may be the same BIO, which then forgets why it could not be read. */
            connection->error = transport_error(bio, result);
            if (connection->error == SSL_ERROR_WANT_READ && input_left(connection) == 0)
                reply_release(connection, transport_out(connection->ssl));
            return result;
        }
    }
    if (begins_as_own_record(connection))
        connection->input.start += RECORD_HEADER_SIZE;
    connection->in_record = false;
    return 1;
}
