/*
 * Records that are too short, or nothing but garbage, given to the provider's ciphers as libssl gives them: they must
 * be refused without a byte read or written outside. Each record lies in an allocation of exactly its size, so that the
 * address sanitizer sees every step beyond it.
 *
 *     garbage                 the stages that are off are those of the provider that OPENSSL_CONF names
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "check.h"

enum { LENGTHS = 120, ADDITIONAL_SIZE = 13, KEY_MAX = 64 };

static const unsigned char KEY[KEY_MAX];

static EVP_CIPHER_CTX *opening(const char *name, size_t mac_size, bool tls)
{
    int version = 0x0303;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_CIPHER_PARAM_TLS_VERSION, &version),
        OSSL_PARAM_construct_size_t(OSSL_CIPHER_PARAM_TLS_MAC_SIZE, &mac_size),
        OSSL_PARAM_construct_end(),
    };
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    ERR_clear_error();
    if (cipher == NULL) { /* stitched ones: not on every processor, nor with one half off */
        EVP_CIPHER_CTX_free(context);
        return NULL;
    }
    CHECK(context != NULL && EVP_CipherInit_ex(context, cipher, NULL, KEY, KEY, 0) == 1);
    CHECK(!tls || EVP_CIPHER_CTX_set_params(context, params) == 1);
    EVP_CIPHER_free(cipher);
    return context;
}

/* Whether the cipher takes `length` bytes of `fill` for a record of TLS 1.2. */
static bool is_taken(EVP_CIPHER_CTX *context, size_t length, int fill, bool announced)
{
    unsigned char additional[ADDITIONAL_SIZE] = {[8] = 23, [9] = 3, [10] = 3, [11] = (unsigned char)(length >> 8),
                                                 [12] = (unsigned char)length};
    unsigned char *record = malloc(length > 0 ? length : 1);
    int done = 0;
    bool taken;

    CHECK(record != NULL);
    memset(record, fill, length);
    taken = (!announced || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, sizeof(additional), additional) > 0)
            && length > 0 /* EVP answers this itself */
            && EVP_CipherUpdate(context, record, &done, record, (int)length) == 1;
    CHECK(!taken || (done >= 0 && (size_t)done <= length));
    ERR_clear_error();
    free(record);
    return taken;
}

static void refuse_aead(const char *name, size_t explicit_size)
{
    EVP_CIPHER_CTX *context = opening(name, 0, false);

    CHECK(context != NULL);
    if (explicit_size > 0)
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IV_FIXED, 4, (void *)(uintptr_t)KEY) > 0);
    for (size_t length = 0; length < LENGTHS; length++) {
        CHECK(!is_taken(context, length, 0xff, true));
        CHECK(!is_taken(context, length, (int)length + 1, true));
    }
    EVP_CIPHER_CTX_free(context);
}

/*
 * Padding that is wrong may be passed on with a MAC that cannot be right, as OpenSSL's own does so as not to tell; what
 * must not happen is a step outside.
 */
static void survive_cbc(const char *name, size_t mac_size, bool stitched)
{
    EVP_CIPHER_CTX *context = opening(name, stitched ? 0 : mac_size, true);

    if (context == NULL)
        return;
    if (stitched)
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_MAC_KEY, (int)mac_size, (void *)(uintptr_t)KEY) > 0);
    for (size_t length = 0; length < LENGTHS; length++) {
        for (int fill = 0; fill < 256; fill += 5) {
            bool taken = is_taken(context, length, fill, stitched);

            CHECK(!taken || length % 16 == 0);
        }
    }
    EVP_CIPHER_CTX_free(context);
}

int main(void)
{
    refuse_aead("AES-128-GCM", 8);
    refuse_aead("AES-256-GCM", 8);
    refuse_aead("ChaCha20-Poly1305", 0);
    survive_cbc("AES-128-CBC", 20, false);
    survive_cbc("AES-256-CBC", 32, false);
    survive_cbc("AES-128-CBC", 0, false); /* encrypt then MAC */
    survive_cbc("AES-128-CBC-HMAC-SHA1", 20, true);
    survive_cbc("AES-256-CBC-HMAC-SHA256", 32, true);
    return 0;
}
