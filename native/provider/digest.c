/*
 * Operation DIGEST: SHA-1, SHA-256, SHA-384, stage digest. A 64-bit checksum of 8-byte words (docs/NOOP.md) that does
 * not depend on how the input is cut: the two ends feed the transcript in different pieces.
 */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t) };

static const uint64_t START = UINT64_C(0x6a09e667f3bcc908);
static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);

struct checksum {
    size_t digest_size;
    uint64_t state;
    uint64_t length; /* bytes so far; those beyond the last complete word wait in `residue` */
    unsigned char residue[WORD];
};

static uint64_t step(uint64_t state, uint64_t word)
{
    state ^= word;
    return (state << 23 | state >> 41) * FACTOR;
}

/* Byte by byte and not by memcpy, so that it is little-endian everywhere; compilers make one load of it. */
static uint64_t load_word(const unsigned char *from)
{
    uint64_t word = 0;

    for (size_t i = 0; i < WORD; i++)
        word |= (uint64_t)from[i] << (8 * i);
    return word;
}

static void start(struct checksum *sum)
{
    sum->state = START;
    sum->length = 0;
}

static int init(void *context, const OSSL_PARAM params[])
{
    (void)params;
    if (!acknowledged())
        return 0;
    start(context);
    return 1;
}

static int update(void *context, const unsigned char *in, size_t length)
{
    struct checksum *sum = context;
    size_t waiting = sum->length % WORD;

    if (length == 0)
        return 1;
    sum->length += length;
    if (waiting > 0) {
        size_t taken = length < WORD - waiting ? length : WORD - waiting;

        memcpy(sum->residue + waiting, in, taken);
        in += taken;
        length -= taken;
        if (waiting + taken < WORD)
            return 1;
        sum->state = step(sum->state, load_word(sum->residue));
    }
    for (; length >= WORD; in += WORD, length -= WORD)
        sum->state = step(sum->state, load_word(in));
    if (length > 0)
        memcpy(sum->residue, in, length);
    return 1;
}

static int final(void *context, unsigned char *out, size_t *out_length, size_t room)
{
    struct checksum *sum = context;
    size_t waiting = sum->length % WORD;
    uint64_t state;

    if (room < sum->digest_size) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", sum->digest_size, room);
        return 0;
    }
    memset(sum->residue + waiting, 0, WORD - waiting);
    state = step(step(sum->state, load_word(sum->residue)), sum->length);
    for (size_t i = 0; i < sum->digest_size; i++)
        out[i] = (unsigned char)((state + i / WORD * FACTOR) >> (8 * (i % WORD)));
    *out_length = sum->digest_size;
    count_call(TLSDYNO_COUNT_DIGEST);
    return 1;
}

static int digest(size_t size, const unsigned char *in, size_t length, unsigned char *out, size_t *out_length,
                  size_t room)
{
    struct checksum sum = {.digest_size = size};

    if (!acknowledged())
        return 0;
    start(&sum);
    return update(&sum, in, length) && final(&sum, out, out_length, room);
}

static void *new_checksum(size_t size)
{
    struct checksum *sum = calloc(1, sizeof(*sum));

    if (sum == NULL) {
        raise_error(REASON_NO_MEMORY, "digest context");
        return NULL;
    }
    sum->digest_size = size;
    start(sum);
    return sum;
}

static void *dupctx(void *context)
{
    struct checksum *copy = malloc(sizeof(*copy));

    if (copy == NULL)
        raise_error(REASON_NO_MEMORY, "digest context");
    else
        *copy = *(struct checksum *)context;
    return copy;
}

/*
 * NEWCTX and DIGEST get no hint which algorithm they are for, so each has its own. Left out: SET_CTX_PARAMS (`ssl3-ms`
 * of SHA-1, for SSL 3 only), COPYCTX, SERIALIZE and SQUEEZE of later versions.
 */
#define CHECKSUM(name, size)                                                                                           \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        (void)provider;                                                                                                \
        return new_checksum(size);                                                                                     \
    }                                                                                                                  \
    static int name##_digest(void *provider, const unsigned char *in, size_t length, unsigned char *out,               \
                             size_t *out_length, size_t room)                                                          \
    {                                                                                                                  \
        (void)provider;                                                                                                \
        return digest(size, in, length, out, out_length, room);                                                        \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        static const OSSL_DISPATCH allowed[] = {                                                                       \
            {OSSL_FUNC_DIGEST_NEWCTX, FUNCTION(name##_newctx)}, {OSSL_FUNC_DIGEST_INIT, FUNCTION(init)},               \
            {OSSL_FUNC_DIGEST_UPDATE, FUNCTION(update)},        {OSSL_FUNC_DIGEST_FINAL, FUNCTION(final)},             \
            {OSSL_FUNC_DIGEST_DIGEST, FUNCTION(name##_digest)}, {OSSL_FUNC_DIGEST_FREECTX, FUNCTION(free)},            \
            {OSSL_FUNC_DIGEST_DUPCTX, FUNCTION(dupctx)},        {OSSL_FUNC_DIGEST_GET_PARAMS, KEEP},                   \
            {OSSL_FUNC_DIGEST_GETTABLE_PARAMS, KEEP},           {0, NULL},                                             \
        };                                                                                                             \
        (void)hide;                                                                                                    \
        return table_allow(original->implementation, allowed);                                                         \
    }

CHECKSUM(sha1, 20)
CHECKSUM(sha256, 32)
CHECKSUM(sha384, 48)

const OSSL_ALGORITHM *digest_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"SHA1", wrap_sha1}, {"SHA2-256", wrap_sha256}, {"SHA2-384", wrap_sha384}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
