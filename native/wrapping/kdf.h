/*
 * Operation KDF as its libraries wrap it: what they call of the wrapped provider. A file that has `new_context`,
 * FREE_CONTEXT and the functions that the tables name includes `kdf_tables.h` at its end.
 */
#ifndef TLSDYNO_WRAPPING_KDF_H
#define TLSDYNO_WRAPPING_KDF_H

#include "wrapping.h"

#define KDF_FUNCTIONS(X)                                                                                               \
    X(kdf, KDF, newctx, NEWCTX)                                                                                        \
    X(kdf, KDF, dupctx, DUPCTX)                                                                                        \
    X(kdf, KDF, freectx, FREECTX)                                                                                      \
    X(kdf, KDF, reset, RESET)                                                                                          \
    X(kdf, KDF, derive, DERIVE)                                                                                        \
    X(kdf, KDF, get_ctx_params, GET_CTX_PARAMS)                                                                        \
    X(kdf, KDF, set_ctx_params, SET_CTX_PARAMS)

#endif
