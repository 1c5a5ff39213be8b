/*
 * Record protection of minimal connections: all keys, fixed IVs and MAC keys zero, sequence numbers from 0, content
 * type application data (docs/NOOP.md, "setup"). Public EVP calls only; the sequence of calls is that of libssl
 * wherever a stage of the provider depends on it. This file: framing and AEADs (RFC 9846 section 5.2, RFC 5288, RFC
 * 7905).
 */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

enum { APPLICATION_DATA = 23, NONCE_SIZE = 12, TLS12_ADDITIONAL_SIZE = 13 };

#define AES128_GCM "AES-128-GCM", NULL, NULL, 16, 0
#define AES256_GCM "AES-256-GCM", NULL, NULL, 32, 0
#define CHACHA20 "ChaCha20-Poly1305", NULL, NULL, 32, 0
#define AES128_SHA "AES-128-CBC", "AES-128-CBC-HMAC-SHA1", "SHA1", 16, 20, 0, false
#define AES256_SHA "AES-256-CBC", "AES-256-CBC-HMAC-SHA1", "SHA1", 32, 20, 0, false
#define AES128_SHA256 "AES-128-CBC", "AES-128-CBC-HMAC-SHA256", "SHA2-256", 16, 32, 0, false
#define AES256_SHA256 "AES-256-CBC", "AES-256-CBC-HMAC-SHA256", "SHA2-256", 32, 32, 0, false

/* Those of the client, crates/tls/src/suite.rs. */
static const struct protection PROTECTIONS[] = {
    {0x1301, AES128_GCM, 0, true},  {0x1302, AES256_GCM, 0, true},  {0x1303, CHACHA20, 0, true},
    {0xc02b, AES128_GCM, 8, false}, {0xc02f, AES128_GCM, 8, false}, {0x009c, AES128_GCM, 8, false},
    {0xc02c, AES256_GCM, 8, false}, {0xc030, AES256_GCM, 8, false}, {0x009d, AES256_GCM, 8, false},
    {0xcca8, CHACHA20, 0, false},   {0xcca9, CHACHA20, 0, false},   {0xc009, AES128_SHA},
    {0xc013, AES128_SHA},           {0x002f, AES128_SHA},           {0xc00a, AES256_SHA},
    {0xc014, AES256_SHA},           {0x0035, AES256_SHA},           {0xc023, AES128_SHA256},
    {0xc027, AES128_SHA256},        {0x003c, AES128_SHA256},        {0x003d, AES256_SHA256},
};

static const struct protection *protection_of(unsigned int suite)
{
    for (size_t i = 0; i < sizeof(PROTECTIONS) / sizeof(PROTECTIONS[0]); i++) {
        if (PROTECTIONS[i].suite == suite)
            return &PROTECTIONS[i];
    }
    return NULL;
}

void put_sequence(unsigned char *into, uint64_t sequence)
{
    for (size_t i = 0; i < SEQUENCE_SIZE; i++)
        into[i] = (unsigned char)(sequence >> (56 - 8 * i));
}

static bool aead_begin_direction(struct direction *direction, const EVP_CIPHER *cipher, int sealing)
{
    static const unsigned char KEY[EVP_MAX_KEY_LENGTH];

    direction->cipher = EVP_CIPHER_CTX_new();
    return direction->cipher != NULL && EVP_CipherInit_ex(direction->cipher, cipher, NULL, NULL, NULL, sealing) == 1
           && EVP_CIPHER_CTX_ctrl(direction->cipher, EVP_CTRL_AEAD_SET_IVLEN, NONCE_SIZE, NULL) > 0
           && EVP_CipherInit_ex(direction->cipher, NULL, NULL, KEY, NULL, -1) == 1;
}

static bool aead_begin(struct records *records)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, records->protection->cipher, NULL);
    bool begun = cipher != NULL && aead_begin_direction(&records->sealing, cipher, 1)
                 && aead_begin_direction(&records->opening, cipher, 0);

    EVP_CIPHER_free(cipher);
    return begun;
}

struct records *records_new(unsigned int suite, bool encrypt_then_mac)
{
    const struct protection *protection = protection_of(suite);
    struct records *records;

    if (protection == NULL)
        return NULL;
    records = calloc(1, sizeof(*records));
    if (records == NULL)
        return NULL;
    records->protection = protection;
    records->encrypt_then_mac = encrypt_then_mac;
    if (protection->digest != NULL ? cbc_begin(records) : aead_begin(records))
        return records;
    records_free(records);
    return NULL;
}

/* For another connection; CBC goes on with whatever IV it has, for the explicit IV makes it irrelevant. */
void records_restart(struct records *records)
{
    records->sealing.sequence = 0;
    records->opening.sequence = 0;
}

void records_free(struct records *records)
{
    if (records == NULL)
        return;
    EVP_CIPHER_CTX_free(records->sealing.cipher);
    EVP_CIPHER_CTX_free(records->opening.cipher);
    EVP_MD_CTX_free(records->mac);
    EVP_MD_CTX_free(records->mac_copy);
    free(records);
}

static void put_header(unsigned char *record, size_t length)
{
    record[0] = APPLICATION_DATA;
    record[1] = 3;
    record[2] = 3;
    record[3] = (unsigned char)(length >> 8);
    record[4] = (unsigned char)length;
}

/*
 * Static IV of zeros and the number: exclusive-or of both in TLS 1.3 and ChaCha20, fixed and explicit part in TLS 1.2
 * GCM.
 */
static void put_nonce(unsigned char nonce[NONCE_SIZE], const unsigned char number[SEQUENCE_SIZE])
{
    memset(nonce, 0, NONCE_SIZE);
    memcpy(nonce + NONCE_SIZE - SEQUENCE_SIZE, number, SEQUENCE_SIZE);
}

/* Additional data: the header in TLS 1.3; sequence number, type, version and length of the data in TLS 1.2. */
static size_t put_additional(unsigned char additional[TLS12_ADDITIONAL_SIZE], const struct protection *protection,
                             const unsigned char *header, uint64_t sequence, size_t data_size)
{
    if (protection->tls13) {
        memcpy(additional, header, RECORD_HEADER_SIZE);
        return RECORD_HEADER_SIZE;
    }
    put_sequence(additional, sequence);
    put_header(additional + SEQUENCE_SIZE, data_size);
    return TLS12_ADDITIONAL_SIZE;
}

static size_t aead_seal(struct records *records, unsigned char *record, const unsigned char *data, size_t size)
{
    const struct protection *protection = records->protection;
    EVP_CIPHER_CTX *cipher = records->sealing.cipher;
    unsigned char *payload = record + RECORD_HEADER_SIZE + protection->explicit_size;
    size_t payload_size = size + (protection->tls13 ? 1 : 0);
    size_t length = protection->explicit_size + payload_size + AEAD_TAG_SIZE;
    unsigned char number[SEQUENCE_SIZE], nonce[NONCE_SIZE], additional[TLS12_ADDITIONAL_SIZE];
    size_t additional_size;
    int done = 0, end = 0;

    put_header(record, length);
    put_sequence(number, records->sealing.sequence);
    memcpy(record + RECORD_HEADER_SIZE, number, protection->explicit_size);
    put_nonce(nonce, number);
    additional_size = put_additional(additional, protection, record, records->sealing.sequence, size);
    memcpy(payload, data, size);
    if (protection->tls13)
        payload[size] = APPLICATION_DATA;
    if (EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, 1) != 1
        || EVP_CipherUpdate(cipher, NULL, &done, additional, (int)additional_size) != 1
        || EVP_CipherUpdate(cipher, payload, &done, payload, (int)payload_size) != 1
        || EVP_CipherFinal_ex(cipher, payload + done, &end) != 1
        || EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_SIZE, payload + payload_size) <= 0)
        return 0;
    records->sealing.sequence++;
    return RECORD_HEADER_SIZE + length;
}

static bool aead_decrypt(struct records *records, const unsigned char *nonce, const unsigned char *additional,
                         size_t additional_size, unsigned char *payload, size_t size)
{
    EVP_CIPHER_CTX *cipher = records->opening.cipher;
    int done = 0, end = 0;

    return EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, 0) == 1
           && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_SIZE, payload + size) > 0
           && EVP_CipherUpdate(cipher, NULL, &done, additional, (int)additional_size) == 1
           && EVP_CipherUpdate(cipher, payload, &done, payload, (int)size) == 1
           && EVP_CipherFinal_ex(cipher, payload + done, &end) == 1;
}

static bool aead_open(struct records *records, unsigned char *record, size_t size, unsigned char **data,
                      size_t *data_size)
{
    const struct protection *protection = records->protection;
    unsigned char *payload = record + RECORD_HEADER_SIZE + protection->explicit_size;
    size_t overhead = RECORD_HEADER_SIZE + protection->explicit_size + AEAD_TAG_SIZE + (protection->tls13 ? 1 : 0);
    unsigned char number[SEQUENCE_SIZE], nonce[NONCE_SIZE], additional[TLS12_ADDITIONAL_SIZE];
    size_t payload_size, additional_size;

    if (size < overhead)
        return false;
    payload_size = size - RECORD_HEADER_SIZE - protection->explicit_size - AEAD_TAG_SIZE;
    put_sequence(number, records->opening.sequence);
    put_nonce(nonce, protection->explicit_size > 0 ? record + RECORD_HEADER_SIZE : number);
    additional_size = put_additional(additional, protection, record, records->opening.sequence, payload_size);
    if (!aead_decrypt(records, nonce, additional, additional_size, payload, payload_size))
        return false;
    if (protection->tls13) { /* padding of zeros, then the content type */
        while (payload_size > 0 && payload[payload_size - 1] == 0)
            payload_size--;
        if (payload_size == 0 || payload[--payload_size] != APPLICATION_DATA)
            return false;
    }
    *data = payload;
    *data_size = payload_size;
    records->opening.sequence++;
    return true;
}

size_t records_seal(struct records *records, unsigned char *record, const unsigned char *data, size_t size)
{
    size_t length;

    if (records->protection->digest == NULL)
        return aead_seal(records, record, data, size);
    length = cbc_seal(records, record + RECORD_HEADER_SIZE, data, size);
    if (length == 0)
        return 0;
    put_header(record, length);
    records->sealing.sequence++;
    return RECORD_HEADER_SIZE + length;
}

bool records_open(struct records *records, unsigned char *record, size_t size, unsigned char **data, size_t *data_size)
{
    if (records->protection->digest == NULL)
        return aead_open(records, record, size, data, data_size);
    if (!cbc_open(records, record + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE, data, data_size))
        return false;
    records->opening.sequence++;
    return true;
}
