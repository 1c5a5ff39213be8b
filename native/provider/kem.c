/*
 * Operation KEM: the hybrid groups of TLS 1.3, stage key_agreement. The shared secret is SECRET_FILL of its real size.
 * The share that a server sends is a real one, to nobody: encapsulated once for each group and process, to the key pair
 * that keymgmt.c keeps. The peer's half is not read: the server's key has none (keymgmt.c dropped it), and so neither
 * initialisation reaches the wrapped provider.
 */
#include "provider.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Enough for P-384 and ML-KEM-1024: 97 + 1568 and 48 + 32 bytes. */
enum { SHARE_MAX = 2048, SECRET_MAX = 128 };

/* What is sent, and the size of what both ends know then. */
struct share {
    size_t length;
    size_t secret_length;
    unsigned char bytes[SHARE_MAX];
};

/* Each is published once and never freed. */
static _Atomic(struct share *) shares[HYBRID_TOTAL];

#define KEM_FUNCTIONS(X)                                                                                               \
    X(kem, KEM, newctx, NEWCTX)                                                                                        \
    X(kem, KEM, encapsulate_init, ENCAPSULATE_INIT)                                                                    \
    X(kem, KEM, encapsulate, ENCAPSULATE)                                                                              \
    X(kem, KEM, decapsulate_init, DECAPSULATE_INIT)                                                                    \
    X(kem, KEM, decapsulate, DECAPSULATE)                                                                              \
    X(kem, KEM, freectx, FREECTX)

struct kem_functions {
    enum hybrid hybrid;
    KEM_FUNCTIONS(FUNCTION_FIELD)
};

static struct share *encapsulate_really(const struct kem_functions *real, void *provider)
{
    unsigned char secret[SECRET_MAX];
    void *key = kept_hybrid_key(real->hybrid, provider);
    void *context = key == NULL ? NULL : real->newctx(provider);
    struct share *share = context == NULL ? NULL : malloc(sizeof(*share));
    bool made = false;

    if (share == NULL) {
        raise_error(REASON_NO_MEMORY, "a share to send");
    } else {
        share->length = sizeof(share->bytes);
        share->secret_length = sizeof(secret);
        made = real->encapsulate_init(context, key, NULL)
               && real->encapsulate(context, share->bytes, &share->length, secret, &share->secret_length);
    }
    if (context != NULL)
        real->freectx(context);
    if (made)
        return share;
    free(share);
    return NULL;
}

/* Without a lock, as kept_key in keymgmt.c. */
static struct share *kept_share(const struct kem_functions *real, void *provider)
{
    struct share *share = atomic_load(&shares[real->hybrid]);
    struct share *winner = NULL;

    if (share != NULL)
        return share;
    share = encapsulate_really(real, provider);
    if (share == NULL || atomic_compare_exchange_strong(&shares[real->hybrid], &winner, share))
        return share;
    free(share);
    return winner;
}

static int encapsulate_init(void *context, void *key, const OSSL_PARAM params[])
{
    struct latched *latched = context;
    const struct kem_functions *real = latched->functions;

    return latched->off || real->encapsulate_init(latched->real, key, params);
}

static int decapsulate_init(void *context, void *key, const OSSL_PARAM params[])
{
    struct latched *latched = context;
    const struct kem_functions *real = latched->functions;

    return latched->off || real->decapsulate_init(latched->real, key, params);
}

static bool put_share(const struct share *share, unsigned char *out, size_t *length)
{
    if (*length < share->length) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", share->length, *length);
        return false;
    }
    memcpy(out, share->bytes, share->length);
    *length = share->length;
    return true;
}

static int encapsulate(void *context, unsigned char *out, size_t *length, unsigned char *secret, size_t *secret_length)
{
    struct latched *latched = context;
    const struct kem_functions *real = latched->functions;
    const struct share *share;

    if (!latched->off)
        return real->encapsulate(latched->real, out, length, secret, secret_length);
    share = atomic_load(&shares[real->hybrid]);
    if (out == NULL) {
        if (length != NULL)
            *length = share->length;
        if (secret_length != NULL)
            *secret_length = share->secret_length;
        return 1;
    }
    if (!acknowledged() || !put_share(share, out, length)
        || !fill_answer(secret, secret_length, *secret_length, share->secret_length, SECRET_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_ENCAPSULATE);
    return 1;
}

static int decapsulate(void *context, unsigned char *secret, size_t *length, const unsigned char *in, size_t in_length)
{
    struct latched *latched = context;
    const struct kem_functions *real = latched->functions;
    size_t size;

    if (!latched->off)
        return real->decapsulate(latched->real, secret, length, in, in_length);
    size = atomic_load(&shares[real->hybrid])->secret_length;
    if (secret == NULL) {
        *length = size;
        return 1;
    }
    if (!acknowledged() || !fill_answer(secret, length, *length, size, SECRET_FILL))
        return 0;
    count_call(TLSDYNO_COUNT_DECAPSULATE);
    return 1;
}

static void freectx(void *context)
{
    struct latched *latched = context;
    const struct kem_functions *real;

    if (latched == NULL)
        return;
    real = latched->functions;
    real->freectx(latched->real);
    free(latched);
}

static void *new_context(const struct kem_functions *real, void *provider)
{
    bool off = is_off(mode_now(), STAGE_KEY_AGREEMENT);

    if (off && kept_share(real, provider) == NULL)
        return NULL;
    return latch(real, real->newctx(provider), real->freectx, off);
}

static const OSSL_DISPATCH *wrap(struct kem_functions *real, OSSL_FUNC_kem_newctx_fn *newctx,
                                 const OSSL_DISPATCH *table)
{
    /* Left out: parameters, of which hybrids have none, and what encapsulates with authentication. */
    const OSSL_DISPATCH allowed[] = {KEM_FUNCTIONS(OWN_FUNCTION) {0, NULL}};

    KEM_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

#define HYBRID(id, name)                                                                                               \
    static struct kem_functions id = {.hybrid = HYBRID_##id};                                                          \
    ALGORITHM_WITH_CONTEXT(id)

TLSDYNO_HYBRIDS(HYBRID)

const OSSL_ALGORITHM *kem_algorithms(const OSSL_ALGORITHM *originals)
{
#define HYBRID_WRAPPING(id, name) {name, wrap_##id},
    static const struct wrapping wrappings[] = {TLSDYNO_HYBRIDS(HYBRID_WRAPPING)};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
