/*
 * Entry point: loads the default provider into a private library context, hands out its provider context as ours, and
 * its algorithms with single functions replaced. Nested fetches of the wrapped provider (HMAC fetching SHA-256, PSS
 * fetching a digest) resolve in the private context, so they stay real and stages stay independent.
 */
#include "provider.h"

#include <pthread.h>
#include <string.h>

#include <openssl/provider.h>

/*
 * Called for one operation id with the wrapped provider's algorithms when one of `stages` may be off (always, where
 * `stages` is 0), or with `private_key` when private-key operations burn CPU time.
 */
struct operation {
    int id;
    uint32_t stages;
    bool private_key; /* wrapped also where private-key operations cost something in addition */
    const OSSL_ALGORITHM *(*wrap)(const OSSL_ALGORITHM *originals);
};

#define BIT(stage) (1u << STAGE_##stage)

static const struct operation OPERATIONS[] = {
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
enum { OPERATION_TOTAL = sizeof(OPERATIONS) / sizeof(OPERATIONS[0]) };

static struct {
    bool ready;
    struct configuration configuration;
    struct wrapped wrapped;
    const OSSL_ALGORITHM *algorithms[OPERATION_TOTAL];
} state;

bool stage_may_be_off(enum stage stage)
{
    return (state.configuration.may_be_off & (1u << stage)) != 0;
}

const struct configuration *settings(void)
{
    return &state.configuration;
}

static const OSSL_PARAM *gettable_params(void *context)
{
    static const OSSL_PARAM PARAMS[] = {
        OSSL_PARAM_DEFN(OSSL_PROV_PARAM_NAME, OSSL_PARAM_UTF8_PTR, NULL, 0),
        OSSL_PARAM_DEFN(OSSL_PROV_PARAM_STATUS, OSSL_PARAM_INTEGER, NULL, 0),
        OSSL_PARAM_END,
    };

    (void)context;
    return PARAMS;
}

static int get_params(void *context, OSSL_PARAM params[])
{
    OSSL_PARAM *name = OSSL_PARAM_locate(params, OSSL_PROV_PARAM_NAME);
    OSSL_PARAM *status = OSSL_PARAM_locate(params, OSSL_PROV_PARAM_STATUS);

    (void)context;
    if (name != NULL && !OSSL_PARAM_set_utf8_ptr(name, "tlsdyno: TLS with parts replaced by no-ops, no security"))
        return 0;
    return status == NULL || OSSL_PARAM_set_int(status, 1);
}

static const OSSL_ALGORITHM *query_operation(void *context, int id, int *no_cache)
{
    (void)context;
    for (size_t i = 0; i < OPERATION_TOTAL; i++) {
        if (OPERATIONS[i].id == id) {
            *no_cache = 0;
            return state.algorithms[i];
        }
    }
    return OSSL_PROVIDER_query_operation(state.wrapped.provider, id, no_cache);
}

static int get_capabilities(void *context, const char *capability, OSSL_CALLBACK *callback, void *argument)
{
    (void)context;
    return OSSL_PROVIDER_get_capabilities(state.wrapped.provider, capability, callback, argument);
}

static void teardown(void *context)
{
    /*
     * Nothing, on purpose. Teardown runs first in the launcher of a daemon while the workers live on, and at exit, when
     * the order in which libraries end is not ours: no OpenSSL call, nothing shared is reset, what init allocated is
     * left to the process's end.
     */
    (void)context;
}

static const OSSL_DISPATCH PROVIDER_FUNCTIONS[] = {
    {OSSL_FUNC_PROVIDER_TEARDOWN, FUNCTION(teardown)},
    {OSSL_FUNC_PROVIDER_GETTABLE_PARAMS, FUNCTION(gettable_params)},
    {OSSL_FUNC_PROVIDER_GET_PARAMS, FUNCTION(get_params)},
    {OSSL_FUNC_PROVIDER_QUERY_OPERATION, FUNCTION(query_operation)},
    {OSSL_FUNC_PROVIDER_GET_CAPABILITIES, FUNCTION(get_capabilities)},
    {0, NULL},
};

/* All tables are built here and now: a query comes late, in any thread of any worker. */
static bool build_tables(void)
{
    for (size_t i = 0; i < OPERATION_TOTAL; i++) {
        const struct operation *operation = &OPERATIONS[i];
        int no_cache = 0;
        const OSSL_ALGORITHM *originals
            = OSSL_PROVIDER_query_operation(state.wrapped.provider, operation->id, &no_cache);

        if (originals == NULL || no_cache) {
            raise_error(REASON_WRAPPED_PROVIDER, "operation %d: nothing that could be kept", operation->id);
            return false;
        }
        if (operation->stages == 0 || (operation->stages & state.configuration.may_be_off) != 0
            || (operation->private_key && (state.configuration.burn_ns != 0
                || state.configuration.burn_instructions != 0)))
            originals = operation->wrap(originals);
        if (originals == NULL)
            return false;
        state.algorithms[i] = originals;
    }
    return true;
}

static bool same_configuration(const struct configuration *a, const struct configuration *b)
{
    return a->may_be_off == b->may_be_off && a->accelerator_engines == b->accelerator_engines
           && a->accelerator_operation_ns == b->accelerator_operation_ns && a->burn_ns == b->burn_ns
           && a->burn_instructions == b->burn_instructions
           && strcmp(a->record_descriptor, b->record_descriptor) == 0 && strcmp(a->run_id, b->run_id) == 0;
}

static bool initialise(const OSSL_CORE_HANDLE *core, const OSSL_DISPATCH *core_functions)
{
    struct configuration configuration;
    struct tlsdyno_record *record;
    OSSL_FUNC_core_get_params_fn *core_get_params
        = (OSSL_FUNC_core_get_params_fn *)table_find(core_functions, OSSL_FUNC_CORE_GET_PARAMS);

    if (core_get_params == NULL || !configuration_read(&configuration, core, core_get_params))
        return false;
    if (state.ready) {
        /*
         * A second library context of this process reads the same openssl.cnf: there is one state, so it must say the
         * same.
         */
        if (same_configuration(&configuration, &state.configuration))
            return true;
        raise_error(REASON_CONFIGURATION, "this process already loaded the provider with other settings");
        return false;
    }
    record = record_map(&configuration);
    if (record == NULL)
        return false;
    /* Before the tables, which follow from it. */
    if (!configuration_keep(&state.configuration, &configuration)) {
        record_unmap(record);
        return false;
    }
    /* The record last: with it goes a fork handler, which cannot be taken back. */
    state.ready = wrap_default(&state.wrapped) && build_tables() && record_use(record);
    if (!state.ready) {
        unwrap_default(&state.wrapped);
        configuration_drop(&state.configuration);
        record_unmap(record);
    }
    return state.ready;
}

int OSSL_provider_init(const OSSL_CORE_HANDLE *core, const OSSL_DISPATCH *core_functions,
                       const OSSL_DISPATCH **functions, void **context);

__attribute__((visibility("default"))) int OSSL_provider_init(const OSSL_CORE_HANDLE *core,
                                                              const OSSL_DISPATCH *core_functions,
                                                              const OSSL_DISPATCH **functions, void **context)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    bool initialised;

    pthread_mutex_lock(&one_at_a_time);
    errors_load();
    initialised = initialise(core, core_functions);
    pthread_mutex_unlock(&one_at_a_time);
    if (!initialised) {
        errors_complain("tlsdyno provider not loaded");
        return 0;
    }
    *functions = PROVIDER_FUNCTIONS;
    *context = state.wrapped.context;
    return 1;
}
