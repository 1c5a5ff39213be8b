/*
 * The two HMACs of libssl. SIGNATURE "HMAC" makes the HMAC of CBC records and the TLS 1.3 PSK binder: stage mac,
 * MAC_FILL. MAC "HMAC" makes the TLS 1.3 Finished and authenticates session tickets: stage kdf, KDF_FILL.
 *
 * Both contexts are ours. For a digest that TLS does not use, everything goes to a real context.
 */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

#define FIND(table, into, type, id) into = (OSSL_FUNC_##type##_fn *)table_find(table, id)

/* ---- SIGNATURE "HMAC" ---- */

static struct {
    OSSL_FUNC_signature_newctx_fn *newctx;
    OSSL_FUNC_signature_digest_sign_init_fn *init;
    OSSL_FUNC_signature_digest_sign_update_fn *update;
    OSSL_FUNC_signature_digest_sign_final_fn *final;
    OSSL_FUNC_signature_freectx_fn *freectx;
    OSSL_FUNC_signature_dupctx_fn *dupctx;
    OSSL_FUNC_signature_set_ctx_params_fn *set_ctx_params;
    OSSL_FUNC_signature_settable_ctx_params_fn *settable_ctx_params;
} real_record;

struct record_hmac {
    void *provider;
    size_t size; /* 0: the real context does the work */
    void *real;
};

static void *record_newctx(void *provider, const char *properties)
{
    struct record_hmac *hmac = calloc(1, sizeof(*hmac));

    (void)properties; /* they select the implementation of HMAC inside the wrapped provider, which has one */
    if (hmac == NULL)
        raise_error(REASON_NO_MEMORY, "HMAC context");
    else
        hmac->provider = provider;
    return hmac;
}

static void record_freectx(void *context)
{
    struct record_hmac *hmac = context;

    if (hmac != NULL && hmac->real != NULL)
        real_record.freectx(hmac->real);
    free(hmac);
}

static void *record_dupctx(void *context)
{
    struct record_hmac *hmac = context;
    struct record_hmac *copy = record_newctx(hmac->provider, NULL);

    if (copy == NULL)
        return NULL;
    copy->size = hmac->size;
    if (hmac->real != NULL) {
        copy->real = real_record.dupctx(hmac->real);
        if (copy->real == NULL) {
            free(copy);
            return NULL;
        }
    }
    return copy;
}

static int record_init(void *context, const char *digest_name, void *key, const OSSL_PARAM params[])
{
    struct record_hmac *hmac = context;

    if (digest_name != NULL)
        hmac->size = digest_size(digest_name);
    if (hmac->size > 0)
        return acknowledged();
    if (hmac->real == NULL)
        hmac->real = real_record.newctx(hmac->provider, NULL);
    return hmac->real != NULL && real_record.init(hmac->real, digest_name, key, params);
}

static int record_update(void *context, const unsigned char *data, size_t length)
{
    struct record_hmac *hmac = context;

    return hmac->size > 0 || (hmac->real != NULL && real_record.update(hmac->real, data, length));
}

static int record_final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct record_hmac *hmac = context;

    if (hmac->size == 0)
        return hmac->real != NULL && real_record.final(hmac->real, out, out_length, room);
    if (out == NULL) {
        *out_length = hmac->size;
        return 1;
    }
    if (!fill_answer(out, out_length, room, hmac->size, MAC_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_RECORD_HMAC);
    return 1;
}

static int record_set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct record_hmac *hmac = context;

    return hmac->real == NULL || real_record.set_ctx_params(hmac->real, params);
}

static const OSSL_PARAM *record_settable_ctx_params(void *context, void *provider)
{
    (void)context;
    return real_record.settable_ctx_params(NULL, provider);
}

const OSSL_DISPATCH *record_hmac_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_SIGNATURE_NEWCTX, FUNCTION(record_newctx)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, FUNCTION(record_init)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE, FUNCTION(record_update)},
        {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL, FUNCTION(record_final)},
        {OSSL_FUNC_SIGNATURE_FREECTX, FUNCTION(record_freectx)},
        {OSSL_FUNC_SIGNATURE_DUPCTX, FUNCTION(record_dupctx)},
        {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, FUNCTION(record_set_ctx_params)},
        {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, FUNCTION(record_settable_ctx_params)},
        {0, NULL},
    };
    const OSSL_DISPATCH *table = original->implementation;

    (void)hide;
    if (!stage_is_off(STAGE_MAC))
        return table;
    FIND(table, real_record.newctx, signature_newctx, OSSL_FUNC_SIGNATURE_NEWCTX);
    FIND(table, real_record.init, signature_digest_sign_init, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT);
    FIND(table, real_record.update, signature_digest_sign_update, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE);
    FIND(table, real_record.final, signature_digest_sign_final, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL);
    FIND(table, real_record.freectx, signature_freectx, OSSL_FUNC_SIGNATURE_FREECTX);
    FIND(table, real_record.dupctx, signature_dupctx, OSSL_FUNC_SIGNATURE_DUPCTX);
    FIND(table, real_record.set_ctx_params, signature_set_ctx_params, OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS);
    FIND(table, real_record.settable_ctx_params, signature_settable_ctx_params,
         OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS);
    return table_allow(table, allowed);
}

/* ---- MAC "HMAC" ---- */

static struct {
    OSSL_FUNC_mac_newctx_fn *newctx;
    OSSL_FUNC_mac_dupctx_fn *dupctx;
    OSSL_FUNC_mac_freectx_fn *freectx;
    OSSL_FUNC_mac_init_fn *init;
    OSSL_FUNC_mac_update_fn *update;
    OSSL_FUNC_mac_final_fn *final;
    OSSL_FUNC_mac_get_ctx_params_fn *get_ctx_params;
    OSSL_FUNC_mac_gettable_ctx_params_fn *gettable_ctx_params;
    OSSL_FUNC_mac_set_ctx_params_fn *set_ctx_params;
    OSSL_FUNC_mac_settable_ctx_params_fn *settable_ctx_params;
} real_handshake;

struct handshake_hmac {
    void *provider;
    size_t size; /* 0: the real context does the work */
    void *real;
};

static void *handshake_newctx(void *provider)
{
    struct handshake_hmac *hmac = calloc(1, sizeof(*hmac));

    if (hmac == NULL)
        raise_error(REASON_NO_MEMORY, "HMAC context");
    else
        hmac->provider = provider;
    return hmac;
}

static void handshake_freectx(void *context)
{
    struct handshake_hmac *hmac = context;

    if (hmac != NULL && hmac->real != NULL)
        real_handshake.freectx(hmac->real);
    free(hmac);
}

static void *handshake_dupctx(void *context)
{
    struct handshake_hmac *hmac = context;
    struct handshake_hmac *copy = handshake_newctx(hmac->provider);

    if (copy == NULL)
        return NULL;
    copy->size = hmac->size;
    if (hmac->real != NULL) {
        copy->real = real_handshake.dupctx(hmac->real);
        if (copy->real == NULL) {
            free(copy);
            return NULL;
        }
    }
    return copy;
}

static void *handshake_real(struct handshake_hmac *hmac)
{
    if (hmac->real == NULL)
        hmac->real = real_handshake.newctx(hmac->provider);
    return hmac->real;
}

static int handshake_set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct handshake_hmac *hmac = context;
    const OSSL_PARAM *digest = OSSL_PARAM_locate_const(params, OSSL_MAC_PARAM_DIGEST);

    if (digest != NULL && digest->data_type == OSSL_PARAM_UTF8_STRING)
        hmac->size = digest_size(digest->data);
    if (hmac->size > 0 || params == NULL || params[0].key == NULL)
        return 1;
    return handshake_real(hmac) != NULL && real_handshake.set_ctx_params(hmac->real, params);
}

static int handshake_init(void *context, const unsigned char *key, size_t length, const OSSL_PARAM params[])
{
    struct handshake_hmac *hmac = context;

    if (!handshake_set_ctx_params(context, params))
        return 0;
    if (hmac->size > 0)
        return acknowledged();
    return handshake_real(hmac) != NULL && real_handshake.init(hmac->real, key, length, NULL);
}

static int handshake_update(void *context, const unsigned char *data, size_t length)
{
    struct handshake_hmac *hmac = context;

    return hmac->size > 0 || (hmac->real != NULL && real_handshake.update(hmac->real, data, length));
}

static int handshake_final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct handshake_hmac *hmac = context;

    if (hmac->size == 0)
        return hmac->real != NULL && real_handshake.final(hmac->real, out, out_length, room);
    if (out == NULL) {
        *out_length = hmac->size;
        return 1;
    }
    if (!fill_answer(out, out_length, room, hmac->size, KDF_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_HANDSHAKE_HMAC);
    return 1;
}

static int handshake_get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct handshake_hmac *hmac = context;
    OSSL_PARAM *size = OSSL_PARAM_locate(params, OSSL_MAC_PARAM_SIZE);
    OSSL_PARAM *block = OSSL_PARAM_locate(params, OSSL_MAC_PARAM_BLOCK_SIZE);

    if (hmac->size == 0)
        return handshake_real(hmac) != NULL && real_handshake.get_ctx_params(hmac->real, params);
    if (size != NULL && !OSSL_PARAM_set_size_t(size, hmac->size))
        return 0;
    return block == NULL || OSSL_PARAM_set_size_t(block, hmac->size > 32 ? 128 : 64); /* FIPS 180-4 */
}

static const OSSL_PARAM *handshake_gettable_ctx_params(void *context, void *provider)
{
    (void)context;
    return real_handshake.gettable_ctx_params(NULL, provider);
}

static const OSSL_PARAM *handshake_settable_ctx_params(void *context, void *provider)
{
    (void)context;
    return real_handshake.settable_ctx_params(NULL, provider);
}

static const OSSL_DISPATCH *wrap_handshake(const OSSL_ALGORITHM *original, bool *hide)
{
    static const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_MAC_NEWCTX, FUNCTION(handshake_newctx)},
        {OSSL_FUNC_MAC_DUPCTX, FUNCTION(handshake_dupctx)},
        {OSSL_FUNC_MAC_FREECTX, FUNCTION(handshake_freectx)},
        {OSSL_FUNC_MAC_INIT, FUNCTION(handshake_init)},
        {OSSL_FUNC_MAC_UPDATE, FUNCTION(handshake_update)},
        {OSSL_FUNC_MAC_FINAL, FUNCTION(handshake_final)},
        {OSSL_FUNC_MAC_GET_CTX_PARAMS, FUNCTION(handshake_get_ctx_params)},
        {OSSL_FUNC_MAC_GETTABLE_CTX_PARAMS, FUNCTION(handshake_gettable_ctx_params)},
        {OSSL_FUNC_MAC_SET_CTX_PARAMS, FUNCTION(handshake_set_ctx_params)},
        {OSSL_FUNC_MAC_SETTABLE_CTX_PARAMS, FUNCTION(handshake_settable_ctx_params)},
        {0, NULL},
    };
    const OSSL_DISPATCH *table = original->implementation;

    (void)hide;
    FIND(table, real_handshake.newctx, mac_newctx, OSSL_FUNC_MAC_NEWCTX);
    FIND(table, real_handshake.dupctx, mac_dupctx, OSSL_FUNC_MAC_DUPCTX);
    FIND(table, real_handshake.freectx, mac_freectx, OSSL_FUNC_MAC_FREECTX);
    FIND(table, real_handshake.init, mac_init, OSSL_FUNC_MAC_INIT);
    FIND(table, real_handshake.update, mac_update, OSSL_FUNC_MAC_UPDATE);
    FIND(table, real_handshake.final, mac_final, OSSL_FUNC_MAC_FINAL);
    FIND(table, real_handshake.get_ctx_params, mac_get_ctx_params, OSSL_FUNC_MAC_GET_CTX_PARAMS);
    FIND(table, real_handshake.gettable_ctx_params, mac_gettable_ctx_params, OSSL_FUNC_MAC_GETTABLE_CTX_PARAMS);
    FIND(table, real_handshake.set_ctx_params, mac_set_ctx_params, OSSL_FUNC_MAC_SET_CTX_PARAMS);
    FIND(table, real_handshake.settable_ctx_params, mac_settable_ctx_params, OSSL_FUNC_MAC_SETTABLE_CTX_PARAMS);
    return table_allow(table, allowed);
}

const OSSL_ALGORITHM *mac_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {{"HMAC", wrap_handshake}};

    return algorithms_wrap(originals, wrappings, 1);
}
