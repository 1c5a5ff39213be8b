/*
 * Operation SIGNATURE for a library whose context is its own round the wrapped provider's. A file that includes this
 * has CONTEXT before, a structure with the fields `functions` (of the algorithm) and `real` (the wrapped provider's
 * context). After it come the functions that the list names and this file lacks, `new_context`, `wrap`, and
 * SIGNATURE_ALGORITHM for each algorithm.
 */
#ifndef TLSDYNO_WRAPPING_SIGNATURE_H
#define TLSDYNO_WRAPPING_SIGNATURE_H

#include "wrapping.h"

#include <stdlib.h>

/*
 * What signs and checks in steps, as RSA and ECDSA do. Left out, as ways round what a library replaces: what signs in
 * one call, and the message functions of later versions. libcrypto falls back to the steps.
 */
#define SIGNATURE_IN_STEPS(X)                                                                                          \
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

#define SIGNATURE_FUNCTIONS(X)                                                                                         \
    SIGNATURE_IN_STEPS(X)                                                                                              \
    X(signature, SIGNATURE, digest_sign, DIGEST_SIGN)                                                                  \
    X(signature, SIGNATURE, digest_verify, DIGEST_VERIFY)

struct signature_functions {
    SIGNATURE_FUNCTIONS(FUNCTION_FIELD)
};

/* A function that passes on to the wrapped provider's. */
#define SIGNATURE_PASS_ON(name, parameters, ...)                                                                       \
    static int name parameters                                                                                         \
    {                                                                                                                  \
        CONTEXT *own = context;                                                                                        \
        const struct signature_functions *real = own->functions;                                                       \
                                                                                                                       \
        return real->name(own->real, __VA_ARGS__);                                                                     \
    }

SIGNATURE_PASS_ON(verify_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
SIGNATURE_PASS_ON(verify_recover_init, (void *context, void *key, const OSSL_PARAM params[]), key, params)
SIGNATURE_PASS_ON(verify_recover,
                  (void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length),
                  out, out_length, room, in, length)
SIGNATURE_PASS_ON(digest_verify_init, (void *context, const char *digest, void *key, const OSSL_PARAM params[]), digest,
                  key, params)
SIGNATURE_PASS_ON(digest_verify_update, (void *context, const unsigned char *data, size_t length), data, length)
SIGNATURE_PASS_ON(get_ctx_params, (void *context, OSSL_PARAM params[]), params)
SIGNATURE_PASS_ON(set_ctx_params, (void *context, const OSSL_PARAM params[]), params)
SIGNATURE_PASS_ON(get_ctx_md_params, (void *context, OSSL_PARAM params[]), params)
SIGNATURE_PASS_ON(set_ctx_md_params, (void *context, const OSSL_PARAM params[]), params)

static const OSSL_PARAM *gettable_ctx_md_params(void *context)
{
    CONTEXT *own = context;
    const struct signature_functions *real = own->functions;

    return real->gettable_ctx_md_params(own->real);
}

static const OSSL_PARAM *settable_ctx_md_params(void *context)
{
    CONTEXT *own = context;
    const struct signature_functions *real = own->functions;

    return real->settable_ctx_md_params(own->real);
}

static void freectx(void *context)
{
    CONTEXT *own = context;
    const struct signature_functions *real;

    if (own == NULL)
        return;
    real = own->functions;
    real->freectx(own->real);
    free(own);
}

/*
 * What has no context yet must know its algorithm by itself. `new_context` takes over what it is given; `wrap` has
 * these functions as parameters under the names of the list, so that the list becomes its table.
 */
#define SIGNATURE_ALGORITHM(name)                                                                                      \
    static void *name##_newctx(void *provider, const char *properties)                                                 \
    {                                                                                                                  \
        return new_context(&name, name.newctx(provider, properties));                                                  \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_gettable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.gettable_ctx_params(context == NULL ? NULL : ((CONTEXT *)context)->real, provider);                \
    }                                                                                                                  \
    static const OSSL_PARAM *name##_settable_ctx_params(void *context, void *provider)                                 \
    {                                                                                                                  \
        return name.settable_ctx_params(context == NULL ? NULL : ((CONTEXT *)context)->real, provider);                \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, name##_gettable_ctx_params, name##_settable_ctx_params,                      \
                    original->implementation);                                                                         \
    }

#endif
