/*
 * Operation ASYM_CIPHER "RSA": the pre-master secret of static RSA, which a cryptoserver decrypts if it was told to.
 * It checks padding and version, and answers other bytes, the same each time, where they are wrong (RFC 5246 section
 * 7.4.7.1), so that this process never learns which.
 */
#include "cryptoserver.h"

#include <string.h>

#include <openssl/rsa.h>

enum { PREMASTER_SIZE = 48 };

struct decrypting {
    void *real;
    bool is_remote; /* since the last begin */
    unsigned char key[IDENTIFIER_SIZE];
};

#define CONTEXT struct decrypting
#include "../wrapping/asym_cipher.h"

static void *context_round(void *real)
{
    struct decrypting *made = real == NULL ? NULL : calloc(1, sizeof(*made));

    if (made == NULL) {
        raise_error(REASON_NO_MEMORY, "context");
        if (real != NULL)
            rsa.freectx(real);
        return NULL;
    }
    made->real = real;
    return made;
}

static void *newctx(void *provider)
{
    return context_round(rsa.newctx(provider));
}

static void *dupctx(void *context)
{
    struct decrypting *decrypting = context, *copy;
    void *real = rsa.dupctx(decrypting->real);

    copy = context_round(real);
    if (copy != NULL) {
        *copy = *decrypting;
        copy->real = real;
    }
    return copy;
}

static int encrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    return rsa.encrypt(real_of(context), out, out_length, room, in, length);
}

static int decrypt_init(void *context, void *key, const OSSL_PARAM params[])
{
    struct decrypting *decrypting = context;

    if (key != NULL)
        decrypting->is_remote = key_is_remote(KEY_RSA, key, decrypting->key);
    return rsa.decrypt_init(decrypting->real, key, params);
}

/* The version that the client offered, where a handshake decrypts; 0 (raised) for all other uses. */
static uint16_t client_version(const struct decrypting *decrypting)
{
    int padding = 0, version = 0;
    OSSL_PARAM params[3] = {OSSL_PARAM_construct_int(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, &padding),
                            OSSL_PARAM_construct_int(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version),
                            OSSL_PARAM_construct_end()};

    if (rsa.get_ctx_params(decrypting->real, params) && padding == RSA_PKCS1_WITH_TLS_PADDING && version > 0
        && version <= UINT16_MAX)
        return (uint16_t)version;
    raise_error(REASON_UNSUPPORTED_USE, "a remote key decrypts the pre-master secrets of handshakes only");
    return 0;
}

static int decrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    struct decrypting *decrypting = context;
    unsigned char answer[ANSWER_MAX];
    struct remote_request request = {.kind = OPERATION_DECRYPT, .message = in, .length = length};
    size_t said = 0;
    bool is_done;

    if (out == NULL || !decrypting->is_remote)
        return rsa.decrypt(decrypting->real, out, out_length, room, in, length);
    memcpy(request.key, decrypting->key, sizeof(request.key));
    request.detail = client_version(decrypting);
    if (request.detail == 0)
        return 0;
    if (length > MESSAGE_MAX || room < PREMASTER_SIZE) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes to decrypt into %zu", length, room);
        return 0;
    }
    is_done = agent_ask(&request, answer, &said) && said == PREMASTER_SIZE;
    if (is_done) {
        memcpy(out, answer, PREMASTER_SIZE);
        *out_length = PREMASTER_SIZE;
    }
    explicit_bzero(answer, sizeof(answer));
    return is_done;
}

static const OSSL_DISPATCH *wrap_rsa(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = {ASYM_CIPHER_FUNCTIONS(OWN_FUNCTION) {0, NULL}};
    const OSSL_DISPATCH *table = original->implementation;
    struct rsa_functions *real = &rsa;

    (void)hide;
    ASYM_CIPHER_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *decryption_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}};

    return algorithms_wrap(originals, wrappings, 1);
}
