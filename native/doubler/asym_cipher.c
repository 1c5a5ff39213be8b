/* Operation ASYM_CIPHER "RSA", stage authentication: the decryption of a static-RSA pre-master secret twice. */
#include "doubler.h"

static OSSL_FUNC_asym_cipher_decrypt_fn *real_decrypt;

static int decrypt(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                   size_t length)
{
    int answer = real_decrypt(context, out, out_length, room, in, length);
    size_t second = 0;
    bool done;

    if (out == NULL || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_RSA_DECRYPT, 1);
    if (!is_doubled(mode_now(), STAGE_AUTHENTICATION))
        return answer;
    second_begin();
    done = real_decrypt(context, scratch(), &second, SCRATCH_SIZE, in, length);
    second_end(DOUBLER_COUNT_RSA_DECRYPT, done, second);
    return answer;
}

static const OSSL_DISPATCH *wrap_rsa(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH replaced[] = {{OSSL_FUNC_ASYM_CIPHER_DECRYPT, FUNCTION(decrypt)}, {0, NULL}};
    const OSSL_DISPATCH *table = original->implementation;

    (void)hide;
    real_decrypt = (OSSL_FUNC_asym_cipher_decrypt_fn *)table_find(table, OSSL_FUNC_ASYM_CIPHER_DECRYPT);
    return table_replace(table, replaced);
}

const OSSL_ALGORITHM *asym_cipher_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}};

    return algorithms_wrap(originals, wrappings, 1);
}
