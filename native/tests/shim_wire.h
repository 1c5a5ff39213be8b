/*
 * What the programs about the shim share: linked into them, its interposers stand in front of libssl for the program
 * itself and for libssl. An SSL of a server is fed by hand over a transport in memory, which gives and takes as the
 * test wants it; the server reads a request of a known size and writes an answer of a known size.
 */
#ifndef TLSDYNO_TEST_SHIM_WIRE_H
#define TLSDYNO_TEST_SHIM_WIRE_H

#include <stdbool.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "../shim/shim.h"
#include "check.h"

enum { BUFFER_MAX = 70000, REQUEST_SIZE = 300, ANSWER_SIZE = 40000 };

static SSL_CTX *server_context;
static SSL_CTX *client_context;

/*
 * The modes in which SSLs are made and then live. Without flips both are all bits, of which only those count that the
 * settings have.
 */
static uint32_t first_mode = UINT32_MAX, next_mode = UINT32_MAX;

/* ---- A transport that gives and takes as the test wants it ---- */

struct wire {
    unsigned char to_server[BUFFER_MAX];
    size_t to_server_size;
    size_t read;      /* of it, by the server */
    size_t allowed;   /* the server may read up to here */
    bool ended;       /* nothing comes after that */
    unsigned char from_server[BUFFER_MAX];
    size_t from_server_size;
    size_t write_max; /* bytes that one write takes; the next one is refused */
    bool refuse_next;
};

static inline int wire_read(BIO *bio, char *into, int size)
{
    struct wire *wire = BIO_get_data(bio);
    size_t left = wire->allowed - wire->read;

    BIO_clear_retry_flags(bio);
    if (left == 0) {
        if (wire->ended)
            return 0;
        BIO_set_retry_read(bio);
        return -1;
    }
    if ((size_t)size < left)
        left = (size_t)size;
    memcpy(into, wire->to_server + wire->read, left);
    wire->read += left;
    return (int)left;
}

static inline int wire_write(BIO *bio, const char *data, int size)
{
    struct wire *wire = BIO_get_data(bio);
    size_t some = (size_t)size;

    BIO_clear_retry_flags(bio);
    if (wire->write_max > 0 && wire->refuse_next) {
        wire->refuse_next = false;
        BIO_set_retry_write(bio);
        return -1;
    }
    wire->refuse_next = true;
    if (wire->write_max > 0 && some > wire->write_max)
        some = wire->write_max;
    CHECK(wire->from_server_size + some <= sizeof(wire->from_server));
    memcpy(wire->from_server + wire->from_server_size, data, some);
    wire->from_server_size += some;
    return (int)some;
}

static inline long wire_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

static inline int wire_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static inline SSL *new_server(struct wire *wire, bool read_ahead, size_t write_max)
{
    static BIO_METHOD *method;
    SSL *ssl;
    BIO *bio;

    atomic_store(&area->head.mode, first_mode);
    ssl = SSL_new(server_context);
    atomic_store(&area->head.mode, next_mode);
    if (method == NULL) {
        method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
        CHECK(method != NULL && BIO_meth_set_read(method, wire_read) && BIO_meth_set_write(method, wire_write)
              && BIO_meth_set_ctrl(method, wire_ctrl) && BIO_meth_set_create(method, wire_create));
    }
    bio = BIO_new(method);
    CHECK(ssl != NULL && bio != NULL);
    memset(wire, 0, sizeof(*wire));
    wire->write_max = write_max;
    BIO_set_data(bio, wire);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    SSL_set_read_ahead(ssl, read_ahead);
    return ssl;
}

static inline void send_to(struct wire *wire, const unsigned char *data, size_t size)
{
    CHECK(wire->to_server_size + size <= sizeof(wire->to_server));
    memcpy(wire->to_server + wire->to_server_size, data, size);
    wire->to_server_size += size;
}

/* ---- The server: reads a request of a known size, writes an answer of a known size ---- */

static inline void pattern(unsigned char *into, size_t size, unsigned int seed)
{
    for (size_t i = 0; i < size; i++)
        into[i] = (unsigned char)(seed + 5 * i + i / 251);
}

static inline bool wants_more(SSL *ssl, int result)
{
    int error = SSL_get_error(ssl, result);

    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

/* Reads as far as it goes now; what came so far must be the beginning of the request. */
static inline void read_request(SSL *ssl, size_t *have)
{
    unsigned char expected[REQUEST_SIZE], got[REQUEST_SIZE];

    pattern(expected, sizeof(expected), 3);
    while (*have < sizeof(got)) {
        int peeked = SSL_peek(ssl, got, 1);
        int result = SSL_read(ssl, got, (int)(sizeof(got) - *have));

        if (result <= 0) {
            CHECK(peeked <= 0 && wants_more(ssl, result));
            return;
        }
        CHECK(peeked == 1 && memcmp(got, expected + *have, (size_t)result) == 0);
        *have += (size_t)result;
    }
}

/* In pieces of this many bytes, so often that every boundary lies at the end of one of them at some time. */
static inline void feed(SSL *ssl, struct wire *wire, size_t piece)
{
    size_t have = 0;

    while (wire->allowed < wire->to_server_size) {
        wire->allowed = wire->allowed + piece < wire->to_server_size ? wire->allowed + piece : wire->to_server_size;
        /* A server's handshake also waits for the transport to take its flights. */
        for (int tries = 0; tries < 4000 && !SSL_is_init_finished(ssl); tries++) {
            int result = SSL_do_handshake(ssl);

            CHECK(result == 1 || wants_more(ssl, result));
            if (result == 1 || SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ)
                break;
        }
        if (SSL_is_init_finished(ssl))
            read_request(ssl, &have);
    }
    CHECK(SSL_is_init_finished(ssl) && !SSL_in_init(ssl));
    CHECK(have == REQUEST_SIZE);
}

static inline void write_answer(SSL *ssl)
{
    static unsigned char answer[ANSWER_SIZE];
    size_t done = 0;

    pattern(answer, sizeof(answer), 9);
    while (done < sizeof(answer)) {
        int result = SSL_write(ssl, answer + done, (int)(sizeof(answer) - done));

        CHECK(result > 0 || SSL_get_error(ssl, result) == SSL_ERROR_WANT_WRITE);
        CHECK(result <= 0 || (SSL_get_mode(ssl) & SSL_MODE_ENABLE_PARTIAL_WRITE) != 0 || result == (int)sizeof(answer));
        done += result > 0 ? (size_t)result : 0;
    }
}

static inline void check_answer(const unsigned char *answer, size_t size)
{
    static unsigned char expected[ANSWER_SIZE];

    pattern(expected, sizeof(expected), 9);
    CHECK(size == sizeof(expected) && memcmp(answer, expected, size) == 0);
}

static inline void check_end(SSL *ssl, struct wire *wire)
{
    unsigned char byte;
    size_t sent = wire->from_server_size;
    int result;

    CHECK(SSL_pending(ssl) == 0 && !SSL_has_pending(ssl));
    wire->ended = true;
    result = SSL_read(ssl, &byte, 1);
    CHECK(result == 0 && SSL_get_error(ssl, result) == SSL_ERROR_ZERO_RETURN);
    CHECK(SSL_shutdown(ssl) == 1 && SSL_get_shutdown(ssl) == (SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN));
    CHECK(wire->from_server_size == sent); /* no close_notify */
}

static inline void send_request(struct wire *wire)
{
    unsigned char request[REQUEST_SIZE];

    pattern(request, sizeof(request), 3);
    send_to(wire, request, sizeof(request));
}

/* ---- The client, where it is libssl's own ---- */

struct client {
    SSL *ssl;
    BIO *in;
    BIO *out;
    size_t given; /* of what the server wrote */
};

static inline struct client new_client(int version, SSL_SESSION *session)
{
    struct client client = {.ssl = SSL_new(client_context), .in = BIO_new(BIO_s_mem()), .out = BIO_new(BIO_s_mem())};

    CHECK(client.ssl != NULL && client.in != NULL && client.out != NULL);
    SSL_set_bio(client.ssl, client.in, client.out);
    SSL_set_connect_state(client.ssl);
    SSL_set_min_proto_version(client.ssl, version);
    SSL_set_max_proto_version(client.ssl, version);
    CHECK(session == NULL || SSL_set_session(client.ssl, session) == 1);
    return client;
}

/* Gives the client what the server wrote since the last time. */
static inline void shuttle(struct client *client, struct wire *wire)
{
    BIO_write(client->in, wire->from_server + client->given, (int)(wire->from_server_size - client->given));
    client->given = wire->from_server_size;
}

/*
 * Until the client is done. What it sent last (TLS 1.3, and resumed in TLS 1.2: its Finished) the server has not read.
 */
static inline void shake_hands(SSL *server, struct client *client, struct wire *wire)
{
    unsigned char flight[4096];

    for (bool done = false; !done;) {
        int size;

        done = SSL_do_handshake(client->ssl) == 1;
        size = BIO_read(client->out, flight, sizeof(flight));
        if (size > 0)
            send_to(wire, flight, (size_t)size);
        if (done)
            break;
        wire->allowed = wire->to_server_size;
        while (SSL_do_handshake(server) <= 0 && SSL_get_error(server, -1) == SSL_ERROR_WANT_WRITE) {
        }
        shuttle(client, wire);
    }
}

static inline void make_contexts(const char *certificate, const char *key)
{
    server_context = SSL_CTX_new(TLS_method());
    client_context = SSL_CTX_new(TLS_client_method());
    CHECK(server_context != NULL && client_context != NULL);
    CHECK(SSL_CTX_use_certificate_file(server_context, certificate, SSL_FILETYPE_PEM) == 1
          && SSL_CTX_use_PrivateKey_file(server_context, key, SSL_FILETYPE_PEM) == 1);
}

#endif
