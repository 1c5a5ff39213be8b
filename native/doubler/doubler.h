/*
 * tlsdyno doubler: wraps OpenSSL's default provider and computes single TLS components twice, one result kept
 * (docs/DOUBLING.md). What goes over the wire is what the default provider computed; nothing here can replace it.
 *
 * Where the second computation needs state of its own, the context is ours and a *pair*: the real one, which answers,
 * and its twin, which is fed alike and whose results are wiped. Elsewhere contexts are the wrapped provider's own and
 * one function is called twice.
 *
 * Whatever goes wrong with a second computation ends that doubling and nothing else. Without a living owner (owner.h)
 * nothing is computed twice; a doubler that finds no area at all is the default provider.
 */
#ifndef TLSDYNO_DOUBLER_H
#define TLSDYNO_DOUBLER_H

#include "../doubler_record.h"
#include "../wrapping/wrapping.h"

/* area.c */
void area_look_for(const struct section *section);
/* Whether there is an area at all: without one nothing is wrapped. */
bool area_is_there(void);
/* Whether tlsdyno still lives. */
bool area_is_alive(void);
/* The mode of this moment; 0 without a living owner. */
uint32_t mode_now(void);
static inline bool is_doubled(uint32_t mode, enum stage stage)
{
    return (mode & 1u << stage) != 0;
}
void count_calls(enum doubler_counter counter, uint64_t amount);
void count_doubled(enum doubler_counter counter, uint64_t amount);

/* scratch.c: where second results go, of the calling thread. Every use of it ends with a wipe. */
enum { SCRATCH_SIZE = 20480 }; /* the longest record of TLS 1.2 has 16384 + 2048 bytes, RFC 5246 section 6.2.3 */
unsigned char *scratch(void);
void scratch_wipe(size_t length);

/*
 * second.c: a second computation in a context of the wrapped provider. Between the two calls errors are kept apart, so
 * that a failure leaves nothing on the queue.
 */
void second_begin(void);
void *second_context(void *(*copy_one)(void *), void *context);
void second_end(enum doubler_counter counter, bool done, size_t length);

/* pair.c */
struct pair {
    const void *functions; /* of the file's own structure */
    void (*free_one)(void *);
    void *real;
    void *twin; /* NULL: not doubled, or no longer */
};

/*
 * A structure of `size` bytes that begins with a pair, zeros behind it; takes over both contexts. NULL (raised) where
 * there is no real one, or no memory. A twin that is wanted and not there is counted as lost.
 */
void *pair_make(size_t size, const void *functions, void (*free_one)(void *), void *real, bool wanted, void *twin);
void pair_free(void *context);
/* The same pair of copies of both contexts. */
void *pair_copy(size_t size, const struct pair *pair, void *(*copy_one)(void *));
/* Ends the doubling of this pair; `lost`: by a failure. */
void pair_drop_twin(struct pair *pair, bool lost);

/* Whether the twin does what the real context did. One whose partner failed is out of step. */
static inline bool pair_follows(struct pair *pair, int answer)
{
    if (!answer && pair->twin != NULL)
        pair_drop_twin(pair, false);
    return pair->twin != NULL;
}

/*
 * A function of a pair that is called on both contexts: PAIRED(struct of the functions, name, parameters, arguments);
 * PAIRED_AS: under another name.
 */
#define PAIRED_AS(own, structure, name, parameters, ...)                                                               \
    static int own parameters                                                                                          \
    {                                                                                                                  \
        struct pair *pair = context;                                                                                   \
        const struct structure *functions = pair->functions;                                                           \
        int answer = functions->name(pair->real, __VA_ARGS__);                                                         \
                                                                                                                       \
        if (pair_follows(pair, answer) && !functions->name(pair->twin, __VA_ARGS__))                                   \
            pair_drop_twin(pair, true);                                                                                \
        return answer;                                                                                                 \
    }
#define PAIRED(structure, name, ...) PAIRED_AS(name, structure, name, __VA_ARGS__)

/* ML-KEM and the hybrids of OpenSSL 3.5 and later: X(identifier, name of the algorithm) */
#define KEMS(X)                                                                                                        \
    X(mlkem512, "ML-KEM-512")                                                                                          \
    X(mlkem768, "ML-KEM-768")                                                                                          \
    X(mlkem1024, "ML-KEM-1024")                                                                                        \
    X(x25519_mlkem768, "X25519MLKEM768")                                                                               \
    X(x448_mlkem1024, "X448MLKEM1024")                                                                                 \
    X(p256_mlkem768, "SecP256r1MLKEM768")                                                                              \
    X(p384_mlkem1024, "SecP384r1MLKEM1024")
/* Their entries among the algorithms that a file wraps. */
#define KEM_WRAPPING(id, name) {name, wrap_##id},

/* mac.c: SIGNATURE "HMAC", the HMAC of CBC records */
const OSSL_DISPATCH *record_hmac_wrap(const OSSL_ALGORITHM *original, bool *hide);

#endif
