/*
 * The perfect cache over memory: the first full handshake makes the universal session; whoever offers it is resumed,
 * whoever offers another one is not; and the fast resumption proves that the server knows its master key. The area that
 * the environment names says version and kind of session.
 *
 *     shim_sessions CERTIFICATE KEY
 */
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include "shim_wire.h"

enum { RANDOM_SIZE = 32, VERIFY_SIZE = 12, NAME_MAX_SIZE = 32 };

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

/* The same by hand, docs/NOOP.md. */
static void expected_verify_data(SSL_SESSION *session, const unsigned char *flight, size_t size,
                                 unsigned char *server_random, unsigned char *verify)
{
    unsigned char secret[SSL_MAX_MASTER_KEY_LENGTH], seed[15 + 32] = "server finished";
    size_t secret_size = SSL_SESSION_get_master_key(session, secret, sizeof(secret));
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_TLS1_PRF, NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, secret, secret_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, seed, sizeof(seed)),
        OSSL_PARAM_construct_end(),
    };

    CHECK(secret_size > 0 && hash != NULL && context != NULL);
    CHECK(EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(hash, flight, size) == 1
          && EVP_DigestUpdate(hash, server_random, RANDOM_SIZE) == 1 && EVP_DigestFinal_ex(hash, seed + 15, NULL) == 1);
    CHECK(EVP_KDF_derive(context, verify, VERIFY_SIZE, params) == 1);
    EVP_MD_CTX_free(hash);
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
}

static size_t session_name(SSL_SESSION *session, unsigned char *name)
{
    const unsigned char *found;
    unsigned int id_size = 0;
    size_t size = 0;

    if (SSL_SESSION_has_ticket(session)) {
        SSL_SESSION_get0_ticket(session, &found, &size);
    } else {
        found = SSL_SESSION_get_id(session, &id_size);
        size = id_size;
    }
    size = size < NAME_MAX_SIZE ? size : NAME_MAX_SIZE;
    memcpy(name, found, size);
    return size;
}

static size_t fast_flight(unsigned char *flight, SSL_SESSION *session)
{
    size_t size = area->resumed.flights[0];
    unsigned char name[NAME_MAX_SIZE];
    size_t name_size = session_name(session, name);

    memset(flight, 0, size);
    memcpy(flight, "\x16\x03\x01", 3);
    flight[3] = (unsigned char)((size - 5) >> 8);
    flight[4] = (unsigned char)(size - 5);
    flight[5] = 0xd5;
    flight[6] = 3;
    CHECK(RAND_bytes(flight + 7, RANDOM_SIZE) == 1);
    flight[7 + RANDOM_SIZE] = (unsigned char)name_size;
    memcpy(flight + 8 + RANDOM_SIZE, name, name_size);
    return size;
}

static void fast_connection(SSL_SESSION *session, size_t piece)
{
    static struct wire wire;
    unsigned char flight[4096], verify[VERIFY_SIZE];
    size_t size = fast_flight(flight, session);
    size_t reply = area->resumed.flights[1];
    SSL *server = new_server(&wire, piece % 2 == 0, 0);

    send_to(&wire, flight, size);
    send_request(&wire);
    feed(server, &wire, piece);
    CHECK(wire.from_server_size == 0); /* the reply waits for the answer */
    write_answer(server);
    CHECK(wire.from_server[0] == 0x16);
    expected_verify_data(session, flight, size, wire.from_server + 1, verify);
    CHECK(memcmp(wire.from_server + 1 + RANDOM_SIZE, verify, VERIFY_SIZE) == 0);
    for (size_t i = 1 + RANDOM_SIZE + VERIFY_SIZE; i < reply; i++)
        CHECK(wire.from_server[i] == 0);
    check_answer(wire.from_server + reply, wire.from_server_size - reply);
    check_end(server, &wire);
    SSL_free(server);
}

static void another_session_is_refused(SSL_SESSION *session)
{
    static struct wire wire;
    unsigned char flight[4096];
    size_t size = fast_flight(flight, session);
    SSL *server = new_server(&wire, false, 0);

    flight[8 + RANDOM_SIZE] ^= 1;
    send_to(&wire, flight, size);
    wire.allowed = size;
    CHECK(SSL_do_handshake(server) == -1 && SSL_get_error(server, -1) == SSL_ERROR_SSL);
    ERR_clear_error();
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
    for (int i = 0; i < 3; i++) {
        SSL_SESSION *copy = SSL_SESSION_dup(universal); /* libssl's client uses one of TLS 1.3 once */

        CHECK(copy != NULL && connection(copy));
        SSL_SESSION_free(copy);
    }
    for (size_t piece = 1; piece < 1000; piece = piece < 20 ? piece + 1 : piece * 2)
        fast_connection(universal, piece);
    another_session_is_refused(universal);
    SSL_SESSION_free(universal);
    SSL_SESSION_free(latest);
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
    return 0;
}
