/* TLS records as libssl makes them: two ends in this process shake hands in memory, then one writes, and what it writes
 * goes nowhere. */
#include "primitives.h"

/* More calls than any handshake takes. */
#define ROUNDS_MAX 20

static const char *identity[2];

void set_identity(const char *certificate, const char *key)
{
    identity[0] = certificate;
    identity[1] = key;
}

static bool record_step(struct operation *operation)
{
    return lib.SSL_write(operation->context, operation->buffer, (int)operation->bytes) == (int)operation->bytes;
}

static void record_end(struct operation *operation)
{
    lib.SSL_free(operation->context);
}

/* A context for this suite alone, of TLS 1.3 where its name is one of those, else of TLS 1.2. */
static SSL_CTX *context_of(const char *suite)
{
    SSL_CTX *context = lib.SSL_CTX_new(lib.TLS_method());

    if (context == NULL) {
        return NULL;
    }
    bool is_13 = lib.SSL_CTX_set_ciphersuites(context, suite) == 1;
    int version = is_13 ? TLS1_3_VERSION : TLS1_2_VERSION;

    lib.ERR_clear_error();
    if ((is_13 || lib.SSL_CTX_set_cipher_list(context, suite) == 1)
        && lib.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, version, NULL) == 1
        && lib.SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, version, NULL) == 1
        && lib.SSL_CTX_use_certificate_chain_file(context, identity[0]) == 1
        && lib.SSL_CTX_use_PrivateKey_file(context, identity[1], SSL_FILETYPE_PEM) == 1) {
        return context;
    }
    lib.SSL_CTX_free(context);
    return NULL;
}

/* Whether this end has done its handshake. */
static bool shake(SSL *end, bool *failed)
{
    int result = lib.SSL_do_handshake(end);

    if (result != 1 && lib.SSL_get_error(end, result) != SSL_ERROR_WANT_READ) {
        *failed = true;
    }
    return result == 1;
}

static bool connect_ends(SSL *server, SSL *client)
{
    BIO *to_server = lib.BIO_new(lib.BIO_s_mem());
    BIO *to_client = lib.BIO_new(lib.BIO_s_mem());
    bool failed = to_server == NULL || to_client == NULL;
    bool done = false;

    if (failed) {
        return false;
    }
    /* Each end owns a reference to both. */
    failed = lib.BIO_up_ref(to_server) != 1 || lib.BIO_up_ref(to_client) != 1;
    lib.SSL_set_bio(server, to_server, to_client);
    lib.SSL_set_bio(client, to_client, to_server);
    lib.SSL_set_accept_state(server);
    lib.SSL_set_connect_state(client);
    for (int round = 0; round < ROUNDS_MAX && !done && !failed; round++) {
        bool of_client = shake(client, &failed);

        done = shake(server, &failed) && of_client;
    }
    return done && !failed;
}

bool begin_record(struct operation *operation, const char *suite)
{
    SSL_CTX *context = context_of(suite);

    if (context == NULL) {
        return false;
    }
    SSL *server = lib.SSL_new(context);
    SSL *client = lib.SSL_new(context);
    bool connected = server != NULL && client != NULL && connect_ends(server, client);
    BIO *nowhere = connected ? lib.BIO_new(lib.BIO_s_null()) : NULL;

    lib.SSL_free(client);
    lib.SSL_CTX_free(context);
    if (nowhere == NULL) {
        lib.SSL_free(server);
        return false;
    }
    lib.SSL_set0_wbio(server, nowhere);
    operation->context = server;
    operation->step = record_step;
    operation->end = record_end;
    return true;
}
