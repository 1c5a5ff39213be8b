/*
 * Operation KDF: "TLS1-PRF", "TLS13-KDF", "HKDF", stage kdf. Every derived byte is KDF_FILL; inputs and parameters are
 * taken and ignored.
 */
#include "provider.h"

#include <stdlib.h>

static void *newctx(void *provider)
{
    void *context = calloc(1, 1); /* libcrypto wants something to hold; there is no state */

    (void)provider;
    if (context == NULL)
        raise_error(REASON_NO_MEMORY, "KDF context");
    return context;
}

static void *dupctx(void *context)
{
    return newctx(context);
}

static void reset(void *context)
{
    (void)context;
}

static int derive(void *context, unsigned char *key, size_t length, const OSSL_PARAM params[])
{
    size_t filled;

    (void)context;
    (void)params;
    if (!acknowledged())
        return 0;
    count_call(TLSDYNO_COUNT_KDF);
    return fill_answer(key, &filled, length, length, KDF_FILL);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    OSSL_PARAM *size = OSSL_PARAM_locate(params, OSSL_KDF_PARAM_SIZE);

    (void)context;
    return size == NULL || OSSL_PARAM_set_size_t(size, SIZE_MAX);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    (void)context;
    (void)params;
    return 1;
}

static const OSSL_DISPATCH *wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    /*
     * Left out: the functions that list parameters (they would receive our context), SET_SKEY and DERIVE_SKEY of later
     * versions.
     */
    static const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_KDF_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_KDF_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_KDF_FREECTX, FUNCTION(free)},
        {OSSL_FUNC_KDF_RESET, FUNCTION(reset)},
        {OSSL_FUNC_KDF_DERIVE, FUNCTION(derive)},
        {OSSL_FUNC_KDF_GET_CTX_PARAMS, FUNCTION(get_ctx_params)},
        {OSSL_FUNC_KDF_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {0, NULL},
    };

    (void)hide;
    return table_allow(original->implementation, allowed);
}

const OSSL_ALGORITHM *kdf_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"TLS1-PRF", wrap}, {"TLS13-KDF", wrap}, {"HKDF", wrap}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
