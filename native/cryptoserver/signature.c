/*
 * Operation SIGNATURE "RSA" and "ECDSA". libssl hands over the whole text that a handshake signs, which is kept and
 * sent: the cryptoserver hashes it itself, so that it knows what it signs. The context is ours round the wrapped
 * provider's, which does all that is no signature by a remote key.
 */
#include "cryptoserver.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/rsa.h>

#define SIGNATURE_FUNCTIONS(X)                                                                                         \
    X(signature, SIGNATURE, newctx, NEWCTX)                                                                            \
    X(signature, SIGNATURE, sign_init, SIGN_INIT)                                                                      \
    X(signature, SIGNATURE, sign, SIGN)                                                                                \
    X(signature, SIGNATURE, verify_init, VERIFY_INIT)                                                                  \
    X(signature, SIGNATURE, verify, VERIFY)                                                                            \
    X(signature, SIGNATURE, verify_recover_init, VERIFY_RECOVER_INIT)                                                  \
    X(signature, SIGNATURE, verify_recover, VERIFY_RECOVER)                                                            \
    X(signature, SIGNATURE, digest_sign_init, DIGEST_SIGN_INIT)                                                        \
    X(signature, SIGNATURE, digest_sign_update, DIGEST_SIGN_UPDATE)                                                    \
    X(signature, SIGNATURE, digest_sign_final, DIGEST_SIGN_FINAL)                                                      \
    X(signature, SIGNATURE, digest_verify_init, DIGEST_VERIFY_INIT)                                                    \
    X(signature, SIGNATURE, digest_verify_update, DIGEST_VERIFY_UPDATE)                                                \
    X(signature, SIGNATURE, digest_verify_final, DIGEST_VERIFY_FINAL)                                                  \
    X(signature, SIGNATURE, freectx, FREECTX)                                                                          \
    X(signature, SIGNATURE, dupctx, DUPCTX)                                                                            \
    X(signature, SIGNATURE, get_ctx_params, GET_CTX_PARAMS)                                                            \
    X(signature, SIGNATURE, gettable_ctx_params, GETTABLE_CTX_PARAMS)                                                  \
    X(signature, SIGNATURE, set_ctx_params, SET_CTX_PARAMS)                                                            \
    X(signature, SIGNATURE, settable_ctx_params, SETTABLE_CTX_PARAMS)                                                  \
    X(signature, SIGNATURE, get_ctx_md_params, GET_CTX_MD_PARAMS)                                                      \
    X(signature, SIGNATURE, gettable_ctx_md_params, GETTABLE_CTX_MD_PARAMS)                                            \
    X(signature, SIGNATURE, set_ctx_md_params, SET_CTX_MD_PARAMS)                                                      \
    X(signature, SIGNATURE, settable_ctx_md_params, SETTABLE_CTX_MD_PARAMS)

struct signature_functions {
    enum key_type type;
    SIGNATURE_FUNCTIONS(FUNCTION_FIELD)
};

static struct signature_functions rsa = {.type = KEY_RSA};
static struct signature_functions ecdsa = {.type = KEY_EC};

struct signing {
    const struct signature_functions *functions;
    void *real;
    bool is_remote; /* since the last begin */
    unsigned char key[IDENTIFIER_SIZE];
    unsigned char message[MESSAGE_MAX];
    size_t length; /* more than fits: nothing is kept beyond */
};

static void *context_round(const struct signature_functions *functions, void *real)
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

static void freectx(void *context)
{
    struct signing *signing = context;

    if (signing != NULL)
        signing->functions->freectx(signing->real);
    free(signing);
}

static void *dupctx(void *context)
{
    struct signing *signing = context, *copy;
    void *real = signing->functions->dupctx(signing->real);

    copy = context_round(signing->functions, real);
    if (copy != NULL) {
        *copy = *signing;
        copy->real = real;
    }
    return copy;
}

/* A function that passes on to the wrapped provider's. */
#define PASS_ON(name, parameters, ...)                                                                                 \
    static int name parameters                                                                                         \
    {                                                                                                                  \
        struct signing *signing = context;                                                                             \
                                                                                                                       \
        return signing->functions->name(signing->real, __VA_ARGS__);                                                   \
    }

PASS_ON(verify_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
PASS_ON(verify,
        (void *context, const unsigned char *signature, size_t length, const unsigned char *data, size_t data_length),
        signature, length, data, data_length)
PASS_ON(verify_recover_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
PASS_ON(verify_recover,
        (void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in, size_t length),
        out, out_length, room, in, length)
PASS_ON(digest_verify_init, (void *context, const char *digest, void *key, const OSSL_PARAM params[]), digest, key,
        params)
PASS_ON(digest_verify_update, (void *context, const unsigned char *data, size_t length), data, length)
PASS_ON(digest_verify_final, (void *context, const unsigned char *signature, size_t length), signature, length)
PASS_ON(get_ctx_params, (void *context, OSSL_PARAM params[]), params)
PASS_ON(set_ctx_params, (void *context, const OSSL_PARAM params[]), params)
PASS_ON(get_ctx_md_params, (void *context, OSSL_PARAM params[]), params)
PASS_ON(set_ctx_md_params, (void *context, const OSSL_PARAM params[]), params)

static const OSSL_PARAM *gettable_ctx_md_params(void *context)
{
    struct signing *signing = context;

    return signing->functions->gettable_ctx_md_params(signing->real);
}

static const OSSL_PARAM *settable_ctx_md_params(void *context)
{
    struct signing *signing = context;

    return signing->functions->settable_ctx_md_params(signing->real);
}

/* A key comes with the first begin only; later ones keep it. */
static void begin(struct signing *signing, void *key)
{
    if (key != NULL)
        signing->is_remote = key_is_remote(signing->functions->type, key, signing->key);
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

    if (signing->functions->type == KEY_RSA)
        params[1] = OSSL_PARAM_construct_int(OSSL_SIGNATURE_PARAM_PAD_MODE, &padding);
    if (signing->functions->get_ctx_params(signing->real, params)) {
        for (size_t i = 0; i < sizeof(SCHEMES) / sizeof(SCHEMES[0]); i++) {
            const struct scheme *scheme = &SCHEMES[i];

            if (strcasecmp(digest, scheme->digests[0]) != 0 && strcasecmp(digest, scheme->digests[1]) != 0)
                continue;
            if (signing->functions->type == KEY_EC)
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

/*
 * Left out: what signs in one call or hands over a digest in later versions, ways round the cryptoserver. libcrypto
 * falls back to these.
 */
static const OSSL_DISPATCH *wrap(struct signature_functions *real, OSSL_FUNC_signature_newctx_fn *newctx,
                                 OSSL_FUNC_signature_gettable_ctx_params_fn *gettable,
                                 OSSL_FUNC_signature_settable_ctx_params_fn *settable, const OSSL_DISPATCH *table)
{
    const OSSL_DISPATCH own[] = {
        {OSSL_FUNC_SIGNATURE_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_SIGNATURE_SIGN_INIT, FUNCTION(sign_init)},
        {OSSL_FUNC_SIGNATURE_SIGN, FUNCTION(sign)},
        {OSSL_FUNC_SIGNATURE_VERIFY_INIT, FUNCTION(verify_init)},
        {OSSL_FUNC_SIGNATURE_VERIFY, FUNCTION(verify)},
        {OSSL_FUNC_SIGNATURE_VERIFY_RECOVER_INIT, FUNCTION(verify_recover_init)},
        {OSSL_FUNC_SIGNATURE_VERIFY_RECOVER, FUNCTION(verify_recover)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, FUNCTION(digest_sign_init)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE, FUNCTION(digest_sign_update)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL, FUNCTION(digest_sign_final)},
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT, FUNCTION(digest_verify_init)},
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_UPDATE, FUNCTION(digest_verify_update)},
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_FINAL, FUNCTION(digest_verify_final)},
        {OSSL_FUNC_SIGNATURE_FREECTX, FUNCTION(freectx)},
        {OSSL_FUNC_SIGNATURE_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_SIGNATURE_GET_CTX_PARAMS, FUNCTION(get_ctx_params)},
        {OSSL_FUNC_SIGNATURE_GETTABLE_CTX_PARAMS, FUNCTION(gettable)},
        {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, FUNCTION(settable)},
        {OSSL_FUNC_SIGNATURE_GET_CTX_MD_PARAMS, FUNCTION(get_ctx_md_params)},
        {OSSL_FUNC_SIGNATURE_GETTABLE_CTX_MD_PARAMS, FUNCTION(gettable_ctx_md_params)},
        {OSSL_FUNC_SIGNATURE_SET_CTX_MD_PARAMS, FUNCTION(set_ctx_md_params)},
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_MD_PARAMS, FUNCTION(settable_ctx_md_params)},
        {0, NULL},
    };

    SIGNATURE_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, own);
}

/* What has no context yet must know its algorithm by itself. */
#define ALGORITHM(name)                                                                                                \
    static void *name##_newctx(void *provider, const char *properties)                                                 \
    {                                                                                                                  \
        return context_round(&name, name.newctx(provider, properties));                                                \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_gettable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.gettable_ctx_params(context == NULL ? NULL : ((struct signing *)context)->real, provider);         \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_settable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.settable_ctx_params(context == NULL ? NULL : ((struct signing *)context)->real, provider);         \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, name##_gettable_ctx_params, name##_settable_ctx_params,                      \
                    original->implementation);                                                                         \
    }

ALGORITHM(rsa)
ALGORITHM(ecdsa)

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}, {"ECDSA", wrap_ecdsa}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
