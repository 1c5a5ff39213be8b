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

#endif
