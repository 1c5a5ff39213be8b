/*
 * Operation CIPHER "AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305": the encrypting half (stage cipher) and the tag
 * (stage mac) apart.
 *
 *     cipher  mac   payload                                   tag
 *     off     off   as it is                                  zeros
 *     off     on    as it is                                  real: additional data and payload are its additional data
 *     on      off   AES-CTR from J0 + 1 / ChaCha20 from 1     zeros
 *
 *     on      on    all of it is that of the real context
 *
 * The receiver checks the tag in every case. With both off there is no key schedule either: it has no use left.
 *
 * TLS 1.3 (and any general use): init with the key; for each record init with the nonce, update without output
 * (additional data), update, final, then get `tag` (when decrypting: set `tag` first). TLS 1.2: `tlsaad` sets the 13
 * bytes, `tlsaadpad` answers 16, one update over the whole record in place; GCM has 8 bytes of explicit nonce in front
 * and its fixed part from `tlsivfixed`.
 */
#include "../wrapping/cipher.h"
#include "provider.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_SIZE = 16, NONCE_SIZE = 12, FIXED_SIZE = 4, EXPLICIT_SIZE = 8, TLS_AAD_SIZE = 13, STREAM_IV_SIZE = 16 };

#define STREAM_FUNCTIONS(X)                                                                                            \
    X(cipher, CIPHER, newctx, NEWCTX)                                                                                  \
    X(cipher, CIPHER, encrypt_init, ENCRYPT_INIT)                                                                      \
    X(cipher, CIPHER, update, UPDATE)                                                                                  \
    X(cipher, CIPHER, freectx, FREECTX)                                                                                \
    X(cipher, CIPHER, dupctx, DUPCTX)

struct stream_functions {
    STREAM_FUNCTIONS(FUNCTION_FIELD)
};

struct aead_functions {
    const char *name;
    const char *stream_name; /* the same cipher without tag */
    size_t key_size;
    size_t explicit_size; /* explicit nonce of a TLS 1.2 record */
    void *(*own_newctx)(void *provider);
    struct stream_functions stream;
    CIPHER_FUNCTIONS(FUNCTION_FIELD)
};

static void *aes128_newctx(void *provider);
static void *aes256_newctx(void *provider);
static void *chacha_newctx(void *provider);

enum { AES128, AES256, CHACHA, AEAD_TOTAL };

static struct aead_functions aeads[AEAD_TOTAL] = {
    [AES128] = {.name = "AES-128-GCM", .stream_name = "AES-128-CTR", .key_size = 16, .explicit_size = EXPLICIT_SIZE,
                .own_newctx = aes128_newctx},
    [AES256] = {.name = "AES-256-GCM", .stream_name = "AES-256-CTR", .key_size = 32, .explicit_size = EXPLICIT_SIZE,
                .own_newctx = aes256_newctx},
    [CHACHA] = {.name = "ChaCha20-Poly1305", .stream_name = "ChaCha20", .key_size = 32, .explicit_size = 0,
                .own_newctx = chacha_newctx},
};

struct aead {
    const struct aead_functions *functions;
    bool cipher_off; /* the stages, when this context was made */
    bool mac_off;
    void *real;   /* the whole AEAD: makes the tag where `mac` is on, keeps plain parameters always */
    void *stream; /* the cipher alone: only where `cipher` is on and `mac` off */
    bool encrypting;
    bool record_pending;            /* TLS 1.2: `tlsaad` was set, the next update is a whole record */
    unsigned char nonce[NONCE_SIZE]; /* TLS 1.2: fixed part or whole; else that of the current message */
    uint64_t next_explicit;          /* TLS 1.2 GCM: explicit nonce of the next record to send */
    unsigned char additional[TLS_AAD_SIZE];
    unsigned char tag[TAG_SIZE]; /* computed when encrypting, announced when decrypting */
};

static void freectx(void *context)
{
    struct aead *aead = context;

    if (aead == NULL)
        return;
    if (aead->real != NULL)
        aead->functions->freectx(aead->real);
    if (aead->stream != NULL)
        aead->functions->stream.freectx(aead->stream);
    free(aead);
}

static struct aead *checked(struct aead *aead)
{
    bool stream_needed = !aead->cipher_off && aead->mac_off;

    if (aead->real != NULL && (aead->stream != NULL || !stream_needed))
        return aead;
    raise_error(REASON_NO_MEMORY, "%s context", aead->functions->name);
    freectx(aead);
    return NULL;
}

static void *newctx(const struct aead_functions *functions, void *provider)
{
    struct aead *aead = calloc(1, sizeof(*aead));
    uint32_t mode = mode_now();

    if (aead == NULL) {
        raise_error(REASON_NO_MEMORY, "%s context", functions->name);
        return NULL;
    }
    aead->functions = functions;
    aead->cipher_off = is_off(mode, STAGE_CIPHER);
    aead->mac_off = is_off(mode, STAGE_MAC);
    aead->real = functions->newctx(provider);
    if (!aead->cipher_off && aead->mac_off)
        aead->stream = functions->stream.newctx(provider);
    return checked(aead);
}

static void *dupctx(void *context)
{
    struct aead *aead = context;
    struct aead *copy = malloc(sizeof(*copy));

    if (copy == NULL) {
        raise_error(REASON_NO_MEMORY, "%s context", aead->functions->name);
        return NULL;
    }
    *copy = *aead;
    copy->real = aead->functions->dupctx(aead->real);
    copy->stream = NULL;
    if (aead->stream != NULL && aead->functions->stream.dupctx != NULL)
        copy->stream = aead->functions->stream.dupctx(aead->stream);
    return checked(copy);
}

/* Nothing is off for this context: the real one does everything. */
static bool is_real(const struct aead *aead)
{
    return !aead->cipher_off && !aead->mac_off;
}

static int real_init(struct aead *aead, const unsigned char *key, size_t key_length, const unsigned char *nonce,
                     size_t nonce_length)
{
    if (aead->encrypting)
        return aead->functions->encrypt_init(aead->real, key, key_length, nonce, nonce_length, NULL);
    return aead->functions->decrypt_init(aead->real, key, key_length, nonce, nonce_length, NULL);
}

/*
 * The stream starts behind the block that the AEAD uses up for its tag: GCM counts in the last 4 bytes from 1,
 * big-endian, as J0 (NIST SP 800-38D section 7.1); ChaCha20 in the first 4 from 0, little-endian (RFC 8439 section
 * 2.8).
 */
static int start_stream(struct aead *aead, const unsigned char nonce[NONCE_SIZE])
{
    unsigned char iv[STREAM_IV_SIZE] = {0};

    if (aead->functions == &aeads[CHACHA]) {
        iv[0] = 1;
        memcpy(iv + STREAM_IV_SIZE - NONCE_SIZE, nonce, NONCE_SIZE);
    } else {
        memcpy(iv, nonce, NONCE_SIZE);
        iv[STREAM_IV_SIZE - 1] = 2;
    }
    return aead->functions->stream.encrypt_init(aead->stream, NULL, 0, iv, sizeof(iv), NULL);
}

static int start_message(struct aead *aead, const unsigned char nonce[NONCE_SIZE])
{
    if (!aead->cipher_off)
        return start_stream(aead, nonce);
    return aead->mac_off || real_init(aead, NULL, 0, nonce, NONCE_SIZE);
}

/*
 * Additional data, and a payload that is not encrypted, go into the tag alike. The real update wants an output size
 * though there is no output.
 */
static int authenticate(struct aead *aead, const unsigned char *data, size_t length)
{
    size_t ignored;

    return aead->mac_off || length == 0
           || aead->functions->update(aead->real, NULL, &ignored, length, data, length);
}

static int transform(struct aead *aead, unsigned char *out, const unsigned char *in, size_t length)
{
    size_t done = 0;

    if (length == 0)
        return 1;
    if (!aead->cipher_off)
        return aead->functions->stream.update(aead->stream, out, &done, length, in, length) && done == length;
    if (!authenticate(aead, in, length))
        return 0;
    if (out != in)
        memmove(out, in, length);
    return 1;
}

static void count_message(const struct aead *aead)
{
    if (aead->cipher_off)
        count_call(aead->encrypting ? TLSDYNO_COUNT_AEAD_ENCRYPT : TLSDYNO_COUNT_AEAD_DECRYPT);
    if (aead->mac_off)
        count_call(aead->encrypting ? TLSDYNO_COUNT_TAG_WRITE : TLSDYNO_COUNT_TAG_CHECK);
}

static int set_real_tag(struct aead *aead)
{
    OSSL_PARAM params[2] = {
        OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, aead->tag, TAG_SIZE),
        OSSL_PARAM_construct_end(),
    };

    return aead->mac_off || aead->functions->set_ctx_params(aead->real, params);
}

static int get_real_tag(struct aead *aead)
{
    OSSL_PARAM params[2] = {
        OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, aead->tag, TAG_SIZE),
        OSSL_PARAM_construct_end(),
    };

    return aead->functions->get_ctx_params(aead->real, params);
}

/* Ends a message: leaves its tag in `tag` when encrypting, compares it when decrypting. */
static int finish_message(struct aead *aead)
{
    unsigned char none[TAG_SIZE];
    size_t ignored;

    count_message(aead);
    if (!aead->mac_off)
        return aead->functions->final(aead->real, none, &ignored, sizeof(none))
               && (!aead->encrypting || get_real_tag(aead));
    if (aead->encrypting) {
        memset(aead->tag, 0, TAG_SIZE);
        return 1;
    }
    if (all_bytes_are(aead->tag, TAG_SIZE, 0))
        return 1;
    raise_error(REASON_PEER_HAS_STAGE_ON, "mac: a real tag");
    return 0;
}

/* ---- TLS 1.2 records ---- */

/* GCM: fixed part, then the record's explicit part. ChaCha20: all 12 bytes xor sequence number (RFC 7905 section 2). */
static void record_nonce(struct aead *aead, unsigned char nonce[NONCE_SIZE], unsigned char *record)
{
    memcpy(nonce, aead->nonce, NONCE_SIZE);
    if (aead->functions->explicit_size == 0) {
        for (size_t i = 0; i < EXPLICIT_SIZE; i++)
            nonce[FIXED_SIZE + i] ^= aead->additional[i];
        return;
    }
    if (aead->encrypting) {
        for (size_t i = 0; i < EXPLICIT_SIZE; i++)
            record[i] = (unsigned char)(aead->next_explicit >> (8 * (EXPLICIT_SIZE - 1 - i)));
        aead->next_explicit++;
    }
    memcpy(nonce + FIXED_SIZE, record, EXPLICIT_SIZE);
}

static int whole_record(struct aead *aead, unsigned char *record, size_t *out_length, size_t length)
{
    size_t explicit_size = aead->functions->explicit_size;
    unsigned char nonce[NONCE_SIZE];
    unsigned char *payload = record + explicit_size;
    size_t payload_length;

    aead->record_pending = false;
    if (length < explicit_size + TAG_SIZE)
        return 0;
    payload_length = length - explicit_size - TAG_SIZE;
    record_nonce(aead, nonce, record);
    if (!start_message(aead, nonce))
        return 0;
    if (!aead->encrypting) {
        memcpy(aead->tag, payload + payload_length, TAG_SIZE);
        if (!set_real_tag(aead))
            return 0;
    }
    if (!authenticate(aead, aead->additional, TLS_AAD_SIZE) || !transform(aead, payload, payload, payload_length)
        || !finish_message(aead))
        return 0;
    if (aead->encrypting)
        memcpy(payload + payload_length, aead->tag, TAG_SIZE);
    *out_length = aead->encrypting ? length : payload_length;
    return 1;
}

/*
 * libssl's length counts the explicit nonce and, when receiving, the tag; the authenticated length is that of the
 * plaintext.
 */
static int set_additional_data(struct aead *aead, const OSSL_PARAM *param)
{
    size_t overhead = aead->functions->explicit_size + (aead->encrypting ? 0 : TAG_SIZE);
    size_t length;

    if (param->data_type != OSSL_PARAM_OCTET_STRING || param->data_size != TLS_AAD_SIZE)
        return 0;
    memcpy(aead->additional, param->data, TLS_AAD_SIZE);
    length = (size_t)aead->additional[11] << 8 | aead->additional[12];
    if (length < overhead)
        return 0;
    length -= overhead;
    aead->additional[11] = (unsigned char)(length >> 8);
    aead->additional[12] = (unsigned char)length;
    aead->record_pending = true;
    return 1;
}

static int set_fixed_nonce(struct aead *aead, const OSSL_PARAM *param)
{
    if (param->data_type != OSSL_PARAM_OCTET_STRING || param->data_size > NONCE_SIZE)
        return 0;
    memcpy(aead->nonce, param->data, param->data_size);
    return 1;
}

static int set_tag(struct aead *aead, const OSSL_PARAM *param)
{
    if (param->data_type != OSSL_PARAM_OCTET_STRING || param->data_size != TAG_SIZE) {
        raise_error(REASON_UNSUPPORTED_USE, "tag of %zu bytes", param->data_size);
        return 0;
    }
    if (param->data == NULL) /* announces the size only */
        return 1;
    memcpy(aead->tag, param->data, TAG_SIZE);
    return set_real_tag(aead);
}

/* ---- dispatch functions ---- */

static int set_own_params(struct aead *aead, const OSSL_PARAM params[])
{
    static const char *const ours[] = {OSSL_CIPHER_PARAM_AEAD_TAG, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD,
                                       OSSL_CIPHER_PARAM_AEAD_TLS1_IV_FIXED, NULL};
    const OSSL_PARAM *tag = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_TAG);
    const OSSL_PARAM *additional = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD);
    const OSSL_PARAM *fixed = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_TLS1_IV_FIXED);
    OSSL_PARAM others[PARAMS_MAX];

    if (tag != NULL && !set_tag(aead, tag))
        return 0;
    if (additional != NULL && !set_additional_data(aead, additional))
        return 0;
    if (fixed != NULL && !set_fixed_nonce(aead, fixed))
        return 0;
    if (!params_without(others, params, ours))
        return 0;
    return others[0].key == NULL || aead->functions->set_ctx_params(aead->real, others);
}

static int set_ctx_params(void *context, const OSSL_PARAM params[])
{
    struct aead *aead = context;

    return is_real(aead) ? aead->functions->set_ctx_params(aead->real, params) : set_own_params(aead, params);
}

static int get_own_params(struct aead *aead, OSSL_PARAM params[])
{
    static const char *const ours[] = {OSSL_CIPHER_PARAM_AEAD_TAG, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD, NULL};
    OSSL_PARAM *tag = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_AEAD_TAG);
    OSSL_PARAM *expansion = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD);
    OSSL_PARAM others[PARAMS_MAX];

    if (tag != NULL && (tag->data_size > TAG_SIZE || !OSSL_PARAM_set_octet_string(tag, aead->tag, tag->data_size)))
        return 0;
    if (expansion != NULL && !OSSL_PARAM_set_size_t(expansion, TAG_SIZE))
        return 0;
    if (!params_without(others, params, ours))
        return 0;
    return others[0].key == NULL || aead->functions->get_ctx_params(aead->real, others);
}

static int get_ctx_params(void *context, OSSL_PARAM params[])
{
    struct aead *aead = context;

    return is_real(aead) ? aead->functions->get_ctx_params(aead->real, params) : get_own_params(aead, params);
}

static int init(struct aead *aead, const unsigned char *key, size_t key_length, const unsigned char *nonce,
                size_t nonce_length, const OSSL_PARAM params[])
{
    if (key != NULL) {
        if (key_length != aead->functions->key_size) {
            raise_error(REASON_UNSUPPORTED_USE, "%s with a key of %zu bytes", aead->functions->name, key_length);
            return 0;
        }
        if (!acknowledged())
            return 0;
        if (!aead->mac_off && !real_init(aead, key, key_length, NULL, 0))
            return 0;
        if (!aead->cipher_off && !aead->functions->stream.encrypt_init(aead->stream, key, key_length, NULL, 0, NULL))
            return 0;
    }
    if (nonce != NULL) {
        if (nonce_length != NONCE_SIZE) {
            raise_error(REASON_UNSUPPORTED_USE, "%s with a nonce of %zu bytes", aead->functions->name, nonce_length);
            return 0;
        }
        memcpy(aead->nonce, nonce, NONCE_SIZE);
        if (!start_message(aead, nonce))
            return 0;
    }
    return set_own_params(aead, params);
}

static int encrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *nonce,
                        size_t nonce_length, const OSSL_PARAM params[])
{
    struct aead *aead = context;

    aead->encrypting = true;
    if (is_real(aead))
        return aead->functions->encrypt_init(aead->real, key, key_length, nonce, nonce_length, params);
    return init(aead, key, key_length, nonce, nonce_length, params);
}

static int decrypt_init(void *context, const unsigned char *key, size_t key_length, const unsigned char *nonce,
                        size_t nonce_length, const OSSL_PARAM params[])
{
    struct aead *aead = context;

    aead->encrypting = false;
    if (is_real(aead))
        return aead->functions->decrypt_init(aead->real, key, key_length, nonce, nonce_length, params);
    return init(aead, key, key_length, nonce, nonce_length, params);
}

static int update(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct aead *aead = context;

    if (is_real(aead))
        return aead->functions->update(aead->real, out, out_length, room, in, length);
    if (aead->record_pending) {
        if (out != in || room < length) {
            raise_error(REASON_UNSUPPORTED_USE, "%s: a TLS record not in place", aead->functions->name);
            return 0;
        }
        return whole_record(aead, out, out_length, length);
    }
    *out_length = length;
    if (out == NULL)
        return authenticate(aead, in, length);
    if (room < length) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", length, room);
        return 0;
    }
    return transform(aead, out, in, length);
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct aead *aead = context;

    if (is_real(aead))
        return aead->functions->final(aead->real, out, out_length, room);
    *out_length = 0;
    return finish_message(aead);
}

/* EVP_Cipher: without input it means final. */
static int cipher(void *context, unsigned char *out, size_t *out_length, size_t room, const unsigned char *in,
                  size_t length)
{
    struct aead *aead = context;

    if (is_real(aead))
        return aead->functions->cipher(aead->real, out, out_length, room, in, length);
    if (in == NULL)
        return final(context, out, out_length, room);
    return update(context, out, out_length, room, in, length);
}

static void *aes128_newctx(void *provider)
{
    return newctx(&aeads[AES128], provider);
}

static void *aes256_newctx(void *provider)
{
    return newctx(&aeads[AES256], provider);
}

static void *chacha_newctx(void *provider)
{
    return newctx(&aeads[CHACHA], provider);
}

/* All three list the same kinds of parameters; the context is ours, so the wrapped functions get none. */
PARAMETER_LIST(gettable_ctx_params, aeads[AES128].gettable_ctx_params)
PARAMETER_LIST(settable_ctx_params, aeads[AES128].settable_ctx_params)

static void remember_stream(struct stream_functions *real, const OSSL_DISPATCH *table)
{
    STREAM_FUNCTIONS(FIND_FUNCTION)
}

static void remember(struct aead_functions *real, const OSSL_DISPATCH *table)
{
    CIPHER_FUNCTIONS(FIND_FUNCTION)
}

bool aead_find_streams(const OSSL_ALGORITHM *originals)
{
    for (size_t i = 0; i < AEAD_TOTAL; i++) {
        const OSSL_ALGORITHM *stream = algorithm_find(originals, aeads[i].stream_name);

        if (stream == NULL) {
            raise_error(REASON_WRAPPED_PROVIDER, "it has no %s", aeads[i].stream_name);
            return false;
        }
        remember_stream(&aeads[i].stream, stream->implementation);
    }
    return true;
}

const OSSL_DISPATCH *aead_wrap(const OSSL_ALGORITHM *original, bool *hide)
{
    size_t i = 0;

    (void)hide;
    while (!algorithm_is(original, aeads[i].name))
        i++;
    remember(&aeads[i], original->implementation);
    {
        /* Left out: PIPELINE_* and *_SKEY_INIT of later versions. */
        const OSSL_DISPATCH allowed[] = {
            {OSSL_FUNC_CIPHER_NEWCTX, FUNCTION(aeads[i].own_newctx)},
            CIPHER_OF_CONTEXT(OWN_FUNCTION)
            {OSSL_FUNC_CIPHER_FREECTX, FUNCTION(freectx)},
            {OSSL_FUNC_CIPHER_GET_PARAMS, KEEP},
            {OSSL_FUNC_CIPHER_GETTABLE_PARAMS, KEEP},
            {OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, FUNCTION(gettable_ctx_params)},
            {OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, FUNCTION(settable_ctx_params)},
            {0, NULL},
        };

        return table_allow(original->implementation, allowed);
    }
}
