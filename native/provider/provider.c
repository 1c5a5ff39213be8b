/*
 * What this library is: the default provider with single functions replaced. Nested fetches of the wrapped provider
 * (HMAC fetching SHA-256, PSS fetching a digest) resolve in the private context, so they stay real and stages stay
 * independent.
 */
#include "provider.h"

#define BIT(stage) (1u << STAGE_##stage)

/*
 * Wrapped when one of `stages` may be off (always, where `stages` is 0), or with `private_key` when private-key
 * operations cost something in addition.
 */
static const struct operation {
    int id;
    uint32_t stages;
    bool private_key;
    const OSSL_ALGORITHM *(*wrap)(const OSSL_ALGORITHM *originals);
} OPERATIONS[] = {
    {OSSL_OP_DIGEST, BIT(DIGEST), false, digest_algorithms},
    {OSSL_OP_CIPHER, BIT(CIPHER) | BIT(MAC), false, cipher_algorithms},
    {OSSL_OP_MAC, BIT(KDF), false, mac_algorithms},
    {OSSL_OP_KDF, BIT(KDF), false, kdf_algorithms},
    {OSSL_OP_RAND, 0, false, rand_algorithms},
    {OSSL_OP_KEYMGMT, BIT(KEY_AGREEMENT), false, keymgmt_algorithms},
    {OSSL_OP_KEYEXCH, BIT(KEY_AGREEMENT), false, keyexch_algorithms},
    {OSSL_OP_KEM, BIT(KEY_AGREEMENT), false, kem_algorithms},
    {OSSL_OP_SIGNATURE, BIT(AUTHENTICATION) | BIT(MAC), true, signature_algorithms},
    {OSSL_OP_ASYM_CIPHER, BIT(AUTHENTICATION), true, asym_cipher_algorithms},
};

static const OSSL_ALGORITHM *wrap(int id, const OSSL_ALGORITHM *originals)
{
    for (size_t i = 0; i < sizeof(OPERATIONS) / sizeof(OPERATIONS[0]); i++) {
        const struct operation *operation = &OPERATIONS[i];

        if (operation->id == id
            && (operation->stages == 0 || (operation->stages & settings()->may_be_off) != 0
                || (operation->private_key && private_key_burns())))
            return operation->wrap(originals);
    }
    return originals;
}

const struct library this_library = {
    .description = "tlsdyno: TLS with parts replaced by no-ops, no security",
    .not_loaded = "tlsdyno provider not loaded",
    .begin = record_map,
    .undo = record_unmap,
    .wrap = wrap,
};
