/*
 * Operation SIGNATURE: "RSA" and "ECDSA" for the stage authentication, "HMAC" (the HMAC of CBC records) for the stage
 * mac (mac.c).
 *
 * A signature is SIGNATURE_FILL up to the size that the real size query answers. The digest over what is signed stays
 * real: it is fetched in the private context. DIGEST_SIGN_FINAL runs twice for one signature, once for the size.
 */
#include "provider.h"

struct signature_functions {
    OSSL_FUNC_signature_sign_fn *sign;
    OSSL_FUNC_signature_digest_sign_final_fn *digest_sign_final;
};

static struct signature_functions rsa, ecdsa;

static int fill_signature(unsigned char *signature, size_t *length, size_t room, size_t size)
{
    if (!acknowledged() || !fill_answer(signature, length, room, size, SIGNATURE_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_SIGN);
    private_key_operation();
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

static int sign(const struct signature_functions *real, void *context, unsigned char *signature, size_t *length,
                size_t room, const unsigned char *data, size_t data_length)
{
    size_t size = 0;

    if (signature == NULL)
        return real->sign(context, NULL, length, room, data, data_length);
    if (!stage_is_off(STAGE_AUTHENTICATION)) {
        private_key_operation();
        return real->sign(context, signature, length, room, data, data_length);
    }
    return real->sign(context, NULL, &size, 0, data, data_length) && fill_signature(signature, length, room, size);
}

static int digest_sign_final(const struct signature_functions *real, void *context, unsigned char *signature,
                             size_t *length, size_t room)
{
    size_t size = 0;

    if (signature == NULL)
        return real->digest_sign_final(context, NULL, length, room);
    if (!stage_is_off(STAGE_AUTHENTICATION)) {
        private_key_operation();
        return real->digest_sign_final(context, signature, length, room);
    }
    return real->digest_sign_final(context, NULL, &size, 0) && fill_signature(signature, length, room, size);
}

static int verify(void *context, const unsigned char *signature, size_t length, const unsigned char *data,
                  size_t data_length)
{
    (void)context;
    (void)data;
    (void)data_length;
    return check_signature(signature, length);
}

static int digest_verify_final(void *context, const unsigned char *signature, size_t length)
{
    (void)context;
    return check_signature(signature, length);
}

static int rsa_sign(void *context, unsigned char *signature, size_t *length, size_t room, const unsigned char *data,
                    size_t data_length)
{
    return sign(&rsa, context, signature, length, room, data, data_length);
}

static int rsa_digest_sign_final(void *context, unsigned char *signature, size_t *length, size_t room)
{
    return digest_sign_final(&rsa, context, signature, length, room);
}

static int ecdsa_sign(void *context, unsigned char *signature, size_t *length, size_t room, const unsigned char *data,
                      size_t data_length)
{
    return sign(&ecdsa, context, signature, length, room, data, data_length);
}

static int ecdsa_digest_sign_final(void *context, unsigned char *signature, size_t *length, size_t room)
{
    return digest_sign_final(&ecdsa, context, signature, length, room);
}

/*
 * The context is the wrapped provider's own. Left out: the one-shot and message functions of later versions, ways round
 * the no-op.
 */
#define ALLOWED(sign_function, digest_sign_final_function, verify_function, digest_verify_final_function)              \
    {                                                                                                                  \
        {OSSL_FUNC_SIGNATURE_NEWCTX, KEEP},                                                                            \
        {OSSL_FUNC_SIGNATURE_SIGN_INIT, KEEP},                                                                         \
        {OSSL_FUNC_SIGNATURE_SIGN, FUNCTION(sign_function)},                                                           \
        {OSSL_FUNC_SIGNATURE_VERIFY_INIT, KEEP},                                                                       \
        {OSSL_FUNC_SIGNATURE_VERIFY, verify_function},                                                                 \
        {OSSL_FUNC_SIGNATURE_VERIFY_RECOVER_INIT, KEEP},                                                               \
        {OSSL_FUNC_SIGNATURE_VERIFY_RECOVER, KEEP},                                                                    \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, KEEP},                                                                  \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE, KEEP},                                                                \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL, FUNCTION(digest_sign_final_function)},                                 \
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT, KEEP},                                                                \
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_UPDATE, KEEP},                                                              \
        {OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_FINAL, digest_verify_final_function},                                       \
        {OSSL_FUNC_SIGNATURE_FREECTX, KEEP},                                                                           \
        {OSSL_FUNC_SIGNATURE_DUPCTX, KEEP},                                                                            \
        {OSSL_FUNC_SIGNATURE_GET_CTX_PARAMS, KEEP},                                                                    \
        {OSSL_FUNC_SIGNATURE_GETTABLE_CTX_PARAMS, KEEP},                                                               \
        {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, KEEP},                                                                    \
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, KEEP},                                                               \
        {OSSL_FUNC_SIGNATURE_GET_CTX_MD_PARAMS, KEEP},                                                                 \
        {OSSL_FUNC_SIGNATURE_GETTABLE_CTX_MD_PARAMS, KEEP},                                                            \
        {OSSL_FUNC_SIGNATURE_SET_CTX_MD_PARAMS, KEEP},                                                                 \
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_MD_PARAMS, KEEP},                                                            \
        {0, NULL},                                                                                                     \
    }

static const OSSL_DISPATCH *wrap(struct signature_functions *real, const OSSL_ALGORITHM *original,
                                 const OSSL_DISPATCH *allowed)
{
    const OSSL_DISPATCH *table = original->implementation;

    real->sign = (OSSL_FUNC_signature_sign_fn *)table_find(table, OSSL_FUNC_SIGNATURE_SIGN);
    real->digest_sign_final
        = (OSSL_FUNC_signature_digest_sign_final_fn *)table_find(table, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL);
    return table_allow(table, allowed);
}

/* With the stage on, signatures are real and only what a private-key operation costs in addition is ours. */
static const OSSL_DISPATCH *wrap_rsa(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH off[]
        = ALLOWED(rsa_sign, rsa_digest_sign_final, FUNCTION(verify), FUNCTION(digest_verify_final));
    static const OSSL_DISPATCH on[] = ALLOWED(rsa_sign, rsa_digest_sign_final, KEEP, KEEP);

    (void)hide;
    if (!stage_is_off(STAGE_AUTHENTICATION) && settings()->burn_ns == 0)
        return original->implementation;
    return wrap(&rsa, original, stage_is_off(STAGE_AUTHENTICATION) ? off : on);
}

static const OSSL_DISPATCH *wrap_ecdsa(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH off[]
        = ALLOWED(ecdsa_sign, ecdsa_digest_sign_final, FUNCTION(verify), FUNCTION(digest_verify_final));
    static const OSSL_DISPATCH on[] = ALLOWED(ecdsa_sign, ecdsa_digest_sign_final, KEEP, KEEP);

    (void)hide;
    if (!stage_is_off(STAGE_AUTHENTICATION) && settings()->burn_ns == 0)
        return original->implementation;
    return wrap(&ecdsa, original, stage_is_off(STAGE_AUTHENTICATION) ? off : on);
}

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}, {"ECDSA", wrap_ecdsa}, {"HMAC", record_hmac_wrap}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
