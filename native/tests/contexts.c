/*
 * Two library contexts of one process read the same openssl.cnf, so that init runs twice and teardown runs while the
 * provider is in use. A configuration with other settings is refused: there is one state.
 *
 *     contexts CONFIGURATION OTHER
 */
#include <openssl/crypto.h>
#include <openssl/provider.h>

#include "work.h"

static void digest_in(OSSL_LIB_CTX *context)
{
    unsigned char out[EVP_MAX_MD_SIZE];
    size_t size = 0;

    CHECK(EVP_Q_digest(context, "SHA2-256", NULL, "abc", 3, out, &size) == 1 && size == 32);
}

int main(int count, char **arguments)
{
    OSSL_LIB_CTX *second = OSSL_LIB_CTX_new();
    OSSL_LIB_CTX *third = OSSL_LIB_CTX_new();

    CHECK(count == 3);
    work();
    CHECK(OSSL_LIB_CTX_load_config(second, arguments[1]) == 1 && OSSL_PROVIDER_available(second, "tlsdyno") == 1);
    digest_in(second);
    OSSL_LIB_CTX_free(second);
    work();
    second = OSSL_LIB_CTX_new();
    CHECK(OSSL_LIB_CTX_load_config(second, arguments[1]) == 1);
    digest_in(second);

    OSSL_LIB_CTX_load_config(third, arguments[2]);
    CHECK(OSSL_PROVIDER_available(third, "tlsdyno") == 0);
    ERR_clear_error();
    OSSL_LIB_CTX_free(third);
    OSSL_LIB_CTX_free(second);
    work();
    return 0;
}
