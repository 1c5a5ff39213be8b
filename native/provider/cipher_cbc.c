/*
 * Operation CIPHER "AES-128-CBC" and "AES-256-CBC" with the stage cipher off: the transformation of TLS records is the
 * identity, so explicit IV, data, MAC and padding stand in clear. Key schedule and all uses outside TLS records
 * (session tickets) stay real.
 *
 * libssl marks record use by the parameters `tls-version` and `tls-mac-size` (0 with encrypt-then-MAC). Each update is
 * then one record: the cipher adds the padding when sending, and takes padding, MAC and explicit IV off the length when
 * receiving.
 *
 * A context that was made while the stage was on passes everything to the real one in it.
 */
#include "../wrapping/cipher.h"
#include "provider.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, TLS_1_0 = 0x0301 };

struct cbc_functions {
    CIPHER_FUNCTIONS(FUNCTION_FIELD)
};

static struct cbc_functions aes128, aes256;

struct cbc {
    const struct cbc_functions *real;
    void *context;
    bool off; /* the stage cipher; on: tls_version stays 0 and everything is real */
    bool encrypting;
    unsigned int tls_version; /* 0: no TLS records */
    size_t mac_size;
    unsigned char *mac; /* of the record received last, inside that record */
};

static void *adopt(const struct cbc_functions *real, bool off, void *context)
{
    struct cbc *cbc = context == NULL ? NULL : calloc(1, sizeof(*cbc));

    if (cbc == NULL) {
        raise_error(REASON_NO_MEMORY, "cipher context");
        if (context != NULL)
            real->freectx(context);
        return NULL;
    }
    cbc->real = real;
    cbc->off = off;
    cbc->context = context;
    return cbc;
}

static void freectx(void *context)
{
    struct cbc *cbc = context;

    if (cbc == NULL)
        return;
    cbc->real->freectx(cbc->context);
    free(cbc);
}

static void *dupctx(void *context)
{
    struct cbc *cbc = context;
    struct cbc *copy = adopt(cbc->real, cbc->off, cbc->real->dupctx(cbc->context));

    if (copy == NULL)
        return NULL;
    copy->encrypting = cbc->encrypting;
    copy->tls_version = cbc->tls_version;
    copy->mac_size = cbc->mac_size;
    return copy;
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct cbc *cbc = context;
    const OSSL_PARAM *version = cbc->off ? OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_TLS_VERSION) : NULL;
    const OSSL_PARAM *mac_size = cbc->off ? OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_TLS_MAC_SIZE) : NULL;

    if (version != NULL && !OSSL_PARAM_get_uint(version, &cbc->tls_version))
        return 0;
    if (mac_size != NULL && !OSSL_PARAM_get_size_t(mac_size, &cbc->mac_size))
        return 0;
    return cbc->real->set_ctx_params(cbc->context, params);
}

static int encrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct cbc *cbc = context;

    cbc->encrypting = true;
    if (cbc->off && key != NULL && !acknowledged())
        return 0;
    return cbc->real->encrypt_init(cbc->context, key, key_length, iv, iv_length, NULL) && set_ctx_params(cbc, params);
}

static int decrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct cbc *cbc = context;

    cbc->encrypting = false;
    if (cbc->off && key != NULL && !acknowledged())
        return 0;
    return cbc->real->decrypt_init(cbc->context, key, key_length, iv, iv_length, NULL) && set_ctx_params(cbc, params);
}

/* RFC 5246 section 6.2.3.2: up to the block size, every padding byte holds their number without itself. */
static int send_record(unsigned char *out, size_t *out_length, size_t room, const unsigned char *in, size_t length)
{
    size_t padding = BLOCK - length % BLOCK;

    if (room < length + padding) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", length + padding, room);
        return 0;
    }
    if (out != in)
        memmove(out, in, length);
    memset(out + length, (int)padding - 1, padding);
    *out_length = length + padding;
    count_call(TLSDYNO_COUNT_CBC_ENCRYPT);
    return 1;
}

static int receive_record(struct cbc *cbc, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                          size_t length)
{
    size_t overhead = cbc->mac_size + (cbc->tls_version > TLS_1_0 ? BLOCK : 0);
    size_t padding = length == 0 ? 0 : (size_t)in[length - 1] + 1;

    count_call(TLSDYNO_COUNT_CBC_DECRYPT);
    if (room < length || length % BLOCK != 0 || length < overhead + padding || padding == 0
        || !all_bytes_are(in + length - padding, padding, (unsigned char)(padding - 1))) {
        raise_error(REASON_PEER_HAS_STAGE_ON, "cipher: a CBC record without clear padding");
        return 0;
    }
    if (out != in)
        memmove(out, in, length);
    *out_length = length - overhead - padding;
    cbc->mac = out + length - padding - cbc->mac_size;
    return 1;
}

static int update(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct cbc *cbc = context;

    if (cbc->tls_version == 0)
        return cbc->real->update(cbc->context, out, out_length, room, in, length);
    if (cbc->encrypting)
        return send_record(out, out_length, room, in, length);
    return receive_record(cbc, out, out_length, room, in, length);
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct cbc *cbc = context;

    return cbc->real->final(cbc->context, out, out_length, room);
}

static int cipher(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct cbc *cbc = context;

    if (cbc->tls_version == 0)
        return cbc->real->cipher(cbc->context, out, out_length, room, in, length);
    return update(context, out, out_length, room, in, length);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    static const char *const ours[] = {OSSL_CIPHER_PARAM_TLS_MAC, NULL};
    struct cbc *cbc = context;
    OSSL_PARAM *mac = cbc->off ? OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_TLS_MAC) : NULL;
    OSSL_PARAM others[PARAMS_MAX];

    if (mac == NULL || cbc->tls_version == 0)
        return cbc->real->get_ctx_params(cbc->context, params);
    if (cbc->mac == NULL || !OSSL_PARAM_set_octet_ptr(mac, cbc->mac, cbc->mac_size))
        return 0;
    return params_without(others, params, ours) && cbc->real->get_ctx_params(cbc->context, others);
}

static void *aes128_newctx(void *provider)
{
    return adopt(&aes128, is_off(mode_now(), STAGE_CIPHER), aes128.newctx(provider));
}

static void *aes256_newctx(void *provider)
{
    return adopt(&aes256, is_off(mode_now(), STAGE_CIPHER), aes256.newctx(provider));
}

/* All CBC ciphers of the default provider list the same parameters. */
PARAMETER_LIST(gettable_ctx_params, aes128.gettable_ctx_params)
PARAMETER_LIST(settable_ctx_params, aes128.settable_ctx_params)

const OSSL_DISPATCH *cbc_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    bool short_key = algorithm_is(original, "AES-128-CBC");
    /* Left out: PIPELINE_* and *_SKEY_INIT of later versions. */
    OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_CIPHER_NEWCTX, short_key ? FUNCTION(aes128_newctx) : FUNCTION(aes256_newctx)},
        CIPHER_OF_CONTEXT(OWN_FUNCTION)
        {OSSL_FUNC_CIPHER_FREECTX, FUNCTION(freectx)},
        {OSSL_FUNC_CIPHER_GET_PARAMS, KEEP},
        {OSSL_FUNC_CIPHER_GETTABLE_PARAMS, KEEP},
        {OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, FUNCTION(gettable_ctx_params)},
        {OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, FUNCTION(settable_ctx_params)},
        {0, NULL},
    };

    const OSSL_DISPATCH *table = original->implementation;
    struct cbc_functions *real = short_key ? &aes128 : &aes256;

    (void)hide;
    if (!stage_may_be_off(STAGE_CIPHER))
        return table;
    CIPHER_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}
