/* Bare primitives, called as `openssl speed` calls them, so that both can be held beside each other. */
#include "primitives.h"

/* Keys and initialisation vectors: what is in them makes no difference to the time. */
static const unsigned char KEY[EVP_MAX_KEY_LENGTH] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                                      17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
static const unsigned char IV[EVP_MAX_IV_LENGTH] = {9, 8, 7, 6, 5, 4, 3, 2, 1};

static bool cipher_step(struct operation *operation)
{
    int out = 0;
    int bytes = (int)operation->bytes;

    if (lib.EVP_EncryptUpdate(operation->context, operation->buffer, &out, operation->buffer, bytes) == 1) {
        return true;
    }
    /* The counter of this initialisation vector has run out. */
    return lib.EVP_EncryptInit_ex(operation->context, NULL, NULL, NULL, IV) == 1
        && lib.EVP_EncryptUpdate(operation->context, operation->buffer, &out, operation->buffer, bytes) == 1;
}

static void cipher_end(struct operation *operation)
{
    lib.EVP_CIPHER_CTX_free(operation->context);
    lib.EVP_CIPHER_free(operation->algorithm);
}

bool begin_cipher(struct operation *operation, const char *name)
{
    EVP_CIPHER *cipher = lib.EVP_CIPHER_fetch(NULL, name, NULL);

    if (cipher == NULL) {
        return false;
    }
    operation->algorithm = cipher;
    operation->context = lib.EVP_CIPHER_CTX_new();
    operation->step = cipher_step;
    operation->end = cipher_end;
    if (operation->context != NULL && lib.EVP_EncryptInit_ex(operation->context, cipher, NULL, KEY, IV) == 1) {
        return true;
    }
    cipher_end(operation);
    return false;
}

static bool digest_step(struct operation *operation)
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    return lib.EVP_Digest(operation->buffer, operation->bytes, digest, NULL, operation->algorithm, NULL) == 1;
}

static void digest_end(struct operation *operation)
{
    lib.EVP_MD_free(operation->algorithm);
}

bool begin_digest(struct operation *operation, const char *name)
{
    operation->algorithm = lib.EVP_MD_fetch(NULL, name, NULL);
    operation->step = digest_step;
    operation->end = digest_end;
    return operation->algorithm != NULL;
}

static bool hmac_step(struct operation *operation)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    size_t length = 0;

    /* Without a key the one before is kept. */
    return lib.EVP_MAC_init(operation->context, NULL, 0, NULL) == 1
        && lib.EVP_MAC_update(operation->context, operation->buffer, operation->bytes) == 1
        && lib.EVP_MAC_final(operation->context, mac, &length, sizeof(mac)) == 1;
}

static void hmac_end(struct operation *operation)
{
    lib.EVP_MAC_CTX_free(operation->context);
    lib.EVP_MAC_free(operation->algorithm);
}

bool begin_hmac(struct operation *operation, const char *digest)
{
    EVP_MAC *mac = lib.EVP_MAC_fetch(NULL, "HMAC", NULL);
    char name[64];

    if (mac == NULL || snprintf(name, sizeof(name), "%s", digest) >= (int)sizeof(name)) {
        lib.EVP_MAC_free(mac);
        return false;
    }
    OSSL_PARAM parameters[2] = {lib.OSSL_PARAM_construct_utf8_string("digest", name, 0),
                                lib.OSSL_PARAM_construct_end()};

    operation->algorithm = mac;
    operation->context = lib.EVP_MAC_CTX_new(mac);
    operation->step = hmac_step;
    operation->end = hmac_end;
    if (operation->context != NULL && lib.EVP_MAC_init(operation->context, KEY, sizeof(KEY), parameters) == 1) {
        return true;
    }
    hmac_end(operation);
    return false;
}
