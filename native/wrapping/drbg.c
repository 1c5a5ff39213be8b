/*
 * Operation RAND "CTR-DRBG", whatever else is done to it: libcrypto from 3.5 on hands the generator the parameter
 * `provider-name`, which the wrapped provider would look up in its private context and not find.
 */
#include "wrapping.h"

static OSSL_FUNC_rand_instantiate_fn *real_instantiate;
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

OSSL_DISPATCH *drbg_without_provider_name(const OSSL_DISPATCH *original)
{
    static const OSSL_DISPATCH OWN[] = {
        {OSSL_FUNC_RAND_INSTANTIATE, FUNCTION(instantiate)},
        {OSSL_FUNC_RAND_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {0, NULL},
    };
    OSSL_DISPATCH *table = table_copy(original);

    if (table == NULL)
        return NULL;
    real_instantiate = (OSSL_FUNC_rand_instantiate_fn *)table_find(original, OSSL_FUNC_RAND_INSTANTIATE);
    real_set_ctx_params = (OSSL_FUNC_rand_set_ctx_params_fn *)table_find(original, OSSL_FUNC_RAND_SET_CTX_PARAMS);
    table_override(table, OWN);
    return table;
}
