/*
 * The two HMACs of libssl, and what of the wrapped provider is called for them: SIGNATURE "HMAC" of CBC records, MAC
 * "HMAC" of the TLS 1.3 Finished and of session tickets.
 */
#ifndef TLSDYNO_WRAPPING_HMAC_H
#define TLSDYNO_WRAPPING_HMAC_H

#include "wrapping.h"

#define RECORD_FUNCTIONS(X)                                                                                            \
    X(signature, SIGNATURE, newctx, NEWCTX)                                                                            \
    X(signature, SIGNATURE, digest_sign_init, DIGEST_SIGN_INIT)                                                        \
    X(signature, SIGNATURE, digest_sign_update, DIGEST_SIGN_UPDATE)                                                    \
    X(signature, SIGNATURE, digest_sign_final, DIGEST_SIGN_FINAL)                                                      \
    X(signature, SIGNATURE, freectx, FREECTX)                                                                          \
    X(signature, SIGNATURE, dupctx, DUPCTX)                                                                            \
    X(signature, SIGNATURE, set_ctx_params, SET_CTX_PARAMS)                                                            \
    X(signature, SIGNATURE, settable_ctx_params, SETTABLE_CTX_PARAMS)

#define HANDSHAKE_FUNCTIONS(X)                                                                                         \
    X(mac, MAC, newctx, NEWCTX)                                                                                        \
    X(mac, MAC, dupctx, DUPCTX)                                                                                        \
    X(mac, MAC, freectx, FREECTX)                                                                                      \
    X(mac, MAC, init, INIT)                                                                                            \
    X(mac, MAC, update, UPDATE)                                                                                        \
    X(mac, MAC, final, FINAL)                                                                                          \
    X(mac, MAC, get_ctx_params, GET_CTX_PARAMS)                                                                        \
    X(mac, MAC, gettable_ctx_params, GETTABLE_CTX_PARAMS)                                                              \
    X(mac, MAC, set_ctx_params, SET_CTX_PARAMS)                                                                        \
    X(mac, MAC, settable_ctx_params, SETTABLE_CTX_PARAMS)

/* What a wrapped HMAC hands out; the functions that are not named have these names in both libraries. */
#define RECORD_ALLOWED(init, update, final, freectx, dupctx, set_ctx_params)                                           \
    {                                                                                                                  \
        {OSSL_FUNC_SIGNATURE_NEWCTX, FUNCTION(record_newctx)},                                                         \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, FUNCTION(init)},                                                        \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE, FUNCTION(update)},                                                    \
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL, FUNCTION(final)},                                                      \
        {OSSL_FUNC_SIGNATURE_FREECTX, FUNCTION(freectx)},                                                              \
        {OSSL_FUNC_SIGNATURE_DUPCTX, FUNCTION(dupctx)},                                                                \
        {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},                                                \
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, FUNCTION(record_settable_ctx_params)},                               \
        {0, NULL},                                                                                                     \
    }
#define HANDSHAKE_ALLOWED(init, update, final, freectx, dupctx)                                                        \
    {                                                                                                                  \
        {OSSL_FUNC_MAC_NEWCTX, FUNCTION(handshake_newctx)},                                                            \
        {OSSL_FUNC_MAC_DUPCTX, FUNCTION(dupctx)},                                                                      \
        {OSSL_FUNC_MAC_FREECTX, FUNCTION(freectx)},                                                                    \
        {OSSL_FUNC_MAC_INIT, FUNCTION(init)},                                                                          \
        {OSSL_FUNC_MAC_UPDATE, FUNCTION(update)},                                                                      \
        {OSSL_FUNC_MAC_FINAL, FUNCTION(final)},                                                                        \
        {OSSL_FUNC_MAC_GET_CTX_PARAMS, FUNCTION(handshake_get_ctx_params)},                                            \
        {OSSL_FUNC_MAC_GETTABLE_CTX_PARAMS, FUNCTION(handshake_gettable_ctx_params)},                                  \
        {OSSL_FUNC_MAC_SET_CTX_PARAMS, FUNCTION(handshake_set_ctx_params)},                                            \
        {OSSL_FUNC_MAC_SETTABLE_CTX_PARAMS, FUNCTION(handshake_settable_ctx_params)},                                  \
        {0, NULL},                                                                                                     \
    }

#endif
