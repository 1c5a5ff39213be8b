/*
 * The default provider in a private library context. Nested fetches of it (HMAC fetching SHA-256, PSS fetching a
 * digest) resolve there, so they stay its own.
 */
#include "wrapping.h"

#include <openssl/crypto.h>
#include <openssl/provider.h>

bool wrap_default(struct wrapped *into)
{
    OSSL_LIB_CTX *private_context = OSSL_LIB_CTX_new();

    if (private_context == NULL) {
        raise_error(REASON_NO_MEMORY, "private library context");
        return false;
    }
    into->provider = OSSL_PROVIDER_load(private_context, "default");
    if (into->provider == NULL) {
        raise_error(REASON_WRAPPED_PROVIDER, "it does not load");
        OSSL_LIB_CTX_free(private_context);
        return false;
    }
    into->private_context = private_context;
    into->context = OSSL_PROVIDER_get0_provider_ctx(into->provider);
    return true;
}

void unwrap_default(struct wrapped *wrapped)
{
    if (wrapped->provider == NULL)
        return;
    OSSL_PROVIDER_unload(wrapped->provider);
    OSSL_LIB_CTX_free(wrapped->private_context);
    *wrapped = (struct wrapped){0};
}
