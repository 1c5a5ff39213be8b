/*
 * Reads an openssl.cnf that names the provider without activating it, loads and unloads the provider twice and prints
 * what stands on the error queue: nothing if it loaded. (Where the file activates it, libcrypto itself drops the
 * errors.)
 *
 *     load PATH
 */
#include <openssl/conf.h>
#include <openssl/provider.h>

#include "check.h"

int main(int count, char **arguments)
{
    OSSL_PROVIDER *provider;

    CHECK(count == 2);
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) == 1);
    CHECK(CONF_modules_load_file_ex(NULL, arguments[1], NULL, 0) == 1);
    /* Twice: libcrypto frees what it knows of a provider at its unload, while the provider's own state stays. */
    for (int round = 0; round < 2; round++) {
        provider = OSSL_PROVIDER_load(NULL, "tlsdyno");
        ERR_print_errors_fp(stdout);
        ERR_clear_error();
        OSSL_PROVIDER_unload(provider);
    }
    return 0;
}
