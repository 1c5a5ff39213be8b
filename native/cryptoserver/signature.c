/*
 * Operation SIGNATURE "RSA" and "ECDSA". libssl hands over the whole text that a handshake signs, which is kept and
 * sent: the cryptoserver hashes it itself, so that it knows what it signs. The context is ours round the wrapped
 * provider's, which does all that is no signature by a remote key.
 */
#include "cryptoserver.h"

#include <string.h>
#include <strings.h>

#include <openssl/rsa.h>

struct signing {
    const struct signature_functions *functions;
    void *real;
    bool is_remote; /* since the last begin */
    unsigned char key[IDENTIFIER_SIZE];
    unsigned char message[MESSAGE_MAX];
    size_t length; /* more than fits: nothing is kept beyond */
};

#define CONTEXT struct signing
#include "../wrapping/signature.h"

static struct signature_functions rsa, ecdsa;

SIGNATURE_PASS_ON(verify,
                  (void *context, const unsigned char *signature, size_t length, const unsigned char *data,
                   size_t data_length),
                  signature, length, data, data_length)
SIGNATURE_PASS_ON(digest_verify_final, (void *context, const unsigned char *signature, size_t length), signature,
                  length)

static void *new_context(const struct signature_functions *functions, void *real)
{
    struct signing *made = real == NULL ? NULL : calloc(1, sizeof(*made));

    if (made == NULL) {
        raise_error(REASON_NO_MEMORY, "context");
        if (real != NULL)
            functions->freectx(real);
        return NULL;
    }
    made->functions = functions;
    made->real = real;
    return made;
}

static void *dupctx(void *context)
{
    struct signing *signing = context, *copy;
    void *real = signing->functions->dupctx(signing->real);

    copy = new_context(signing->functions, real);
    if (copy != NULL) {
        *copy = *signing;
        copy->real = real;
    }
    return copy;
}

static enum key_type type_of(const struct signing *signing)
{
    return signing->functions == &rsa ? KEY_RSA : KEY_EC;
}

/* A key comes with the first begin only; later ones keep it. */
static void begin(struct signing *signing, void *key)
{
    if (key != NULL)
        signing->is_remote = key_is_remote(type_of(signing), key, signing->key);
    signing->length = 0;
}

static int sign_init(void *context, void *key, const OSSL_PARAM params[])
{
    struct signing *signing = context;

    begin(signing, key);
    return signing->functions->sign_init(signing->real, key, params);
}

/* Here the text is hashed already: nobody could tell what it says. */
static int sign(void *context, unsigned char *signature, size_t *length, size_t room, const unsigned char *data,
                size_t data_length)
{
    struct signing *signing = context;

    if (signature != NULL && signing->is_remote) {
        raise_error(REASON_UNSUPPORTED_USE, "a remote key signs handshakes of TLS 1.2 and 1.3, and no digests");
        return 0;
    }
    return signing->functions->sign(signing->real, signature, length, room, data, data_length);
}

static int digest_sign_init(void *context, const char *digest, void *key, const OSSL_PARAM params[])
{
    struct signing *signing = context;

    begin(signing, key);
    return signing->functions->digest_sign_init(signing->real, digest, key, params);
}

static int digest_sign_update(void *context, const unsigned char *data, size_t length)
{
    struct signing *signing = context;

    if (!signing->is_remote)
        return signing->functions->digest_sign_update(signing->real, data, length);
    if (length > MESSAGE_MAX - signing->length) {
        raise_error(REASON_UNSUPPORTED_USE, "a remote key signs handshakes, of at most %d bytes", MESSAGE_MAX);
        return 0;
    }
    memcpy(signing->message + signing->length, data, length);
    signing->length += length;
    return 1;
}

/* The signature schemes of TLS (RFC 8446 section 4.2.3): of each hash that of PKCS #1, of PSS and of ECDSA. */
static const struct scheme {
    const char *digests[2];
    uint16_t pkcs1, pss, ecdsa;
} SCHEMES[] = {
    {{"SHA2-256", "SHA256"}, 0x0401, 0x0804, 0x0403},
    {{"SHA2-384", "SHA384"}, 0x0501, 0x0805, 0x0503},
    {{"SHA2-512", "SHA512"}, 0x0601, 0x0806, 0x0603},
};

/* What the server has asked the wrapped provider's context for; 0 (raised): TLS has no such scheme. */
static uint16_t scheme_of(const struct signing *signing)
{
    char digest[32] = "";
    int padding = RSA_PKCS1_PADDING;
    OSSL_PARAM params[3] = {OSSL_PARAM_construct_utf8_string(OSSL_SIGNATURE_PARAM_DIGEST, digest, sizeof(digest)),
                            OSSL_PARAM_construct_end(), OSSL_PARAM_construct_end()};

    if (type_of(signing) == KEY_RSA)
        params[1] = OSSL_PARAM_construct_int(OSSL_SIGNATURE_PARAM_PAD_MODE, &padding);
    if (signing->functions->get_ctx_params(signing->real, params)) {
        for (size_t i = 0; i < sizeof(SCHEMES) / sizeof(SCHEMES[0]); i++) {
            const struct scheme *scheme = &SCHEMES[i];

            if (strcasecmp(digest, scheme->digests[0]) != 0 && strcasecmp(digest, scheme->digests[1]) != 0)
                continue;
            if (type_of(signing) == KEY_EC)
                return scheme->ecdsa;
            if (padding == RSA_PKCS1_PADDING || padding == RSA_PKCS1_PSS_PADDING)
                return padding == RSA_PKCS1_PADDING ? scheme->pkcs1 : scheme->pss;
        }
    }
    raise_error(REASON_UNSUPPORTED_USE, "a remote key does not sign with %s and padding %d", digest, padding);
    return 0;
}

static int digest_sign_final(void *context, unsigned char *signature, size_t *length, size_t room)
{
    struct signing *signing = context;
    unsigned char answer[ANSWER_MAX];
    struct remote_request request = {.kind = OPERATION_SIGN, .message = signing->message, .length = signing->length};
    size_t said = 0;

    if (signature == NULL || !signing->is_remote)
        return signing->functions->digest_sign_final(signing->real, signature, length, room);
    memcpy(request.key, signing->key, sizeof(request.key));
    request.detail = scheme_of(signing);
    if (request.detail == 0 || !agent_ask(&request, answer, &said))
        return 0;
    if (said > room) {
        raise_error(REASON_BUFFER_TOO_SMALL, "a signature of %zu bytes, room for %zu", said, room);
        return 0;
    }
    memcpy(signature, answer, said);
    *length = said;
    return 1;
}

static const OSSL_DISPATCH *wrap(struct signature_functions *real, OSSL_FUNC_signature_newctx_fn *newctx,
                                 OSSL_FUNC_signature_gettable_ctx_params_fn *gettable_ctx_params,
                                 OSSL_FUNC_signature_settable_ctx_params_fn *settable_ctx_params,
                                 const OSSL_DISPATCH *table)
{
    const OSSL_DISPATCH own[] = {SIGNATURE_IN_STEPS(OWN_FUNCTION) {0, NULL}};

    SIGNATURE_IN_STEPS(FIND_FUNCTION)
    return table_allow(table, own);
}

SIGNATURE_ALGORITHM(rsa)
SIGNATURE_ALGORITHM(ecdsa)

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}, {"ECDSA", wrap_ecdsa}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
