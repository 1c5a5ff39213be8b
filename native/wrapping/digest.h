/*
 * Operation DIGEST as its libraries wrap it: what they call of the wrapped provider. A file that has `new_context`,
 * FREE_CONTEXT and the functions that the tables name includes `digest_tables.h` at its end.
 */
#ifndef TLSDYNO_WRAPPING_DIGEST_H
#define TLSDYNO_WRAPPING_DIGEST_H

#include "wrapping.h"

#define DIGEST_FUNCTIONS(X)                                                                                            \
    X(digest, DIGEST, newctx, NEWCTX)                                                                                  \
    X(digest, DIGEST, init, INIT)                                                                                      \
    X(digest, DIGEST, update, UPDATE)                                                                                  \
    X(digest, DIGEST, final, FINAL)                                                                                    \
    X(digest, DIGEST, digest, DIGEST)                                                                                  \
    X(digest, DIGEST, freectx, FREECTX)                                                                                \
    X(digest, DIGEST, dupctx, DUPCTX)

#endif
