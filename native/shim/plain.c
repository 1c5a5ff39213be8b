/*
 * Plain data (stage marshalling): after the set-up the server's bytes go to the transport as they are. In front of the
 * first of them goes the reply of a fast resumption, if there is one to come.
 */
#include "shim.h"

#include <string.h>

int plain_read(struct connection *connection, SSL *ssl, void *into, size_t size, bool peek, size_t *got)
{
    BIO *bio = transport_in(ssl);
    int result;

    *got = 0;
    if (size == 0) /* a BIO would answer as at the end of the stream */
        return 1;
    if (size > INT32_MAX)
        size = INT32_MAX;
    if (connection->in_record) {
        result = unwrap_request(connection, bio);
        if (result <= 0)
            return result;
    }
    if (input_left(connection) == 0 && peek) {
        result = input_fill(connection, bio, size);
        if (result <= 0) {
            connection->error = transport_error(bio, result);
            return result;
        }
    }
    if (input_left(connection) > 0) {
        size_t start = connection->input.start;

        *got = input_take(connection, into, size);
        if (peek)
            connection->input.start = start;
        return 1;
    }
    result = BIO_read(bio, into, (int)size);
    if (result <= 0) {
        connection->error = transport_error(bio, result);
        return result;
    }
    *got = (size_t)result;
    return 1;
}

/* One write of the rest of the reply and as much data behind it as fits. `put` becomes the data bytes that went. */
static int write_reply(struct connection *connection, BIO *bio, const unsigned char *data, size_t size, size_t *put)
{
    /* Of the thread, not of the connection: it is made anew for each attempt, always with the same content. */
    static _Thread_local unsigned char joined[RECORD_DATA_MAX + 8192];
    size_t left = connection->reply_size - connection->reply_sent;
    size_t room = left < sizeof(joined) ? left : sizeof(joined);
    size_t with_data = sizeof(joined) - room < size ? sizeof(joined) - room : size;
    int result;

    memset(joined, 0, room);
    if (connection->reply_sent < connection->reply_made) {
        size_t rest = connection->reply_made - connection->reply_sent;

        memcpy(joined, connection->reply + connection->reply_sent, rest < room ? rest : room);
    }
    memcpy(joined + room, data, with_data);
    result = BIO_write(bio, joined, (int)(room + with_data));
    if (result <= 0)
        return result;
    *put = (size_t)result > left ? (size_t)result - left : 0;
    connection->reply_sent += (size_t)result - *put;
    return 1;
}

static int write_some(struct connection *connection, BIO *bio, const unsigned char *data, size_t size, size_t *put)
{
    int result;

    if (connection->reply_sent < connection->reply_size)
        return write_reply(connection, bio, data, size, put);
    result = BIO_write(bio, data, (int)size);
    *put = result > 0 ? (size_t)result : 0;
    return result > 0 ? 1 : result;
}

/*
 * As libssl's: without SSL_MODE_ENABLE_PARTIAL_WRITE the server hears of nothing but the whole, and calls again till
 * then.
 */
int plain_write(struct connection *connection, SSL *ssl, const unsigned char *data, size_t size, size_t *put)
{
    BIO *bio = transport_out(ssl);

    if (size > INT32_MAX)
        size = INT32_MAX;
    while (connection->written < size) {
        size_t some = 0;
        int result = write_some(connection, bio, data + connection->written, size - connection->written, &some);

        if (result <= 0) {
            connection->error = transport_error(bio, result);
            return -1;
        }
        connection->written += some;
        if (connection->written > 0 && connection->written < size
            && (SSL_get_mode(ssl) & SSL_MODE_ENABLE_PARTIAL_WRITE) != 0)
            break;
    }
    *put = connection->written;
    connection->written = 0;
    return 1;
}
