/*
 * Minimal set-up (stage setup): connections that begin with application data in the shim's own records.
 *
 * A record that was sealed stays until it has gone: sealing it again on a retry would break the sequence. It is not
 * read beyond a record unless the server allows reading ahead, for some wait for the socket and others trust
 * SSL_pending.
 */
#include "shim.h"

#include <string.h>

enum { APPLICATION_DATA = 23 };

/* How much of the input is a whole record; 0: not all of it is there yet, -1: it is none. */
static int record_in_input(const struct connection *connection, size_t *wanted)
{
    const unsigned char *header = connection->input.bytes + connection->input.start;
    size_t left = input_left(connection);

    *wanted = RECORD_HEADER_SIZE;
    if (left < RECORD_HEADER_SIZE)
        return 0;
    if (header[0] != APPLICATION_DATA || header[1] != 3 || header[2] != 3)
        return -1;
    *wanted = RECORD_HEADER_SIZE + ((size_t)header[3] << 8 | header[4]);
    if (*wanted > connection->input.size)
        return -1;
    return left < *wanted ? 0 : (int)*wanted;
}

/* The next record with data in it, opened. Empty records are legal (RFC 9846 section 5.4) and skipped. */
static int open_record(struct connection *connection, SSL *ssl)
{
    BIO *bio = transport_in(ssl);

    while (connection->opened_left == 0) {
        size_t wanted;
        int size = record_in_input(connection, &wanted);

        if (size < 0)
            return broken(connection, "the client sends something else than records of application data");
        if (size == 0) {
            int result = input_fill(connection, bio, wanted);

            if (result <= 0) {
                connection->error = transport_error(bio, result);
                return result;
            }
            continue;
        }
        if (!records_open(connection->records, connection->input.bytes + connection->input.start, (size_t)size,
                          &connection->opened, &connection->opened_left))
            return broken(connection,
                          "a record of the client is not protected as the suite demands with keys of zeros");
        connection->input.start += (size_t)size;
    }
    return 1;
}

int minimal_read(struct connection *connection, SSL *ssl, void *into, size_t size, bool peek, size_t *got)
{
    int result = open_record(connection, ssl);

    if (result <= 0)
        return result;
    *got = size < connection->opened_left ? size : connection->opened_left;
    memcpy(into, connection->opened, *got);
    if (!peek) {
        connection->opened += *got;
        connection->opened_left -= *got;
    }
    return 1;
}

static int flush_record(struct connection *connection, SSL *ssl)
{
    BIO *bio = SSL_get_wbio(ssl);

    while (connection->sealed_sent < connection->sealed_size) {
        size_t left = connection->sealed_size - connection->sealed_sent;
        int result = BIO_write(bio, connection->sealed + connection->sealed_sent, (int)left);

        if (result <= 0) {
            connection->error = transport_error(bio, result);
            return -1;
        }
        connection->sealed_sent += (size_t)result;
    }
    connection->sealed_size = 0;
    connection->sealed_sent = 0;
    return 1;
}

int minimal_write(struct connection *connection, SSL *ssl, const unsigned char *data, size_t size, size_t *put)
{
    while (connection->written < size) {
        size_t some = size - connection->written < RECORD_DATA_MAX ? size - connection->written : RECORD_DATA_MAX;
        int result;

        if (connection->sealed_size == 0) {
            connection->sealed_size
                = records_seal(connection->records, connection->sealed, data + connection->written, some);
            connection->sealed_data = some;
        }
        if (connection->sealed_size == 0)
            return broken(connection, "a record cannot be sealed");
        result = flush_record(connection, ssl);
        if (result <= 0)
            return result;
        connection->written += connection->sealed_data;
        if (connection->written < size && (SSL_get_mode(ssl) & SSL_MODE_ENABLE_PARTIAL_WRITE) != 0)
            break;
    }
    *put = connection->written;
    connection->written = 0;
    return 1;
}
