/*
 * The two HMACs of libssl. SIGNATURE "HMAC" makes the HMAC of CBC records and the TLS 1.3 PSK binder: stage mac,
 * MAC_FILL. MAC "HMAC" makes the TLS 1.3 Finished and authenticates session tickets: stage kdf, KDF_FILL.
 *
 * Both contexts are ours, and alike. Where the stage was on when the context was made, and for a digest that TLS does
 * not use, everything goes to a real context.
 */
#include "../wrapping/hmac.h"
#include "provider.h"

#include <stdlib.h>
#include <string.h>

/* What the two operations have in common; the types of their functions are the same. */
struct hmac_functions {
    enum tlsdyno_counter counter;
    unsigned char fill;
    void *(*new_real)(void *provider);
    OSSL_FUNC_mac_dupctx_fn *dupctx;
    OSSL_FUNC_mac_freectx_fn *freectx;
    OSSL_FUNC_mac_update_fn *update;
    OSSL_FUNC_mac_final_fn *final;
};

struct hmac {
    const struct hmac_functions *functions;
    void *provider;
    bool off;    /* the stage, when this context was made */
    size_t size; /* of the no-op's answer; 0, and always with the stage on: the real context does the work */
    void *real;
};

static void *new_context(const struct hmac_functions *functions, void *provider, bool off)
{
    struct hmac *hmac = calloc(1, sizeof(*hmac));

    if (hmac == NULL) {
        raise_error(REASON_NO_MEMORY, "HMAC context");
        return NULL;
    }
    hmac->functions = functions;
    hmac->provider = provider;
    hmac->off = off;
    return hmac;
}

static void freectx(void *context)
{
    struct hmac *hmac = context;

    if (hmac != NULL && hmac->real != NULL)
        hmac->functions->freectx(hmac->real);
    free(hmac);
}

static void *dupctx(void *context)
{
    struct hmac *hmac = context;
    struct hmac *copy = new_context(hmac->functions, hmac->provider, hmac->off);

    if (copy == NULL)
        return NULL;
    copy->size = hmac->size;
    if (hmac->real != NULL) {
        copy->real = hmac->functions->dupctx(hmac->real);
        if (copy->real == NULL) {
            free(copy);
            return NULL;
        }
    }
    return copy;
}

static void *real_context(struct hmac *hmac)
{
    if (hmac->real == NULL)
        hmac->real = hmac->functions->new_real(hmac->provider);
    return hmac->real;
}

static int update(void *context, const unsigned char *data, size_t length)
{
    struct hmac *hmac = context;

    return hmac->size > 0 || (hmac->real != NULL && hmac->functions->update(hmac->real, data, length));
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct hmac *hmac = context;

    if (hmac->size == 0)
        return hmac->real != NULL && hmac->functions->final(hmac->real, out, out_length, room);
    if (out == NULL) {
        *out_length = hmac->size;
        return 1;
    }
    if (!fill_answer(out, out_length, room, hmac->size, hmac->functions->fill))
        return 0;
    count_call(hmac->functions->counter);
    return 1;
}

/* ---- SIGNATURE "HMAC" ---- */

static struct record_functions {
    RECORD_FUNCTIONS(FUNCTION_FIELD)
} real_record;

/* The properties select the implementation of HMAC inside the wrapped provider, which has one. */
static void *record_new_real(void *provider)
{
    return real_record.newctx(provider, NULL);
}

static struct hmac_functions record_hmac = {
    .counter = TLSDYNO_COUNT_RECORD_HMAC,
    .fill = MAC_FILL,
    .new_real = record_new_real,
};

static void *record_newctx(void *provider, const char *properties)
{
    (void)properties;
    return new_context(&record_hmac, provider, is_off(mode_now(), STAGE_MAC));
}

static int record_init(void *context, const char *digest_name, void *key, const OSSL_PARAM params[])
{
    struct hmac *hmac = context;

    if (hmac->off && digest_name != NULL)
        hmac->size = digest_size(digest_name);
    if (hmac->size > 0)
        return acknowledged();
    return real_context(hmac) != NULL && real_record.digest_sign_init(hmac->real, digest_name, key, params);
}

static int record_set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct hmac *hmac = context;

    return hmac->real == NULL || real_record.set_ctx_params(hmac->real, params);
}

PARAMETER_LIST(record_settable_ctx_params, real_record.settable_ctx_params)

const OSSL_DISPATCH *record_hmac_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = RECORD_ALLOWED(
        record_init, update, final, freectx, dupctx, record_set_ctx_params);
    const OSSL_DISPATCH *table = original->implementation;
    struct record_functions *real = &real_record;

    (void)hide;
    if (!stage_may_be_off(STAGE_MAC))
        return table;
    RECORD_FUNCTIONS(FIND_FUNCTION)
    record_hmac.dupctx = real->dupctx;
    record_hmac.freectx = real->freectx;
    record_hmac.update = real->digest_sign_update;
    record_hmac.final = real->digest_sign_final;
    return table_allow(table, allowed);
}

/* ---- MAC "HMAC" ---- */

static struct handshake_functions {
    HANDSHAKE_FUNCTIONS(FUNCTION_FIELD)
} real_handshake;

static struct hmac_functions handshake_hmac = {
    .counter = TLSDYNO_COUNT_HANDSHAKE_HMAC,
    .fill = KDF_FILL,
};

static void *handshake_newctx(void *provider)
{
    return new_context(&handshake_hmac, provider, is_off(mode_now(), STAGE_KDF));
}

static int handshake_set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct hmac *hmac = context;
    const OSSL_PARAM *digest = hmac->off ? OSSL_PARAM_locate_const(params, OSSL_MAC_PARAM_DIGEST) : NULL;

    if (digest != NULL && digest->data_type == OSSL_PARAM_UTF8_STRING)
        hmac->size = digest_size(digest->data);
    if (hmac->size > 0 || params == NULL || params[0].key == NULL)
        return 1;
    return real_context(hmac) != NULL && real_handshake.set_ctx_params(hmac->real, params);
}

static int handshake_init(void *context, const unsigned char *key, size_t length, const OSSL_PARAM params[])
{
    struct hmac *hmac = context;

    if (!handshake_set_ctx_params(context, params))
        return 0;
    if (hmac->size > 0)
        return acknowledged();
    return real_context(hmac) != NULL && real_handshake.init(hmac->real, key, length, NULL);
}

static int handshake_get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct hmac *hmac = context;
    OSSL_PARAM *size, *block;

    if (hmac->size == 0)
        return real_context(hmac) != NULL && real_handshake.get_ctx_params(hmac->real, params);
    size = OSSL_PARAM_locate(params, OSSL_MAC_PARAM_SIZE);
    block = OSSL_PARAM_locate(params, OSSL_MAC_PARAM_BLOCK_SIZE);
    if (size != NULL && !OSSL_PARAM_set_size_t(size, hmac->size))
        return 0;
    return block == NULL || OSSL_PARAM_set_size_t(block, hmac->size > 32 ? 128 : 64); /* FIPS 180-4 */
}

PARAMETER_LIST(handshake_gettable_ctx_params, real_handshake.gettable_ctx_params)
PARAMETER_LIST(handshake_settable_ctx_params, real_handshake.settable_ctx_params)

static const OSSL_DISPATCH *wrap_handshake(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = HANDSHAKE_ALLOWED(
        handshake_init, update, final, freectx, dupctx);
    const OSSL_DISPATCH *table = original->implementation;
    struct handshake_functions *real = &real_handshake;

    (void)hide;
    HANDSHAKE_FUNCTIONS(FIND_FUNCTION)
    handshake_hmac.new_real = real->newctx;
    handshake_hmac.dupctx = real->dupctx;
    handshake_hmac.freectx = real->freectx;
    handshake_hmac.update = real->update;
    handshake_hmac.final = real->final;
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *mac_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"HMAC", wrap_handshake}};

    return algorithms_wrap(originals, wrappings, 1);
}
