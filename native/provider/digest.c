/*
 * Operation DIGEST: SHA-1, SHA-256, SHA-384, stage digest. A 64-bit checksum of 8-byte words (docs/NOOP.md) that does
 * not depend on how the input is cut: the two ends feed the transcript in different pieces.
 */
#include "../wrapping/digest.h"
#include "provider.h"

#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t) };

static const uint64_t START = UINT64_C(0x6a09e667f3bcc908);
static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);

struct digest_functions {
    size_t size;
    DIGEST_FUNCTIONS(FUNCTION_FIELD)
};

static struct digest_functions sha1 = {.size = 20}, sha256 = {.size = 32}, sha384 = {.size = 48};

struct checksum {
    const struct digest_functions *functions;
    void *real; /* does everything where the context was made while the stage was on; else NULL */
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
    struct checksum *sum = context;

    if (sum->real != NULL)
        return sum->functions->init(sum->real, params);
    if (!acknowledged())
        return 0;
    start(sum);
    return 1;
}

static int update(void *context, const unsigned char *in, size_t length)
{
    struct checksum *sum = context;
    size_t waiting = sum->length % WORD;

    if (sum->real != NULL)
        return sum->functions->update(sum->real, in, length);
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
    size_t size = sum->functions->size;
    uint64_t state;

    if (sum->real != NULL)
        return sum->functions->final(sum->real, out, out_length, room);
    if (room < size) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", size, room);
        return 0;
    }
    memset(sum->residue + waiting, 0, WORD - waiting);
    state = step(step(sum->state, load_word(sum->residue)), sum->length);
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)((state + i / WORD * FACTOR) >> (8 * (i % WORD)));
    *out_length = size;
    count_call(TLSDYNO_COUNT_DIGEST);
    return 1;
}

/* In one call, without a context. */
static int digest(const struct digest_functions *functions, void *provider, const unsigned char *in, size_t length,
                  unsigned char *out, size_t *out_length, size_t room)
{
    struct checksum sum = {.functions = functions};

    if (!is_off(mode_now(), STAGE_DIGEST))
        return functions->digest(provider, in, length, out, out_length, room);
    if (!acknowledged())
        return 0;
    start(&sum);
    return update(&sum, in, length) && final(&sum, out, out_length, room);
}

static void freectx(void *context)
{
    struct checksum *sum = context;

    if (sum != NULL && sum->real != NULL)
        sum->functions->freectx(sum->real);
    free(sum);
}

/* The same as `from`, but with `real` in it, which it takes over. */
static void *adopt(const struct checksum *from, bool off, void *real)
{
    struct checksum *sum = off || real != NULL ? malloc(sizeof(*sum)) : NULL;

    if (sum == NULL) {
        raise_error(REASON_NO_MEMORY, "digest context");
        if (real != NULL)
            from->functions->freectx(real);
        return NULL;
    }
    *sum = *from;
    sum->real = real;
    return sum;
}

static void *new_context(const struct digest_functions *functions, void *provider)
{
    struct checksum fresh = {.functions = functions, .state = START};
    bool off = is_off(mode_now(), STAGE_DIGEST);

    return adopt(&fresh, off, off ? NULL : functions->newctx(provider));
}

static void *dupctx(void *context)
{
    struct checksum *sum = context;
    bool off = sum->real == NULL;

    return adopt(sum, off, off ? NULL : sum->functions->dupctx(sum->real));
}

#define FREE_CONTEXT freectx
#include "../wrapping/digest_tables.h"
