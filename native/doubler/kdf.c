/* Operation KDF: "TLS1-PRF", "TLS13-KDF", "HKDF", stage kdf: a twin from the making of a context to its end. */
#include "doubler.h"

#define KDF_FUNCTIONS(X)                                                                                               \
    X(kdf, KDF, newctx, NEWCTX)                                                                                        \
    X(kdf, KDF, dupctx, DUPCTX)                                                                                        \
    X(kdf, KDF, freectx, FREECTX)                                                                                      \
    X(kdf, KDF, reset, RESET)                                                                                          \
    X(kdf, KDF, derive, DERIVE)                                                                                        \
    X(kdf, KDF, get_ctx_params, GET_CTX_PARAMS)                                                                        \
    X(kdf, KDF, set_ctx_params, SET_CTX_PARAMS)

struct kdf_functions {
    KDF_FUNCTIONS(FUNCTION_FIELD)
};

static struct kdf_functions tls1_prf, tls13_kdf, hkdf;

PAIRED(kdf_functions, set_ctx_params, (void *context, const OSSL_PARAM params[]), params)

static void *new_context(const struct kdf_functions *functions, void *provider)
{
    bool doubled = is_doubled(mode_now(), STAGE_KDF);

    return pair_make(sizeof(struct pair), functions, functions->freectx, functions->newctx(provider), doubled,
                     doubled ? functions->newctx(provider) : NULL);
}

static void *dupctx(void *context)
{
    struct pair *pair = context;

    return pair_copy(sizeof(*pair), pair, ((const struct kdf_functions *)pair->functions)->dupctx);
}

static void reset(void *context)
{
    struct pair *pair = context;
    const struct kdf_functions *functions = pair->functions;

    functions->reset(pair->real);
    if (pair->twin != NULL)
        functions->reset(pair->twin);
}

static int derive(void *context, unsigned char *key, size_t length, const OSSL_PARAM params[])
{
    struct pair *pair = context;
    const struct kdf_functions *functions = pair->functions;
    int answer = functions->derive(pair->real, key, length, params);

    count_calls(DOUBLER_COUNT_KDF, 1);
    if (!pair_follows(pair, answer))
        return answer;
    if (length <= SCRATCH_SIZE && functions->derive(pair->twin, scratch(), length, params))
        count_doubled(DOUBLER_COUNT_KDF, 1);
    else
        pair_drop_twin(pair, true);
    scratch_wipe(length);
    return answer;
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct pair *pair = context;

    return ((const struct kdf_functions *)pair->functions)->get_ctx_params(pair->real, params);
}

static const OSSL_DISPATCH *wrap(struct kdf_functions *real, OSSL_FUNC_kdf_newctx_fn *newctx,
                                 const OSSL_DISPATCH *table)
{
    /*
     * Left out: the functions that list parameters (they would receive our context), SET_SKEY and DERIVE_SKEY of later
     * versions.
     */
    const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_KDF_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_KDF_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_KDF_FREECTX, FUNCTION(pair_free)},
        {OSSL_FUNC_KDF_RESET, FUNCTION(reset)},
        {OSSL_FUNC_KDF_DERIVE, FUNCTION(derive)},
        {OSSL_FUNC_KDF_GET_CTX_PARAMS, FUNCTION(get_ctx_params)},
        {OSSL_FUNC_KDF_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {0, NULL},
    };

    KDF_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

/* NEWCTX gets no hint which algorithm it is for, so each has its own. */
#define ALGORITHM(name)                                                                                                \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return new_context(&name, provider);                                                                           \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, original->implementation);                                                   \
    }

ALGORITHM(tls1_prf)
ALGORITHM(tls13_kdf)
ALGORITHM(hkdf)

const OSSL_ALGORITHM *kdf_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[]
        = {{"TLS1-PRF", wrap_tls1_prf}, {"TLS13-KDF", wrap_tls13_kdf}, {"HKDF", wrap_hkdf}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
