/*
 * Operation KDF: "TLS1-PRF", "TLS13-KDF", "HKDF", stage kdf. Every derived byte is KDF_FILL; inputs and parameters are
 * taken and ignored. A context that is made while the stage is on has a real one in it, which does everything.
 */
#include "../wrapping/kdf.h"
#include "provider.h"

#include <stdlib.h>

struct kdf_functions {
    KDF_FUNCTIONS(FUNCTION_FIELD)
};

static struct kdf_functions tls1_prf, tls13_kdf, hkdf;

struct kdf {
    const struct kdf_functions *functions;
    void *real; /* NULL: the stage is off */
};

/* `off`, or takes over `real`, which may be missing. */
static void *adopt(const struct kdf_functions *functions, bool off, void *real)
{
    struct kdf *kdf = off || real != NULL ? malloc(sizeof(*kdf)) : NULL;

    if (kdf == NULL) {
        raise_error(REASON_NO_MEMORY, "KDF context");
        if (real != NULL)
            functions->freectx(real);
        return NULL;
    }
    *kdf = (struct kdf){.functions = functions, .real = real};
    return kdf;
}

static void *new_context(const struct kdf_functions *functions, void *provider)
{
    bool off = is_off(mode_now(), STAGE_KDF);

    return adopt(functions, off, off ? NULL : functions->newctx(provider));
}

static void freectx(void *context)
{
    struct kdf *kdf = context;

    if (kdf != NULL && kdf->real != NULL)
        kdf->functions->freectx(kdf->real);
    free(kdf);
}

static void *dupctx(void *context)
{
    struct kdf *kdf = context;
    bool off = kdf->real == NULL;

    return adopt(kdf->functions, off, off ? NULL : kdf->functions->dupctx(kdf->real));
}

static void reset(void *context)
{
    struct kdf *kdf = context;

    if (kdf->real != NULL)
        kdf->functions->reset(kdf->real);
}

static int derive(void *context, unsigned char *key, size_t length, const OSSL_PARAM params[])
{
    struct kdf *kdf = context;
    size_t filled;

    if (kdf->real != NULL)
        return kdf->functions->derive(kdf->real, key, length, params);
    if (!acknowledged())
        return 0;
    count_call(TLSDYNO_COUNT_KDF);
    return fill_answer(key, &filled, length, length, KDF_FILL);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct kdf *kdf = context;
    OSSL_PARAM *size;

    if (kdf->real != NULL)
        return kdf->functions->get_ctx_params(kdf->real, params);
    size = OSSL_PARAM_locate(params, OSSL_KDF_PARAM_SIZE);
    return size == NULL || OSSL_PARAM_set_size_t(size, SIZE_MAX);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct kdf *kdf = context;

    return kdf->real == NULL || kdf->functions->set_ctx_params(kdf->real, params);
}

#define FREE_CONTEXT freectx
#include "../wrapping/kdf_tables.h"
