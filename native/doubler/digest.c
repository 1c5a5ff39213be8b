/*
 * Operation DIGEST: SHA-1, SHA-256, SHA-384, stage digest: libssl's own hashing, a twin for each context that is made
 * while the stage is doubled.
 */
#include "doubler.h"

#define DIGEST_FUNCTIONS(X)                                                                                            \
    X(digest, DIGEST, newctx, NEWCTX)                                                                                  \
    X(digest, DIGEST, init, INIT)                                                                                      \
    X(digest, DIGEST, update, UPDATE)                                                                                  \
    X(digest, DIGEST, final, FINAL)                                                                                    \
    X(digest, DIGEST, digest, DIGEST)                                                                                  \
    X(digest, DIGEST, freectx, FREECTX)                                                                                \
    X(digest, DIGEST, dupctx, DUPCTX)

struct digest_functions {
    DIGEST_FUNCTIONS(FUNCTION_FIELD)
};

static struct digest_functions sha1, sha256, sha384;

PAIRED(digest_functions, init, (void *context, const OSSL_PARAM params[]), params)
PAIRED(digest_functions, update, (void *context, const unsigned char *in, size_t length), in, length)

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct pair *pair = context;
    const struct digest_functions *functions = pair->functions;
    int answer = functions->final(pair->real, out, out_length, room);
    size_t length = 0;

    count_calls(DOUBLER_COUNT_DIGEST, 1);
    if (!pair_follows(pair, answer))
        return answer;
    if (functions->final(pair->twin, scratch(), &length, SCRATCH_SIZE))
        count_doubled(DOUBLER_COUNT_DIGEST, 1);
    else
        pair_drop_twin(pair, true);
    scratch_wipe(length);
    return answer;
}

/* In one call, without a context. */
static int digest(const struct digest_functions *functions, void *provider, const unsigned char *in, size_t in_length,
                  unsigned char *out, size_t *out_length, size_t room)
{
    int answer = functions->digest(provider, in, in_length, out, out_length, room);
    size_t length = 0;
    bool done;

    count_calls(DOUBLER_COUNT_DIGEST, 1);
    if (!answer || !is_doubled(mode_now(), STAGE_DIGEST))
        return answer;
    second_begin();
    done = functions->digest(provider, in, in_length, scratch(), &length, SCRATCH_SIZE);
    second_end(DOUBLER_COUNT_DIGEST, done, length);
    return answer;
}

static void *new_context(const struct digest_functions *functions, void *provider)
{
    bool doubled = is_doubled(mode_now(), STAGE_DIGEST);

    return pair_make(sizeof(struct pair), functions, functions->freectx, functions->newctx(provider), doubled,
                     doubled ? functions->newctx(provider) : NULL);
}

static void *dupctx(void *context)
{
    struct pair *pair = context;

    return pair_copy(sizeof(*pair), pair, ((const struct digest_functions *)pair->functions)->dupctx);
}

static const OSSL_DISPATCH *wrap(struct digest_functions *real, OSSL_FUNC_digest_newctx_fn *newctx,
                                 OSSL_FUNC_digest_digest_fn *in_one_call, const OSSL_DISPATCH *table)
{
    /*
     * Left out: SET_CTX_PARAMS (`ssl3-ms` of SHA-1, for SSL 3 only), COPYCTX, SERIALIZE and SQUEEZE of later versions.
     */
    const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_DIGEST_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_DIGEST_INIT, FUNCTION(init)},
        {OSSL_FUNC_DIGEST_UPDATE, FUNCTION(update)},
        {OSSL_FUNC_DIGEST_FINAL, FUNCTION(final)},
        {OSSL_FUNC_DIGEST_DIGEST, FUNCTION(in_one_call)},
        {OSSL_FUNC_DIGEST_FREECTX, FUNCTION(pair_free)},
        {OSSL_FUNC_DIGEST_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_DIGEST_GET_PARAMS, KEEP},
        {OSSL_FUNC_DIGEST_GETTABLE_PARAMS, KEEP},
        {0, NULL},
    };

    DIGEST_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

/* NEWCTX and DIGEST get no hint which algorithm they are for, so each has its own. */
#define ALGORITHM(name)                                                                                                \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return new_context(&name, provider);                                                                           \
    }                                                                                                                  \
    static int name##_digest(void *provider, const unsigned char *in, size_t length, unsigned char *out,               \
                             size_t *out_length, size_t room)                                                          \
    {                                                                                                                  \
        return digest(&name, provider, in, length, out, out_length, room);                                             \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, name##_digest, original->implementation);                                    \
    }

ALGORITHM(sha1)
ALGORITHM(sha256)
ALGORITHM(sha384)

const OSSL_ALGORITHM *digest_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"SHA1", wrap_sha1}, {"SHA2-256", wrap_sha256}, {"SHA2-384", wrap_sha384}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
