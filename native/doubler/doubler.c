/* What this library is: single functions of the default provider called twice. */
#include "doubler.h"

static const struct operation {
    int id;
    const OSSL_ALGORITHM *(*wrap)(const OSSL_ALGORITHM *originals);
} OPERATIONS[] = {
    {OSSL_OP_DIGEST, digest_algorithms},
    {OSSL_OP_CIPHER, cipher_algorithms},
    {OSSL_OP_MAC, mac_algorithms},
    {OSSL_OP_KDF, kdf_algorithms},
    {OSSL_OP_RAND, rand_algorithms},
    {OSSL_OP_KEYMGMT, keymgmt_algorithms},
    {OSSL_OP_KEYEXCH, keyexch_algorithms},
    {OSSL_OP_SIGNATURE, signature_algorithms},
    {OSSL_OP_ASYM_CIPHER, asym_cipher_algorithms},
    {OSSL_OP_KEM, kem_algorithms},
};

/*
 * A second library context finds everything as it is: what its openssl.cnf says besides does not matter, for it cannot
 * change what is computed.
 */
static bool begin(const struct section *section, bool again)
{
    if (!again)
        area_look_for(section);
    return true;
}

/* Without an area only the random generator, which must drop a parameter. */
static const OSSL_ALGORITHM *wrap(int operation, const OSSL_ALGORITHM *originals)
{
    if (!area_is_there() && operation != OSSL_OP_RAND)
        return originals;
    for (size_t i = 0; i < sizeof(OPERATIONS) / sizeof(OPERATIONS[0]); i++) {
        if (OPERATIONS[i].id == operation)
            return OPERATIONS[i].wrap(originals);
    }
    return originals;
}

const struct library this_library = {
    .description = "tlsdyno: the default provider, with parts computed twice",
    .not_loaded = "tlsdyno doubler not loaded",
    .begin = begin,
    .wrap = wrap,
};
