/*
 * Transport and input of a connection, and the filter BIO that keeps libssl within record boundaries.
 *
 * Where the server allows reading ahead (nginx), libssl would swallow with the client's Finished the plain request that
 * follows it. So a filter stands between libssl and the server's own BIO: one large read, of which libssl is handed at
 * most the rest of the current record; what remains is the beginning of the data. All reading goes through BIOs, for
 * mod_ssl, haproxy and others have their own and no descriptor behind them. With one round trip fewer another stands in
 * front of the BIO for writing.
 */
#include "shim.h"

#include <string.h>

static BIO_METHOD *method;
static int method_type;

BIO *transport_in(const SSL *ssl)
{
    BIO *bio = real.SSL_get_rbio(ssl);

    if (bio != NULL && BIO_method_type(bio) == method_type)
        return BIO_next(bio);
    return bio;
}

BIO *transport_out(const SSL *ssl)
{
    BIO *bio = SSL_get_wbio(ssl);

    if (bio != NULL && BIO_method_type(bio) == method_type)
        return BIO_next(bio);
    return bio;
}

/* What SSL_get_error shall answer after a read or write of `bio` that gave `result` <= 0. */
int transport_error(BIO *bio, int result)
{
    if (BIO_should_read(bio))
        return SSL_ERROR_WANT_READ;
    if (BIO_should_write(bio))
        return SSL_ERROR_WANT_WRITE;
    return result == 0 ? SSL_ERROR_ZERO_RETURN : SSL_ERROR_SYSCALL;
}

/*
 * Reads once into the buffer: up to `wanted` bytes in all, or as many as fit if the server allows reading ahead. The
 * result is that of BIO_read.
 */
int input_fill(struct connection *connection, BIO *bio, size_t wanted)
{
    struct input *input = &connection->input;
    size_t limit = connection->read_ahead || wanted > input->size ? input->size : wanted;
    int got;

    if (input->start > 0) {
        memmove(input->bytes, input->bytes + input->start, input->end - input->start);
        input->end -= input->start;
        input->start = 0;
    }
    got = BIO_read(bio, input->bytes + input->end, (int)(limit - input->end));
    if (got > 0)
        input->end += (size_t)got;
    return got;
}

size_t input_take(struct connection *connection, void *into, size_t size)
{
    struct input *input = &connection->input;
    size_t left = input_left(connection);

    if (size > left)
        size = left;
    memcpy(into, input->bytes + input->start, size);
    input->start += size;
    return size;
}

/* Knows how long the record is that begins with the next byte. */
static int begin_record(struct connection *connection, BIO *below)
{
    const unsigned char *header;

    while (input_left(connection) < RECORD_HEADER_SIZE) {
        int got = input_fill(connection, below, RECORD_HEADER_SIZE);

        if (got <= 0)
            return got;
    }
    header = connection->input.bytes + connection->input.start;
    connection->record_left = RECORD_HEADER_SIZE + ((size_t)header[3] << 8 | header[4]);
    connection->skips = is_fast(connection) && begins_as_own_record(connection);
    return 1;
}

/* A request that came with the hello and was not taken: the client sends it again after the handshake. */
static int skip_record(struct connection *connection, BIO *below)
{
    while (connection->record_left > 0) {
        size_t some = input_left(connection) < connection->record_left ? input_left(connection)
                                                                       : connection->record_left;

        if (some == 0) {
            int got = input_fill(connection, below, connection->record_left);

            if (got <= 0)
                return got;
        }
        connection->input.start += some;
        connection->record_left -= some;
    }
    connection->skips = false;
    return 1;
}

static int boundary_read(BIO *bio, char *into, size_t size, size_t *got)
{
    struct connection *connection = BIO_get_data(bio);
    BIO *below = BIO_next(bio);
    int result = 1;

    BIO_clear_retry_flags(bio);
    *got = 0;
    if (size == 0)
        return 0;
    if (is_resumed_fast(connection)) {
        BIO_set_retry_read(bio); /* what follows is the request */
        return -1;
    }
    while (result > 0 && (connection->record_left == 0 || connection->skips))
        result = connection->record_left == 0 ? begin_record(connection, below) : skip_record(connection, below);
    if (result > 0 && input_left(connection) == 0)
        result = input_fill(connection, below, connection->record_left);
    if (result <= 0) {
        BIO_copy_next_retry(bio);
        return result;
    }
    *got = input_take(connection, into, size < connection->record_left ? size : connection->record_left);
    connection->record_left -= *got;
    return 1;
}

/* Of fast resumptions: libssl's flight waits for the first data, unless there is no room for it. */
static int boundary_write(BIO *bio, const char *data, size_t size, size_t *put)
{
    struct connection *connection = BIO_get_data(bio);
    int result;

    BIO_clear_retry_flags(bio);
    *put = 0;
    if (connection->reply_size + size <= REPLY_MAX) {
        memcpy(connection->reply + connection->reply_size, data, size);
        connection->reply_size += size;
        connection->reply_made = connection->reply_size;
        *put = size;
        return 1;
    }
    result = reply_release(connection, BIO_next(bio));
    if (result > 0)
        result = BIO_write_ex(BIO_next(bio), data, size, put);
    if (result <= 0)
        BIO_copy_next_retry(bio);
    return result;
}

static long boundary_ctrl(BIO *bio, int command, long number, void *pointer)
{
    struct connection *connection = BIO_get_data(bio);

    if (BIO_next(bio) == NULL)
        return 0;
    if (command == BIO_CTRL_FLUSH && connection->reply_size > 0) {
        int result = is_resumed_fast(connection) ? 1 : reply_release(connection, BIO_next(bio));

        if (result <= 0) {
            BIO_clear_retry_flags(bio);
            BIO_copy_next_retry(bio);
        }
        if (result <= 0 || connection->reply_size > 0)
            return result;
    }
    return BIO_ctrl(BIO_next(bio), command, number, pointer);
}

static int boundary_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

/* Once, before the first connection. The method lives as long as the process: freeing it at exit would be a race. */
bool boundary_prepare(void)
{
    int index = BIO_get_new_index();
    BIO_METHOD *made = index < 0 ? NULL : BIO_meth_new(index | BIO_TYPE_FILTER, "tlsdyno record boundary");

    if (made == NULL || !BIO_meth_set_read_ex(made, boundary_read) || !BIO_meth_set_write_ex(made, boundary_write)
        || !BIO_meth_set_ctrl(made, boundary_ctrl)
        || !BIO_meth_set_create(made, boundary_create))
        return false;
    method = made;
    method_type = index | BIO_TYPE_FILTER;
    return true;
}

/* A filter in front of `below`, which it holds a reference of. */
static BIO *filter_in_front(struct connection *connection, BIO *below)
{
    BIO *filter = BIO_new(method);

    if (filter == NULL)
        return NULL;
    BIO_set_data(filter, connection);
    BIO_up_ref(below); /* SSL_set0_rbio and SSL_set0_wbio give up the SSL's */
    BIO_push(filter, below);
    return filter;
}

bool boundary_insert(struct connection *connection, SSL *ssl)
{
    BIO *below = real.SSL_get_rbio(ssl);
    BIO *filter;

    if (below == NULL || transport_in(ssl) != below)
        return below != NULL; /* an SSL that is used again has it already */
    filter = filter_in_front(connection, below);
    if (filter == NULL)
        return false;
    SSL_set0_rbio(ssl, filter);
    return true;
}

/* The same in front of what libssl writes. */
bool boundary_hold(struct connection *connection, SSL *ssl)
{
    BIO *below = SSL_get_wbio(ssl);
    BIO *filter;

    if (below == NULL || transport_out(ssl) != below)
        return below != NULL;
    filter = filter_in_front(connection, below);
    if (filter == NULL)
        return false;
    SSL_set0_wbio(ssl, filter);
    return true;
}
