/*
 * Operation KEYMGMT "X25519", "EC" and the hybrids of TLS 1.3, stage key_agreement: one real key pair for each group
 * and process, the peer's share dropped, no check of it. Keys are the wrapped provider's own objects, only the
 * generation context is ours and keeps its mode.
 * Loading, comparing and exporting keys (the certificate's) stay real.
 */
#include "../wrapping/keymgmt.h"
#include "provider.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>

enum { GROUP_NAME_SIZE = 64, NAMES_MAX = 4, GROUPS_TOTAL = 4 };

/* A group whose key pair is generated once; `key` is published once and never freed. */
struct group {
    const char *names[NAMES_MAX];
    _Atomic(void *) key;
};

/* X25519, and the curves of "EC". */
static struct group groups[GROUPS_TOTAL] = {
    {.names = {"X25519"}},
    {.names = {"prime256v1", "P-256", "secp256r1"}},
    {.names = {"secp384r1", "P-384"}},
    {.names = {"secp521r1", "P-521"}},
};
#define HYBRID_GROUP(id, name) [HYBRID_##id] = {.names = {name}},
static struct group hybrid_groups[HYBRID_TOTAL] = {TLSDYNO_HYBRIDS(HYBRID_GROUP)};

struct key_functions {
    struct group *only_group; /* X25519 and hybrids: the algorithm is the group */
    KEYMGMT_FUNCTIONS(FUNCTION_FIELD)
};

static struct key_functions x25519 = {.only_group = &groups[0]};
static struct key_functions ec;
#define HYBRID_FUNCTIONS(id, name) static struct key_functions id = {.only_group = &hybrid_groups[HYBRID_##id]};
TLSDYNO_HYBRIDS(HYBRID_FUNCTIONS)

struct generation {
    const struct key_functions *real;
    void *provider;
    int selection;
    struct group *group;
    /* Made at once if the stage is on, else as soon as something is asked for that the kept keys do not cover. */
    void *real_generation;
};

static struct group *find_group(const struct key_functions *real, const char *name)
{
    if (real->only_group != NULL)
        return real->only_group;
    for (size_t i = 1; i < GROUPS_TOTAL; i++) {
        for (size_t j = 0; j < NAMES_MAX && groups[i].names[j] != NULL; j++) {
            if (strcasecmp(groups[i].names[j], name) == 0)
                return &groups[i];
        }
    }
    return NULL;
}

static int set_real_group(const struct key_functions *real, void *real_generation, const struct group *group)
{
    /* A parameter's data is not const, also where it is only read. */
    OSSL_PARAM params[2] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)(uintptr_t)group->names[0], 0),
        OSSL_PARAM_construct_end(),
    };

    return real->gen_set_params(real_generation, params);
}

static void *real_generation(struct generation *generation)
{
    const struct key_functions *real = generation->real;

    if (generation->real_generation != NULL)
        return generation->real_generation;
    generation->real_generation = real->gen_init(generation->provider, generation->selection, NULL);
    if (generation->real_generation != NULL && generation->group != NULL
        && !set_real_group(real, generation->real_generation, generation->group)) {
        real->gen_cleanup(generation->real_generation);
        generation->real_generation = NULL;
    }
    return generation->real_generation;
}

static void *generate_really(const struct key_functions *real, void *provider, const struct group *group)
{
    void *key = NULL;
    void *generation = real->gen_init(provider, OSSL_KEYMGMT_SELECT_KEYPAIR | OSSL_KEYMGMT_SELECT_ALL_PARAMETERS, NULL);

    if (generation == NULL)
        return NULL;
    if (set_real_group(real, generation, group))
        key = real->gen(generation, NULL, NULL);
    real->gen_cleanup(generation);
    return key;
}

/*
 * Without a lock, so that a fork at any moment leaves nothing locked: threads that race for the first key keep that of
 * the winner.
 */
static void *kept_key(const struct key_functions *real, void *provider, struct group *group)
{
    void *key = atomic_load(&group->key);
    void *winner = NULL;

    if (key != NULL)
        return key;
    key = generate_really(real, provider, group);
    if (key == NULL || atomic_compare_exchange_strong(&group->key, &winner, key))
        return key;
    real->free(key);
    return winner;
}

static int gen_set_params(void *context, const OSSL_PARAM params[])
{
    struct generation *generation = context;
    const OSSL_PARAM *group = OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_GROUP_NAME);

    if (params == NULL || params[0].key == NULL)
        return 1;
    if (generation->real_generation == NULL && group != NULL && params[1].key == NULL
        && group->data_type == OSSL_PARAM_UTF8_STRING) {
        generation->group = find_group(generation->real, group->data);
        if (generation->group != NULL)
            return 1;
    }
    return real_generation(generation) != NULL && generation->real->gen_set_params(generation->real_generation, params);
}

/* The peer's key as template (TLS 1.3 servers, TLS 1.2 clients): what counts is its group. */
static int gen_set_template(void *context, void *template)
{
    struct generation *generation = context;
    char name[GROUP_NAME_SIZE] = "";
    OSSL_PARAM request[2] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, name, sizeof(name)),
        OSSL_PARAM_construct_end(),
    };

    if (generation->real_generation == NULL && generation->real->get_params(template, request)) {
        generation->group = find_group(generation->real, name);
        if (generation->group != NULL)
            return 1;
    }
    return real_generation(generation) != NULL
           && generation->real->gen_set_template(generation->real_generation, template);
}

static void gen_cleanup(void *context)
{
    struct generation *generation = context;

    if (generation == NULL)
        return;
    if (generation->real_generation != NULL)
        generation->real->gen_cleanup(generation->real_generation);
    free(generation);
}

static void *gen_init(const struct key_functions *real, void *provider, int selection, const OSSL_PARAM params[])
{
    struct generation *generation = calloc(1, sizeof(*generation));
    bool off = is_off(mode_now(), STAGE_KEY_AGREEMENT);

    if (generation == NULL) {
        raise_error(REASON_NO_MEMORY, "key generation");
        return NULL;
    }
    generation->real = real;
    generation->provider = provider;
    generation->selection = selection;
    generation->group = real->only_group;
    if (!off)
        generation->real_generation = real->gen_init(provider, selection, params);
    if (off ? params == NULL || gen_set_params(generation, params) : generation->real_generation != NULL)
        return generation;
    gen_cleanup(generation);
    return NULL;
}

static void *gen(void *context, OSSL_CALLBACK *progress, void *argument)
{
    struct generation *generation = context;
    bool private_key = (generation->selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY) != 0;

    if (generation->real_generation != NULL || generation->group == NULL || !private_key) {
        if (real_generation(generation) == NULL)
            return NULL;
        return generation->real->gen(generation->real_generation, progress, argument);
    }
    if (!acknowledged())
        return NULL;
    count_call(TLSDYNO_COUNT_KEY_GENERATE);
    return kept_key(generation->real, generation->provider, generation->group);
}

static bool is_kept(const void *key)
{
    for (size_t i = 0; i < GROUPS_TOTAL + HYBRID_TOTAL; i++) {
        struct group *group = i < GROUPS_TOTAL ? &groups[i] : &hybrid_groups[i - GROUPS_TOTAL];
        if (key == atomic_load(&group->key))
            return true;
    }
    return false;
}

static void free_key(const struct key_functions *real, void *key)
{
    if (key != NULL && !is_kept(key))
        real->free(key);
}

/* The peer's share is dropped unread. */
static int set_params(const struct key_functions *real, void *key, const OSSL_PARAM params[])
{
    static const char *const dropped[] = {OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, NULL};
    OSSL_PARAM others[PARAMS_MAX];

    if (!is_off(mode_now(), STAGE_KEY_AGREEMENT)
        || OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY) == NULL)
        return real->set_params(key, params);
    count_call(TLSDYNO_COUNT_KEY_DECODE);
    if (!params_without(others, params, dropped))
        return 0;
    return others[0].key == NULL || real->set_params(key, others);
}

/*
 * EVP_PKEY_derive_set_peer checks the peer's public key, on NIST curves by a multiplication as dear as the derivation
 * itself.
 */
static int validate(const struct key_functions *real, const void *key, int selection, int check)
{
    if (!is_off(mode_now(), STAGE_KEY_AGREEMENT) || selection != OSSL_KEYMGMT_SELECT_PUBLIC_KEY)
        return real->validate(key, selection, check);
    count_call(TLSDYNO_COUNT_KEY_VALIDATE);
    return 1;
}

static void remember(struct key_functions *real, const OSSL_DISPATCH *table)
{
    KEYMGMT_FUNCTIONS(FIND_FUNCTION)
}

/*
 * X25519 and the hybrids have no template function in the default provider; table_allow then
 * leaves it out, and libcrypto ignores the template. Hybrids have no validation either.
 */
#define KEYS(name)                                                                                                     \
    KEYMGMT_OF(name, set_params(&name, key, params))                                                                   \
    static void name##_free(void *key)                                                                                 \
    {                                                                                                                  \
        free_key(&name, key);                                                                                          \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH own[]                                                                               \
            = {KEYMGMT_ENTRIES(name, gen_cleanup){OSSL_FUNC_KEYMGMT_FREE, FUNCTION(name##_free)}, {0, NULL}};          \
                                                                                                                       \
        (void)hide;                                                                                                    \
        remember(&name, original->implementation);                                                                     \
        return table_allow_with(original->implementation, KEYMGMT_OF_3_0, own);                                        \
    }

#define HYBRID_KEYS(id, name) KEYS(id)

KEYS(x25519)
KEYS(ec)
TLSDYNO_HYBRIDS(HYBRID_KEYS)

void *kept_hybrid_key(enum hybrid hybrid, void *provider)
{
#define HYBRID_REAL(id, name) [HYBRID_##id] = &id,
    static const struct key_functions *const reals[HYBRID_TOTAL] = {TLSDYNO_HYBRIDS(HYBRID_REAL)};

    return kept_key(reals[hybrid], provider, &hybrid_groups[hybrid]);
}

const OSSL_ALGORITHM *keymgmt_algorithms(const OSSL_ALGORITHM *originals)
{
#define HYBRID_WRAPPING(id, name) {name, wrap_##id},
    static const struct wrapping wrappings[]
        = {{"X25519", wrap_x25519}, {"EC", wrap_ec}, TLSDYNO_HYBRIDS(HYBRID_WRAPPING)};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
