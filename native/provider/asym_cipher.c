/*
 * Operation ASYM_CIPHER "RSA": the static-RSA key exchange, stage authentication. Instead of the encrypted pre-master
 * secret goes a block of the modulus size: 2-byte big-endian length, the pre-master secret in clear, zeros. Other uses
 * of RSA encryption stay real: a server decrypts with pad mode "TLS", a client encrypts 48 bytes with PKCS #1. The
 * context is ours round the wrapped provider's, and so keeps its mode.
 */
#include "provider.h"

#include <string.h>

#include <openssl/rsa.h>

#define CONTEXT struct latched
#include "../wrapping/asym_cipher.h"

enum { PREMASTER_SIZE = 48, LENGTH_SIZE = 2 };

static void *newctx(void *provider)
{
    return latch(&rsa, rsa.newctx(provider), rsa.freectx, is_off(mode_now(), STAGE_AUTHENTICATION));
}

static void *dupctx(void *context)
{
    struct latched *latched = context;

    return latch(&rsa, rsa.dupctx(latched->real), rsa.freectx, latched->off);
}

static int decrypt_init(void *context, void *key, const OSSL_PARAM params[])
{
    return rsa.decrypt_init(real_of(context), key, params);
}

static bool pad_mode_is(void *real, int wanted)
{
    int mode = 0;
    OSSL_PARAM request[2] = {OSSL_PARAM_construct_int(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, &mode),
                             OSSL_PARAM_construct_end()};

    return rsa.get_ctx_params(real, request) && mode == wanted;
}

static int encrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    struct latched *latched = context;
    size_t modulus = 0;

    if (!latched->off || out == NULL || length != PREMASTER_SIZE || !pad_mode_is(latched->real, RSA_PKCS1_PADDING))
        return rsa.encrypt(latched->real, out, out_length, room, in, length);
    if (!acknowledged() || !rsa.encrypt(latched->real, NULL, &modulus, 0, in, length))
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
    struct latched *latched = context;
    size_t modulus = 0;

    if (out == NULL || !pad_mode_is(latched->real, RSA_PKCS1_WITH_TLS_PADDING))
        return rsa.decrypt(latched->real, out, out_length, room, in, length);
    private_key_operation(latched->off);
    if (!latched->off)
        return rsa.decrypt(latched->real, out, out_length, room, in, length);
    /*
     * In this mode the size query of decryption answers 48; that of encryption answers the modulus size from the same
     * context.
     */
    if (!acknowledged() || !rsa.encrypt(latched->real, NULL, &modulus, 0, in, length))
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
    static const OSSL_DISPATCH allowed[] = {ASYM_CIPHER_FUNCTIONS(OWN_FUNCTION) {0, NULL}};
    const OSSL_DISPATCH *table = original->implementation;
    struct rsa_functions *real = &rsa;

    (void)hide;
    if (!stage_may_be_off(STAGE_AUTHENTICATION) && !private_key_burns())
        return table;
    ASYM_CIPHER_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *asym_cipher_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}};

    return algorithms_wrap(originals, wrappings, 1);
}
