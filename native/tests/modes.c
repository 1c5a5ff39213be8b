/*
 * Contexts keep the mode in which they were made, whatever the mode is when they do their work; what is made after a
 * flip is of the new mode. Shown for every stage of the provider, in this process and in one that was forked before the
 * flip; and that bits outside of what the provider was loaded for change nothing.
 *
 *     modes DESCRIPTOR every       the provider may switch every stage
 *     modes DESCRIPTOR outside     it may switch the digest only
 */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>

#include "modes.h"

enum { OUT_MAX = 1024, TEXT_SIZE = 48, PREMASTER_SIZE = 48, MODES_MAX = 4, NOTHING_OFF = 0 };

/* Makes a context in one mode, does its work in the next, and puts what came of it into `out`, always the same. */
typedef size_t operation(unsigned char *out);

static const unsigned char KEY[64] = {1, 2, 3};
static const unsigned char TEXT[TEXT_SIZE] = "the same text in every run";

/* Made while everything was on, once. */
static EVP_PKEY *rsa, *ec, *x25519, *x25519_peer, *ec_peer;
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

struct result {
    unsigned char bytes[OUT_MAX];
    size_t size;
};

static struct result run(operation *operate, uint32_t first, uint32_t next)
{
    struct result result;

    first_mode = first;
    next_mode = next;
    result.size = operate(result.bytes);
    CHECK(result.size > 0 && result.size <= OUT_MAX);
    return result;
}

static bool are_alike(const struct result *a, const struct result *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* ---- subjects ---- */

/* An operation whose result is another in each of these modes. */
struct subject {
    operation *operate;
    uint32_t modes[MODES_MAX];
    size_t mode_count;
};

static const struct subject SUBJECTS[] = {
    {digests, {NOTHING_OFF, BIT(DIGEST)}, 2},
    {derivations, {NOTHING_OFF, BIT(KDF)}, 2},
    {handshake_hmac, {NOTHING_OFF, BIT(KDF)}, 2},
    {record_hmac, {NOTHING_OFF, BIT(MAC)}, 2},
    {aeads, {NOTHING_OFF, BIT(CIPHER), BIT(MAC), BIT(CIPHER) | BIT(MAC)}, 4},
    {aead_record, {NOTHING_OFF, BIT(CIPHER), BIT(MAC), BIT(CIPHER) | BIT(MAC)}, 4},
    {cbc_record, {NOTHING_OFF, BIT(CIPHER)}, 2},
    {stitched_record, {NOTHING_OFF, BIT(CIPHER) | BIT(MAC)}, 2},
    {rsa_signatures, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {is_constant_ecdsa_signature, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {takes_real_signature, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {decrypts_real_premaster, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {is_clear_premaster, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {secrets, {NOTHING_OFF, BIT(KEY_AGREEMENT)}, 2},
    {is_kept_key, {NOTHING_OFF, BIT(KEY_AGREEMENT)}, 2},
};
enum { SUBJECT_TOTAL = sizeof(SUBJECTS) / sizeof(SUBJECTS[0]) };

/* Stitched code is not on every processor. */
static bool is_here(const struct subject *subject)
{
    return subject->operate != stitched_record || has_stitched();
}

static void check_flips(const struct subject *subject)
{
    struct result expected[MODES_MAX];

    for (size_t i = 0; i < subject->mode_count; i++) {
        expected[i] = run(subject->operate, subject->modes[i], subject->modes[i]);
        for (size_t j = 0; j < i; j++)
            CHECK(!are_alike(&expected[i], &expected[j]));
    }
    for (size_t i = 0; i < subject->mode_count; i++) {
        for (size_t j = 0; j < subject->mode_count; j++) {
            struct result kept = run(subject->operate, subject->modes[i], subject->modes[j]);
            struct result fresh = run(subject->operate, subject->modes[j], subject->modes[j]);

            CHECK(are_alike(&kept, &expected[i]) && are_alike(&fresh, &expected[j]));
        }
    }
}

/* A half without encrypt-then-MAC has no stitched code; a process that has it refuses that mode. */
static void check_half_is_refused(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-CBC-HMAC-SHA1", NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    set_mode(BIT(CIPHER));
    CHECK(cipher == NULL || EVP_CipherInit_ex(context, cipher, NULL, KEY, KEY, 1) != 1);
    ERR_clear_error();
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(cipher);
}

static uint64_t draws(const struct tlsdyno_record *record)
{
    uint64_t total = 0;

    for (size_t i = 0; i < TLSDYNO_SLOTS; i++)
        total += record->slots[i].calls[TLSDYNO_COUNT_GENERATE];
    return total;
}

/* There is no context of ours: each call is of the mode of its moment. */
static void check_random_bytes(const struct tlsdyno_record *record)
{
    static const uint32_t MODES[] = {BIT(RANDOMNESS), NOTHING_OFF, BIT(RANDOMNESS)};
    unsigned char bytes[32];

    for (size_t i = 0; i < sizeof(MODES) / sizeof(MODES[0]); i++) {
        uint64_t before = draws(record);

        set_mode(MODES[i]);
        CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1);
        CHECK((draws(record) > before) == (MODES[i] != NOTHING_OFF));
    }
}

/* The child was there before the flips of its parent, and sees each of them. */
static void check_forked(void)
{
    struct result real = run(digests, NOTHING_OFF, NOTHING_OFF);
    struct result off = run(digests, BIT(DIGEST), BIT(DIGEST));
    int ask[2], answer[2], status;
    unsigned char turn = 0;
    pid_t child;

    CHECK(pipe(ask) == 0 && pipe(answer) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        close(ask[1]);
        while (read(ask[0], &turn, 1) == 1) {
            unsigned char out[64];
            size_t size = 0;

            CHECK(EVP_Q_digest(NULL, "SHA2-256", NULL, TEXT, TEXT_SIZE, out, &size) == 1 && size == 32);
            CHECK(write(answer[1], out, size) == (ssize_t)size);
        }
        _exit(0);
    }
    CHECK(!are_alike(&real, &off));
    for (turn = 0; turn < 6; turn++) {
        unsigned char theirs[32], ours[32];

        set_mode(turn % 2 == 0 ? NOTHING_OFF : BIT(DIGEST));
        CHECK(write(ask[1], &turn, 1) == 1 && read(answer[0], theirs, sizeof(theirs)) == sizeof(theirs));
        CHECK(EVP_Q_digest(NULL, "SHA2-256", NULL, TEXT, TEXT_SIZE, ours, NULL) == 1);
        CHECK(memcmp(theirs, ours, sizeof(ours)) == 0);
    }
    close(ask[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- what the operations need ---- */

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

    set_mode(NOTHING_OFF);
    rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    ec_peer = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    x25519 = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    x25519_peer = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    CHECK(rsa != NULL && ec != NULL && ec_peer != NULL && x25519 != NULL && x25519_peer != NULL);
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
    EVP_PKEY_free(ec_peer);
    EVP_PKEY_free(x25519);
    EVP_PKEY_free(x25519_peer);
}

/* ---- sections ---- */

static void every(const struct tlsdyno_record *record)
{
    for (size_t i = 0; i < SUBJECT_TOTAL; i++) {
        if (is_here(&SUBJECTS[i]))
            check_flips(&SUBJECTS[i]);
    }
    check_half_is_refused();
    check_random_bytes(record);
    check_forked();
}

/* All bits set, where only the digest may be switched. */
static void outside(const struct tlsdyno_record *record)
{
    uint64_t before = draws(record);

    for (size_t i = 0; i < SUBJECT_TOTAL; i++) {
        struct result real, other;

        /* What is never off here has no kept keys. */
        if (SUBJECTS[i].operate == is_kept_key)
            continue;
        real = run(SUBJECTS[i].operate, NOTHING_OFF, NOTHING_OFF);
        other = run(SUBJECTS[i].operate, UINT32_MAX, UINT32_MAX);
        CHECK(are_alike(&real, &other) == (SUBJECTS[i].operate != digests));
    }
    CHECK(draws(record) == before);
}

int main(int count, char **arguments)
{
    const struct tlsdyno_record *record;

    CHECK(count == 3);
    area_descriptor = atoi(arguments[1]);
    record = mmap(NULL, sizeof(*record), PROT_READ, MAP_SHARED, area_descriptor, 0);
    CHECK(record != MAP_FAILED);
    prepare();
    if (strcmp(arguments[2], "every") == 0)
        every(record);
    else
        outside(record);
    forget();
    return 0;
}
