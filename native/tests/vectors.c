/*
 * Writes the test vectors of docs/NOOP.md: drives the provider that OPENSSL_CONF names through OpenSSL's public EVP
 * calls, the way libssl does, and prints blocks of `key = hexadecimal` (names and counts in plain text).
 *
 *     vectors SECTION OFF      SECTION: aead cbc digest kdf signature exchange kem ml_dsa; OFF: what is off
 *
 * Whatever is sealed is also opened again, and opened with one bit wrong, which must fail.
 */
#include <stdbool.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rsa.h>

#include "check.h"

enum { TAG = 16, NONCE = 12, HEADER = 5, AAD12 = 13, BLOCK = 16, RECORD_MAX = 512, APPLICATION_DATA = 23 };

static const char *off;

static bool is_off(const char *stage)
{
    return strstr(off, stage) != NULL;
}

/* Input that is not all alike, and the same in every run. */
static void pattern(unsigned char *into, size_t length, unsigned int seed)
{
    for (size_t i = 0; i < length; i++)
        into[i] = (unsigned char)(seed + 7 * i + i / 16);
}

static void put_header(unsigned char *header, size_t length)
{
    header[0] = APPLICATION_DATA;
    header[1] = 3;
    header[2] = 3;
    header[3] = (unsigned char)(length >> 8);
    header[4] = (unsigned char)length;
}

/* ---- AEAD ---- */

struct suite {
    const char *name;
    const char *digest;
    size_t key_size;
    size_t explicit_size;
};

static const struct suite AEADS[] = {
    {"AES-128-GCM", "SHA2-256", 16, 8},
    {"AES-256-GCM", "SHA2-384", 32, 8},
    {"ChaCha20-Poly1305", "SHA2-256", 32, 0},
};

/* RFC 9846 section 7.3 */
static void expand_label(unsigned char *out, size_t length, const char *digest, unsigned char *secret,
                         size_t secret_size, char *label)
{
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret, secret_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, "tls13 ", 6),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_TLS1_3_KDF, NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);

    CHECK(context != NULL && EVP_KDF_derive(context, out, length, params) == 1);
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
}

static EVP_CIPHER_CTX *new_tls13(const EVP_CIPHER *cipher, const unsigned char *key, int sealing)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    CHECK(context != NULL && EVP_CipherInit_ex(context, cipher, NULL, NULL, NULL, sealing) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IVLEN, NONCE, NULL) > 0);
    CHECK(EVP_CipherInit_ex(context, NULL, NULL, key, NULL, -1) == 1);
    return context;
}

/* One TLS 1.3 record in place, header in front, room for the tag behind; the sequence of calls is that of libssl. */
static bool tls13_record(EVP_CIPHER_CTX *context, const unsigned char *nonce, unsigned char *record, size_t length,
                         int sealing)
{
    unsigned char *data = record + HEADER;
    int updated = 0;
    int finished = 0;

    CHECK(EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, sealing) == 1);
    if (!sealing)
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG, data + length) > 0);
    CHECK(EVP_CipherUpdate(context, NULL, &updated, record, HEADER) == 1);
    CHECK(EVP_CipherUpdate(context, data, &updated, data, (int)length) == 1);
    if (EVP_CipherFinal_ex(context, data + updated, &finished) != 1)
        return false;
    CHECK((size_t)(updated + finished) == length);
    if (sealing)
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG, data + length) > 0);
    return true;
}

static void xor_sequence(unsigned char nonce[NONCE], const unsigned char sequence[8])
{
    for (size_t i = 0; i < 8; i++)
        nonce[4 + i] ^= sequence[i];
}

static void tls13_vector(const struct suite *suite, const EVP_CIPHER *cipher, size_t content)
{
    unsigned char secret[48], key[32], iv[NONCE], nonce[NONCE], sequence[8] = {0, 0, 0, 0, 0, 0, 1, 2};
    unsigned char record[RECORD_MAX], sealed[RECORD_MAX], inner[RECORD_MAX];
    size_t secret_size = strcmp(suite->digest, "SHA2-384") == 0 ? 48 : 32;
    size_t length = content + 1;
    size_t total = HEADER + length + TAG;
    EVP_CIPHER_CTX *seal, *open;

    pattern(secret, secret_size, 1);
    expand_label(key, suite->key_size, suite->digest, secret, secret_size, "key");
    expand_label(iv, NONCE, suite->digest, secret, secret_size, "iv");
    memcpy(nonce, iv, NONCE);
    xor_sequence(nonce, sequence);
    pattern(inner, content, 11);
    inner[content] = APPLICATION_DATA;
    put_header(record, length + TAG);
    memcpy(record + HEADER, inner, length);
    seal = new_tls13(cipher, key, 1);
    CHECK(tls13_record(seal, nonce, record, length, 1));
    memcpy(sealed, record, total);

    open = new_tls13(cipher, key, 0);
    CHECK(tls13_record(open, nonce, record, length, 0));
    CHECK(memcmp(record + HEADER, inner, length) == 0);
    memcpy(record, sealed, total);
    record[total - 1] ^= 1;
    CHECK(!tls13_record(open, nonce, record, length, 0));
    ERR_clear_error();

    printf("off = %s\nsuite = %s\nversion = 1.3\n", off, suite->name);
    print_hex("secret", secret, secret_size);
    print_hex("key", key, suite->key_size);
    print_hex("iv", iv, NONCE);
    print_hex("sequence", sequence, sizeof(sequence));
    print_hex("additional_data", sealed, HEADER);
    print_hex("plaintext", inner, length);
    print_hex("record", sealed, total);
    printf("\n");
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
}

static EVP_CIPHER_CTX *new_tls12(const struct suite *suite, const EVP_CIPHER *cipher, const unsigned char *key,
                                 unsigned char *fixed, int sealing)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    bool gcm = suite->explicit_size > 0;

    CHECK(context != NULL && EVP_CipherInit_ex(context, cipher, NULL, key, gcm ? NULL : fixed, sealing) == 1);
    if (gcm)
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IV_FIXED, 4, fixed) > 0);
    return context;
}

/*
 * One TLS 1.2 record in place. `length` is what libssl calls the length: explicit nonce and plaintext, received also
 * the tag.
 */
static bool tls12_record(EVP_CIPHER_CTX *context, const unsigned char sequence[8], unsigned char *fragment,
                         size_t length, int sealing, size_t *result)
{
    unsigned char additional[AAD12] = {[8] = APPLICATION_DATA, [9] = 3, [10] = 3};
    int expansion, done = 0;

    memcpy(additional, sequence, 8);
    additional[11] = (unsigned char)(length >> 8);
    additional[12] = (unsigned char)length;
    expansion = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, AAD12, additional);
    CHECK(expansion == TAG);
    if (sealing)
        length += TAG;
    if (EVP_CipherUpdate(context, fragment, &done, fragment, (int)length) != 1)
        return false;
    *result = (size_t)done;
    return true;
}

/* With everything on the explicit nonce is random, so the record is made by the bare AEAD with a nonce of zeros. */
static void real_tls12_record(const EVP_CIPHER *cipher, const unsigned char *key, const unsigned char *fixed,
                              const struct suite *suite,
                              const unsigned char additional[AAD12], unsigned char *fragment, size_t content)
{
    EVP_CIPHER_CTX *context = new_tls13(cipher, key, 1);
    unsigned char nonce[NONCE] = {0};
    unsigned char *payload = fragment + suite->explicit_size;
    int updated = 0;

    memcpy(nonce, fixed, suite->explicit_size > 0 ? 4 : NONCE);
    if (suite->explicit_size == 0)
        xor_sequence(nonce, additional);
    CHECK(EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, 1) == 1);
    CHECK(EVP_CipherUpdate(context, NULL, &updated, additional, AAD12) == 1);
    CHECK(EVP_CipherUpdate(context, payload, &updated, payload, (int)content) == 1);
    CHECK(EVP_CipherFinal_ex(context, payload + updated, &updated) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG, payload + content) > 0);
    EVP_CIPHER_CTX_free(context);
}

static void tls12_vector(const struct suite *suite, const EVP_CIPHER *cipher, size_t content)
{
    unsigned char key[32], fixed[NONCE], sequence[8] = {0, 0, 0, 0, 0, 0, 3, 4};
    unsigned char record[RECORD_MAX] = {0}, sealed[RECORD_MAX], plain[RECORD_MAX];
    unsigned char additional[AAD12] = {[8] = APPLICATION_DATA, [9] = 3, [10] = 3, [11] = (unsigned char)(content >> 8),
                                       [12] = (unsigned char)content};
    size_t sent = suite->explicit_size + content;
    size_t total = HEADER + sent + TAG;
    size_t result = 0;
    EVP_CIPHER_CTX *open;

    pattern(key, suite->key_size, 21);
    pattern(fixed, NONCE, 31);
    pattern(plain, content, 41);
    memcpy(additional, sequence, 8);
    put_header(record, sent + TAG);
    memcpy(record + HEADER + suite->explicit_size, plain, content);
    if (is_off("cipher") || is_off("mac")) {
        EVP_CIPHER_CTX *seal = new_tls12(suite, cipher, key, fixed, 1);

        CHECK(tls12_record(seal, sequence, record + HEADER, sent, 1, &result) && result == sent + TAG);
        EVP_CIPHER_CTX_free(seal);
    } else {
        real_tls12_record(cipher, key, fixed, suite, additional, record + HEADER, content);
    }
    memcpy(sealed, record, total);

    open = new_tls12(suite, cipher, key, fixed, 0);
    CHECK(tls12_record(open, sequence, record + HEADER, sent + TAG, 0, &result) && result == content);
    CHECK(memcmp(record + HEADER + suite->explicit_size, plain, content) == 0);
    memcpy(record, sealed, total);
    record[total - 1] ^= 1;
    CHECK(!tls12_record(open, sequence, record + HEADER, sent + TAG, 0, &result));
    ERR_clear_error();

    printf("off = %s\nsuite = %s\nversion = 1.2\n", off, suite->name);
    print_hex("key", key, suite->key_size);
    print_hex("iv", fixed, suite->explicit_size > 0 ? 4 : NONCE);
    print_hex("sequence", sequence, sizeof(sequence));
    print_hex("additional_data", additional, sizeof(additional));
    print_hex("plaintext", plain, content);
    print_hex("record", sealed, total);
    printf("\n");
    EVP_CIPHER_CTX_free(open);
}

static void aead_vectors(void)
{
    static const size_t CONTENTS[] = {0, 1, 50, 256};

    for (size_t i = 0; i < sizeof(AEADS) / sizeof(AEADS[0]); i++) {
        EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, AEADS[i].name, NULL);

        CHECK(cipher != NULL);
        for (size_t j = 0; j < sizeof(CONTENTS) / sizeof(CONTENTS[0]); j++) {
            tls13_vector(&AEADS[i], cipher, CONTENTS[j]);
            tls12_vector(&AEADS[i], cipher, CONTENTS[j]);
        }
        EVP_CIPHER_free(cipher);
    }
}

/* ---- CBC ---- */

struct cbc_suite {
    const char *name;
    const char *cipher;
    const char *stitched;
    const char *digest;
    size_t key_size;
    size_t mac_size;
};

static const struct cbc_suite CBCS[] = {
    {"AES128-SHA", "AES-128-CBC", "AES-128-CBC-HMAC-SHA1", "SHA1", 16, 20},
    {"AES256-SHA", "AES-256-CBC", "AES-256-CBC-HMAC-SHA1", "SHA1", 32, 20},
    {"AES128-SHA256", "AES-128-CBC", "AES-128-CBC-HMAC-SHA256", "SHA2-256", 16, 32},
    {"AES256-SHA256", "AES-256-CBC", "AES-256-CBC-HMAC-SHA256", "SHA2-256", 32, 32},
};

/* The record HMAC, through EVP_DigestSign as libssl does. */
static void record_mac(unsigned char *mac, const struct cbc_suite *suite, const unsigned char *key,
                       const unsigned char *sequence, const unsigned char *data, size_t length)
{
    unsigned char header[AAD12] = {[8] = APPLICATION_DATA, [9] = 3, [10] = 3, [11] = (unsigned char)(length >> 8),
                                   [12] = (unsigned char)length};
    EVP_PKEY *hmac_key = EVP_PKEY_new_mac_key(EVP_PKEY_HMAC, NULL, key, (int)suite->mac_size);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    size_t size = suite->mac_size;

    memcpy(header, sequence, 8);
    CHECK(hmac_key != NULL && context != NULL && copy != NULL);
    CHECK(EVP_DigestSignInit_ex(context, NULL, suite->digest, NULL, NULL, hmac_key, NULL) == 1);
    CHECK(EVP_MD_CTX_copy(copy, context) == 1);
    CHECK(EVP_DigestSignUpdate(copy, header, sizeof(header)) == 1 && EVP_DigestSignUpdate(copy, data, length) == 1);
    CHECK(EVP_DigestSignFinal(copy, mac, &size) == 1 && size == suite->mac_size);
    EVP_MD_CTX_free(copy);
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(hmac_key);
}

static EVP_CIPHER_CTX *new_cbc(const EVP_CIPHER *cipher, const unsigned char *key, const unsigned char *iv,
                               size_t mac_size, int sealing)
{
    int version = 0x0303;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_CIPHER_PARAM_TLS_VERSION, &version),
        OSSL_PARAM_construct_size_t(OSSL_CIPHER_PARAM_TLS_MAC_SIZE, &mac_size),
        OSSL_PARAM_construct_end(),
    };
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    CHECK(context != NULL && EVP_CipherInit_ex(context, cipher, NULL, key, iv, sealing) == 1);
    CHECK(EVP_CIPHER_CTX_set_params(context, params) == 1);
    return context;
}

/* Opens what was sealed: explicit IV, then the data; the MAC stands where the cipher says. */
static void open_cbc(const struct cbc_suite *suite, const EVP_CIPHER *cipher, const unsigned char *key,
                     const unsigned char *iv, const unsigned char *sealed, size_t length, size_t mac_size,
                     const unsigned char *plain, size_t content, const unsigned char *mac)
{
    unsigned char fragment[RECORD_MAX];
    unsigned char *found = NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_ptr(OSSL_CIPHER_PARAM_TLS_MAC, (void **)&found, suite->mac_size),
        OSSL_PARAM_construct_end(),
    };
    EVP_CIPHER_CTX *context = new_cbc(cipher, key, iv, mac_size, 0);
    int done = 0;

    memcpy(fragment, sealed, length);
    CHECK(EVP_CipherUpdate(context, fragment, &done, fragment, (int)length) == 1);
    CHECK((size_t)done == content && memcmp(fragment + BLOCK, plain, content) == 0);
    if (mac_size > 0) {
        CHECK(EVP_CIPHER_CTX_get_params(context, params) == 1);
        CHECK(memcmp(found, mac, mac_size) == 0);
    }
    EVP_CIPHER_CTX_free(context);
}

/* Both stages off: the stitched implementation must write the same bytes and refuse another MAC and another padding. */
static void check_stitched(const struct cbc_suite *suite, const unsigned char *key, const unsigned char *iv,
                           const unsigned char *plain,
                           size_t sent, const unsigned char *expected, size_t expected_length)
{
    unsigned char additional[AAD12] = {[8] = APPLICATION_DATA, [9] = 3, [10] = 3, [11] = (unsigned char)(sent >> 8),
                                       [12] = (unsigned char)sent};
    unsigned char fragment[RECORD_MAX];
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, suite->stitched, NULL);
    EVP_CIPHER_CTX *seal, *open;
    int done = 0;

    if (cipher == NULL) { /* only some processors have it */
        fprintf(stderr, "no %s on this machine\n", suite->stitched);
        return;
    }
    seal = new_cbc(cipher, key, iv, 0, 1);
    memcpy(fragment, plain, sent);
    CHECK(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_AEAD_TLS1_AAD, AAD12, additional) == (int)(expected_length - sent));
    CHECK(EVP_CipherUpdate(seal, fragment, &done, fragment, (int)expected_length) == 1
          && (size_t)done == expected_length);
    CHECK(memcmp(fragment, expected, expected_length) == 0);

    open = new_cbc(cipher, key, iv, 0, 0);
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_TLS1_AAD, AAD12, additional) > 0);
    CHECK(EVP_CipherUpdate(open, fragment, &done, fragment, (int)expected_length) == 1);
    CHECK((size_t)done == sent - BLOCK && memcmp(fragment, plain, sent) == 0);
    fragment[sent] ^= 1;
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_TLS1_AAD, AAD12, additional) > 0);
    CHECK(EVP_CipherUpdate(open, fragment, &done, fragment, (int)expected_length) != 1);
    fragment[sent] ^= 1;
    fragment[expected_length - 1] ^= 1;
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_TLS1_AAD, AAD12, additional) > 0);
    CHECK(EVP_CipherUpdate(open, fragment, &done, fragment, (int)expected_length) != 1);
    ERR_clear_error();
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
    EVP_CIPHER_free(cipher);
}

static void cbc_vector(const struct cbc_suite *suite, size_t content, bool encrypt_then_mac)
{
    unsigned char key[32], mac_key[32], iv[BLOCK], mac[32], sequence[8] = {0, 0, 0, 0, 0, 0, 5, 6};
    unsigned char plain[RECORD_MAX], record[RECORD_MAX] = {0};
    unsigned char *fragment = record + HEADER;
    size_t sent = BLOCK + content;
    size_t length;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, suite->cipher, NULL);
    EVP_CIPHER_CTX *seal;
    int done = 0;

    CHECK(cipher != NULL);
    pattern(key, suite->key_size, 51);
    pattern(mac_key, suite->mac_size, 61);
    pattern(iv, BLOCK, 71);
    pattern(plain, sent, 81); /* libssl's explicit IV is a random block in front of the data */
    memcpy(fragment, plain, sent);
    length = sent;
    if (!encrypt_then_mac) {
        record_mac(mac, suite, mac_key, sequence, fragment + BLOCK, content);
        memcpy(fragment + length, mac, suite->mac_size);
        length += suite->mac_size;
    }
    seal = new_cbc(cipher, key, iv, encrypt_then_mac ? 0 : suite->mac_size, 1);
    CHECK(EVP_CipherUpdate(seal, fragment, &done, fragment, (int)length) == 1);
    EVP_CIPHER_CTX_free(seal);
    length = (size_t)done;
    open_cbc(suite, cipher, key, iv, fragment, length, encrypt_then_mac ? 0 : suite->mac_size, plain + BLOCK, content,
             mac);
    if (!encrypt_then_mac && is_off("cipher") && is_off("mac"))
        check_stitched(suite, key, iv, plain, sent, fragment, length);
    if (encrypt_then_mac) {
        record_mac(mac, suite, mac_key, sequence, fragment, length);
        memcpy(fragment + length, mac, suite->mac_size);
        length += suite->mac_size;
    }
    put_header(record, length);

    printf("off = %s\nsuite = %s\nencrypt_then_mac = %s\n", off, suite->name, encrypt_then_mac ? "yes" : "no");
    print_hex("key", key, suite->key_size);
    print_hex("mac_key", mac_key, suite->mac_size);
    print_hex("sequence", sequence, sizeof(sequence));
    print_hex("plaintext", plain + BLOCK, content);
    print_hex("record", record, HEADER + length);
    printf("\n");
    EVP_CIPHER_free(cipher);
}

static void cbc_vectors(void)
{
    static const size_t CONTENTS[] = {0, 1, 11, 12, 50, 256};

    for (size_t i = 0; i < sizeof(CBCS) / sizeof(CBCS[0]); i++) {
        for (size_t j = 0; j < sizeof(CONTENTS) / sizeof(CONTENTS[0]); j++) {
            cbc_vector(&CBCS[i], CONTENTS[j], true);
            cbc_vector(&CBCS[i], CONTENTS[j], false);
        }
    }
}

/* ---- digest ---- */

/* Fed whole, byte by byte, and cut in two with a copy made at the cut. */
static void digest_vector(const char *name, size_t length)
{
    unsigned char input[300], whole[EVP_MAX_MD_SIZE], cut[EVP_MAX_MD_SIZE];
    unsigned int size = 0, cut_size = 0;
    EVP_MD *digest = EVP_MD_fetch(NULL, name, NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD_CTX *copy = EVP_MD_CTX_new();

    CHECK(digest != NULL && context != NULL && copy != NULL);
    pattern(input, length, 91);
    CHECK(EVP_Digest(input, length, whole, &size, digest, NULL) == 1);
    for (size_t at = 0; at <= length; at += length / 5 + 1) {
        CHECK(EVP_DigestInit_ex(context, digest, NULL) == 1 && EVP_DigestUpdate(context, input, at) == 1);
        CHECK(EVP_MD_CTX_copy_ex(copy, context) == 1 && EVP_DigestUpdate(copy, input + at, length - at) == 1);
        CHECK(EVP_DigestFinal_ex(copy, cut, &cut_size) == 1 && cut_size == size && memcmp(cut, whole, size) == 0);
        for (size_t i = at; i < length; i++)
            CHECK(EVP_DigestUpdate(context, input + i, 1) == 1);
        CHECK(EVP_DigestFinal_ex(context, cut, &cut_size) == 1 && memcmp(cut, whole, size) == 0);
    }
    printf("off = %s\ndigest = %s\n", off, name);
    print_hex("input", input, length);
    print_hex("output", whole, size);
    printf("\n");
    EVP_MD_CTX_free(copy);
    EVP_MD_CTX_free(context);
    EVP_MD_free(digest);
}

static void digest_vectors(void)
{
    static const char *const NAMES[] = {"SHA1", "SHA2-256", "SHA2-384"};
    static const size_t LENGTHS[] = {0, 1, 7, 8, 9, 16, 63, 64, 65, 257};

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        for (size_t j = 0; j < sizeof(LENGTHS) / sizeof(LENGTHS[0]); j++)
            digest_vector(NAMES[i], LENGTHS[j]);
    }
}

/* ---- kdf ---- */

static void kdf_vector(const char *name, size_t length)
{
    unsigned char secret[32], out[128];
    int mode = EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA2-256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, secret, sizeof(secret)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, secret, sizeof(secret)),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, name, NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);

    CHECK(context != NULL);
    CHECK(EVP_KDF_CTX_get_kdf_size(context) >= length);
    pattern(secret, sizeof(secret), 101);
    CHECK(EVP_KDF_derive(context, out, length, params) == 1);
    printf("off = %s\nfunction = %s\nlength = %zu\n", off, name, length);
    print_hex("output", out, length);
    printf("\n");
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
}

static void handshake_hmac_vector(const char *digest, size_t expected)
{
    unsigned char key[32], out[EVP_MAX_MD_SIZE];
    size_t size = 0;

    pattern(key, sizeof(key), 111);
    CHECK(EVP_Q_mac(NULL, "HMAC", NULL, digest, NULL, key, sizeof(key), key, sizeof(key), out, sizeof(out), &size)
          != NULL);
    CHECK(size == expected);
    printf("off = %s\nfunction = HMAC %s\nlength = %zu\n", off, digest, size);
    print_hex("output", out, size);
    printf("\n");
}

static void kdf_vectors(void)
{
    kdf_vector("TLS1-PRF", 12);
    kdf_vector("TLS1-PRF", 48);
    kdf_vector("TLS1-PRF", 104);
    kdf_vector("TLS13-KDF", 32);
    kdf_vector("TLS13-KDF", 48);
    kdf_vector("HKDF", 42);
    handshake_hmac_vector("SHA2-256", 32);
    handshake_hmac_vector("SHA2-384", 48);
}

/* ---- signature and static RSA ---- */

static void signature_vector(EVP_PKEY *key, const char *name, const char *digest, bool pss)
{
    static const unsigned char MESSAGE[] = "what is signed does not matter";
    unsigned char signature[8192];
    size_t size = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY_CTX *key_context = NULL;

    CHECK(context != NULL && EVP_DigestSignInit_ex(context, &key_context, digest, NULL, NULL, key, NULL) == 1);
    if (pss)
        CHECK(EVP_PKEY_CTX_set_rsa_padding(key_context, RSA_PKCS1_PSS_PADDING) == 1);
    CHECK(EVP_DigestSign(context, NULL, &size, MESSAGE, sizeof(MESSAGE)) == 1 && size <= sizeof(signature));
    CHECK(EVP_DigestSign(context, signature, &size, MESSAGE, sizeof(MESSAGE)) == 1);
    EVP_MD_CTX_free(context);

    context = EVP_MD_CTX_new();
    CHECK(EVP_DigestVerifyInit_ex(context, NULL, digest, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestVerify(context, signature, size, MESSAGE, sizeof(MESSAGE)) == 1);
    signature[size / 2] ^= 1;
    CHECK(EVP_DigestVerify(context, signature, size, MESSAGE, sizeof(MESSAGE)) != 1);
    signature[size / 2] ^= 1;
    ERR_clear_error();
    EVP_MD_CTX_free(context);

    printf("off = %s\nkey = %s\npadding = %s\n", off, name, pss ? "pss" : "default");
    print_hex("signature", signature, size);
    printf("\n");
}

static void premaster_vector(EVP_PKEY *key, const char *name)
{
    unsigned char premaster[48], block[512], back[64];
    unsigned int version = 0x0303;
    size_t size = sizeof(block);
    size_t back_size = sizeof(back);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version),
        OSSL_PARAM_construct_end(),
    };
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);

    pattern(premaster, sizeof(premaster), 121);
    premaster[0] = 3;
    premaster[1] = 3;
    CHECK(context != NULL && EVP_PKEY_encrypt_init(context) == 1);
    CHECK(EVP_PKEY_encrypt(context, NULL, &size, premaster, sizeof(premaster)) == 1
          && size == (size_t)EVP_PKEY_get_size(key));
    CHECK(EVP_PKEY_encrypt(context, block, &size, premaster, sizeof(premaster)) == 1);

    CHECK(EVP_PKEY_decrypt_init(context) == 1
          && EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_WITH_TLS_PADDING) == 1);
    CHECK(EVP_PKEY_CTX_set_params(context, params) == 1);
    CHECK(EVP_PKEY_decrypt(context, back, &back_size, block, size) == 1);
    CHECK(back_size == sizeof(premaster) && memcmp(back, premaster, sizeof(premaster)) == 0);
    block[size - 1] ^= 1;
    CHECK(EVP_PKEY_decrypt(context, back, &back_size, block, size) != 1);
    block[size - 1] ^= 1;
    ERR_clear_error();
    EVP_PKEY_CTX_free(context);

    printf("off = %s\nkey = %s\n", off, name);
    print_hex("premaster", premaster, sizeof(premaster));
    print_hex("block", block, size);
    printf("\n");
}

static void signature_vectors(void)
{
    EVP_PKEY *rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    EVP_PKEY *p256 = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    EVP_PKEY *p384 = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384");
    EVP_PKEY *ed25519 = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

    CHECK(rsa != NULL && p256 != NULL && p384 != NULL && ed25519 != NULL);
    signature_vector(rsa, "RSA-2048", "SHA2-256", false);
    signature_vector(rsa, "RSA-2048", "SHA2-256", true);
    signature_vector(p256, "P-256", "SHA2-256", false);
    signature_vector(p384, "P-384", "SHA2-256", false);
    signature_vector(ed25519, "Ed25519", NULL, false);
    premaster_vector(rsa, "RSA-2048");
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(p256);
    EVP_PKEY_free(p384);
    EVP_PKEY_free(ed25519);
}

/* ---- key agreement, record HMAC ---- */

/*
 * As a server: a key made from the peer's as template, the peer's share set (here garbage, which a no-op does not
 * read).
 */
static void exchange_vector(const char *algorithm, const char *group, size_t share_size)
{
    unsigned char secret[64], share[128];
    size_t size = 0;
    EVP_PKEY *own = EVP_PKEY_Q_keygen(NULL, NULL, algorithm, group);
    EVP_PKEY *peer = EVP_PKEY_new();
    EVP_PKEY_CTX *context;

    CHECK(own != NULL && peer != NULL && EVP_PKEY_copy_parameters(peer, own) == 1);
    pattern(share, share_size, 4);
    share[0] = 4;
    CHECK(EVP_PKEY_set1_encoded_public_key(peer, share, share_size) == 1);
    context = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    CHECK(context != NULL && EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, peer) == 1);
    CHECK(EVP_PKEY_derive(context, NULL, &size) == 1 && size <= sizeof(secret));
    CHECK(EVP_PKEY_derive(context, secret, &size) == 1);
    printf("off = %s\ngroup = %s\n", off, group);
    print_hex("secret", secret, size);
    printf("\n");
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
}

static void exchange_vectors(void)
{
    exchange_vector("X25519", "X25519", 32);
    exchange_vector("EC", "P-256", 65);
    exchange_vector("EC", "P-384", 97);
}

/* ---- key agreement, hybrids ---- */

/* As a server: the client's share is garbage. As a client: the server's is. */
static void kem_vector(const char *group)
{
    unsigned char share[2048], secret[128], own[128];
    size_t share_size = sizeof(share), secret_size = sizeof(secret), own_size = sizeof(own);
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, group);
    EVP_PKEY *peer = EVP_PKEY_new();
    EVP_PKEY_CTX *context;

    CHECK(key != NULL && peer != NULL && EVP_PKEY_copy_parameters(peer, key) == 1);
    pattern(share, sizeof(share), 4);
    CHECK(EVP_PKEY_set1_encoded_public_key(peer, share, 1216) == 1);
    context = EVP_PKEY_CTX_new_from_pkey(NULL, peer, NULL);
    CHECK(context != NULL && EVP_PKEY_encapsulate_init(context, NULL) == 1);
    CHECK(EVP_PKEY_encapsulate(context, NULL, &share_size, NULL, &secret_size) == 1);
    share_size--;
    CHECK(EVP_PKEY_encapsulate(context, share, &share_size, secret, &secret_size) != 1);
    share_size++;
    secret_size--;
    CHECK(EVP_PKEY_encapsulate(context, share, &share_size, secret, &secret_size) != 1);
    secret_size++;
    CHECK(EVP_PKEY_encapsulate(context, share, &share_size, secret, &secret_size) == 1);
    printf("off = %s\ngroup = %s\nshare_size = %zu\n", off, group, share_size);
    print_hex("secret", secret, secret_size);
    printf("\n");
    EVP_PKEY_CTX_free(context);
    context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    pattern(share, share_size, 4);
    CHECK(context != NULL && EVP_PKEY_decapsulate_init(context, NULL) == 1);
    CHECK(EVP_PKEY_decapsulate(context, NULL, &own_size, share, share_size) == 1);
    CHECK(EVP_PKEY_decapsulate(context, own, &own_size, share, share_size) == 1);
    CHECK(own_size == secret_size && memcmp(own, secret, secret_size) == 0);
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(key);
}

static bool has_post_quantum(void)
{
    return OPENSSL_version_major() > 3 || OPENSSL_version_minor() >= 5;
}

/* Nothing where the library has none, as in the next. */
static void ml_dsa_vectors(void)
{
    static const char *const NAMES[] = {"ML-DSA-44", "ML-DSA-65", "ML-DSA-87"};

    for (size_t i = 0; has_post_quantum() && i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, NAMES[i]);

        CHECK(key != NULL);
        signature_vector(key, NAMES[i], NULL, false);
        EVP_PKEY_free(key);
    }
}

static void kem_vectors(void)
{
    if (!has_post_quantum())
        return;
    kem_vector("X25519MLKEM768");
    kem_vector("SecP256r1MLKEM768");
    kem_vector("SecP384r1MLKEM1024");
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } SECTIONS[] = {
        {"aead", aead_vectors}, {"cbc", cbc_vectors},           {"digest", digest_vectors},
        {"kdf", kdf_vectors},   {"signature", signature_vectors}, {"exchange", exchange_vectors},
        {"kem", kem_vectors},   {"ml_dsa", ml_dsa_vectors},
    };

    CHECK(count == 3);
    off = arguments[2];
    for (size_t i = 0; i < sizeof(SECTIONS) / sizeof(SECTIONS[0]); i++) {
        if (strcmp(SECTIONS[i].name, arguments[1]) == 0) {
            SECTIONS[i].print();
            return 0;
        }
    }
    fprintf(stderr, "no section %s\n", arguments[1]);
    return 2;
}
