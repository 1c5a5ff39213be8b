/*
 * Batched RSA: one exponentiation decrypts a block of each of several keys that share a modulus and differ in their
 * public exponents (Fiat, Batch RSA, CRYPTO '89; Shacham and Boneh, Improving SSL Handshake Performance via Batching,
 * CT-RSA 2001). Called by native/src/batch_rsa.rs alone, which checks what it passes.
 */
#ifndef TLSDYNO_BATCH_RSA_H
#define TLSDYNO_BATCH_RSA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most keys; most 64-bit words of a modulus, whose bits are a multiple of 64. */
enum { MEMBERS_MAX = 8, WORDS_MAX = 64 };

struct batch_rsa;

/* The numbers are the modulus and its two primes. The exponents are odd, ascending and coprime to each other, with a
 * product below 2^63. NULL: they do not fit the primes, or there is no memory. One thread at a time. */
struct batch_rsa *tlsdyno_batch_rsa_new(const unsigned char *numbers[3], const size_t sizes[3],
                                        const uint64_t *exponents, size_t members);

void tlsdyno_batch_rsa_free(struct batch_rsa *batch);

/* Blocks and what is in them have the modulus' length and stand one after the other; blocks are below the modulus.
 * Members are ascending. False: a block shares a factor with the modulus, a computation went wrong or there is no
 * memory; nothing in `plain` is to be used. */
bool tlsdyno_batch_rsa_decrypt(struct batch_rsa *batch, const unsigned char *members, size_t count,
                               const unsigned char *blocks, unsigned char *plain);

#endif
