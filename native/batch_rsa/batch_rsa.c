/*
 * The blocks are multiplied up a tree, the root is taken once, and it percolates down the tree. Everything but the
 * blinding is computed for each prime apart and joined at the leaves, after Shacham and Boneh (sections 3.2 and 3.3).
 *
 * No inverse is computed: the exponentiation is by -1/E, so that it inverts all denominators at once.
 *
 * Time: a random factor r goes into every block as r^e, so that no value in the tree depends on what an attacker knows.
 * The exponentiation and the last multiplication, which takes r out again, need the same time for all values.
 */
#include "batch_rsa.h"

#include <string.h>

#include <openssl/bn.h>
#include <openssl/crypto.h>

enum { NODES_MAX = 2 * MEMBERS_MAX - 1, DENOMINATORS_MAX = 2 * MEMBERS_MAX - 1 };

/* A modulus, and numbers to compute with, in Montgomery's form. */
struct ring {
    BIGNUM *modulus, *spare;
    BN_MONT_CTX *mont;
    BN_CTX *context;
    bool has_failed;
};

/* By one prime. */
struct side {
    struct ring ring;
    BIGNUM *less_one, *minus_root;      /* the prime - 1; minus 1/E modulo that, for the members of the last batch */
    BIGNUM *inverses[MEMBERS_MAX];      /* 1/e modulo the prime - 1 */
    BIGNUM *values[NODES_MAX];          /* of the tree, on the way up */
    BIGNUM *roots[NODES_MAX];           /* and down: some of the denominators */
    BIGNUM *products[DENOMINATORS_MAX]; /* of the first denominators */
    BIGNUM *root, *inverse;
    /* r, then the two of each inner node: what its two roots are divided by, then these inverted, then the roots. */
    BIGNUM *denominators[DENOMINATORS_MAX];
};

/* Exponents of a node of the tree, which are public. */
struct node {
    size_t left, right;
    uint64_t e;    /* the product of all below */
    uint64_t t, s; /* t * e(right) = 1 + s * e(left) */
};

struct batch_rsa {
    size_t members, size;
    uint64_t exponents[MEMBERS_MAX];
    uint64_t words[WORDS_MAX], minus_inverse; /* of the modulus, and of its last word */
    struct ring whole;
    struct side sides[2];
    BIGNUM *crt, *r, *power, *difference; /* crt: 1/q modulo p */
    unsigned char last[MEMBERS_MAX];      /* members of the last batch */
    size_t last_count;
};

static void multiply(struct ring *ring, BIGNUM *to, const BIGNUM *a, const BIGNUM *b)
{
    ring->has_failed |= BN_mod_mul_montgomery(to, a, b, ring->mont, ring->context) != 1;
}

static void copy(struct ring *ring, BIGNUM *to, const BIGNUM *from)
{
    ring->has_failed |= BN_copy(to, from) == NULL;
}

/* Into Montgomery's form, and out of it. */
static void enter(struct ring *ring, BIGNUM *to, const BIGNUM *from)
{
    ring->has_failed |= BN_nnmod(to, from, ring->modulus, ring->context) != 1
        || BN_to_montgomery(to, to, ring->mont, ring->context) != 1;
}

static void leave(struct ring *ring, BIGNUM *to, const BIGNUM *from)
{
    ring->has_failed |= BN_from_montgomery(to, from, ring->mont, ring->context) != 1;
}

/* a^x b^y; `ab` is the product of both. */
static void power(struct ring *ring, BIGNUM *to, const BIGNUM *a, uint64_t x, const BIGNUM *b, uint64_t y,
                  const BIGNUM *ab)
{
    const BIGNUM *factors[] = { NULL, a, b, ab };
    bool has_begun = false;

    for (int bit = 63; bit >= 0; bit--) {
        const BIGNUM *factor = factors[(x >> bit & 1) | (y >> bit & 1) << 1];

        if (has_begun)
            multiply(ring, to, to, to);
        if (factor != NULL && has_begun)
            multiply(ring, to, to, factor);
        else if (factor != NULL)
            copy(ring, to, factor);
        has_begun |= factor != NULL;
    }
}

/* 1/a modulo m, for numbers that are coprime. */
static uint64_t inverse(uint64_t a, uint64_t m)
{
    int64_t before = 0, now = 1;
    uint64_t rest = m;

    for (a %= m; a > 1;) {
        int64_t quotient = (int64_t)(rest / a), next = before - quotient * now;
        uint64_t remainder = rest % a;

        rest = a, a = remainder, before = now, now = next;
    }
    return now < 0 ? (uint64_t)(now + (int64_t)m) : (uint64_t)now;
}

/* Joins the two of the smallest products until one is left (Huffman): the sum of all exponents' bits is the least. */
static size_t plant(const struct batch_rsa *batch, const unsigned char *members, size_t count, struct node *nodes)
{
    bool is_joined[NODES_MAX] = { false };

    for (size_t i = 0; i < count; i++)
        nodes[i].e = batch->exponents[members[i]];
    for (size_t made = count; made < 2 * count - 1; made++) {
        size_t least[2];

        for (int which = 0; which < 2; which++) {
            least[which] = NODES_MAX;
            for (size_t i = 0; i < made; i++)
                if (!is_joined[i] && (least[which] == NODES_MAX || nodes[i].e < nodes[least[which]].e))
                    least[which] = i;
            is_joined[least[which]] = true;
        }
        uint64_t left = nodes[least[0]].e, right = nodes[least[1]].e, t = inverse(right, left);

        /* t * right has fewer bits than the product of all. */
        nodes[made] = (struct node){ least[0], least[1], left * right, t, (t * right - 1) / left };
    }
    return 2 * count - 2;
}

/* Up: each node's value is the product of the two denominators that its roots will need, so it costs nothing more. */
static void climb(struct side *side, const struct node *nodes, size_t leaves)
{
    struct ring *ring = &side->ring;

    for (size_t i = leaves; i < 2 * leaves - 1; i++) {
        const struct node *node = &nodes[i];
        const BIGNUM *left = side->values[node->left], *right = side->values[node->right];
        uint64_t e_left = nodes[node->left].e, e_right = nodes[node->right].e;
        BIGNUM **denominators = &side->denominators[1 + 2 * (i - leaves)];

        multiply(ring, ring->spare, left, right);
        power(ring, denominators[0], left, node->s, right, node->t, ring->spare);
        power(ring, denominators[1], left, e_right - node->s, right, e_left - node->t, ring->spare);
        multiply(ring, side->values[i], denominators[0], denominators[1]);
    }
}

/* The product of the denominators, and what the exponentiation takes: value * product^E. */
static void gather(struct side *side, uint64_t e, size_t top, size_t count)
{
    struct ring *ring = &side->ring;

    copy(ring, side->products[0], side->denominators[0]);
    for (size_t i = 1; i < count; i++)
        multiply(ring, side->products[i], side->products[i - 1], side->denominators[i]);
    power(ring, side->root, side->products[count - 1], e, NULL, 0, NULL);
    multiply(ring, side->root, side->root, side->values[top]);
    leave(ring, side->root, side->root);
}

/* From 1 / (root * product): the root, which is checked, and all denominators' inverses. */
static void invert(struct side *side, uint64_t e, size_t top, size_t count)
{
    struct ring *ring = &side->ring;

    enter(ring, side->inverse, side->inverse);
    multiply(ring, ring->spare, side->inverse, side->products[count - 1]);
    power(ring, side->root, ring->spare, e - 1, NULL, 0, NULL);
    multiply(ring, side->root, side->root, side->values[top]);
    multiply(ring, side->inverse, side->inverse, side->root);
    /* A wrong root would betray a prime (Boneh, DeMillo and Lipton 1997). Blocks of a factor end here, too. */
    multiply(ring, ring->spare, ring->spare, side->root);
    leave(ring, ring->spare, ring->spare);
    ring->has_failed |= !BN_is_one(ring->spare);
    for (size_t i = count - 1; i > 0; i--) {
        multiply(ring, ring->spare, side->inverse, side->products[i - 1]);
        multiply(ring, side->inverse, side->inverse, side->denominators[i]);
        BN_swap(side->denominators[i], ring->spare);
    }
    BN_swap(side->denominators[0], side->inverse);
}

/* Down: root^(t e(right)) and root^(e(left) (e(right) - s)), each divided, are the roots of left and right. */
static void percolate(struct side *side, const struct node *nodes, size_t leaves)
{
    struct ring *ring = &side->ring;
    BIGNUM **roots = side->roots;

    roots[2 * leaves - 2] = side->root;
    for (size_t i = 2 * leaves - 2; i >= leaves; i--) {
        const struct node *node = &nodes[i];
        uint64_t x = node->t * nodes[node->right].e, y = nodes[node->left].e * (nodes[node->right].e - node->s);

        roots[node->left] = side->denominators[1 + 2 * (i - leaves)];
        roots[node->right] = side->denominators[2 + 2 * (i - leaves)];
        for (;; x >>= 1, y >>= 1) {
            if (x & 1)
                multiply(ring, roots[node->left], roots[node->left], roots[i]);
            if (y & 1)
                multiply(ring, roots[node->right], roots[node->right], roots[i]);
            if ((x | y) <= 1)
                break;
            multiply(ring, roots[i], roots[i], roots[i]);
        }
    }
}

static bool words_of(uint64_t *words, const BIGNUM *number, size_t size)
{
    unsigned char bytes[8 * WORDS_MAX];
    bool fits = BN_bn2lebinpad(number, bytes, (int)size) >= 0;

    for (size_t i = 0; fits && i < size; i++)
        words[i / 8] = (i % 8 == 0 ? 0 : words[i / 8]) | (uint64_t)bytes[i] << 8 * (i % 8);
    return fits;
}

/* By the Chinese remainder theorem: the number that is these, in words. */
static void join(struct batch_rsa *batch, uint64_t *words, BIGNUM *by_p, BIGNUM *by_q, bool enters)
{
    struct ring *p = &batch->sides[0].ring, *q = &batch->sides[1].ring, *whole = &batch->whole;

    leave(p, by_p, by_p);
    leave(q, by_q, by_q);
    whole->has_failed |= BN_mod_sub(batch->difference, by_p, by_q, p->modulus, p->context) != 1;
    multiply(p, batch->difference, batch->difference, batch->crt);
    whole->has_failed |= BN_mul(whole->spare, batch->difference, q->modulus, whole->context) != 1
        || BN_add(whole->spare, whole->spare, by_q) != 1;
    if (enters)
        enter(whole, whole->spare, whole->spare);
    whole->has_failed |= !words_of(words, whole->spare, batch->size);
}

/* a * b / 2^(64 words) modulo the modulus, from the highest byte on. OpenSSL's own would tell by its time how many
 * words of a secret are zero (CVE-2022-4304). */
static void multiply_secret(const struct batch_rsa *batch, unsigned char *to, const uint64_t *a, const uint64_t *b)
{
    uint64_t sum[WORDS_MAX + 2] = { 0 }, less[WORDS_MAX], borrow = 0, mask;
    size_t count = batch->size / 8;

    for (size_t i = 0; i < count; i++) {
        unsigned __int128 carry = 0;
        uint64_t factor;

        for (size_t j = 0; j < count; j++, carry >>= 64)
            sum[j] = (uint64_t)(carry += (unsigned __int128)a[j] * b[i] + sum[j]);
        sum[count] = (uint64_t)(carry += sum[count]);
        sum[count + 1] = (uint64_t)(carry >> 64);
        factor = sum[0] * batch->minus_inverse;
        carry = ((unsigned __int128)factor * batch->words[0] + sum[0]) >> 64;
        for (size_t j = 1; j < count; j++, carry >>= 64)
            sum[j - 1] = (uint64_t)(carry += (unsigned __int128)factor * batch->words[j] + sum[j]);
        sum[count - 1] = (uint64_t)(carry += sum[count]);
        sum[count] = sum[count + 1] + (uint64_t)(carry >> 64);
    }
    for (size_t j = 0; j < count; j++) {
        unsigned __int128 difference = (unsigned __int128)sum[j] - batch->words[j] - borrow;

        less[j] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
    mask = 0 - (borrow & (sum[count] ^ 1)); /* all ones where it is below the modulus already */
    for (size_t i = 0; i < batch->size; i++) {
        uint64_t word = (sum[i / 8] & mask) | (less[i / 8] & ~mask);

        to[batch->size - 1 - i] = (unsigned char)(word >> 8 * (i % 8));
    }
    OPENSSL_cleanse(sum, sizeof(sum));
    OPENSSL_cleanse(less, sizeof(less));
}

/* Each block times r^e, and r, for both primes. The exponents ascend by even steps. */
static void blind(struct batch_rsa *batch, const unsigned char *members, size_t count, const unsigned char *blocks)
{
    struct ring *whole = &batch->whole;
    BIGNUM *squared = batch->difference;
    uint64_t reached = 1;

    whole->has_failed |= BN_priv_rand_range(batch->r, whole->modulus) != 1;
    copy(whole, batch->power, batch->r);
    multiply(whole, squared, batch->r, batch->r);
    for (size_t i = 0; i < count; i++) {
        uint64_t e = batch->exponents[members[i]];

        power(whole, whole->spare, squared, (e - reached) / 2, NULL, 0, NULL);
        multiply(whole, batch->power, batch->power, whole->spare);
        reached = e;
        whole->has_failed |= BN_bin2bn(blocks + i * batch->size, (int)batch->size, whole->spare) == NULL;
        multiply(whole, whole->spare, whole->spare, batch->power);
        for (int which = 0; which < 2; which++)
            enter(&batch->sides[which].ring, batch->sides[which].values[i], whole->spare);
    }
    leave(whole, whole->spare, batch->r);
    for (int which = 0; which < 2; which++)
        enter(&batch->sides[which].ring, batch->sides[which].denominators[0], whole->spare);
}

/* Batches of the same members follow each other under load. */
static void choose(struct batch_rsa *batch, const unsigned char *members, size_t count)
{
    if (count == batch->last_count && memcmp(members, batch->last, count) == 0)
        return;
    for (int which = 0; which < 2; which++) {
        struct side *side = &batch->sides[which];
        struct ring *ring = &side->ring;

        copy(ring, side->minus_root, side->inverses[members[0]]);
        for (size_t i = 1; i < count; i++)
            ring->has_failed |= BN_mod_mul(side->minus_root, side->minus_root, side->inverses[members[i]],
                                           side->less_one, ring->context) != 1;
        ring->has_failed |= BN_sub(side->minus_root, side->less_one, side->minus_root) != 1;
        BN_set_flags(side->minus_root, BN_FLG_CONSTTIME);
    }
    memcpy(batch->last, members, count);
    batch->last_count = count;
}

static bool has_failed(const struct batch_rsa *batch)
{
    return batch->whole.has_failed || batch->sides[0].ring.has_failed || batch->sides[1].ring.has_failed;
}

bool tlsdyno_batch_rsa_decrypt(struct batch_rsa *batch, const unsigned char *members, size_t count,
                               const unsigned char *blocks, unsigned char *plain)
{
    struct node nodes[NODES_MAX];
    struct side *p = &batch->sides[0], *q = &batch->sides[1];
    uint64_t unblind[WORDS_MAX], blinded[WORDS_MAX];
    size_t denominators = 2 * count - 1, top = plant(batch, members, count, nodes);

    batch->whole.has_failed = p->ring.has_failed = q->ring.has_failed = false;
    choose(batch, members, count);
    blind(batch, members, count, blocks);
    for (int which = 0; which < 2; which++) {
        climb(&batch->sides[which], nodes, count);
        gather(&batch->sides[which], nodes[top].e, top, denominators);
    }
    batch->whole.has_failed
        |= BN_mod_exp_mont_consttime_x2(p->inverse, p->root, p->minus_root, p->ring.modulus, p->ring.mont, q->inverse,
                                        q->root, q->minus_root, q->ring.modulus, q->ring.mont, batch->whole.context)
        != 1;
    for (int which = 0; which < 2; which++) {
        invert(&batch->sides[which], nodes[top].e, top, denominators);
        percolate(&batch->sides[which], nodes, count);
    }
    join(batch, unblind, p->denominators[0], q->denominators[0], true);
    for (size_t i = 0; i < count && !has_failed(batch); i++) {
        join(batch, blinded, p->roots[i], q->roots[i], false);
        multiply_secret(batch, plain + i * batch->size, blinded, unblind);
    }
    OPENSSL_cleanse(unblind, sizeof(unblind));
    if (has_failed(batch))
        batch->last_count = 0;
    return batch->last_count != 0;
}

/* From the context, which frees them. */
static void get(BN_CTX *context, BIGNUM **numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = BN_CTX_get(context);
}

static bool set(struct ring *ring, const unsigned char *bytes, size_t size, BN_CTX *context)
{
    ring->context = context;
    get(context, &ring->spare, 1);
    return (ring->modulus = BN_CTX_get(context)) != NULL
        && BN_bin2bn(bytes, (int)size, ring->modulus) != NULL && BN_is_odd(ring->modulus)
        && (ring->mont = BN_MONT_CTX_new()) != NULL && BN_MONT_CTX_set(ring->mont, ring->modulus, context) == 1;
}

static bool set_side(struct side *side, const uint64_t *exponents, size_t members)
{
    struct ring *ring = &side->ring;
    BIGNUM **few[] = { &side->less_one, &side->minus_root, &side->root, &side->inverse };

    for (size_t i = 0; i < sizeof(few) / sizeof(*few); i++)
        get(ring->context, few[i], 1);
    get(ring->context, side->inverses, MEMBERS_MAX);
    get(ring->context, side->values, NODES_MAX);
    get(ring->context, side->products, DENOMINATORS_MAX);
    get(ring->context, side->denominators, DENOMINATORS_MAX);
    /* Where one was not to be had, none after it was. */
    if (side->denominators[DENOMINATORS_MAX - 1] == NULL || BN_sub(side->less_one, ring->modulus, BN_value_one()) != 1)
        return false;
    BN_set_flags(side->less_one, BN_FLG_CONSTTIME);
    for (size_t i = 0; i < members; i++)
        if (BN_set_word(ring->spare, exponents[i]) != 1
            || BN_mod_inverse(side->inverses[i], ring->spare, side->less_one, ring->context) == NULL)
            return false;
    return true;
}

static bool set_all(struct batch_rsa *batch, const unsigned char *numbers[3], const size_t sizes[3])
{
    BN_CTX *context = BN_CTX_secure_new();
    struct ring *p = &batch->sides[0].ring, *q = &batch->sides[1].ring;

    if ((batch->whole.context = context) == NULL)
        return false;
    BN_CTX_start(context);
    batch->crt = BN_CTX_get(context);
    batch->r = BN_CTX_get(context);
    batch->power = BN_CTX_get(context);
    batch->difference = BN_CTX_get(context);
    batch->size = sizes[0];
    if (batch->difference == NULL || !set(&batch->whole, numbers[0], sizes[0], context)
        || !words_of(batch->words, batch->whole.modulus, sizes[0]))
        return false;
    for (int which = 0; which < 2; which++)
        if (!set(&batch->sides[which].ring, numbers[1 + which], sizes[1 + which], context)
            || !set_side(&batch->sides[which], batch->exponents, batch->members))
            return false;
    /* Each step doubles the bits that are right. */
    batch->minus_inverse = batch->words[0];
    for (int step = 0; step < 5; step++)
        batch->minus_inverse *= 2 - batch->words[0] * batch->minus_inverse;
    batch->minus_inverse = 0 - batch->minus_inverse;
    BN_set_flags(p->modulus, BN_FLG_CONSTTIME);
    if (BN_mod_inverse(batch->crt, q->modulus, p->modulus, context) == NULL)
        return false;
    enter(p, batch->crt, batch->crt);
    return !has_failed(batch);
}

void tlsdyno_batch_rsa_free(struct batch_rsa *batch)
{
    BN_MONT_CTX_free(batch->whole.mont);
    BN_MONT_CTX_free(batch->sides[0].ring.mont);
    BN_MONT_CTX_free(batch->sides[1].ring.mont);
    BN_CTX_free(batch->whole.context);
    OPENSSL_clear_free(batch, sizeof(*batch));
}

struct batch_rsa *tlsdyno_batch_rsa_new(const unsigned char *numbers[3], const size_t sizes[3],
                                        const uint64_t *exponents, size_t members)
{
    struct batch_rsa *batch = OPENSSL_zalloc(sizeof(*batch));

    if (batch == NULL)
        return NULL;
    batch->members = members;
    memcpy(batch->exponents, exponents, members * sizeof(*exponents));
    if (set_all(batch, numbers, sizes))
        return batch;
    tlsdyno_batch_rsa_free(batch);
    return NULL;
}
