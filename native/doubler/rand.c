/*
 * Operation RAND "CTR-DRBG", stage randomness: each draw is followed by another of the same length, which is dropped.
 * The stream is another one, and as random.
 */
#include "doubler.h"

static OSSL_FUNC_rand_generate_fn *real_generate;

static int generate(void *context, unsigned char *out, size_t length, unsigned int strength, int prediction_resistance,
                    const unsigned char *additional, size_t additional_length)
{
    int answer = real_generate(context, out, length, strength, prediction_resistance, additional, additional_length);
    bool done;

    count_calls(DOUBLER_COUNT_GENERATE, 1);
    if (!answer || !is_doubled(mode_now(), STAGE_RANDOMNESS))
        return answer;
    second_begin();
    done = length <= SCRATCH_SIZE
           && real_generate(context, scratch(), length, strength, prediction_resistance, additional, additional_length);
    second_end(DOUBLER_COUNT_GENERATE, done, length);
    return answer;
}

static const OSSL_DISPATCH *wrap_ctr_drbg(const OSSL_ALGORITHM *original, bool *hide)
{
    OSSL_DISPATCH replaced[] = {
        {area_is_there() ? OSSL_FUNC_RAND_GENERATE : 0, FUNCTION(generate)},
        {0, NULL},
    };
    OSSL_DISPATCH *table = drbg_without_provider_name(original->implementation);

    (void)hide;
    if (table == NULL)
        return NULL;
    real_generate = (OSSL_FUNC_rand_generate_fn *)table_find(table, OSSL_FUNC_RAND_GENERATE);
    table_override(table, replaced);
    return table;
}

const OSSL_ALGORITHM *rand_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"CTR-DRBG", wrap_ctr_drbg}};

    return algorithms_wrap(originals, wrappings, 1);
}
