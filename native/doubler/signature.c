/*
 * Operation SIGNATURE: "RSA" and "ECDSA", stage authentication: the private-key operation twice. Contexts are the
 * wrapped provider's own; DIGEST_SIGN_FINAL ends its context, so that a copy of it is made first. Checks of signatures
 * (clients' certificates) are not doubled.
 */
#include "doubler.h"

#define SIGNATURE_FUNCTIONS(X)                                                                                         \
    X(signature, SIGNATURE, sign, SIGN)                                                                                \
    X(signature, SIGNATURE, digest_sign_final, DIGEST_SIGN_FINAL)                                                      \
    X(signature, SIGNATURE, freectx, FREECTX)                                                                          \
    X(signature, SIGNATURE, dupctx, DUPCTX)

struct signature_functions {
    SIGNATURE_FUNCTIONS(FUNCTION_FIELD)
};

static struct signature_functions rsa, ecdsa;

static int sign(const struct signature_functions *real, void *context, unsigned char *signature, size_t *length,
                size_t room, const unsigned char *data, size_t data_length)
{
    int answer = real->sign(context, signature, length, room, data, data_length);
    size_t second = SCRATCH_SIZE;
    bool done;

    if (signature == NULL || !answer)
        return answer;
    count_calls(DOUBLER_COUNT_SIGN, 1);
    if (!is_doubled(mode_now(), STAGE_AUTHENTICATION))
        return answer;
    second_begin();
    done = real->sign(context, scratch(), &second, SCRATCH_SIZE, data, data_length);
    second_end(DOUBLER_COUNT_SIGN, done, second);
    return answer;
}

/* `copy` is of the moment before the context came to its end, and is freed. */
static void sign_again(const struct signature_functions *real, void *copy)
{
    size_t second = SCRATCH_SIZE;
    bool done;

    second_begin();
    done = real->digest_sign_final(copy, scratch(), &second, SCRATCH_SIZE);
    real->freectx(copy);
    second_end(DOUBLER_COUNT_SIGN, done, second);
}

static int digest_sign_final(const struct signature_functions *real, void *context, unsigned char *signature,
                             size_t *length, size_t room)
{
    bool doubled = signature != NULL && is_doubled(mode_now(), STAGE_AUTHENTICATION);
    void *copy = doubled ? second_context(real->dupctx, context) : NULL;
    int answer = real->digest_sign_final(context, signature, length, room);

    if (signature != NULL && answer)
        count_calls(DOUBLER_COUNT_SIGN, 1);
    if (copy != NULL && answer)
        sign_again(real, copy);
    else if (copy != NULL)
        real->freectx(copy);
    return answer;
}

/* A function of a context of the wrapped provider's gets no hint which algorithm it is for, so each has its own. */
#define ALGORITHM(name)                                                                                                \
    static int name##_sign(void *context, unsigned char *signature, size_t *length, size_t room,                       \
                           const unsigned char *data, size_t data_length)                                              \
    {                                                                                                                  \
        return sign(&name, context, signature, length, room, data, data_length);                                       \
    }                                                                                                                  \
    static int name##_digest_sign_final(void *context, unsigned char *signature, size_t *length, size_t room)          \
    {                                                                                                                  \
        return digest_sign_final(&name, context, signature, length, room);                                             \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH replaced[] = {                                                                      \
            {OSSL_FUNC_SIGNATURE_SIGN, FUNCTION(name##_sign)},                                                         \
            {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL, FUNCTION(name##_digest_sign_final)},                               \
            {0, NULL},                                                                                                 \
        };                                                                                                             \
        const OSSL_DISPATCH *table = original->implementation;                                                         \
        struct signature_functions *real = &name;                                                                      \
                                                                                                                       \
        (void)hide;                                                                                                    \
        SIGNATURE_FUNCTIONS(FIND_FUNCTION)                                                                             \
        return table_replace(table, replaced);                                                                         \
    }

ALGORITHM(rsa)
ALGORITHM(ecdsa)

const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"RSA", wrap_rsa}, {"ECDSA", wrap_ecdsa}, {"HMAC", record_hmac_wrap}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
