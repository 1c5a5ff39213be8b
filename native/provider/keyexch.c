/*
 * Operation KEYEXCH: "X25519" and "ECDH", stage key_agreement. The shared secret is SECRET_FILL of its real size. The
 * context is the wrapped provider's own.
 */
#include "provider.h"

static OSSL_FUNC_keyexch_derive_fn *real_x25519_derive, *real_ecdh_derive;

static int derive(OSSL_FUNC_keyexch_derive_fn *real, void *context, unsigned char *secret, size_t *length, size_t room)
{
    size_t size = 0;

    if (secret == NULL)
        return real(context, NULL, length, room);
    if (!acknowledged() || !real(context, NULL, &size, 0)
        || !fill_answer(secret, length, room, size, SECRET_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_KEY_DERIVE);
    return 1;
}

static int x25519_derive(void *context, unsigned char *secret, size_t *length, size_t room)
{
    return derive(real_x25519_derive, context, secret, length, room);
}

static int ecdh_derive(void *context, unsigned char *secret, size_t *length, size_t room)
{
    return derive(real_ecdh_derive, context, secret, length, room);
}

/* Left out: DERIVE_SKEY of later versions, a way round the no-op. */
#define ALLOWED(derive_function)                                                                                       \
    {                                                                                                                  \
        {OSSL_FUNC_KEYEXCH_NEWCTX, KEEP},                                                                              \
        {OSSL_FUNC_KEYEXCH_INIT, KEEP},                                                                                \
        {OSSL_FUNC_KEYEXCH_DERIVE, FUNCTION(derive_function)},                                                         \
        {OSSL_FUNC_KEYEXCH_SET_PEER, KEEP},                                                                            \
        {OSSL_FUNC_KEYEXCH_FREECTX, KEEP},                                                                             \
        {OSSL_FUNC_KEYEXCH_DUPCTX, KEEP},                                                                              \
        {OSSL_FUNC_KEYEXCH_SET_CTX_PARAMS, KEEP},                                                                      \
        {OSSL_FUNC_KEYEXCH_SETTABLE_CTX_PARAMS, KEEP},                                                                 \
        {OSSL_FUNC_KEYEXCH_GET_CTX_PARAMS, KEEP},                                                                      \
        {OSSL_FUNC_KEYEXCH_GETTABLE_CTX_PARAMS, KEEP},                                                                 \
        {0, NULL},                                                                                                     \
    }

static const OSSL_DISPATCH *wrap_x25519(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = ALLOWED(x25519_derive);

    (void)hide;
    real_x25519_derive = (OSSL_FUNC_keyexch_derive_fn *)table_find(original->implementation, OSSL_FUNC_KEYEXCH_DERIVE);
    return table_allow(original->implementation, allowed);
}

static const OSSL_DISPATCH *wrap_ecdh(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = ALLOWED(ecdh_derive);

    (void)hide;
    real_ecdh_derive = (OSSL_FUNC_keyexch_derive_fn *)table_find(original->implementation, OSSL_FUNC_KEYEXCH_DERIVE);
    return table_allow(original->implementation, allowed);
}

const OSSL_ALGORITHM *keyexch_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"X25519", wrap_x25519}, {"ECDH", wrap_ecdh}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
