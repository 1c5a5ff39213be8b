/* What of the wrapped provider is called for operation CIPHER. */
#ifndef TLSDYNO_WRAPPING_CIPHER_H
#define TLSDYNO_WRAPPING_CIPHER_H

#include "wrapping.h"

/* A file that wraps a cipher has one of its own for each of these. */
#define CIPHER_OF_CONTEXT(X)                                                                                           \
    X(cipher, CIPHER, encrypt_init, ENCRYPT_INIT)                                                                      \
    X(cipher, CIPHER, decrypt_init, DECRYPT_INIT)                                                                      \
    X(cipher, CIPHER, update, UPDATE)                                                                                  \
    X(cipher, CIPHER, final, FINAL)                                                                                    \
    X(cipher, CIPHER, cipher, CIPHER)                                                                                  \
    X(cipher, CIPHER, dupctx, DUPCTX)                                                                                  \
    X(cipher, CIPHER, get_ctx_params, GET_CTX_PARAMS)                                                                  \
    X(cipher, CIPHER, set_ctx_params, SET_CTX_PARAMS)

#define CIPHER_FUNCTIONS(X)                                                                                            \
    CIPHER_OF_CONTEXT(X)                                                                                               \
    X(cipher, CIPHER, newctx, NEWCTX)                                                                                  \
    X(cipher, CIPHER, freectx, FREECTX)                                                                                \
    X(cipher, CIPHER, get_params, GET_PARAMS)                                                                          \
    X(cipher, CIPHER, gettable_ctx_params, GETTABLE_CTX_PARAMS)                                                        \
    X(cipher, CIPHER, settable_ctx_params, SETTABLE_CTX_PARAMS)

#endif
