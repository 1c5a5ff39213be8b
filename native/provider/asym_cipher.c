/*
 * Operation ASYM_CIPHER "RSA": the static-RSA key exchange, stage authentication. Instead of the encrypted pre-master
 * secret goes a block of the modulus size: 2-byte big-endian length, the pre-master secret in clear, zeros. Other uses
 * of RSA encryption stay real: a server decrypts with pad mode "TLS", a client encrypts 48 bytes with PKCS #1.
 */
#include "provider.h"

#include <string.h>

#include <openssl/rsa.h>

enum { PREMASTER_SIZE = 48, LENGTH_SIZE = 2 };

static OSSL_FUNC_asym_cipher_encrypt_fn *real_encrypt;
static OSSL_FUNC_asym_cipher_decrypt_fn *real_decrypt;
static OSSL_FUNC_asym_cipher_get_ctx_params_fn *real_get_ctx_params;

static bool pad_mode_is(void *context, int wanted)
{
    int mode = 0;
    OSSL_PARAM request[2] = {OSSL_PARAM_construct_int(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, &mode),
                             OSSL_PARAM_construct_end()};

    return real_get_ctx_params(context, request) && mode == wanted;
}

static int encrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    size_t modulus = 0;

    if (!stage_is_off(STAGE_AUTHENTICATION) || out == NULL || length != PREMASTER_SIZE
        || !pad_mode_is(context, RSA_PKCS1_PADDING))
        return real_encrypt(context, out, out_length, room, in, length);
    if (!acknowledged() || !real_encrypt(context, NULL, &modulus, 0, in, length))
        return 0;
    if (modulus < LENGTH_SIZE + PREMASTER_SIZE || !fill_answer(out, out_length, room, modulus, 0))
        return 0;
    out[1] = PREMASTER_SIZE;
    memcpy(out + LENGTH_SIZE, in, PREMASTER_SIZE);
    count_call(TLSDYNO_COUNT_RSA_ENCRYPT);
    return 1;
}

static bool is_premaster_block(const unsigned char *block, size_t length, size_t modulus)
{
    enum { HEAD = LENGTH_SIZE + PREMASTER_SIZE };

    return length == modulus && length >= HEAD && block[0] == 0 && block[1] == PREMASTER_SIZE
           && all_bytes_are(block + HEAD, length - HEAD, 0);
}

static int decrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    size_t modulus = 0;

    if (out == NULL || !pad_mode_is(context, RSA_PKCS1_WITH_TLS_PADDING))
        return real_decrypt(context, out, out_length, room, in, length);
    private_key_operation();
    if (!stage_is_off(STAGE_AUTHENTICATION))
        return real_decrypt(context, out, out_length, room, in, length);
    /*
     * In this mode the size query of decryption answers 48; that of encryption answers the modulus size from the same
     * context.
     */
    if (!acknowledged() || !real_encrypt(context, NULL, &modulus, 0, in, length))
        return 0;
    count_call(TLSDYNO_COUNT_RSA_DECRYPT);
    if (!is_premaster_block(in, length, modulus)) {
        raise_error(REASON_PEER_HAS_STAGE_ON, "authentication: a really encrypted pre-master secret");
        return 0;
    }
    if (room < PREMASTER_SIZE) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%d bytes needed, room for %zu", PREMASTER_SIZE, room);
        return 0;
    }
    memcpy(out, in + LENGTH_SIZE, PREMASTER_SIZE);
    *out_length = PREMASTER_SIZE;
    return 1;
}

static const OSSL_DISPATCH *wrap_rsa(const OSSL_ALGORITHM *original, bool *hide)
{
    /* The context is the wrapped provider's own. */
    static const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_ASYM_CIPHER_NEWCTX, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_ENCRYPT_INIT, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_ENCRYPT, FUNCTION(encrypt)},
        {OSSL_FUNC_ASYM_CIPHER_DECRYPT_INIT, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_DECRYPT, FUNCTION(decrypt)},
        {OSSL_FUNC_ASYM_CIPHER_FREECTX, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_DUPCTX, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_GET_CTX_PARAMS, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_GETTABLE_CTX_PARAMS, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_SET_CTX_PARAMS, KEEP},
        {OSSL_FUNC_ASYM_CIPHER_SETTABLE_CTX_PARAMS, KEEP},
        {0, NULL},
    };
    const OSSL_DISPATCH *table = original->implementation;

    (void)hide;
    if (!stage_is_off(STAGE_AUTHENTICATION) && settings()->burn_ns == 0)
        return table;
    real_encrypt = (OSSL_FUNC_asym_cipher_encrypt_fn *)table_find(table, OSSL_FUNC_ASYM_CIPHER_ENCRYPT);
    real_decrypt = (OSSL_FUNC_asym_cipher_decrypt_fn *)table_find(table, OSSL_FUNC_ASYM_CIPHER_DECRYPT);
    real_get_ctx_params
        = (OSSL_FUNC_asym_cipher_get_ctx_params_fn *)table_find(table, OSSL_FUNC_ASYM_CIPHER_GET_CTX_PARAMS);
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *asym_cipher_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}};

    return algorithms_wrap(originals, wrappings, 1);
}
