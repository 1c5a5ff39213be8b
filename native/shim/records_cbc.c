/*
 * Record protection of minimal connections: CBC suites of TLS 1.2 (RFC 5246 section 6.2.3.2) with MAC then encrypt, or
 * encrypt then MAC (RFC 7366). As in libssl the explicit IV is a block of random bytes in front of the data that is
 * encrypted with them, the padding is the cipher's business, the MAC goes through EVP_DigestSign, and the stitched
 * implementation takes the place of cipher and MAC where there is one.
 */
#include "shim.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

enum { ADDITIONAL_SIZE = 13, APPLICATION_DATA = 23 };

static const unsigned char ZEROS[EVP_MAX_KEY_LENGTH];

static bool begin_direction(struct records *records, struct direction *direction, const EVP_CIPHER *cipher, int sealing)
{
    int version = TLS1_2_VERSION;
    size_t mac_size = records->encrypt_then_mac || records->stitched ? 0 : records->protection->mac_size;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_CIPHER_PARAM_TLS_VERSION, &version),
        OSSL_PARAM_construct_size_t(OSSL_CIPHER_PARAM_TLS_MAC_SIZE, &mac_size),
        OSSL_PARAM_construct_end(),
    };

    direction->cipher = EVP_CIPHER_CTX_new();
    return direction->cipher != NULL && EVP_CipherInit_ex(direction->cipher, cipher, NULL, ZEROS, ZEROS, sealing) == 1
           && EVP_CIPHER_CTX_set_params(direction->cipher, params) == 1
           && (!records->stitched
               || EVP_CIPHER_CTX_ctrl(direction->cipher, EVP_CTRL_AEAD_SET_MAC_KEY, (int)records->protection->mac_size,
                                      (void *)(uintptr_t)ZEROS) > 0);
}

static bool begin_mac(struct records *records)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key_ex(NULL, "HMAC", NULL, ZEROS, records->protection->mac_size);
    bool begun;

    records->mac = EVP_MD_CTX_new();
    records->mac_copy = EVP_MD_CTX_new();
    begun = key != NULL && records->mac != NULL && records->mac_copy != NULL
            && EVP_DigestSignInit_ex(records->mac, NULL, records->protection->digest, NULL, NULL, key, NULL) == 1;
    EVP_PKEY_free(key);
    return begun;
}

bool cbc_begin(struct records *records)
{
    EVP_CIPHER *cipher = NULL;
    bool begun;

    if (!records->encrypt_then_mac) {
        ERR_set_mark();
        cipher = EVP_CIPHER_fetch(NULL, records->protection->stitched, NULL);
        ERR_pop_to_mark(); /* that there is none is no error */
    }
    records->stitched = cipher != NULL;
    if (cipher == NULL)
        cipher = EVP_CIPHER_fetch(NULL, records->protection->cipher, NULL);
    begun = cipher != NULL && begin_direction(records, &records->sealing, cipher, 1)
            && begin_direction(records, &records->opening, cipher, 0) && (records->stitched || begin_mac(records));
    EVP_CIPHER_free(cipher);
    return begun;
}

static void put_additional(unsigned char additional[ADDITIONAL_SIZE], uint64_t sequence, size_t size)
{
    put_sequence(additional, sequence);
    additional[8] = APPLICATION_DATA;
    additional[9] = 3;
    additional[10] = 3;
    additional[11] = (unsigned char)(size >> 8);
    additional[12] = (unsigned char)size;
}

static bool make_mac(struct records *records, uint64_t sequence, const unsigned char *data, size_t size,
                     unsigned char *mac)
{
    unsigned char additional[ADDITIONAL_SIZE];
    size_t mac_size = records->protection->mac_size;

    put_additional(additional, sequence, size);
    /*
     * Where both contexts have the same digest, OpenSSL 3.5 and later copies the digest's state, and a context keyed by
     * EVP_DigestSignInit has none: it reads from NULL. Into an empty context all series copy alike; libssl makes a new
     * one for each record.
     */
    EVP_MD_CTX_reset(records->mac_copy);
    return EVP_MD_CTX_copy_ex(records->mac_copy, records->mac) == 1
           && EVP_DigestSignUpdate(records->mac_copy, additional, sizeof(additional)) == 1
           && EVP_DigestSignUpdate(records->mac_copy, data, size) == 1
           && EVP_DigestSignFinal(records->mac_copy, mac, &mac_size) == 1;
}

size_t cbc_seal(struct records *records, unsigned char *fragment, const unsigned char *data, size_t size)
{
    size_t mac_size = records->protection->mac_size;
    size_t length = CBC_BLOCK_SIZE + size;
    uint64_t sequence = records->sealing.sequence;
    int done = 0;

    if (RAND_bytes(fragment, CBC_BLOCK_SIZE) != 1)
        return 0;
    memcpy(fragment + CBC_BLOCK_SIZE, data, size);
    if (records->stitched) {
        unsigned char additional[ADDITIONAL_SIZE];
        int expansion;

        put_additional(additional, sequence, length);
        expansion
            = EVP_CIPHER_CTX_ctrl(records->sealing.cipher, EVP_CTRL_AEAD_TLS1_AAD, sizeof(additional), additional);
        if (expansion <= 0)
            return 0;
        length += (size_t)expansion;
    } else if (!records->encrypt_then_mac) {
        if (!make_mac(records, sequence, fragment + CBC_BLOCK_SIZE, size, fragment + length))
            return 0;
        length += mac_size;
    }
    if (EVP_CipherUpdate(records->sealing.cipher, fragment, &done, fragment, (int)length) != 1 || done <= 0)
        return 0;
    length = (size_t)done;
    if (records->encrypt_then_mac) {
        if (!make_mac(records, sequence, fragment, length, fragment + length))
            return 0;
        length += mac_size;
    }
    return length;
}

/* Encrypt then MAC: the MAC is checked, and cut off, before anything is decrypted. */
static bool check_outer_mac(struct records *records, const unsigned char *fragment, size_t *size)
{
    size_t mac_size = records->protection->mac_size;
    unsigned char mac[RECORD_MAC_MAX];

    if (*size < mac_size + 2 * CBC_BLOCK_SIZE)
        return false;
    *size -= mac_size;
    return make_mac(records, records->opening.sequence, fragment, *size, mac)
           && CRYPTO_memcmp(mac, fragment + *size, mac_size) == 0;
}

/* MAC then encrypt: where the MAC was, the cipher says. */
static bool check_inner_mac(struct records *records, const unsigned char *data, size_t size)
{
    size_t mac_size = records->protection->mac_size;
    unsigned char mac[RECORD_MAC_MAX];
    unsigned char *found = NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_ptr(OSSL_CIPHER_PARAM_TLS_MAC, (void **)&found, mac_size),
        OSSL_PARAM_construct_end(),
    };

    return EVP_CIPHER_CTX_get_params(records->opening.cipher, params) == 1 && found != NULL
           && make_mac(records, records->opening.sequence, data, size, mac) && CRYPTO_memcmp(mac, found, mac_size) == 0;
}

bool cbc_open(struct records *records, unsigned char *fragment, size_t size, unsigned char **data, size_t *data_size)
{
    size_t inner_mac = records->encrypt_then_mac ? 0 : records->protection->mac_size;
    int done = 0;

    if (records->encrypt_then_mac && !check_outer_mac(records, fragment, &size))
        return false;
    if (size % CBC_BLOCK_SIZE != 0 || size < CBC_BLOCK_SIZE + inner_mac + 1)
        return false;
    if (records->stitched) {
        unsigned char additional[ADDITIONAL_SIZE];

        put_additional(additional, records->opening.sequence, size);
        if (EVP_CIPHER_CTX_ctrl(records->opening.cipher, EVP_CTRL_AEAD_TLS1_AAD, sizeof(additional), additional) <= 0)
            return false;
    }
    if (EVP_CipherUpdate(records->opening.cipher, fragment, &done, fragment, (int)size) != 1 || done < 0)
        return false;
    *data = fragment + CBC_BLOCK_SIZE;
    *data_size = (size_t)done;
    return records->encrypt_then_mac || records->stitched || check_inner_mac(records, *data, *data_size);
}
