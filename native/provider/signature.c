/*
 * Operation SIGNATURE: "RSA", "ECDSA", "ED25519" and "ML-DSA" for the stage authentication, "HMAC" (the HMAC of CBC
 * records) for the stage mac (mac.c).
 *
 * A signature is SIGNATURE_FILL up to the size that the real size query answers. The digest over what is signed stays
 * real: it is fetched in the private context. DIGEST_SIGN_FINAL runs twice for one signature, once for the size. The
 * context is ours round the wrapped provider's, and so keeps its mode.
 */
#include "provider.h"

#include <stdlib.h>

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
    X(signature, SIGNATURE, digest_sign, DIGEST_SIGN)                                                                  \
    X(signature, SIGNATURE, digest_verify_init, DIGEST_VERIFY_INIT)                                                    \
    X(signature, SIGNATURE, digest_verify_update, DIGEST_VERIFY_UPDATE)                                                \
    X(signature, SIGNATURE, digest_verify_final, DIGEST_VERIFY_FINAL)                                                  \
    X(signature, SIGNATURE, digest_verify, DIGEST_VERIFY)                                                              \
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
    SIGNATURE_FUNCTIONS(FUNCTION_FIELD)
};

static struct signature_functions rsa, ecdsa, ed25519, ml_dsa_44, ml_dsa_65, ml_dsa_87;

/* A function that passes on to the wrapped provider's. */
#define PASS_ON(name, parameters, ...)                                                                                 \
    static int name parameters                                                                                         \
    {                                                                                                                  \
        struct latched *latched = context;                                                                             \
        const struct signature_functions *real = latched->functions;                                                   \
                                                                                                                       \
        return real->name(latched->real, __VA_ARGS__);                                                                 \
    }

PASS_ON(sign_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
PASS_ON(verify_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
PASS_ON(verify_recover_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
PASS_ON(verify_recover,
        (void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in, size_t length),
        out, out_length, room, in, length)
PASS_ON(digest_sign_init, (void *context, const char *digest, void *key, const OSSL_PARAM params[]), digest, key,
        params)
PASS_ON(digest_sign_update, (void *context, const unsigned char *data, size_t length), data, length)
PASS_ON(digest_verify_init, (void *context, const char *digest, void *key, const OSSL_PARAM params[]), digest, key,
        params)
PASS_ON(digest_verify_update, (void *context, const unsigned char *data, size_t length), data, length)
PASS_ON(get_ctx_params, (void *context, OSSL_PARAM params[]), params)
PASS_ON(set_ctx_params, (void *context, const OSSL_PARAM params[]), params)
PASS_ON(get_ctx_md_params, (void *context, OSSL_PARAM params[]), params)
PASS_ON(set_ctx_md_params, (void *context, const OSSL_PARAM params[]), params)

static const OSSL_PARAM *gettable_ctx_md_params(void *context)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return real->gettable_ctx_md_params(latched->real);
}

static const OSSL_PARAM *settable_ctx_md_params(void *context)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return real->settable_ctx_md_params(latched->real);
}

static void freectx(void *context)
{
    struct latched *latched = context;
    const struct signature_functions *real;

    if (latched == NULL)
        return;
    real = latched->functions;
    real->freectx(latched->real);
    free(latched);
}

static void *dupctx(void *context)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return latch(real, real->dupctx(latched->real), real->freectx, latched->off);
}

static int fill_signature(unsigned char *signature, size_t *length, size_t room, size_t size)
{
    if (!acknowledged() || !fill_answer(signature, length, room, size, SIGNATURE_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_SIGN);
    private_key_operation(true);
    return 1;
}

static int check_signature(const unsigned char *signature, size_t length)
{
    if (!acknowledged())
        return 0;
    count_call(TLSDYNO_COUNT_VERIFY);
    if (length > 0 && all_bytes_are(signature, length, SIGNATURE_FILL))
        return 1;
    raise_error(REASON_PEER_HAS_STAGE_ON, "authentication: a real signature");
    return 0;
}

static int sign(void *context, unsigned char *signature, size_t *length, size_t room, const unsigned char *data,
                size_t data_length)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;
    size_t size = 0;

    if (signature == NULL)
        return real->sign(latched->real, NULL, length, room, data, data_length);
    if (!latched->off) {
        private_key_operation(false);
        return real->sign(latched->real, signature, length, room, data, data_length);
    }
    return real->sign(latched->real, NULL, &size, 0, data, data_length)
           && fill_signature(signature, length, room, size);
}

static int digest_sign_final(void *context, unsigned char *signature, size_t *length, size_t room)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;
    size_t size = 0;

    if (signature == NULL)
        return real->digest_sign_final(latched->real, NULL, length, room);
    if (!latched->off) {
        private_key_operation(false);
        return real->digest_sign_final(latched->real, signature, length, room);
    }
    return real->digest_sign_final(latched->real, NULL, &size, 0) && fill_signature(signature, length, room, size);
}

static int digest_sign(void *context, unsigned char *signature, size_t *length, size_t room, const unsigned char *data,
                       size_t data_length)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;
    size_t size = 0;

    if (signature == NULL)
        return real->digest_sign(latched->real, NULL, length, room, data, data_length);
    if (!latched->off) {
        private_key_operation(false);
        return real->digest_sign(latched->real, signature, length, room, data, data_length);
    }
    return real->digest_sign(latched->real, NULL, &size, 0, data, data_length)
           && fill_signature(signature, length, room, size);
}

static int verify(void *context, const unsigned char *signature, size_t length, const unsigned char *data,
                  size_t data_length)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return latched->off ? check_signature(signature, length)
                        : real->verify(latched->real, signature, length, data, data_length);
}

static int digest_verify_final(void *context, const unsigned char *signature, size_t length)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return latched->off ? check_signature(signature, length)
                        : real->digest_verify_final(latched->real, signature, length);
}

static int digest_verify(void *context, const unsigned char *signature, size_t length, const unsigned char *data,
                         size_t data_length)
{
    struct latched *latched = context;
    const struct signature_functions *real = latched->functions;

    return latched->off ? check_signature(signature, length)
                        : real->digest_verify(latched->real, signature, length, data, data_length);
}

/*
 * Left out: the message functions of later versions, ways round the no-op. RSA and ECDSA sign in steps; Ed25519 and
 * ML-DSA, which hash by themselves, sign in one call. Also wrapped where only the cost of a private-key operation is
 * ours.
 */
static const OSSL_DISPATCH *wrap(struct signature_functions *real, OSSL_FUNC_signature_newctx_fn *newctx,
                                 OSSL_FUNC_signature_gettable_ctx_params_fn *gettable,
                                 OSSL_FUNC_signature_settable_ctx_params_fn *settable, const OSSL_DISPATCH *table)
{
    const OSSL_DISPATCH in_steps[] = {
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
    const OSSL_DISPATCH in_one_call[] = {
        {OSSL_FUNC_SIGNATURE_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, FUNCTION(digest_sign_init)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN, FUNCTION(digest_sign)},
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT, FUNCTION(digest_verify_init)},
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY, FUNCTION(digest_verify)},
        {OSSL_FUNC_SIGNATURE_FREECTX, FUNCTION(freectx)},
        {OSSL_FUNC_SIGNATURE_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_SIGNATURE_GET_CTX_PARAMS, FUNCTION(get_ctx_params)},
        {OSSL_FUNC_SIGNATURE_GETTABLE_CTX_PARAMS, FUNCTION(gettable)},
        {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, FUNCTION(settable)},
        {0, NULL},
    };

    if (!stage_may_be_off(STAGE_AUTHENTICATION) && !private_key_burns())
        return table;
    SIGNATURE_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, real->digest_sign == NULL ? in_steps : in_one_call);
}

/* What has no context yet must know its algorithm by itself. */
#define ALGORITHM(name)                                                                                                \
    static void *name##_newctx(void *provider, const char *properties)                                                 \
    {                                                                                                                  \
        return latch(&name, name.newctx(provider, properties), name.freectx,                                           \
                     is_off(mode_now(), STAGE_AUTHENTICATION));                                                        \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_gettable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.gettable_ctx_params(context == NULL ? NULL : ((struct latched *)context)->real, provider);         \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_settable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.settable_ctx_params(context == NULL ? NULL : ((struct latched *)context)->real, provider);         \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, name##_gettable_ctx_params, name##_settable_ctx_params,                      \
                    original->implementation);                                                                         \
    }

ALGORITHM(rsa)
ALGORITHM(ecdsa)
ALGORITHM(ed25519)
ALGORITHM(ml_dsa_44)
ALGORITHM(ml_dsa_65)
ALGORITHM(ml_dsa_87)

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[]
        = {{"RSA", wrap_rsa},           {"ECDSA", wrap_ecdsa},         {"ED25519", wrap_ed25519},
           {"ML-DSA-44", wrap_ml_dsa_44}, {"ML-DSA-65", wrap_ml_dsa_65}, {"ML-DSA-87", wrap_ml_dsa_87},
           {"HMAC", record_hmac_wrap}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
