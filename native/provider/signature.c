/*
 * Operation SIGNATURE: "RSA", "ECDSA", "ED25519" and "ML-DSA" for the stage authentication, "HMAC" (the HMAC of CBC
 * records) for the stage mac (mac.c).
 *
 * A signature is SIGNATURE_FILL up to the size that the real size query answers. The digest over what is signed stays
 * real: it is fetched in the private context. DIGEST_SIGN_FINAL runs twice for one signature, once for the size. The
 * context is ours round the wrapped provider's, and so keeps its mode.
 */
#include "provider.h"

#define CONTEXT struct latched
#include "../wrapping/signature.h"

static struct signature_functions rsa, ecdsa, ed25519, ml_dsa_44, ml_dsa_65, ml_dsa_87;

SIGNATURE_PASS_ON(sign_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
SIGNATURE_PASS_ON(digest_sign_init, (void *context, const char *digest, void *key, const OSSL_PARAM params[]), digest,
                  key, params)
SIGNATURE_PASS_ON(digest_sign_update, (void *context, const unsigned char *data, size_t length), data, length)

static void *new_context(const struct signature_functions *functions, void *real)
{
    return latch(functions, real, functions->freectx, is_off(mode_now(), STAGE_AUTHENTICATION));
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

/* Ed25519 and ML-DSA hash by themselves, so that they sign in one call. */
#define SIGNATURE_IN_ONE_CALL(X)                                                                                       \
    X(signature, SIGNATURE, newctx, NEWCTX)                                                                            \
    X(signature, SIGNATURE, digest_sign_init, DIGEST_SIGN_INIT)                                                        \
    X(signature, SIGNATURE, digest_sign, DIGEST_SIGN)                                                                  \
    X(signature, SIGNATURE, digest_verify_init, DIGEST_VERIFY_INIT)                                                    \
    X(signature, SIGNATURE, digest_verify, DIGEST_VERIFY)                                                              \
    X(signature, SIGNATURE, freectx, FREECTX)                                                                          \
    X(signature, SIGNATURE, dupctx, DUPCTX)                                                                            \
    X(signature, SIGNATURE, get_ctx_params, GET_CTX_PARAMS)                                                            \
    X(signature, SIGNATURE, gettable_ctx_params, GETTABLE_CTX_PARAMS)                                                  \
    X(signature, SIGNATURE, set_ctx_params, SET_CTX_PARAMS)                                                            \
    X(signature, SIGNATURE, settable_ctx_params, SETTABLE_CTX_PARAMS)

/* Also wrapped where only the cost of a private-key operation is ours. */
static const OSSL_DISPATCH *wrap(struct signature_functions *real, OSSL_FUNC_signature_newctx_fn *newctx,
                                 OSSL_FUNC_signature_gettable_ctx_params_fn *gettable_ctx_params,
                                 OSSL_FUNC_signature_settable_ctx_params_fn *settable_ctx_params,
                                 const OSSL_DISPATCH *table)
{
    const OSSL_DISPATCH in_steps[] = {SIGNATURE_IN_STEPS(OWN_FUNCTION) {0, NULL}};
    const OSSL_DISPATCH in_one_call[] = {SIGNATURE_IN_ONE_CALL(OWN_FUNCTION) {0, NULL}};

    if (!stage_may_be_off(STAGE_AUTHENTICATION) && !private_key_burns())
        return table;
    SIGNATURE_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, real->digest_sign == NULL ? in_steps : in_one_call);
}

SIGNATURE_ALGORITHM(rsa)
SIGNATURE_ALGORITHM(ecdsa)
SIGNATURE_ALGORITHM(ed25519)
SIGNATURE_ALGORITHM(ml_dsa_44)
SIGNATURE_ALGORITHM(ml_dsa_65)
SIGNATURE_ALGORITHM(ml_dsa_87)

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[]
        = {{"RSA", wrap_rsa},           {"ECDSA", wrap_ecdsa},         {"ED25519", wrap_ed25519},
           {"ML-DSA-44", wrap_ml_dsa_44}, {"ML-DSA-65", wrap_ml_dsa_65}, {"ML-DSA-87", wrap_ml_dsa_87},
           {"HMAC", record_hmac_wrap}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
