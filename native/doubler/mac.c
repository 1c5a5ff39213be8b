/*
 * The two HMACs of libssl. SIGNATURE "HMAC" makes the HMAC of CBC records and the TLS 1.3 PSK binder: stage mac. MAC
 * "HMAC" makes the TLS 1.3 Finished and authenticates session tickets: stage kdf. Each with a twin.
 */
#include "../wrapping/hmac.h"
#include "doubler.h"

/* What is counted when a pair comes to its end. */
static int finish(struct pair *pair, OSSL_FUNC_mac_final_fn *final, enum doubler_counter counter, unsigned char *out,
                  size_t *out_length, size_t room)
{
    int answer = final(pair->real, out, out_length, room);
    size_t length = 0;

    if (out == NULL)
        return answer;
    count_calls(counter, 1);
    if (!pair_follows(pair, answer))
        return answer;
    if (final(pair->twin, scratch(), &length, room < SCRATCH_SIZE ? room : SCRATCH_SIZE))
        count_doubled(counter, 1);
    else
        pair_drop_twin(pair, true);
    scratch_wipe(length);
    return answer;
}

/* ---- SIGNATURE "HMAC" ---- */

static struct record_functions {
    RECORD_FUNCTIONS(FUNCTION_FIELD)
} record;

static void *record_newctx(void *provider, const char *properties)
{
    bool doubled = is_doubled(mode_now(), STAGE_MAC);

    return pair_make(sizeof(struct pair), &record, record.freectx, record.newctx(provider, properties), doubled,
                     doubled ? record.newctx(provider, properties) : NULL);
}

static void *record_dupctx(void *context)
{
    return pair_copy(sizeof(struct pair), context, record.dupctx);
}

PAIRED(record_functions, digest_sign_init,
       (void *context, const char *digest_name, void *key, const OSSL_PARAM params[]), digest_name, key, params)
PAIRED(record_functions, digest_sign_update, (void *context, const unsigned char *data, size_t length), data, length)
PAIRED(record_functions, set_ctx_params, (void *context, const OSSL_PARAM params[]), params)

static int record_final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    return finish(context, record.digest_sign_final, DOUBLER_COUNT_RECORD_HMAC, out, out_length, room);
}

PARAMETER_LIST(record_settable_ctx_params, record.settable_ctx_params)

const OSSL_DISPATCH *record_hmac_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = RECORD_ALLOWED(
        digest_sign_init, digest_sign_update, record_final, pair_free, record_dupctx, set_ctx_params);
    const OSSL_DISPATCH *table = original->implementation;
    struct record_functions *real = &record;

    (void)hide;
    RECORD_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

/* ---- MAC "HMAC" ---- */

static struct handshake_functions {
    HANDSHAKE_FUNCTIONS(FUNCTION_FIELD)
} handshake;

static void *handshake_newctx(void *provider)
{
    bool doubled = is_doubled(mode_now(), STAGE_KDF);

    return pair_make(sizeof(struct pair), &handshake, handshake.freectx, handshake.newctx(provider), doubled,
                     doubled ? handshake.newctx(provider) : NULL);
}

static void *handshake_dupctx(void *context)
{
    return pair_copy(sizeof(struct pair), context, handshake.dupctx);
}

PAIRED(handshake_functions, init,
       (void *context, const unsigned char *key, size_t length, const OSSL_PARAM params[]), key, length, params)
PAIRED(handshake_functions, update, (void *context, const unsigned char *data, size_t length), data, length)
PAIRED_AS(handshake_set_ctx_params, handshake_functions, set_ctx_params, (void *context, const OSSL_PARAM params[]),
          params)

static int handshake_final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    return finish(context, handshake.final, DOUBLER_COUNT_HANDSHAKE_HMAC, out, out_length, room);
}

static int handshake_get_ctx_params(void *context, OSSL_PARAM params[])
{
    return handshake.get_ctx_params(((struct pair *)context)->real, params);
}

PARAMETER_LIST(handshake_gettable_ctx_params, handshake.gettable_ctx_params)
PARAMETER_LIST(handshake_settable_ctx_params, handshake.settable_ctx_params)

static const OSSL_DISPATCH *wrap_handshake(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = HANDSHAKE_ALLOWED(
        init, update, handshake_final, pair_free, handshake_dupctx);
    const OSSL_DISPATCH *table = original->implementation;
    struct handshake_functions *real = &handshake;

    (void)hide;
    HANDSHAKE_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *mac_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"HMAC", wrap_handshake}};

    return algorithms_wrap(originals, wrappings, 1);
}
