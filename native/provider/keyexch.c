/*
 * Operation KEYEXCH: "X25519" and "ECDH", stage key_agreement. The shared secret is SECRET_FILL of its real size. The
 * context is ours round the wrapped provider's, and so keeps its mode.
 */
#include "provider.h"

#include <stdlib.h>

#define KEYEXCH_FUNCTIONS(X)                                                                                           \
    X(keyexch, KEYEXCH, newctx, NEWCTX)                                                                                \
    X(keyexch, KEYEXCH, init, INIT)                                                                                    \
    X(keyexch, KEYEXCH, derive, DERIVE)                                                                                \
    X(keyexch, KEYEXCH, set_peer, SET_PEER)                                                                            \
    X(keyexch, KEYEXCH, freectx, FREECTX)                                                                              \
    X(keyexch, KEYEXCH, dupctx, DUPCTX)                                                                                \
    X(keyexch, KEYEXCH, set_ctx_params, SET_CTX_PARAMS)                                                                \
    X(keyexch, KEYEXCH, settable_ctx_params, SETTABLE_CTX_PARAMS)                                                      \
    X(keyexch, KEYEXCH, get_ctx_params, GET_CTX_PARAMS)                                                                \
    X(keyexch, KEYEXCH, gettable_ctx_params, GETTABLE_CTX_PARAMS)

struct keyexch_functions {
    KEYEXCH_FUNCTIONS(FUNCTION_FIELD)
};

static struct keyexch_functions x25519, ecdh;

static int init(void *context, void *key, const OSSL_PARAM params[])
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;

    return real->init(latched->real, key, params);
}

static int set_peer(void *context, void *key)
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;

    return real->set_peer(latched->real, key);
}

static int derive(void *context, unsigned char *secret, size_t *length, size_t room)
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;
    size_t size = 0;

    if (secret == NULL || !latched->off)
        return real->derive(latched->real, secret, length, room);
    if (!acknowledged() || !real->derive(latched->real, NULL, &size, 0)
        || !fill_answer(secret, length, room, size, SECRET_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_KEY_DERIVE);
    return 1;
}

static void freectx(void *context)
{
    struct latched *latched = context;
    const struct keyexch_functions *real;

    if (latched == NULL)
        return;
    real = latched->functions;
    real->freectx(latched->real);
    free(latched);
}

static void *dupctx(void *context)
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;

    return latch(real, real->dupctx(latched->real), real->freectx, latched->off);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;

    return real->set_ctx_params(latched->real, params);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct latched *latched = context;
    const struct keyexch_functions *real = latched->functions;

    return real->get_ctx_params(latched->real, params);
}

/* The lists of ECDH: X25519 has some of these parameters, or none. */
PARAMETER_LIST(settable_ctx_params, ecdh.settable_ctx_params)
PARAMETER_LIST(gettable_ctx_params, ecdh.gettable_ctx_params)

static void *new_context(const struct keyexch_functions *real, void *provider)
{
    return latch(real, real->newctx(provider), real->freectx, is_off(mode_now(), STAGE_KEY_AGREEMENT));
}

static const OSSL_DISPATCH *wrap(struct keyexch_functions *real, OSSL_FUNC_keyexch_newctx_fn *newctx,
                                 const OSSL_DISPATCH *table)
{
    /* Left out: DERIVE_SKEY of later versions, a way round the no-op. */
    const OSSL_DISPATCH allowed[] = {KEYEXCH_FUNCTIONS(OWN_FUNCTION) {0, NULL}};

    KEYEXCH_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

ALGORITHM_WITH_CONTEXT(x25519)
ALGORITHM_WITH_CONTEXT(ecdh)

const OSSL_ALGORITHM *keyexch_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"X25519", wrap_x25519}, {"ECDH", wrap_ecdh}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
