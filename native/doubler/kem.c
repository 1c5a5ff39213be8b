/*
 * Operation KEM: ML-KEM and the hybrids of OpenSSL 3.5 and later, stage key_agreement: a secret is encapsulated twice
 * (another one the second time, which is dropped), or decapsulated twice.
 */
#include "doubler.h"

#define KEM_FUNCTIONS(X)                                                                                               \
    X(kem, KEM, encapsulate, ENCAPSULATE)                                                                              \
    X(kem, KEM, decapsulate, DECAPSULATE)

struct kem_functions {
    KEM_FUNCTIONS(FUNCTION_FIELD)
};

/* Half of the scratch buffer for each result; the longest has 1,665 bytes (SecP384r1MLKEM1024). */
enum { HALF = SCRATCH_SIZE / 2 };

static int encapsulate(const struct kem_functions *real, void *context, unsigned char *out, size_t *out_length,
                       unsigned char *secret, size_t *secret_length)
{
    int answer = real->encapsulate(context, out, out_length, secret, secret_length);
    size_t second = HALF, second_secret = HALF;
    bool done;

    if (out == NULL || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_ENCAPSULATE, 1);
    if (!is_doubled(mode_now(), STAGE_KEY_AGREEMENT))
        return answer;
    second_begin();
    done = real->encapsulate(context, scratch(), &second, scratch() + HALF, &second_secret);
    second_end(DOUBLER_COUNT_ENCAPSULATE, done, SCRATCH_SIZE);
    return answer;
}

static int decapsulate(const struct kem_functions *real, void *context, unsigned char *secret, size_t *secret_length,
                       const unsigned char *in, size_t in_length)
{
    int answer = real->decapsulate(context, secret, secret_length, in, in_length);
    size_t second = HALF;
    bool done;

    if (secret == NULL || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_DECAPSULATE, 1);
    if (!is_doubled(mode_now(), STAGE_KEY_AGREEMENT))
        return answer;
    second_begin();
    done = real->decapsulate(context, scratch(), &second, in, in_length);
    second_end(DOUBLER_COUNT_DECAPSULATE, done, HALF);
    return answer;
}

#define ALGORITHM(name, algorithm)                                                                                     \
    static struct kem_functions name;                                                                                  \
    static int name##_encapsulate(void *context, unsigned char *out, size_t *out_length, unsigned char *secret,        \
                                  size_t *secret_length)                                                               \
    {                                                                                                                  \
        return encapsulate(&name, context, out, out_length, secret, secret_length);                                    \
    }                                                                                                                  \
    static int name##_decapsulate(void *context, unsigned char *secret, size_t *secret_length,                         \
                                  const unsigned char *in, size_t in_length)                                           \
    {                                                                                                                  \
        return decapsulate(&name, context, secret, secret_length, in, in_length);                                      \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH replaced[] = {                                                                      \
            {OSSL_FUNC_KEM_ENCAPSULATE, FUNCTION(name##_encapsulate)},                                                 \
            {OSSL_FUNC_KEM_DECAPSULATE, FUNCTION(name##_decapsulate)},                                                 \
            {0, NULL},                                                                                                 \
        };                                                                                                             \
        const OSSL_DISPATCH *table = original->implementation;                                                         \
        struct kem_functions *real = &name;                                                                            \
                                                                                                                       \
        (void)hide;                                                                                                    \
        KEM_FUNCTIONS(FIND_FUNCTION)                                                                                   \
        return table_replace(table, replaced);                                                                         \
    }

KEMS(ALGORITHM)

const OSSL_ALGORITHM *kem_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {KEMS(KEM_WRAPPING)};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
