/*
 * The perfect cache over memory: the first full handshake makes the universal session; whoever offers it is resumed,
 * whoever offers another one is not, with a round trip fewer too. The area that the environment names says version and
 * kind of session.
 *
 *     shim_sessions CERTIFICATE KEY
 */
#include "shim_wire.h"

static SSL_SESSION *latest;

static int keep_latest(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl;
    SSL_SESSION_free(latest);
    latest = session;
    return 1;
}

/* A real handshake, and plain data after it. Answers whether the session was resumed. */
static bool connection(SSL_SESSION *session)
{
    static struct wire wire;
    SSL *server = new_server(&wire, true, 0);
    struct client client = new_client(area->version, session);
    unsigned char byte;
    bool resumed;

    shake_hands(server, &client, &wire);
    send_request(&wire);
    feed(server, &wire, 100);
    shuttle(&client, &wire);
    SSL_read(client.ssl, &byte, 1); /* takes tickets */
    ERR_clear_error();
    resumed = SSL_session_reused(client.ssl) == 1;
    CHECK(SSL_session_reused(server) == resumed);
    SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(server);
    SSL_free(client.ssl);
    return resumed;
}

static SSL_SESSION *copy_of(const SSL_SESSION *session)
{
    SSL_SESSION *copy = SSL_SESSION_dup(session); /* libssl's client uses one of TLS 1.3 once */

    CHECK(copy != NULL);
    return copy;
}

/* The same session by another name, which no server knows. */
static SSL_SESSION *renamed(const SSL_SESSION *session)
{
    static unsigned char der[8192];
    unsigned char *end = der;
    const unsigned char *name, *begin = der;
    unsigned int id_size = 0;
    size_t size = 0, at = 0, whole = (size_t)i2d_SSL_SESSION(session, &end);
    SSL_SESSION *made;

    SSL_SESSION_get0_ticket(session, &name, &size);
    if (size == 0) {
        name = SSL_SESSION_get_id(session, &id_size);
        size = id_size;
    }
    CHECK(size > 0 && whole > size && whole < sizeof(der));
    while (memcmp(der + at, name, size) != 0)
        CHECK(++at + size <= whole);
    der[at] ^= 1;
    made = d2i_SSL_SESSION(NULL, &begin, (long)whole);
    CHECK(made != NULL);
    return made;
}

/*
 * A fast resumption with libssl's own client: the request goes behind its hello, and what it would send after the
 * server's Finished does not. Where the session is not taken the handshake goes on, and the request is sent again.
 */
static void fast_connection(SSL_SESSION *session, size_t piece, bool resumes)
{
    static struct wire wire;
    unsigned char flight[4096], header[RECORD_HEADER_SIZE] = {0xd5, 3, 3, REQUEST_SIZE >> 8, REQUEST_SIZE & 0xff};
    SSL *server = new_server(&wire, piece % 2 == 0, 0);
    struct client client = new_client(area->version, session);
    int size;

    CHECK(SSL_do_handshake(client.ssl) == -1);
    size = BIO_read(client.out, flight, sizeof(flight));
    CHECK(size > 0);
    send_to(&wire, flight, (size_t)size);
    send_to(&wire, header, sizeof(header));
    send_request(&wire);
    if (resumes) {
        feed(server, &wire, piece);
        CHECK(wire.from_server_size == 0 || piece < (size_t)size + sizeof(header)); /* it waits for the answer */
    } else {
        shake_hands(server, &client, &wire);
        send_request(&wire);
        feed(server, &wire, piece);
    }
    write_answer(server);
    CHECK(SSL_session_reused(server) == resumes && wire.from_server_size > ANSWER_SIZE);
    check_answer(wire.from_server + wire.from_server_size - ANSWER_SIZE, ANSWER_SIZE);
    wire.from_server_size -= ANSWER_SIZE;
    shuttle(&client, &wire);
    CHECK(SSL_do_handshake(client.ssl) == 1 && SSL_session_reused(client.ssl) == resumes);
    wire.from_server_size += ANSWER_SIZE;
    check_end(server, &wire);
    SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(client.ssl);
    SSL_free(server);
}

/* A client that sends nothing with its hello gets the server's flight. */
static void fast_connection_without_request(SSL_SESSION *session)
{
    static struct wire wire;
    SSL *server = new_server(&wire, true, 0);
    struct client client = new_client(area->version, session);
    unsigned char flight[4096], byte;
    int size;

    CHECK(SSL_do_handshake(client.ssl) == -1);
    size = BIO_read(client.out, flight, sizeof(flight));
    CHECK(size > 0);
    send_to(&wire, flight, (size_t)size);
    wire.allowed = wire.to_server_size;
    CHECK(SSL_do_handshake(server) == 1 && wire.from_server_size == 0);
    CHECK(SSL_read(server, &byte, 1) == -1 && SSL_get_error(server, -1) == SSL_ERROR_WANT_READ);
    CHECK(wire.from_server_size > 0);
    shuttle(&client, &wire);
    CHECK(SSL_do_handshake(client.ssl) == 1);
    send_request(&wire);
    feed(server, &wire, 100);
    write_answer(server);
    SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(client.ssl);
    SSL_free(server);
}

int main(int argument_count, char **arguments)
{
    SSL_SESSION *universal;

    CHECK(argument_count == 3);
    make_contexts(arguments[1], arguments[2]);
    SSL_CTX_set_session_cache_mode(client_context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(client_context, keep_latest);
    if (!flag_is_set(SHIM_FLAG_TICKETS))
        SSL_CTX_set_options(client_context, SSL_OP_NO_TICKET);
    CHECK(!connection(NULL) && latest != NULL && SSL_SESSION_is_resumable(latest));
    universal = latest;
    latest = NULL;
    CHECK(!connection(NULL)); /* nothing more is stored */
    if (latest != NULL)
        CHECK(!connection(latest));
    first_mode = next_mode = ~(1u << SHIM_STAGE_ROUND_TRIP);
    for (int i = 0; i < 3; i++) {
        SSL_SESSION *copy = copy_of(universal);

        CHECK(connection(copy));
        SSL_SESSION_free(copy);
    }
    first_mode = next_mode = UINT32_MAX;
    for (size_t piece = 1; piece < 1000; piece = piece < 20 ? piece + 1 : piece * 2) {
        SSL_SESSION *copy = copy_of(universal), *foreign = renamed(universal);

        fast_connection(copy, piece, true);
        fast_connection(foreign, piece, false);
        SSL_SESSION_free(copy);
        SSL_SESSION_free(foreign);
    }
    fast_connection_without_request(universal);
    SSL_SESSION_free(universal);
    SSL_SESSION_free(latest);
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
    return 0;
}
