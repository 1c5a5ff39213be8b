/* Operation KEYEXCH: "X25519", "X448" and "ECDH", stage key_agreement: the secret is derived twice. */
#include "doubler.h"

static int derive(OSSL_FUNC_keyexch_derive_fn *real, void *context, unsigned char *secret, size_t *length, size_t room)
{
    int answer = real(context, secret, length, room);
    size_t second = 0;
    bool done;

    if (secret == NULL || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_KEY_DERIVE, 1);
    if (!is_doubled(mode_now(), STAGE_KEY_AGREEMENT))
        return answer;
    second_begin();
    done = real(context, scratch(), &second, room < SCRATCH_SIZE ? room : SCRATCH_SIZE);
    second_end(DOUBLER_COUNT_KEY_DERIVE, done, second);
    return answer;
}

#define ALGORITHM(name)                                                                                                \
    static OSSL_FUNC_keyexch_derive_fn *name;                                                                          \
    static int name##_derive(void *context, unsigned char *secret, size_t *length, size_t room)                        \
    {                                                                                                                  \
        return derive(name, context, secret, length, room);                                                            \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH replaced[] = {{OSSL_FUNC_KEYEXCH_DERIVE, FUNCTION(name##_derive)}, {0, NULL}};      \
                                                                                                                       \
        (void)hide;                                                                                                    \
        name = (OSSL_FUNC_keyexch_derive_fn *)table_find(original->implementation, OSSL_FUNC_KEYEXCH_DERIVE);          \
        return table_replace(original->implementation, replaced);                                                      \
    }

ALGORITHM(x25519)
ALGORITHM(x448)
ALGORITHM(ecdh)

const OSSL_ALGORITHM *keyexch_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[]
        = {{"X25519", wrap_x25519}, {"X448", wrap_x448}, {"ECDH", wrap_ecdh}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
