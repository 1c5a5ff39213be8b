/*
 * What this library is: the default provider with single functions replaced. Nested fetches of the wrapped provider
 * (HMAC fetching SHA-256, PSS fetching a digest) resolve in the private context, so they stay real and stages stay
 * independent.
 */
#include "provider.h"

#include <string.h>

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

static struct configuration kept;

bool stage_may_be_off(enum stage stage)
{
    return (kept.may_be_off & (1u << stage)) != 0;
}

const struct configuration *settings(void)
{
    return &kept;
}

static bool same_configuration(const struct configuration *a, const struct configuration *b)
{
    return a->may_be_off == b->may_be_off && a->accelerator_engines == b->accelerator_engines
           && a->accelerator_operation_ns == b->accelerator_operation_ns && a->burn_ns == b->burn_ns
           && a->burn_instructions == b->burn_instructions
           && strcmp(a->record_descriptor, b->record_descriptor) == 0 && strcmp(a->run_id, b->run_id) == 0;
}

/* A second library context of this process reads the same openssl.cnf: there is one state, so it must say the same. */
static bool begin(const struct section *section, bool again)
{
    struct configuration configuration;

    if (!configuration_read(&configuration, section))
        return false;
    if (again) {
        if (same_configuration(&configuration, &kept))
            return true;
        raise_error(REASON_CONFIGURATION, "this process already loaded the provider with other settings");
        return false;
    }
    if (!record_map(&configuration))
        return false;
    if (configuration_keep(&kept, &configuration))
        return true;
    record_unmap();
    return false;
}

static void undo(void)
{
    configuration_drop(&kept);
    record_unmap();
}

static const OSSL_ALGORITHM *wrap(int id, const OSSL_ALGORITHM *originals)
{
    bool key_costs_more = kept.burn_ns != 0 || kept.burn_instructions != 0;

    for (size_t i = 0; i < sizeof(OPERATIONS) / sizeof(OPERATIONS[0]); i++) {
        const struct operation *operation = &OPERATIONS[i];

        if (operation->id == id
            && (operation->stages == 0 || (operation->stages & kept.may_be_off) != 0
                || (operation->private_key && key_costs_more)))
            return operation->wrap(originals);
    }
    return originals;
}

const struct library this_library = {
    .description = "tlsdyno: TLS with parts replaced by no-ops, no security",
    .not_loaded = "tlsdyno provider not loaded",
    .begin = begin,
    .undo = undo,
    .wrap = wrap,
};
