/*
 * Operation ASYM_CIPHER "RSA" for a library whose context is its own round the wrapped provider's. A file that includes
 * this has CONTEXT before, a structure with the field `real`, the wrapped provider's context. After it come the
 * functions that the list names and this file lacks.
 */
#ifndef TLSDYNO_WRAPPING_ASYM_CIPHER_H
#define TLSDYNO_WRAPPING_ASYM_CIPHER_H

#include "wrapping.h"

#include <stdlib.h>

#define ASYM_CIPHER_FUNCTIONS(X)                                                                                       \
    X(asym_cipher, ASYM_CIPHER, newctx, NEWCTX)                                                                        \
    X(asym_cipher, ASYM_CIPHER, encrypt_init, ENCRYPT_INIT)                                                            \
    X(asym_cipher, ASYM_CIPHER, encrypt, ENCRYPT)                                                                      \
    X(asym_cipher, ASYM_CIPHER, decrypt_init, DECRYPT_INIT)                                                            \
    X(asym_cipher, ASYM_CIPHER, decrypt, DECRYPT)                                                                      \
    X(asym_cipher, ASYM_CIPHER, freectx, FREECTX)                                                                      \
    X(asym_cipher, ASYM_CIPHER, dupctx, DUPCTX)                                                                        \
    X(asym_cipher, ASYM_CIPHER, get_ctx_params, GET_CTX_PARAMS)                                                        \
    X(asym_cipher, ASYM_CIPHER, gettable_ctx_params, GETTABLE_CTX_PARAMS)                                              \
    X(asym_cipher, ASYM_CIPHER, set_ctx_params, SET_CTX_PARAMS)                                                        \
    X(asym_cipher, ASYM_CIPHER, settable_ctx_params, SETTABLE_CTX_PARAMS)

static struct rsa_functions {
    ASYM_CIPHER_FUNCTIONS(FUNCTION_FIELD)
} rsa;

static void *real_of(void *context)
{
    return ((CONTEXT *)context)->real;
}

static int encrypt_init(void *context, void *key, const OSSL_PARAM params[])
{
    return rsa.encrypt_init(real_of(context), key, params);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    return rsa.get_ctx_params(real_of(context), params);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    return rsa.set_ctx_params(real_of(context), params);
}

static const OSSL_PARAM *gettable_ctx_params(void *context, void *provider)
{
    return rsa.gettable_ctx_params(context == NULL ? NULL : real_of(context), provider);
}

static const OSSL_PARAM *settable_ctx_params(void *context, void *provider)
{
    return rsa.settable_ctx_params(context == NULL ? NULL : real_of(context), provider);
}

static void freectx(void *context)
{
    if (context != NULL)
        rsa.freectx(real_of(context));
    free(context);
}

#endif
