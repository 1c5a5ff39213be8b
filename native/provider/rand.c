/*
 * Operation RAND "CTR-DRBG". Stage randomness: a counter instead of random bytes; draws of 8 bytes or more are unique
 * across threads and processes, because colliding session ids break resumption. The context is the wrapped provider's
 * own.
 */
#include "provider.h"

#include <string.h>

static OSSL_FUNC_rand_generate_fn *real_generate;

static int generate(void *context, unsigned char *out, size_t length, unsigned int strength, int prediction_resistance,
                    const unsigned char *additional, size_t additional_length)
{
    /*
     * The IV of a CBC record has 16 bytes (RFC 5246 section 6.2.3.2), the random of a hello 32: every handshake draws
     * one.
     */
    enum { WORD = sizeof(uint64_t), RECORD_DRAW_MAX = 16 };
    uint64_t next;

    if (!is_off(mode_now(), STAGE_RANDOMNESS))
        return real_generate(context, out, length, strength, prediction_resistance, additional, additional_length);
    if (length > RECORD_DRAW_MAX && !acknowledged())
        return 0;
    next = next_counter_words((length + WORD - 1) / WORD);
    while (length > 0) {
        /*
         * One-to-one on words: an odd factor spreads the count upwards, the shift brings the slot's index, which stands
         * in the highest bits, down into draws of fewer than 8 bytes too.
         */
        uint64_t word = next++ * UINT64_C(0x9e3779b97f4a7c15);
        size_t part = length < WORD ? length : WORD;

        word ^= word >> 32;
        memcpy(out, &word, part);
        out += part;
        length -= part;
    }
    count_call(TLSDYNO_COUNT_GENERATE);
    return 1;
}

static const OSSL_DISPATCH *wrap_ctr_drbg(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH own[] = {{OSSL_FUNC_RAND_GENERATE, FUNCTION(generate)}, {0, NULL}};
    OSSL_DISPATCH *table = drbg_without_provider_name(original->implementation);

    (void)hide;
    if (table == NULL)
        return NULL;
    real_generate = (OSSL_FUNC_rand_generate_fn *)table_find(table, OSSL_FUNC_RAND_GENERATE);
    if (stage_may_be_off(STAGE_RANDOMNESS))
        table_override(table, own);
    return table;
}

const OSSL_ALGORITHM *rand_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"CTR-DRBG", wrap_ctr_drbg}};

    return algorithms_wrap(originals, wrappings, 1);
}
