/* A little of everything that the stages replace, for the programs about threads and processes. */
#ifndef TLSDYNO_TEST_WORK_H
#define TLSDYNO_TEST_WORK_H

#include <string.h>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "check.h"

static inline void work_digest(void)
{
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_MD *digest = EVP_MD_fetch(NULL, "SHA2-256", NULL);

    CHECK(digest != NULL && EVP_Digest("abc", 3, out, &size, digest, NULL) == 1 && size == 32);
    EVP_MD_free(digest);
}

/* One TLS 1.3 record there and back. */
static inline void work_cipher(void)
{
    unsigned char key[16] = {1}, nonce[12] = {2}, tag[16], data[64], back[64];
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int length = 0;

    CHECK(cipher != NULL && context != NULL);
    memset(data, 'x', sizeof(data));
    CHECK(EVP_CipherInit_ex(context, cipher, NULL, key, nonce, 1) == 1);
    CHECK(EVP_CipherUpdate(context, back, &length, data, sizeof(data)) == 1);
    CHECK(EVP_CipherFinal_ex(context, back + length, &length) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, sizeof(tag), tag) > 0);
    CHECK(EVP_CipherInit_ex(context, cipher, NULL, key, nonce, 0) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, sizeof(tag), tag) > 0);
    CHECK(EVP_CipherUpdate(context, back, &length, back, sizeof(back)) == 1);
    CHECK(EVP_CipherFinal_ex(context, back + length, &length) == 1);
    CHECK(memcmp(back, data, sizeof(data)) == 0);
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(cipher);
}

static inline void work_key_agreement(const char *algorithm, const char *group)
{
    unsigned char secret[64];
    size_t size = sizeof(secret);
    EVP_PKEY *own = EVP_PKEY_Q_keygen(NULL, NULL, algorithm, group);
    EVP_PKEY *peer = EVP_PKEY_Q_keygen(NULL, NULL, algorithm, group);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);

    CHECK(own != NULL && peer != NULL && context != NULL);
    CHECK(EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, peer) == 1);
    CHECK(EVP_PKEY_derive(context, secret, &size) == 1 && size == 32);
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
}

static inline void work(void)
{
    work_digest();
    work_cipher();
    work_key_agreement("X25519", "X25519");
    work_key_agreement("EC", "P-256");
}

/* Words drawn at different places must all differ. */
static int compare_words(const void *a, const void *b)
{
    uint64_t first, second;

    memcpy(&first, a, sizeof(first));
    memcpy(&second, b, sizeof(second));
    return first < second ? -1 : first > second;
}

static inline void check_all_differ(uint64_t *words, size_t count)
{
    qsort(words, count, sizeof(*words), compare_words);
    for (size_t i = 1; i < count; i++)
        CHECK(words[i] != words[i - 1]);
}

#endif
