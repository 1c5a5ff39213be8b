/*
 * Batched RSA under sanitizers: every subset of eight keys decrypts what was encrypted, blocks without an inverse are
 * refused, and so are exponents that do not fit the primes.
 */
#include <string.h>

#include <openssl/bn.h>
#include <openssl/rsa.h>

#include "../batch_rsa/batch_rsa.c"
#include "check.h"

enum { BITS = 1024, SIZE = BITS / 8 };

static const uint64_t EXPONENTS[MEMBERS_MAX] = { 3, 5, 7, 11, 13, 17, 19, 23 };

/* What a client does: a random number to the power of the key's exponent. */
static void encrypt(unsigned char *block, unsigned char *plain, const BIGNUM *modulus, uint64_t exponent)
{
    BN_CTX *context = BN_CTX_new();
    BIGNUM *number = BN_new(), *e = BN_new();

    CHECK(BN_rand_range(number, modulus) == 1 && BN_set_word(e, exponent) == 1);
    CHECK(BN_bn2binpad(number, plain, SIZE) == SIZE);
    CHECK(BN_mod_exp(number, number, e, modulus, context) == 1 && BN_bn2binpad(number, block, SIZE) == SIZE);
    BN_free(number);
    BN_free(e);
    BN_CTX_free(context);
}

int main(void)
{
    RSA *key = RSA_new();
    BIGNUM *product = BN_new();
    const BIGNUM *parts[3];
    unsigned char bytes[3][SIZE], blocks[MEMBERS_MAX * SIZE], plain[MEMBERS_MAX * SIZE], found[MEMBERS_MAX * SIZE];
    const unsigned char *numbers[3] = { bytes[0], bytes[1], bytes[2] };
    size_t sizes[3];
    struct batch_rsa *batch;

    CHECK(BN_set_word(product, 111546435) == 1 && RSA_generate_key_ex(key, BITS, product, NULL) == 1);
    RSA_get0_key(key, &parts[0], NULL, NULL);
    RSA_get0_factors(key, &parts[1], &parts[2]);
    for (int i = 0; i < 3; i++)
        sizes[i] = (size_t)BN_bn2bin(parts[i], bytes[i]);
    batch = tlsdyno_batch_rsa_new(numbers, sizes, EXPONENTS, MEMBERS_MAX);
    CHECK(batch != NULL);
    for (unsigned subset = 1; subset < 1U << MEMBERS_MAX; subset++) {
        unsigned char members[MEMBERS_MAX];
        size_t count = 0;

        for (unsigned char i = 0; i < MEMBERS_MAX; i++)
            if (subset >> i & 1)
                members[count++] = i;
        for (size_t i = 0; i < count; i++)
            encrypt(blocks + i * SIZE, plain + i * SIZE, parts[0], EXPONENTS[members[i]]);
        CHECK(tlsdyno_batch_rsa_decrypt(batch, members, count, blocks, found));
        CHECK(memcmp(found, plain, count * SIZE) == 0);
        memset(blocks, 0, SIZE);
        CHECK(!tlsdyno_batch_rsa_decrypt(batch, members, count, blocks, found));
    }
    tlsdyno_batch_rsa_free(batch);
    /* An even number has no inverse modulo a prime - 1. */
    CHECK(tlsdyno_batch_rsa_new(numbers, sizes, (uint64_t[]){ 3, 4 }, 2) == NULL);
    BN_free(product);
    RSA_free(key);
    return 0;
}
