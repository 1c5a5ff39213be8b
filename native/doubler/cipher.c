/*
 * Operation CIPHER, stages cipher and mac: each record is protected twice. libssl works in place, so that the input is
 * copied first, and the twin works in place on the copy.
 *
 *     AES-GCM, ChaCha20-Poly1305, stitched CBC   doubled where both stages are: they cannot be taken apart
 *     AES-CBC                                    stage cipher; only TLS records, which libssl marks by `tls-version`
 *
 * A connection has its contexts for as long as its keys, so that it keeps the mode in which they were made. Once that
 * the owner is gone, the next record ends its doubling.
 */
#include "../wrapping/cipher.h"
#include "doubler.h"

#include <string.h>

/* Encryption and authentication in one, or encryption alone. */
enum kind { WHOLE, STITCHED, CBC };

struct cipher_functions {
    enum kind kind;
    CIPHER_FUNCTIONS(FUNCTION_FIELD)
};

struct record {
    struct pair pair;
    bool doubled; /* when this context was made; the twin of CBC comes when it turns out to be for records */
    bool copied;  /* the input is copied, but nothing computed twice */
    bool encrypting;
    bool is_tls; /* CBC: of records */
};

static void *newctx(const struct cipher_functions *functions, void *provider)
{
    uint32_t mode = mode_now();
    bool cipher = is_doubled(mode, STAGE_CIPHER), mac = is_doubled(mode, STAGE_MAC);
    bool doubled = cipher && (mac || functions->kind == CBC);
    bool twin = doubled && functions->kind != CBC;
    struct record *record = pair_make(sizeof(*record), functions, functions->freectx, functions->newctx(provider), twin,
                                      twin ? functions->newctx(provider) : NULL);

    if (cipher != mac && functions->kind != CBC)
        count_calls(DOUBLER_COUNT_HALVES, 1);
    if (record == NULL)
        return NULL;
    record->doubled = doubled;
    record->copied = !doubled && (mode & DOUBLER_MODE_COPIES) != 0;
    return record;
}

static void *dupctx(void *context)
{
    struct record *record = context;
    const struct cipher_functions *functions = record->pair.functions;
    struct record *copy = pair_copy(sizeof(*copy), &record->pair, functions->dupctx);

    if (copy == NULL)
        return NULL;
    copy->doubled = record->doubled;
    copy->copied = record->copied;
    copy->encrypting = record->encrypting;
    copy->is_tls = record->is_tls;
    return copy;
}

/* Whether this tells of TLS records; then a twin that is like the real context from here on. */
static void notice_records(struct record *record, const OSSL_PARAM params[])
{
    const struct cipher_functions *functions = record->pair.functions;

    if (functions->kind != CBC || record->is_tls
        || OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_TLS_VERSION) == NULL)
        return;
    record->is_tls = true;
    if (record->doubled && area_is_alive())
        record->pair.twin = second_context(functions->dupctx, record->pair.real);
}

/* Stitched code writes into the 13 bytes that `tlsaad` gives it: the twin gets a copy of before. */
static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    enum { ADDITIONAL_MAX = 64 };
    struct record *record = context;
    struct pair *pair = &record->pair;
    const struct cipher_functions *functions = pair->functions;
    unsigned char additional[ADDITIONAL_MAX];
    OSSL_PARAM of_twin[PARAMS_MAX] = {OSSL_PARAM_construct_end()};
    int answer;

    if (pair->twin != NULL) {
        static const char *const none[] = {NULL};
        OSSL_PARAM *given;

        if (!params_without(of_twin, params, none))
            pair_drop_twin(pair, true);
        given = OSSL_PARAM_locate(of_twin, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD);
        if (given != NULL && given->data_size <= ADDITIONAL_MAX) {
            memcpy(additional, given->data, given->data_size);
            given->data = additional;
        }
    }
    answer = functions->set_ctx_params(pair->real, params);
    if (pair_follows(pair, answer) && !functions->set_ctx_params(pair->twin, of_twin))
        pair_drop_twin(pair, true);
    if (answer)
        notice_records(record, params);
    return answer;
}

static int init(struct record *record, OSSL_FUNC_cipher_encrypt_init_fn *real, const unsigned char *key,
                size_t key_length, const unsigned char *iv, size_t iv_length, const OSSL_PARAM params[])
{
    struct pair *pair = &record->pair;
    int answer = real(pair->real, key, key_length, iv, iv_length, NULL);

    if (pair_follows(pair, answer) && !real(pair->twin, key, key_length, iv, iv_length, NULL))
        pair_drop_twin(pair, true);
    return answer && (params == NULL || set_ctx_params(record, params));
}

static int encrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct record *record = context;
    const struct cipher_functions *functions = record->pair.functions;

    record->encrypting = true;
    return init(record, functions->encrypt_init, key, key_length, iv, iv_length, params);
}

static int decrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *iv,
                        size_t iv_length, const OSSL_PARAM params[])
{
    struct record *record = context;
    const struct cipher_functions *functions = record->pair.functions;

    record->encrypting = false;
    return init(record, functions->decrypt_init, key, key_length, iv, iv_length, params);
}

static void count_record(const struct record *record, size_t length, void (*count)(enum doubler_counter, uint64_t))
{
    if (((const struct cipher_functions *)record->pair.functions)->kind == CBC) {
        count(record->encrypting ? DOUBLER_COUNT_CBC_ENCRYPT : DOUBLER_COUNT_CBC_DECRYPT, 1);
        count(DOUBLER_COUNT_CBC_BYTES, length);
    } else {
        count(record->encrypting ? DOUBLER_COUNT_AEAD_ENCRYPT : DOUBLER_COUNT_AEAD_DECRYPT, 1);
        count(DOUBLER_COUNT_AEAD_BYTES, length);
    }
}

/* Where the second time, or the copying alone, is to be done; false where neither is. */
static bool take_copy(struct record *record, const unsigned char *in, size_t length)
{
    if (record->pair.twin == NULL && !record->copied)
        return false;
    if (!area_is_alive()) {
        pair_drop_twin(&record->pair, false);
        record->copied = false;
        return false;
    }
    if (length > SCRATCH_SIZE) {
        pair_drop_twin(&record->pair, true);
        return false;
    }
    memcpy(scratch(), in, length);
    return true;
}

/* The payload of a record, or all of it. */
static int protect(struct record *record, OSSL_FUNC_cipher_update_fn *real, unsigned char *out, size_t *out_length,
                   size_t room, const unsigned char *in, size_t length)
{
    struct pair *pair = &record->pair;
    bool has_copy = take_copy(record, in, length);
    int answer = real(pair->real, out, out_length, room, in, length);
    size_t written = 0;

    count_record(record, length, count_calls);
    if (pair_follows(pair, answer)) {
        if (real(pair->twin, scratch(), &written, SCRATCH_SIZE, scratch(), length))
            count_record(record, length, count_doubled);
        else
            pair_drop_twin(pair, true);
    } else if (record->copied && has_copy) {
        count_calls(DOUBLER_COUNT_COPIES, 1);
    }
    if (has_copy)
        scratch_wipe(written > length ? written : length);
    return answer;
}

/* Additional data (no output), and whatever is not of a record. */
static int process(struct record *record, OSSL_FUNC_cipher_update_fn *real, unsigned char *out, size_t *out_length,
                   size_t room, const unsigned char *in, size_t length)
{
    struct pair *pair = &record->pair;
    bool is_payload = out != NULL && in != NULL && length > 0;
    size_t written = 0;
    int answer;

    if (is_payload && (((const struct cipher_functions *)pair->functions)->kind != CBC || record->is_tls))
        return protect(record, real, out, out_length, room, in, length);
    answer = real(pair->real, out, out_length, room, in, length);
    if (pair_follows(pair, answer)
        && !real(pair->twin, out == NULL ? NULL : scratch(), &written, out == NULL ? room : SCRATCH_SIZE, in, length))
        pair_drop_twin(pair, true);
    scratch_wipe(out == NULL ? 0 : written);
    return answer;
}

static int update(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct record *record = context;
    const struct cipher_functions *functions = record->pair.functions;

    return process(record, functions->update, out, out_length, room, in, length);
}

static int cipher(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct record *record = context;
    const struct cipher_functions *functions = record->pair.functions;

    return process(record, functions->cipher, out, out_length, room, in, length);
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct pair *pair = context;
    const struct cipher_functions *functions = pair->functions;
    int answer = functions->final(pair->real, out, out_length, room);
    size_t written = 0;

    if (!pair_follows(pair, answer))
        return answer;
    if (!functions->final(pair->twin, scratch(), &written, SCRATCH_SIZE))
        pair_drop_twin(pair, true);
    scratch_wipe(written);
    return answer;
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct pair *pair = context;

    return ((const struct cipher_functions *)pair->functions)->get_ctx_params(pair->real, params);
}

/* Several records in one call (multiblock) cannot be followed: libssl is told that there is no such thing. */
static int stitched_get_params(const struct cipher_functions *real, OSSL_PARAM params[])
{
    OSSL_PARAM *multi = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_TLS1_MULTIBLOCK);

    return real->get_params(params) && (multi == NULL || OSSL_PARAM_set_int(multi, 0));
}

static const OSSL_DISPATCH *wrap(struct cipher_functions *real, const OSSL_DISPATCH own[], const OSSL_DISPATCH *table)
{
    /* Left out: PIPELINE_* and *_SKEY_INIT of later versions. */
    OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_CIPHER_NEWCTX, KEEP},
        CIPHER_OF_CONTEXT(OWN_FUNCTION)
        {OSSL_FUNC_CIPHER_FREECTX, FUNCTION(pair_free)},
        {OSSL_FUNC_CIPHER_GET_PARAMS, KEEP},
        {OSSL_FUNC_CIPHER_GETTABLE_PARAMS, KEEP},
        {OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, KEEP},
        {OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, KEEP},
        {0, NULL},
    };

    CIPHER_FUNCTIONS(FIND_FUNCTION)
    table_override(allowed, own);
    return table_allow(table, allowed);
}

/* What has no context yet must know its algorithm by itself. */
#define ALGORITHM(name, its_kind)                                                                                      \
    static struct cipher_functions name = {.kind = its_kind};                                                          \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return newctx(&name, provider);                                                                                \
    }                                                                                                                  \
    static int name##_get_params(OSSL_PARAM params[])                                                                  \
    {                                                                                                                  \
        return its_kind == STITCHED ? stitched_get_params(&name, params) : name.get_params(params);                    \
    }                                                                                                                  \
    PARAMETER_LIST(name##_gettable_ctx_params, name.gettable_ctx_params)                                               \
    PARAMETER_LIST(name##_settable_ctx_params, name.settable_ctx_params)                                               \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH own[] = {                                                                           \
            {OSSL_FUNC_CIPHER_NEWCTX, FUNCTION(name##_newctx)},                                                        \
            {OSSL_FUNC_CIPHER_GET_PARAMS, FUNCTION(name##_get_params)},                                                \
            {OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, FUNCTION(name##_gettable_ctx_params)},                              \
            {OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, FUNCTION(name##_settable_ctx_params)},                              \
            {0, NULL},                                                                                                 \
        };                                                                                                             \
        (void)hide;                                                                                                    \
        return wrap(&name, own, original->implementation);                                                             \
    }

ALGORITHM(aes128_gcm, WHOLE)
ALGORITHM(aes256_gcm, WHOLE)
ALGORITHM(chacha20_poly1305, WHOLE)
ALGORITHM(aes128_cbc, CBC)
ALGORITHM(aes256_cbc, CBC)
ALGORITHM(aes128_cbc_sha1, STITCHED)
ALGORITHM(aes256_cbc_sha1, STITCHED)
ALGORITHM(aes128_cbc_sha256, STITCHED)
ALGORITHM(aes256_cbc_sha256, STITCHED)

const OSSL_ALGORITHM *cipher_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"AES-128-GCM", wrap_aes128_gcm},
        {"AES-256-GCM", wrap_aes256_gcm},
        {"ChaCha20-Poly1305", wrap_chacha20_poly1305},
        {"AES-128-CBC", wrap_aes128_cbc},
        {"AES-256-CBC", wrap_aes256_cbc},
        {"AES-128-CBC-HMAC-SHA1", wrap_aes128_cbc_sha1},
        {"AES-256-CBC-HMAC-SHA1", wrap_aes256_cbc_sha1},
        {"AES-128-CBC-HMAC-SHA256", wrap_aes128_cbc_sha256},
        {"AES-256-CBC-HMAC-SHA256", wrap_aes256_cbc_sha256},
    };

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
