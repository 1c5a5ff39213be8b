/*
 * Operation CIPHER "AES-128/256-CBC-HMAC-SHA1/SHA256": cipher and HMAC in one pass, which libssl prefers for CBC suites
 * without encrypt-then-MAC.
 *
 * With both stages off this file puts on the wire what the separate no-ops would: explicit IV, data, MAC_FILL, padding.
 * With one of them off there is no stitched code to be measured. Where no mode of this run has both off, the algorithms
 * are hidden and libssl uses the separate ones (docs/NOOP.md states the bias). Where some mode has both off they are
 * there, for libssl asks only once; a mode with one of them off is then refused.
 */
#include "../wrapping/cipher.h"
#include "provider.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, TLS_1_0 = 0x0301, TLS_AAD_SIZE = 13 };

struct stitched_functions {
    size_t mac_size;
    CIPHER_FUNCTIONS(FUNCTION_FIELD)
};

static struct stitched_functions aes128_sha1 = {.mac_size = 20}, aes256_sha1 = {.mac_size = 20};
static struct stitched_functions aes128_sha256 = {.mac_size = 32}, aes256_sha256 = {.mac_size = 32};

struct stitched {
    const struct stitched_functions *real;
    void *context; /* keeps key schedule and plain parameters */
    bool off; /* cipher and mac; on: the real context does everything */
    bool encrypting;
    unsigned int tls_version;
    size_t payload; /* explicit IV and data of the record to send */
    size_t expansion; /* what `tlsaadpad` answers */
};

const OSSL_DISPATCH *hide_algorithm(const OSSL_ALGORITHM *original, bool *hide)
{
    (void)original;
    *hide = true;
    return NULL;
}

static void *adopt(const struct stitched_functions *real, bool off, void *context)
{
    struct stitched *stitched = context == NULL ? NULL : calloc(1, sizeof(*stitched));

    if (stitched == NULL) {
        raise_error(REASON_NO_MEMORY, "cipher context");
        if (context != NULL)
            real->freectx(context);
        return NULL;
    }
    stitched->real = real;
    stitched->off = off;
    stitched->context = context;
    return stitched;
}

static void freectx(void *context)
{
    struct stitched *stitched = context;

    if (stitched == NULL)
        return;
    stitched->real->freectx(stitched->context);
    free(stitched);
}

static void *dupctx(void *context)
{
    struct stitched *stitched = context;
    struct stitched *copy;

    if (stitched->real->dupctx == NULL)
        return NULL;
    copy = adopt(stitched->real, stitched->off, stitched->real->dupctx(stitched->context));
    if (copy == NULL)
        return NULL;
    copy->encrypting = stitched->encrypting;
    copy->tls_version = stitched->tls_version;
    copy->payload = stitched->payload;
    copy->expansion = stitched->expansion;
    return copy;
}

/* MAC and padding that go behind explicit IV and data of `payload` bytes. */
static size_t mac_and_padding(const struct stitched *stitched, size_t payload)
{
    size_t with_mac = payload + stitched->real->mac_size;

    return with_mac + BLOCK - with_mac % BLOCK - payload;
}

/* The 13 bytes of additional data: sequence number, type, version, length (explicit IV included when sending). */
static int set_additional_data(struct stitched *stitched, const OSSL_PARAM *param)
{
    const unsigned char *bytes = param->data;

    if (param->data_type != OSSL_PARAM_OCTET_STRING || param->data_size != TLS_AAD_SIZE)
        return 0;
    stitched->tls_version = (unsigned int)bytes[9] << 8 | bytes[10];
    if (!stitched->encrypting) {
        stitched->expansion = stitched->real->mac_size;
        return 1;
    }
    stitched->payload = (size_t)bytes[11] << 8 | bytes[12];
    if (stitched->tls_version > TLS_1_0 && stitched->payload < BLOCK)
        return 0;
    stitched->expansion = mac_and_padding(stitched, stitched->payload);
    return 1;
}

/* `mackey` and the multiblock parameters are taken and ignored. */
static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct stitched *stitched = context;
    const OSSL_PARAM *additional, *version;

    if (!stitched->off)
        return stitched->real->set_ctx_params(stitched->context, params);
    additional = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD);
    version = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_TLS_VERSION);
    if (version != NULL && !OSSL_PARAM_get_uint(version, &stitched->tls_version))
        return 0;
    return additional == NULL || set_additional_data(stitched, additional);
}

static int encrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct stitched *stitched = context;

    stitched->encrypting = true;
    if (stitched->off && key != NULL && !acknowledged())
        return 0;
    return stitched->real->encrypt_init(stitched->context, key, key_length, iv, iv_length, NULL)
           && set_ctx_params(stitched, params);
}

static int decrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct stitched *stitched = context;

    stitched->encrypting = false;
    if (stitched->off && key != NULL && !acknowledged())
        return 0;
    return stitched->real->decrypt_init(stitched->context, key, key_length, iv, iv_length, NULL)
           && set_ctx_params(stitched, params);
}

static int send_record(struct stitched *stitched, unsigned char *out, size_t *out_length, size_t room,
                       const unsigned char *in, size_t length)
{
    size_t mac_size = stitched->real->mac_size;
    size_t data = stitched->payload;
    size_t padding;

    if (length != data + mac_and_padding(stitched, data) || room < length) {
        raise_error(REASON_UNSUPPORTED_USE, "stitched cipher: a record of %zu bytes for %zu announced", length, data);
        return 0;
    }
    if (out != in)
        memmove(out, in, data);
    padding = length - data - mac_size;
    memset(out + data, MAC_FILL, mac_size);
    memset(out + data + mac_size, (int)padding - 1, padding);
    *out_length = length;
    count_call(TLSDYNO_COUNT_CBC_ENCRYPT);
    count_call(TLSDYNO_COUNT_RECORD_HMAC);
    return 1;
}

static int receive_record(struct stitched *stitched, unsigned char *out, size_t *out_length, size_t room,
                          const unsigned char *in, size_t length)
{
    size_t mac_size = stitched->real->mac_size;
    size_t overhead = mac_size + (stitched->tls_version > TLS_1_0 ? BLOCK : 0);
    size_t padding = length == 0 ? 0 : (size_t)in[length - 1] + 1;

    count_call(TLSDYNO_COUNT_CBC_DECRYPT);
    count_call(TLSDYNO_COUNT_RECORD_HMAC);
    if (room < length || length % BLOCK != 0 || length < overhead + padding || padding == 0
        || !all_bytes_are(in + length - padding, padding, (unsigned char)(padding - 1))) {
        raise_error(REASON_PEER_HAS_STAGE_ON, "cipher: a CBC record without clear padding");
        return 0;
    }
    if (!all_bytes_are(in + length - padding - mac_size, mac_size, MAC_FILL)) {
        raise_error(REASON_PEER_HAS_STAGE_ON, "mac: a real record HMAC");
        return 0;
    }
    if (out != in)
        memmove(out, in, length);
    *out_length = length - overhead - padding;
    return 1;
}

static int update(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct stitched *stitched = context;

    if (!stitched->off)
        return stitched->real->update(stitched->context, out, out_length, room, in, length);
    if (stitched->tls_version == 0) {
        raise_error(REASON_UNSUPPORTED_USE, "stitched cipher outside TLS records");
        return 0;
    }
    if (stitched->encrypting)
        return send_record(stitched, out, out_length, room, in, length);
    return receive_record(stitched, out, out_length, room, in, length);
}

/* EVP_Cipher. */
static int cipher(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct stitched *stitched = context;

    if (!stitched->off)
        return stitched->real->cipher(stitched->context, out, out_length, room, in, length);
    return update(context, out, out_length, room, in, length);
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct stitched *stitched = context;

    if (!stitched->off)
        return stitched->real->final(stitched->context, out, out_length, room);
    *out_length = 0;
    return 1;
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    static const char *const ours[] = {OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD, NULL};
    struct stitched *stitched = context;
    OSSL_PARAM others[PARAMS_MAX];
    OSSL_PARAM *expansion;

    if (!stitched->off)
        return stitched->real->get_ctx_params(stitched->context, params);
    expansion = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD);
    if (expansion != NULL && !OSSL_PARAM_set_size_t(expansion, stitched->expansion))
        return 0;
    return params_without(others, params, ours) && stitched->real->get_ctx_params(stitched->context, others);
}

/* Several records in one call are not covered: libssl then writes them one by one. */
static int get_params(const struct stitched_functions *real, OSSL_PARAM params[])
{
    OSSL_PARAM *multiblock = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_TLS1_MULTIBLOCK);

    return real->get_params(params) && (multiblock == NULL || OSSL_PARAM_set_int(multiblock, 0));
}

static void *new_context(const struct stitched_functions *real, void *provider)
{
    uint32_t mode = mode_now();
    bool off = is_off(mode, STAGE_CIPHER);

    if (off == is_off(mode, STAGE_MAC))
        return adopt(real, off, real->newctx(provider));
    raise_error(REASON_UNSUPPORTED_USE,
                "one of cipher and mac off without encrypt-then-MAC, in a server that also has modes with both off");
    return NULL;
}

/* NEWCTX and GET_PARAMS get no hint which algorithm they are for, so each has its own. */
#define STITCHED(name)                                                                                                 \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return new_context(&name, provider);                                                                           \
    }                                                                                                                  \
    static int name##_get_params(OSSL_PARAM params[])                                                                  \
    {                                                                                                                  \
        return get_params(&name, params);                                                                              \
    }

STITCHED(aes128_sha1)
STITCHED(aes256_sha1)
STITCHED(aes128_sha256)
STITCHED(aes256_sha256)

static const struct {
    const char *name;
    struct stitched_functions *real;
    OSSL_FUNC_cipher_newctx_fn *newctx;
    OSSL_FUNC_cipher_get_params_fn *get_params;
} ALGORITHMS[] = {
    {"AES-128-CBC-HMAC-SHA1", &aes128_sha1, aes128_sha1_newctx, aes128_sha1_get_params},
    {"AES-256-CBC-HMAC-SHA1", &aes256_sha1, aes256_sha1_newctx, aes256_sha1_get_params},
    {"AES-128-CBC-HMAC-SHA256", &aes128_sha256, aes128_sha256_newctx, aes128_sha256_get_params},
    {"AES-256-CBC-HMAC-SHA256", &aes256_sha256, aes256_sha256_newctx, aes256_sha256_get_params},
};

const OSSL_DISPATCH *stitched_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    size_t i = 0;

    if (!stage_may_be_off(STAGE_CIPHER) || !stage_may_be_off(STAGE_MAC))
        return hide_algorithm(original, hide);
    while (!algorithm_is(original, ALGORITHMS[i].name))
        i++;
    {
        const OSSL_DISPATCH *table = original->implementation;
        struct stitched_functions *real = ALGORITHMS[i].real;
        /* Left out: the functions that list parameters (all differ), PIPELINE_* and *_SKEY_INIT of later versions. */
        const OSSL_DISPATCH allowed[] = {
            {OSSL_FUNC_CIPHER_NEWCTX, FUNCTION(ALGORITHMS[i].newctx)},
            CIPHER_OF_CONTEXT(OWN_FUNCTION)
            {OSSL_FUNC_CIPHER_FREECTX, FUNCTION(freectx)},
            {OSSL_FUNC_CIPHER_GET_PARAMS, FUNCTION(ALGORITHMS[i].get_params)},
            {OSSL_FUNC_CIPHER_GETTABLE_PARAMS, KEEP},
            {0, NULL},
        };

        CIPHER_FUNCTIONS(FIND_FUNCTION)
        return table_allow(table, allowed);
    }
}
