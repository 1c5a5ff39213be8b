/*
 * Entry point of every library here: loads the default provider into a private library context, hands out its provider
 * context as ours, and its algorithms as the library wraps them.
 */
#include "wrapping.h"

#include <pthread.h>

#include <openssl/provider.h>

static const int OPERATIONS[] = {
    OSSL_OP_DIGEST,  OSSL_OP_CIPHER,  OSSL_OP_MAC,       OSSL_OP_KDF,         OSSL_OP_RAND,
    OSSL_OP_KEYMGMT, OSSL_OP_KEYEXCH, OSSL_OP_SIGNATURE, OSSL_OP_ASYM_CIPHER, OSSL_OP_KEM,
};
enum { OPERATION_TOTAL = sizeof(OPERATIONS) / sizeof(OPERATIONS[0]) };

/* Filled in init, constant afterwards; global, as the wrapped provider's own context must be handed out as ours. */
static struct {
    bool ready;
    struct wrapped wrapped;
    const OSSL_ALGORITHM *algorithms[OPERATION_TOTAL];
} state;

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
    if (name != NULL && !OSSL_PARAM_set_utf8_ptr(name, this_library.description))
        return 0;
    return status == NULL || OSSL_PARAM_set_int(status, 1);
}

static const OSSL_ALGORITHM *query_operation(void *context, int id, int *no_cache)
{
    (void)context;
    for (size_t i = 0; i < OPERATION_TOTAL; i++) {
        if (OPERATIONS[i] == id) {
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
        int no_cache = 0;
        const OSSL_ALGORITHM *originals
            = OSSL_PROVIDER_query_operation(state.wrapped.provider, OPERATIONS[i], &no_cache);

        if (originals == NULL || no_cache) {
            raise_error(REASON_WRAPPED_PROVIDER, "operation %d: nothing that could be kept", OPERATIONS[i]);
            return false;
        }
        state.algorithms[i] = this_library.wrap(OPERATIONS[i], originals);
        if (state.algorithms[i] == NULL)
            return false;
    }
    return true;
}

const char *section_want(const struct section *section, const char *name)
{
    char *value = NULL;
    OSSL_PARAM request[2] = {OSSL_PARAM_construct_utf8_ptr(name, &value, 0), OSSL_PARAM_construct_end()};

    if (section->get_params(section->core, request) && value != NULL && value[0] != '\0')
        return value;
    raise_error(REASON_CONFIGURATION, "`%s` is missing from the provider's section of openssl.cnf", name);
    return NULL;
}

static bool initialise(const struct section *section)
{
    if (!this_library.begin(section, state.ready))
        return false;
    if (state.ready)
        return true;
    state.ready = wrap_default(&state.wrapped) && build_tables();
    if (!state.ready) {
        unwrap_default(&state.wrapped);
        if (this_library.undo != NULL)
            this_library.undo();
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
    function *found = table_find(core_functions, OSSL_FUNC_CORE_GET_PARAMS);
    const struct section section = {.core = core, .get_params = (OSSL_FUNC_core_get_params_fn *)found};
    bool initialised = false;

    if (found == NULL)
        return 0;
    pthread_mutex_lock(&one_at_a_time);
    if (libcrypto_find(found)) {
        errors_load();
        initialised = initialise(&section);
        if (!initialised)
            errors_complain(this_library.not_loaded);
    }
    pthread_mutex_unlock(&one_at_a_time);
    if (!initialised)
        return 0;
    *functions = PROVIDER_FUNCTIONS;
    *context = state.wrapped.context;
    return 1;
}
