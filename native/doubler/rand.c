/*
 * Operation RAND "CTR-DRBG", stage randomness: each draw is followed by another of the same length, which is dropped.
 * The stream is another one, and as random.
 *
 * Always, whatever is doubled: libcrypto from 3.5 on hands the generator the parameter `provider-name`, which the
 * wrapped provider would look up in its private context and not find.
 */
#include "doubler.h"

static OSSL_FUNC_rand_instantiate_fn *real_instantiate;
static OSSL_FUNC_rand_generate_fn *real_generate;
static OSSL_FUNC_rand_set_ctx_params_fn *real_set_ctx_params;

static const char *const PROVIDER_NAME[] = {"provider-name", NULL};

static int instantiate(void *context, unsigned int strength, int prediction_resistance,
                       const unsigned char *personalisation, size_t personalisation_length, const OSSL_PARAM params[])
{
    OSSL_PARAM kept[PARAMS_MAX];

    return params_without(kept, params, PROVIDER_NAME)
           && real_instantiate(context, strength, prediction_resistance, personalisation, personalisation_length, kept);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    OSSL_PARAM kept[PARAMS_MAX];

    return params_without(kept, params, PROVIDER_NAME) && real_set_ctx_params(context, kept);
}

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
        {OSSL_FUNC_RAND_INSTANTIATE, FUNCTION(instantiate)},
        {OSSL_FUNC_RAND_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {area_is_there() ? OSSL_FUNC_RAND_GENERATE : 0, FUNCTION(generate)},
        {0, NULL},
    };
    const OSSL_DISPATCH *table = original->implementation;

    (void)hide;
    real_instantiate = (OSSL_FUNC_rand_instantiate_fn *)table_find(table, OSSL_FUNC_RAND_INSTANTIATE);
    real_generate = (OSSL_FUNC_rand_generate_fn *)table_find(table, OSSL_FUNC_RAND_GENERATE);
    real_set_ctx_params = (OSSL_FUNC_rand_set_ctx_params_fn *)table_find(table, OSSL_FUNC_RAND_SET_CTX_PARAMS);
    return table_replace(table, replaced);
}

const OSSL_ALGORITHM *rand_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"CTR-DRBG", wrap_ctr_drbg}};

    return algorithms_wrap(originals, wrappings, 1);
}
