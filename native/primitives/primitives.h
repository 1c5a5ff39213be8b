/* What measures a libcrypto's primitives and a libssl's records: a process of its own, which opens the libraries that
 * it is told, so that those are measured that a server uses. */
#ifndef TLSDYNO_PRIMITIVES_H
#define TLSDYNO_PRIMITIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>

/* The functions that are called, all of them by the libraries' own symbols. */
#define CRYPTO_FUNCTIONS(of) \
    of(BIO_new) of(BIO_s_mem) of(BIO_s_null) of(BIO_up_ref) \
    of(ERR_clear_error) of(ERR_error_string_n) of(ERR_get_error) \
    of(EVP_CIPHER_CTX_free) of(EVP_CIPHER_CTX_new) of(EVP_CIPHER_fetch) of(EVP_CIPHER_free) of(EVP_Digest) \
    of(EVP_EncryptInit_ex) of(EVP_EncryptUpdate) of(EVP_MAC_CTX_free) of(EVP_MAC_CTX_new) of(EVP_MAC_fetch) \
    of(EVP_MAC_final) of(EVP_MAC_free) of(EVP_MAC_init) of(EVP_MAC_update) of(EVP_MD_fetch) of(EVP_MD_free) \
    of(OPENSSL_init_crypto) of(OSSL_PARAM_construct_end) of(OSSL_PARAM_construct_utf8_string) of(OSSL_PROVIDER_load) \
    of(OSSL_PROVIDER_unload) of(OpenSSL_version)
#define SSL_FUNCTIONS(of) \
    of(SSL_CTX_ctrl) of(SSL_CTX_free) of(SSL_CTX_new) of(SSL_CTX_set_cipher_list) of(SSL_CTX_set_ciphersuites) \
    of(SSL_CTX_use_PrivateKey_file) of(SSL_CTX_use_certificate_chain_file) of(SSL_do_handshake) of(SSL_free) \
    of(SSL_get_error) of(SSL_new) of(SSL_set0_wbio) of(SSL_set_accept_state) of(SSL_set_bio) \
    of(SSL_set_connect_state) of(SSL_write) of(TLS_method)

/* A field with the name and the type of each. */
struct functions {
#define FIELD(name) __typeof__(name) *name;
    CRYPTO_FUNCTIONS(FIELD)
    SSL_FUNCTIONS(FIELD)
#undef FIELD
};

extern struct functions lib;

/* Opens both libraries and finds their functions; false with a reason. */
bool open_libraries(const char *libcrypto, const char *libssl, char *reason, size_t size);

/* What is done over and over. A step is one call on so many bytes; false: it failed. */
struct operation {
    bool (*step)(struct operation *operation);
    void (*end)(struct operation *operation);
    unsigned char *buffer;
    size_t bytes;
    void *context;
    void *algorithm;
};

/* Each prepares an operation on the bytes of its buffer; false: the library does not have it, or refuses. */
bool begin_cipher(struct operation *operation, const char *name);
bool begin_digest(struct operation *operation, const char *name);
bool begin_hmac(struct operation *operation, const char *digest);
bool begin_record(struct operation *operation, const char *suite);

/* The files of the certificate and its key that records are measured with. */
void set_identity(const char *certificate, const char *key);

#endif
