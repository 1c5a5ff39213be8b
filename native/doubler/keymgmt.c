/*
 * Operation KEYMGMT "X25519", "X448", "EC", ML-KEM and the hybrids, stage key_agreement: a second key pair is generated
 * and freed, the peer's share decoded and checked twice. Keys are the wrapped provider's own objects; the generation
 * context is a pair.
 */
#include "../wrapping/keymgmt.h"
#include "doubler.h"

struct key_functions {
    KEYMGMT_FUNCTIONS(FUNCTION_FIELD)
};

struct generation {
    struct pair pair;
    bool makes_private_key; /* else only parameters, for the peer's share */
};

static void *gen_init(const struct key_functions *functions, void *provider, int selection, const OSSL_PARAM params[])
{
    bool makes_private_key = (selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY) != 0;
    bool doubled = makes_private_key && is_doubled(mode_now(), STAGE_KEY_AGREEMENT);
    struct generation *generation = pair_make(
        sizeof(*generation), functions, functions->gen_cleanup, functions->gen_init(provider, selection, params),
        doubled, doubled ? functions->gen_init(provider, selection, params) : NULL);

    if (generation != NULL)
        generation->makes_private_key = makes_private_key;
    return generation;
}

PAIRED(key_functions, gen_set_params, (void *context, const OSSL_PARAM params[]), params)
PAIRED(key_functions, gen_set_template, (void *context, void *template), template)

static void *gen(void *context, OSSL_CALLBACK *progress, void *argument)
{
    struct generation *generation = context;
    struct pair *pair = &generation->pair;
    const struct key_functions *functions = pair->functions;
    void *key = functions->gen(pair->real, progress, argument);
    void *second;

    if (generation->makes_private_key && key != NULL)
        count_calls(DOUBLER_COUNT_KEY_GENERATE, 1);
    if (!pair_follows(pair, key != NULL))
        return key;
    second = functions->gen(pair->twin, NULL, NULL);
    if (second == NULL) {
        pair_drop_twin(pair, true);
        return key;
    }
    functions->free(second); /* which clears it */
    count_doubled(DOUBLER_COUNT_KEY_GENERATE, 1);
    return key;
}

/* The peer's share. A key of ML-KEM takes its encoding only once, so that a second time is refused there. */
static int set_params(const struct key_functions *real, bool again, void *key, const OSSL_PARAM params[])
{
    bool decodes = OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY) != NULL;
    int answer = real->set_params(key, params);
    bool done;

    if (!decodes || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_KEY_DECODE, 1);
    if (!again || !is_doubled(mode_now(), STAGE_KEY_AGREEMENT))
        return answer;
    second_begin();
    done = real->set_params(key, params);
    second_end(DOUBLER_COUNT_KEY_DECODE, done, 0);
    return answer;
}

/*
 * EVP_PKEY_derive_set_peer checks the peer's public key, on NIST curves by a multiplication as dear as the derivation
 * itself.
 */
static int validate(const struct key_functions *real, const void *key, int selection, int check)
{
    int answer = real->validate(key, selection, check);
    bool done;

    if (!answer || selection != OSSL_KEYMGMT_SELECT_PUBLIC_KEY)
        return answer;
    count_calls(DOUBLER_COUNT_KEY_VALIDATE, 1);
    if (!is_doubled(mode_now(), STAGE_KEY_AGREEMENT))
        return answer;
    second_begin();
    done = real->validate(key, selection, check);
    second_end(DOUBLER_COUNT_KEY_VALIDATE, done, 0);
    return answer;
}

static const OSSL_DISPATCH *wrap(struct key_functions *real, const OSSL_DISPATCH own[], const OSSL_DISPATCH *table)
{
    KEYMGMT_FUNCTIONS(FIND_FUNCTION)
    return table_allow_with(table, KEYMGMT_OF_3_0, own);
}

#define KEYS(name, decodes_again)                                                                                      \
    static struct key_functions name;                                                                                  \
    KEYMGMT_OF(name, set_params(&name, decodes_again, key, params))                                                    \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH own[] = {KEYMGMT_ENTRIES(name, pair_free){0, NULL}};                                \
                                                                                                                       \
        (void)hide;                                                                                                    \
        return wrap(&name, own, original->implementation);                                                             \
    }

KEYS(x25519, true)
KEYS(x448, true)
KEYS(ec, true)
#define KEM_KEYS(id, name) KEYS(id, false)
KEMS(KEM_KEYS)

const OSSL_ALGORITHM *keymgmt_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"X25519", wrap_x25519},
        {"X448", wrap_x448},
        {"EC", wrap_ec},
        KEMS(KEM_WRAPPING)
    };

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
