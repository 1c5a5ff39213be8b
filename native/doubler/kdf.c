/* Operation KDF: "TLS1-PRF", "TLS13-KDF", "HKDF", stage kdf: a twin from the making of a context to its end. */
#include "../wrapping/kdf.h"
#include "doubler.h"

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

#define FREE_CONTEXT pair_free
#include "../wrapping/kdf_tables.h"
