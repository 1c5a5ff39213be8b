/* What this library is: the default provider, whose signatures and decryptions by remote keys another process makes. */
#include "cryptoserver.h"

static const OSSL_DISPATCH *wrap_ctr_drbg(const OSSL_ALGORITHM *original, bool *hide)
{
    (void)hide;
    return drbg_without_provider_name(original->implementation);
}

static const OSSL_ALGORITHM *wrap(int id, const OSSL_ALGORITHM *originals)
{
    static const struct wrapping generators[] = {{"CTR-DRBG", wrap_ctr_drbg}};

    switch (id) {
    case OSSL_OP_KEYMGMT:
        return key_find_functions(originals) ? originals : NULL;
    case OSSL_OP_SIGNATURE:
        return signature_algorithms(originals);
    case OSSL_OP_ASYM_CIPHER:
        return decryption_algorithms(originals);
    case OSSL_OP_RAND:
        return algorithms_wrap(originals, generators, 1);
    default:
        return originals;
    }
}

const struct library this_library = {
    .description = "tlsdyno: private keys at a cryptoserver",
    .not_loaded = "tlsdyno's provider of remote keys is not loaded",
    .begin = agent_take_socket,
    .undo = NULL,
    .wrap = wrap,
};
