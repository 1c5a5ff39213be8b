/*
 * The operations of the program `modes`: each makes a context in one mode, does its work in the next, and puts what
 * came of it into `out`, the same in every run.
 */
#ifndef TLSDYNO_TEST_MODES_OPERATIONS_H
#define TLSDYNO_TEST_MODES_OPERATIONS_H

#include <stdbool.h>
#include <string.h>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rsa.h>

#include "modes.h"

enum { TEXT_SIZE = 48, PREMASTER_SIZE = 48 };

typedef size_t operation(unsigned char *out);

static const unsigned char KEY[64] = {1, 2, 3};
static const unsigned char TEXT[TEXT_SIZE] = "the same text in every run";

/* Made while everything was on, once. */
static EVP_PKEY *rsa, *ec, *x25519, *x25519_peer, *ec_peer, *ed25519, *hybrid; /* hybrid: NULL before OpenSSL 3.5 */
static unsigned char real_signature[512], real_premaster_block[512], kept_public[128];
static size_t real_signature_size, real_premaster_block_size, kept_public_size;

/* ---- flips ---- */

static uint32_t first_mode, next_mode;

/* Before an operation makes its context. */
static void start(void)
{
    set_mode(first_mode);
}

/* Between its context and its work. */
static void flip(void)
{
    set_mode(next_mode);
}

/* ---- operations ---- */

static size_t digest_of(const char *name, unsigned char *out)
{
    start();
    EVP_MD *digest = EVP_MD_fetch(NULL, name, NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    unsigned int size = 0;

    CHECK(digest != NULL && EVP_DigestInit_ex(context, digest, NULL) == 1);
    CHECK(EVP_DigestUpdate(context, TEXT, 11) == 1);
    flip();
    CHECK(EVP_MD_CTX_copy_ex(copy, context) == 1);
    CHECK(EVP_DigestUpdate(context, TEXT, TEXT_SIZE) == 1 && EVP_DigestFinal_ex(context, out, &size) == 1);
    CHECK(EVP_DigestFinal_ex(copy, out + size, &size) == 1);
    EVP_MD_CTX_free(copy);
    EVP_MD_CTX_free(context);
    EVP_MD_free(digest);
    return 2 * size;
}

static size_t digests(unsigned char *out)
{
    size_t size = digest_of("SHA1", out);

    size += digest_of("SHA2-256", out + size);
    return size + digest_of("SHA2-384", out + size);
}

static size_t derivation(const char *name, OSSL_PARAM params[], unsigned char *out)
{
    start();
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, name, NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);

    CHECK(context != NULL && EVP_KDF_CTX_set_params(context, params) == 1);
    flip();
    CHECK(EVP_KDF_derive(context, out, 32, NULL) == 1);
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return 32;
}

static OSSL_PARAM octets(const char *name, const void *data, size_t size)
{
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)data, size);
}

static OSSL_PARAM sha256(const char *name)
{
    return OSSL_PARAM_construct_utf8_string(name, (char *)(uintptr_t)"SHA2-256", 0);
}

static size_t derivations(unsigned char *out)
{
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    OSSL_PARAM prf[] = {sha256("digest"), octets("secret", KEY, 32), octets("seed", TEXT, 20),
                        OSSL_PARAM_construct_end()};
    OSSL_PARAM hkdf[] = {sha256("digest"), octets("key", KEY, 32), octets("salt", TEXT, 20),
                         OSSL_PARAM_construct_end()};
    OSSL_PARAM tls13[] = {OSSL_PARAM_construct_int("mode", &mode), sha256("digest"), octets("key", KEY, 32),
                          octets("prefix", "tls13 ", 6), octets("label", "key", 3), OSSL_PARAM_construct_end()};
    size_t size = derivation("TLS1-PRF", prf, out);

    size += derivation("HKDF", hkdf, out + size);
    return size + derivation("TLS13-KDF", tls13, out + size);
}

static size_t handshake_hmac(unsigned char *out)
{
    start();
    OSSL_PARAM params[] = {sha256("digest"), OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(mac);
    EVP_MAC_CTX *copy;
    size_t size = 0, copied = 0;

    CHECK(context != NULL && EVP_MAC_init(context, KEY, 32, params) == 1 && EVP_MAC_update(context, TEXT, 9) == 1);
    flip();
    copy = EVP_MAC_CTX_dup(context);
    CHECK(copy != NULL && EVP_MAC_final(context, out, &size, 64) == 1 && size == 32);
    CHECK(EVP_MAC_final(copy, out + size, &copied, 64) == 1 && memcmp(out, out + size, size) == 0);
    EVP_MAC_CTX_free(copy);
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
    return size;
}

/* As libssl: keyed once, copied and finished for each record. */
static size_t record_hmac(unsigned char *out)
{
    start();
    EVP_PKEY *key = EVP_PKEY_new_mac_key(EVP_PKEY_HMAC, NULL, KEY, 20);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    size_t size = 64;

    CHECK(key != NULL && EVP_DigestSignInit_ex(context, NULL, "SHA1", NULL, NULL, key, NULL) == 1);
    flip();
    CHECK(EVP_MD_CTX_copy_ex(copy, context) == 1 && EVP_DigestSignUpdate(copy, TEXT, TEXT_SIZE) == 1);
    CHECK(EVP_DigestSignFinal(copy, out, &size) == 1 && size == 20);
    EVP_MD_CTX_free(copy);
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    return size;
}

static EVP_CIPHER_CTX *cipher_context(const char *name, int sealing)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    CHECK(cipher != NULL && EVP_CipherInit_ex(context, cipher, NULL, KEY, KEY + 32, sealing) == 1);
    EVP_CIPHER_free(cipher);
    return context;
}

/* Sealed by one context and opened by another of the same mode. */
static size_t aead(const char *name, unsigned char *out)
{
    start();
    EVP_CIPHER_CTX *seal = cipher_context(name, 1);
    EVP_CIPHER_CTX *open = cipher_context(name, 0);
    unsigned char back[TEXT_SIZE];
    int done = 0;

    flip();
    CHECK(EVP_CipherUpdate(seal, NULL, &done, TEXT, 5) == 1);
    CHECK(EVP_CipherUpdate(seal, out, &done, TEXT, TEXT_SIZE) == 1 && done == TEXT_SIZE);
    CHECK(EVP_CipherFinal_ex(seal, out + TEXT_SIZE, &done) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_AEAD_GET_TAG, 16, out + TEXT_SIZE) > 0);

    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_SET_TAG, 16, out + TEXT_SIZE) > 0);
    CHECK(EVP_CipherUpdate(open, NULL, &done, TEXT, 5) == 1);
    CHECK(EVP_CipherUpdate(open, back, &done, out, TEXT_SIZE) == 1 && memcmp(back, TEXT, TEXT_SIZE) == 0);
    CHECK(EVP_CipherFinal_ex(open, back, &done) == 1);
    EVP_CIPHER_CTX_free(open);
    EVP_CIPHER_CTX_free(seal);
    return TEXT_SIZE + 16;
}

static size_t aeads(unsigned char *out)
{
    size_t size = aead("AES-128-GCM", out);

    size += aead("AES-256-GCM", out + size);
    return size + aead("ChaCha20-Poly1305", out + size);
}

/* One record of TLS 1.2, its nonce implicit, as with ChaCha20. */
static size_t aead_record(unsigned char *out)
{
    start();
    unsigned char additional[13] = {[7] = 5, [8] = 23, [9] = 3, [10] = 3, [12] = TEXT_SIZE};
    EVP_CIPHER_CTX *context = cipher_context("ChaCha20-Poly1305", 1);
    int done = 0;

    flip();
    memcpy(out, TEXT, TEXT_SIZE);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, sizeof(additional), additional) == 16);
    CHECK(EVP_CipherUpdate(context, out, &done, out, TEXT_SIZE + 16) == 1 && done == TEXT_SIZE + 16);
    EVP_CIPHER_CTX_free(context);
    return TEXT_SIZE + 16;
}

/* One record of TLS 1.2 with encrypt-then-MAC: the explicit IV first. */
static size_t cbc_record(unsigned char *out)
{
    start();
    int version = 0x0303;
    size_t mac_size = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_int("tls-version", &version),
                           OSSL_PARAM_construct_size_t("tls-mac-size", &mac_size), OSSL_PARAM_construct_end()};
    EVP_CIPHER_CTX *context = cipher_context("AES-128-CBC", 1);
    int done = 0;

    CHECK(EVP_CIPHER_CTX_set_params(context, params) == 1);
    flip();
    memcpy(out, TEXT, TEXT_SIZE);
    CHECK(EVP_CipherUpdate(context, out, &done, out, TEXT_SIZE) == 1 && done == TEXT_SIZE + 16);
    EVP_CIPHER_CTX_free(context);
    return TEXT_SIZE + 16;
}

static bool has_stitched(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-CBC-HMAC-SHA1", NULL);

    EVP_CIPHER_free(cipher);
    ERR_clear_error();
    return cipher != NULL;
}

static size_t stitched_record(unsigned char *out)
{
    start();
    unsigned char additional[13] = {[8] = 23, [9] = 3, [10] = 3, [12] = TEXT_SIZE};
    EVP_CIPHER_CTX *context = cipher_context("AES-128-CBC-HMAC-SHA1", 1);
    int done = 0, expansion;

    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_MAC_KEY, 20, (void *)(uintptr_t)KEY) > 0);
    flip();
    memcpy(out, TEXT, TEXT_SIZE);
    expansion = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, sizeof(additional), additional);
    CHECK(expansion == 32);
    CHECK(EVP_CipherUpdate(context, out, &done, out, TEXT_SIZE + expansion) == 1 && done == TEXT_SIZE + expansion);
    EVP_CIPHER_CTX_free(context);
    return TEXT_SIZE + (size_t)expansion;
}

/* By EVP_DigestSign and by EVP_PKEY_sign. */
static size_t rsa_signatures(unsigned char *out)
{
    start();
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY_CTX *bare = EVP_PKEY_CTX_new_from_pkey(NULL, rsa, NULL);
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    size_t size = 256, bare_size = 256;

    CHECK(EVP_DigestSignInit_ex(context, NULL, "SHA2-512", NULL, NULL, rsa, NULL) == 1);
    CHECK(EVP_DigestSignUpdate(context, TEXT, TEXT_SIZE) == 1 && EVP_PKEY_sign_init(bare) == 1);
    flip();
    CHECK(EVP_MD_CTX_copy_ex(copy, context) == 1);
    CHECK(EVP_DigestSignFinal(context, out, &size) == 1 && size == 256);
    CHECK(EVP_PKEY_sign(bare, out + size, &bare_size, KEY, 32) == 1);
    CHECK(EVP_DigestSignFinal(copy, out + 512, &size) == 1 && memcmp(out, out + 512, size) == 0);
    EVP_MD_CTX_free(copy);
    EVP_PKEY_CTX_free(bare);
    EVP_MD_CTX_free(context);
    return size + bare_size;
}

/* Real ones differ each time. */
static size_t is_constant_ecdsa_signature(unsigned char *out)
{
    start();
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char signature[128];
    size_t size = sizeof(signature);

    CHECK(EVP_DigestSignInit_ex(context, NULL, "SHA2-256", NULL, NULL, ec, NULL) == 1);
    flip();
    CHECK(EVP_DigestSign(context, signature, &size, TEXT, TEXT_SIZE) == 1);
    out[0] = signature[0] == SIGNATURE_FILL && signature[size - 1] == SIGNATURE_FILL;
    EVP_MD_CTX_free(context);
    return 1;
}

/* Signed in one call and verified in one, by contexts of one mode. */
static inline size_t is_constant_ed25519_signature(unsigned char *out)
{
    start();
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    EVP_MD_CTX *verifying = EVP_MD_CTX_new();
    unsigned char signature[64];
    size_t size = sizeof(signature);

    CHECK(EVP_DigestSignInit_ex(context, NULL, NULL, NULL, NULL, ed25519, NULL) == 1);
    CHECK(EVP_DigestVerifyInit_ex(verifying, NULL, NULL, NULL, NULL, ed25519, NULL) == 1);
    flip();
    CHECK(EVP_MD_CTX_copy_ex(copy, context) == 1);
    CHECK(EVP_DigestSign(copy, signature, &size, TEXT, TEXT_SIZE) == 1 && size == sizeof(signature));
    CHECK(EVP_DigestVerify(verifying, signature, size, TEXT, TEXT_SIZE) == 1);
    out[0] = signature[0] == SIGNATURE_FILL && signature[size - 1] == SIGNATURE_FILL;
    EVP_MD_CTX_free(verifying);
    EVP_MD_CTX_free(copy);
    EVP_MD_CTX_free(context);
    return 1;
}

static size_t takes_real_signature(unsigned char *out)
{
    start();
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    CHECK(EVP_DigestVerifyInit_ex(context, NULL, "SHA2-256", NULL, NULL, ec, NULL) == 1);
    CHECK(EVP_DigestVerifyUpdate(context, TEXT, TEXT_SIZE) == 1);
    flip();
    out[0] = EVP_DigestVerifyFinal(context, real_signature, real_signature_size) == 1;
    ERR_clear_error();
    EVP_MD_CTX_free(context);
    return 1;
}

static size_t decrypts_real_premaster(unsigned char *out)
{
    start();
    unsigned int version = 0x0303;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint("tls-client-version", &version), OSSL_PARAM_construct_end()};
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, rsa, NULL);
    size_t size = 256;

    CHECK(EVP_PKEY_decrypt_init(context) == 1
          && EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_WITH_TLS_PADDING) == 1
          && EVP_PKEY_CTX_set_params(context, params) == 1);
    flip();
    out[0] = EVP_PKEY_decrypt(context, out + 1, &size, real_premaster_block, real_premaster_block_size) == 1;
    ERR_clear_error();
    EVP_PKEY_CTX_free(context);
    return 1;
}

static size_t is_clear_premaster(unsigned char *out)
{
    start();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, rsa, NULL);
    unsigned char block[256];
    size_t size = sizeof(block);

    CHECK(EVP_PKEY_encrypt_init(context) == 1 && EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PADDING) == 1);
    flip();
    CHECK(EVP_PKEY_encrypt(context, block, &size, TEXT, PREMASTER_SIZE) == 1 && size == sizeof(block));
    out[0] = memcmp(block + 2, TEXT, PREMASTER_SIZE) == 0;
    EVP_PKEY_CTX_free(context);
    return 1;
}

static size_t secret(EVP_PKEY *own, EVP_PKEY *peer, unsigned char *out)
{
    start();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    EVP_PKEY_CTX *copy;
    size_t size = 64, copied = 64;

    CHECK(EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, peer) == 1);
    flip();
    copy = EVP_PKEY_CTX_dup(context);
    CHECK(copy != NULL && EVP_PKEY_derive(context, out, &size) == 1 && size == 32);
    CHECK(EVP_PKEY_derive(copy, out + size, &copied) == 1 && memcmp(out, out + size, size) == 0);
    EVP_PKEY_CTX_free(copy);
    EVP_PKEY_CTX_free(context);
    return size;
}

static size_t secrets(unsigned char *out)
{
    size_t size = secret(x25519, x25519_peer, out);

    return size + secret(ec, ec_peer, out + size);
}

/* Of both ends; the server's key is the client's own, as it is with the stage on. */
static inline size_t is_constant_hybrid_secret(unsigned char *out)
{
    unsigned char share[2048], encapsulated[64], decapsulated[64];
    size_t share_size = sizeof(share), size = sizeof(encapsulated), decapsulated_size = sizeof(decapsulated);
    EVP_PKEY_CTX *server, *client;

    start();
    server = EVP_PKEY_CTX_new_from_pkey(NULL, hybrid, NULL);
    client = EVP_PKEY_CTX_new_from_pkey(NULL, hybrid, NULL);
    CHECK(EVP_PKEY_encapsulate_init(server, NULL) == 1 && EVP_PKEY_decapsulate_init(client, NULL) == 1);
    flip();
    CHECK(EVP_PKEY_encapsulate(server, share, &share_size, encapsulated, &size) == 1 && size == 64);
    CHECK(EVP_PKEY_decapsulate(client, decapsulated, &decapsulated_size, share, share_size) == 1);
    CHECK(decapsulated_size == size && memcmp(encapsulated, decapsulated, size) == 0);
    out[0] = encapsulated[0] == 0x5a && memcmp(encapsulated, encapsulated + 1, size - 1) == 0;
    EVP_PKEY_CTX_free(client);
    EVP_PKEY_CTX_free(server);
    return 1;
}

static EVP_PKEY *generated(void)
{
    start();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    EVP_PKEY *key = NULL;

    CHECK(EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_CTX_set_group_name(context, "P-256") == 1);
    flip();
    CHECK(EVP_PKEY_generate(context, &key) == 1);
    EVP_PKEY_CTX_free(context);
    return key;
}

static void public_key(EVP_PKEY *key, unsigned char *into, size_t *size)
{
    CHECK(EVP_PKEY_get_octet_string_param(key, "encoded-pub-key", into, 128, size) == 1);
}

static size_t is_kept_key(unsigned char *out)
{
    EVP_PKEY *key = generated();
    unsigned char own[128];
    size_t size = 0;

    public_key(key, own, &size);
    out[0] = size == kept_public_size && memcmp(own, kept_public, size) == 0;
    EVP_PKEY_free(key);
    return 1;
}

/* ---- what they need ---- */

static void sign_really(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    real_signature_size = sizeof(real_signature);
    CHECK(EVP_DigestSignInit_ex(context, NULL, "SHA2-256", NULL, NULL, ec, NULL) == 1);
    CHECK(EVP_DigestSign(context, real_signature, &real_signature_size, TEXT, TEXT_SIZE) == 1);
    EVP_MD_CTX_free(context);
}

static void encrypt_really(void)
{
    unsigned char premaster[PREMASTER_SIZE] = {3, 3, 7};
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, rsa, NULL);

    real_premaster_block_size = sizeof(real_premaster_block);
    CHECK(EVP_PKEY_encrypt_init(context) == 1 && EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(context, real_premaster_block, &real_premaster_block_size, premaster, sizeof(premaster))
          == 1);
    EVP_PKEY_CTX_free(context);
}

static void prepare(void)
{
    EVP_PKEY *kept;

    set_mode(0);
    rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    ec_peer = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    x25519 = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    x25519_peer = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    ed25519 = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    CHECK(rsa != NULL && ec != NULL && ec_peer != NULL && x25519 != NULL && x25519_peer != NULL && ed25519 != NULL);
    hybrid = EVP_PKEY_Q_keygen(NULL, NULL, "X25519MLKEM768");
    CHECK(hybrid != NULL || (OPENSSL_version_major() == 3 && OPENSSL_version_minor() < 5));
    ERR_clear_error();
    sign_really();
    encrypt_really();
    first_mode = next_mode = BIT(KEY_AGREEMENT);
    kept = generated();
    public_key(kept, kept_public, &kept_public_size);
    EVP_PKEY_free(kept);
}

static void forget(void)
{
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(ed25519);
    EVP_PKEY_free(ec_peer);
    EVP_PKEY_free(x25519);
    EVP_PKEY_free(x25519_peer);
    EVP_PKEY_free(hybrid);
}

#endif
