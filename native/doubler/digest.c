/*
 * Operation DIGEST: SHA-1, SHA-256, SHA-384, stage digest: libssl's own hashing, a twin for each context that is made
 * while the stage is doubled.
 */
#include "../wrapping/digest.h"
#include "doubler.h"

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

#define FREE_CONTEXT pair_free
#include "../wrapping/digest_tables.h"
