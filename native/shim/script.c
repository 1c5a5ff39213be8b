/*
 * Skeleton handshakes (stages handshake and round_trip): messages of the sizes that a real handshake has, without
 * content. The first flight names the script; a flight begins with 16 and ends with 00, which the receiver checks.
 */
#include "shim.h"

#include <string.h>

enum { KIND_FULL, KIND_RESUMED, KIND_FAST };
enum { HANDSHAKE_RECORD = 0x16, OWN_FLIGHT = 0xd5, OWN_FLIGHT_AT = 5, KIND_AT = 6 };

/* Waits for the client: a read that ends in the middle of a handshake is no orderly end. */
static int fill(struct connection *connection, SSL *ssl, size_t wanted)
{
    BIO *bio = transport_in(ssl);
    int result = input_fill(connection, bio, wanted);

    if (result > 0)
        return 1;
    connection->error = transport_error(bio, result);
    if (connection->error == SSL_ERROR_ZERO_RETURN)
        connection->error = SSL_ERROR_SYSCALL;
    return -1;
}

/* Enough of the connection's beginning to tell what it is. */
static int read_first_bytes(struct connection *connection, SSL *ssl)
{
    while (input_left(connection) < FIRST_FLIGHT_MIN) {
        int result = fill(connection, ssl, FIRST_FLIGHT_MIN);

        if (result <= 0)
            return result;
    }
    return 1;
}

static bool is_own_flight(const struct connection *connection)
{
    static const unsigned char BEGINNING[] = {HANDSHAKE_RECORD, 3, 1};
    const unsigned char *first = connection->input.bytes + connection->input.start;

    return memcmp(first, BEGINNING, sizeof(BEGINNING)) == 0 && first[OWN_FLIGHT_AT] == OWN_FLIGHT;
}

/*
 * Which kinds this connection takes: with one round trip fewer a resumption that has it is as wrong as the other way
 * round.
 */
static const struct tlsdyno_script *script_of(const struct connection *connection, unsigned char kind)
{
    bool fast = is_off(connection->mode, SHIM_STAGE_ROUND_TRIP);

    if (kind == KIND_FULL)
        return &area->full;
    return kind == (fast ? KIND_FAST : KIND_RESUMED) ? &area->resumed : NULL;
}

static int choose_script(struct connection *connection)
{
    static const enum tlsdyno_shim_counter COUNTS[] = {
        [KIND_FULL] = SHIM_COUNT_SKELETON_FULL,
        [KIND_RESUMED] = SHIM_COUNT_SKELETON_RESUMED,
        [KIND_FAST] = SHIM_COUNT_SKELETON_FAST,
    };
    const unsigned char *first = connection->input.bytes + connection->input.start;
    const struct tlsdyno_script *script;
    size_t size = RECORD_HEADER_SIZE + ((size_t)first[3] << 8 | first[4]);

    if (!is_own_flight(connection))
        return broken(connection, "the client does not begin with a skeleton's first flight");
    script = script_of(connection, first[KIND_AT]);
    if (script == NULL || atomic_load_explicit(&script->flight_count, memory_order_acquire) == 0)
        return broken(connection, "the client names a kind of handshake that this server has no script for");
    if (script->flight_count > TLSDYNO_SHIM_FLIGHTS || size != script->flights[0])
        return broken(connection, "the client's first flight is not as long as the script's");
    connection->script = script;
    connection->kind = COUNTS[first[KIND_AT]];
    return 1;
}

/* Takes a flight of the client from the input; every byte of it comes by here. */
static int skip_flight(struct connection *connection, SSL *ssl, size_t size)
{
    while (connection->flight_done < size) {
        size_t left = size - connection->flight_done;
        const unsigned char *next;

        if (input_left(connection) == 0) {
            int result = fill(connection, ssl, left);

            if (result <= 0)
                return result;
        }
        next = connection->input.bytes + connection->input.start;
        if (left > input_left(connection))
            left = input_left(connection);
        if (connection->flight_done == 0 && next[0] != HANDSHAKE_RECORD)
            return broken(connection, "a flight of the client does not begin as one");
        connection->input.start += left;
        connection->flight_done += left;
        if (connection->flight_done == size && next[left - 1] != 0)
            return broken(connection, "a flight of the client does not end as one");
    }
    connection->flight_done = 0;
    connection->flight++;
    return 1;
}

/* Writes a flight and pushes it out, as libssl does at the end of each of its own. */
static int write_flight(struct connection *connection, SSL *ssl, size_t size)
{
    static const unsigned char FLIGHT[RECORD_DATA_MAX] = {HANDSHAKE_RECORD};
    BIO *bio = SSL_get_wbio(ssl);
    int result;

    while (connection->flight_done < size) {
        size_t done = connection->flight_done;
        size_t from = done < sizeof(FLIGHT) ? done : 1;
        size_t some = size - done < sizeof(FLIGHT) - from ? size - done : sizeof(FLIGHT) - from;

        result = BIO_write(bio, FLIGHT + from, (int)some);
        if (result <= 0) {
            connection->error = transport_error(bio, result);
            return -1;
        }
        connection->flight_done += (size_t)result;
    }
    result = (int)BIO_flush(bio);
    if (result <= 0) {
        connection->error = transport_error(bio, -1);
        return -1;
    }
    connection->flight_done = 0;
    connection->flight++;
    return 1;
}

static bool waits_for_data(const struct connection *connection)
{
    return connection->kind == SHIM_COUNT_SKELETON_FAST;
}

static bool has_more_flights(const struct connection *connection)
{
    return connection->flight < (waits_for_data(connection) ? 1 : connection->script->flight_count);
}

/* Moves the skeleton on; 1 when it is complete. */
int script_step(struct connection *connection, SSL *ssl)
{
    int result = 1;

    if (connection->script == NULL) {
        result = read_first_bytes(connection, ssl);
        if (result > 0)
            result = choose_script(connection);
    }
    if (result > 0 && waits_for_data(connection) && connection->reply_size == 0) {
        connection->reply[0] = HANDSHAKE_RECORD;
        connection->reply_made = 1;
        connection->reply_size = connection->script->flights[1];
    }
    while (result > 0 && has_more_flights(connection)) {
        size_t size = connection->script->flights[connection->flight];

        result = connection->flight % 2 == 0 ? skip_flight(connection, ssl, size) : write_flight(connection, ssl, size);
    }
    if (result > 0)
        is_set_up(connection, ssl, connection->kind);
    return result;
}
