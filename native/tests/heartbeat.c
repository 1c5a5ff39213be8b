/*
 * One operation of each stage, with every stage off: all succeed, "ready" is printed, and once that tlsdyno's heartbeat
 * has stopped all fail for good.
 */
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include "check.h"

static EVP_PKEY *rsa, *ec, *ed25519, *x25519, *hybrid, *hmac;

static bool digests(void)
{
    unsigned char out[EVP_MAX_MD_SIZE];

    return EVP_Q_digest(NULL, "SHA2-256", NULL, "abc", 3, out, NULL) == 1;
}

static bool begins_cipher(const char *name)
{
    unsigned char key[64] = {1}, iv[16] = {2};
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    bool begun;

    CHECK(cipher != NULL && context != NULL);
    begun = EVP_CipherInit_ex(context, cipher, NULL, key, iv, 1) == 1;
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(cipher);
    return begun;
}

static bool begins_aead(void)
{
    return begins_cipher("AES-128-GCM");
}

static bool begins_chacha(void)
{
    return begins_cipher("ChaCha20-Poly1305");
}

static bool begins_cbc(void)
{
    return begins_cipher("AES-128-CBC");
}

/* A signature, or the HMAC of a record. */
static bool signs(EVP_PKEY *key, const char *digest)
{
    unsigned char out[512];
    size_t size = sizeof(out);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool done;

    CHECK(context != NULL);
    done = EVP_DigestSignInit_ex(context, NULL, digest, NULL, NULL, key, NULL) == 1
           && EVP_DigestSign(context, out, &size, (const unsigned char *)"abc", 3) == 1;
    EVP_MD_CTX_free(context);
    return done;
}

static bool signs_rsa(void)
{
    return signs(rsa, "SHA2-256");
}

static bool signs_ec(void)
{
    return signs(ec, "SHA2-256");
}

static bool signs_ed25519(void)
{
    return signs(ed25519, NULL);
}

static bool begins_record_hmac(void)
{
    return signs(hmac, "SHA2-256");
}

static bool macs(void)
{
    unsigned char out[EVP_MAX_MD_SIZE];

    return EVP_Q_mac(NULL, "HMAC", NULL, "SHA2-256", NULL, "key", 3, (const unsigned char *)"abc", 3, out, sizeof(out),
                     NULL)
           != NULL;
}

static bool derives_secret(EVP_PKEY *key)
{
    unsigned char secret[64];
    size_t size = sizeof(secret);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    bool done;

    CHECK(context != NULL);
    done = EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, key) == 1
           && EVP_PKEY_derive(context, secret, &size) == 1;
    EVP_PKEY_CTX_free(context);
    return done;
}

static bool derives_x25519(void)
{
    return derives_secret(x25519);
}

static bool derives_ecdh(void)
{
    return derives_secret(ec);
}

static bool encapsulates(void)
{
    unsigned char share[2048], secret[128];
    size_t share_size = sizeof(share), size = sizeof(secret);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, hybrid, NULL);
    bool done;

    CHECK(context != NULL && EVP_PKEY_encapsulate_init(context, NULL) == 1);
    done = EVP_PKEY_encapsulate(context, share, &share_size, secret, &size) == 1;
    EVP_PKEY_CTX_free(context);
    return done;
}

static bool decapsulates(void)
{
    unsigned char share[1120] = {1}, secret[128];
    size_t size = sizeof(secret);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, hybrid, NULL);
    bool done;

    CHECK(context != NULL && EVP_PKEY_decapsulate_init(context, NULL) == 1);
    done = EVP_PKEY_decapsulate(context, secret, &size, share, sizeof(share)) == 1;
    EVP_PKEY_CTX_free(context);
    return done;
}

static bool makes_key(void)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    bool made = key != NULL;

    EVP_PKEY_free(key);
    return made;
}

static bool derives_key(void)
{
    unsigned char out[48];
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS1-PRF", NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA2-256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, (void *)"secret", 6),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, (void *)"seed", 4),
        OSSL_PARAM_construct_end(),
    };
    bool done;

    CHECK(kdf != NULL && context != NULL);
    done = EVP_KDF_derive(context, out, sizeof(out), params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done;
}

/* As long as the random of a hello; what a record draws is not looked at. */
static bool draws(void)
{
    unsigned char out[32];

    return RAND_bytes(out, sizeof(out)) == 1;
}

static const struct {
    const char *name;
    bool (*works)(void);
} OPERATIONS[] = {
    {"digest", digests},
    {"AES-GCM", begins_aead},
    {"ChaCha20-Poly1305", begins_chacha},
    {"AES-CBC", begins_cbc},
    {"HMAC of records", begins_record_hmac},
    {"HMAC", macs},
    {"RSA signature", signs_rsa},
    {"ECDSA signature", signs_ec},
    {"Ed25519 signature", signs_ed25519},
    {"X25519", derives_x25519},
    {"ECDH", derives_ecdh},
    {"key generation", makes_key},
    {"KDF", derives_key},
    {"random bytes", draws},
    {"encapsulation", encapsulates}, /* these two last: only where there are hybrids */
    {"decapsulation", decapsulates},
};
enum { EVERYWHERE = sizeof(OPERATIONS) / sizeof(OPERATIONS[0]) - 2, PATIENCE_SECONDS = 20 };

int main(void)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    bool has_hybrids = OPENSSL_version_major() > 3 || OPENSSL_version_minor() >= 5;
    size_t total = EVERYWHERE + (has_hybrids ? 2 : 0);
    time_t limit;

    rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    ed25519 = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    x25519 = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    hybrid = EVP_PKEY_Q_keygen(NULL, NULL, "X25519MLKEM768");
    CHECK((hybrid != NULL) == has_hybrids);
    ERR_clear_error();
    hmac = EVP_PKEY_new_raw_private_key_ex(NULL, "HMAC", NULL, (const unsigned char *)"key", 3);
    CHECK(rsa != NULL && ec != NULL && ed25519 != NULL && x25519 != NULL && hmac != NULL);
    for (size_t i = 0; i < total; i++)
        CHECK(OPERATIONS[i].works());
    printf("ready\n");
    fflush(stdout);
    limit = time(NULL) + PATIENCE_SECONDS;
    while (OPERATIONS[0].works()) {
        CHECK(time(NULL) < limit);
        nanosleep(&pause, NULL);
    }
    ERR_clear_error();
    for (size_t i = 0; i < total; i++) {
        const char *data = "";

        if (OPERATIONS[i].works()) {
            fprintf(stderr, "%s works although tlsdyno has ended\n", OPERATIONS[i].name);
            return 1;
        }
        ERR_peek_error_all(NULL, NULL, NULL, &data, NULL);
        if (strstr(data, "no sign of life") == NULL) {
            fprintf(stderr, "%s fails for another reason: %s\n", OPERATIONS[i].name, data);
            return 1;
        }
        ERR_clear_error();
    }
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(ed25519);
    EVP_PKEY_free(x25519);
    EVP_PKEY_free(hybrid);
    EVP_PKEY_free(hmac);
    return 0;
}
