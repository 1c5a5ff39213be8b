/*
 * tlsdyno's provider of remote keys: wraps OpenSSL's default provider and lets a cryptoserver sign and decrypt in place
 * of the server's own process (docs/CRYPTOSERVER.md). Unlike the other libraries here it takes no security away, and
 * needs no running tlsdyno but the agent on its socket.
 *
 * The server loads a stub in place of the private key: public parts, and where the secret would stand a marker of 32
 * bytes, MARKER and the first half of the SHA-256 of the public key (crates/cryptoserver/src/stub.rs). Keys without the
 * marker are used as ever. Without this provider a stub makes signatures that nobody accepts.
 */
#ifndef TLSDYNO_CRYPTOSERVER_H
#define TLSDYNO_CRYPTOSERVER_H

#include "../wrapping/wrapping.h"

/* What a frame on the socket may hold; crates/cryptoserver/src/frame.rs says what stands where. */
enum {
    IDENTIFIER_SIZE = 16,
    MESSAGE_MAX = 512,
    ANSWER_MAX = 512,
};

enum operation_kind {
    OPERATION_SIGN = 1,
    OPERATION_DECRYPT = 2,
};

/* One operation that another process is asked for. */
struct remote_request {
    enum operation_kind kind;
    unsigned char key[IDENTIFIER_SIZE];
    uint16_t detail; /* the signature scheme of TLS, or the version that the client offered */
    const unsigned char *message;
    size_t length;
};

/* agent.c: the section's socket; false (raised) where it has none, or another one than before. */
bool agent_take_socket(const struct section *section, bool again);
/* Asks, and waits; in an OpenSSL job it lets the server go on meanwhile. False (raised): there is no answer. */
bool agent_ask(const struct remote_request *request, unsigned char answer[ANSWER_MAX], size_t *length);

/* key.c */
enum key_type { KEY_RSA, KEY_EC };
/* Finds what reads keys. False (raised) where the wrapped provider does not have it. */
bool key_find_functions(const OSSL_ALGORITHM *keymgmts);
/* Whether the secret is elsewhere; then `identifier` says of which key. */
bool key_is_remote(enum key_type type, void *key, unsigned char identifier[IDENTIFIER_SIZE]);

/* signature.c, decryption.c: the algorithms to hand out, NULL on failure (raised). */
const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *decryption_algorithms(const OSSL_ALGORITHM *originals);

#endif
