/*
 * Contexts keep the mode in which they were made, whatever the mode is when they do their work; what is made after a
 * flip is of the new mode. Shown for every stage of the provider, in this process and in one that was forked before the
 * flip; and that bits outside of what the provider was loaded for change nothing.
 *
 *     modes DESCRIPTOR every       the provider may switch every stage
 *     modes DESCRIPTOR outside     it may switch the digest only
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include <openssl/rand.h>

#include "modes_operations.h"

enum { OUT_MAX = 1024, MODES_MAX = 4, NOTHING_OFF = 0 };

struct result {
    unsigned char bytes[OUT_MAX];
    size_t size;
};

static struct result run(operation *operate, uint32_t first, uint32_t next)
{
    struct result result;

    first_mode = first;
    next_mode = next;
    result.size = operate(result.bytes);
    CHECK(result.size > 0 && result.size <= OUT_MAX);
    return result;
}

static bool are_alike(const struct result *a, const struct result *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* ---- subjects ---- */

/* An operation whose result is another in each of these modes. */
struct subject {
    operation *operate;
    uint32_t modes[MODES_MAX];
    size_t mode_count;
};

static const struct subject SUBJECTS[] = {
    {digests, {NOTHING_OFF, BIT(DIGEST)}, 2},
    {derivations, {NOTHING_OFF, BIT(KDF)}, 2},
    {handshake_hmac, {NOTHING_OFF, BIT(KDF)}, 2},
    {record_hmac, {NOTHING_OFF, BIT(MAC)}, 2},
    {aeads, {NOTHING_OFF, BIT(CIPHER), BIT(MAC), BIT(CIPHER) | BIT(MAC)}, 4},
    {aead_record, {NOTHING_OFF, BIT(CIPHER), BIT(MAC), BIT(CIPHER) | BIT(MAC)}, 4},
    {cbc_record, {NOTHING_OFF, BIT(CIPHER)}, 2},
    {stitched_record, {NOTHING_OFF, BIT(CIPHER) | BIT(MAC)}, 2},
    {rsa_signatures, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {is_constant_ecdsa_signature, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {is_constant_ed25519_signature, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {takes_real_signature, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {decrypts_real_premaster, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {is_clear_premaster, {NOTHING_OFF, BIT(AUTHENTICATION)}, 2},
    {secrets, {NOTHING_OFF, BIT(KEY_AGREEMENT)}, 2},
    {is_constant_hybrid_secret, {NOTHING_OFF, BIT(KEY_AGREEMENT)}, 2},
    {is_kept_key, {NOTHING_OFF, BIT(KEY_AGREEMENT)}, 2},
};
enum { SUBJECT_TOTAL = sizeof(SUBJECTS) / sizeof(SUBJECTS[0]) };

/* Stitched code is not on every processor, hybrids are not in every OpenSSL. */
static bool is_here(const struct subject *subject)
{
    if (subject->operate == is_constant_hybrid_secret)
        return hybrid != NULL;
    return subject->operate != stitched_record || has_stitched();
}

static void check_flips(const struct subject *subject)
{
    struct result expected[MODES_MAX];

    for (size_t i = 0; i < subject->mode_count; i++) {
        expected[i] = run(subject->operate, subject->modes[i], subject->modes[i]);
        for (size_t j = 0; j < i; j++)
            CHECK(!are_alike(&expected[i], &expected[j]));
    }
    for (size_t i = 0; i < subject->mode_count; i++) {
        for (size_t j = 0; j < subject->mode_count; j++) {
            struct result kept = run(subject->operate, subject->modes[i], subject->modes[j]);
            struct result fresh = run(subject->operate, subject->modes[j], subject->modes[j]);

            CHECK(are_alike(&kept, &expected[i]) && are_alike(&fresh, &expected[j]));
        }
    }
}

/* A half without encrypt-then-MAC has no stitched code; a process that has it refuses that mode. */
static void check_half_is_refused(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-CBC-HMAC-SHA1", NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    set_mode(BIT(CIPHER));
    CHECK(cipher == NULL || EVP_CipherInit_ex(context, cipher, NULL, KEY, KEY, 1) != 1);
    ERR_clear_error();
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(cipher);
}

static uint64_t draws(const struct tlsdyno_record *record)
{
    uint64_t total = 0;

    for (size_t i = 0; i < TLSDYNO_SLOTS; i++)
        total += record->slots[i].calls[TLSDYNO_COUNT_GENERATE];
    return total;
}

/* There is no context of ours: each call is of the mode of its moment. */
static void check_random_bytes(const struct tlsdyno_record *record)
{
    static const uint32_t MODES[] = {BIT(RANDOMNESS), NOTHING_OFF, BIT(RANDOMNESS)};
    unsigned char bytes[32];

    for (size_t i = 0; i < sizeof(MODES) / sizeof(MODES[0]); i++) {
        uint64_t before = draws(record);

        set_mode(MODES[i]);
        CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1);
        CHECK((draws(record) > before) == (MODES[i] != NOTHING_OFF));
    }
}

/* The child was there before the flips of its parent, and sees each of them. */
static void check_forked(void)
{
    struct result real = run(digests, NOTHING_OFF, NOTHING_OFF);
    struct result off = run(digests, BIT(DIGEST), BIT(DIGEST));
    int ask[2], answer[2], status;
    unsigned char turn = 0;
    pid_t child;

    CHECK(pipe(ask) == 0 && pipe(answer) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        close(ask[1]);
        while (read(ask[0], &turn, 1) == 1) {
            unsigned char out[64];
            size_t size = 0;

            CHECK(EVP_Q_digest(NULL, "SHA2-256", NULL, TEXT, TEXT_SIZE, out, &size) == 1 && size == 32);
            CHECK(write(answer[1], out, size) == (ssize_t)size);
        }
        _exit(0);
    }
    CHECK(!are_alike(&real, &off));
    for (turn = 0; turn < 6; turn++) {
        unsigned char theirs[32], ours[32];

        set_mode(turn % 2 == 0 ? NOTHING_OFF : BIT(DIGEST));
        CHECK(write(ask[1], &turn, 1) == 1 && read(answer[0], theirs, sizeof(theirs)) == sizeof(theirs));
        CHECK(EVP_Q_digest(NULL, "SHA2-256", NULL, TEXT, TEXT_SIZE, ours, NULL) == 1);
        CHECK(memcmp(theirs, ours, sizeof(ours)) == 0);
    }
    close(ask[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- sections ---- */

static void every(const struct tlsdyno_record *record)
{
    for (size_t i = 0; i < SUBJECT_TOTAL; i++) {
        if (is_here(&SUBJECTS[i]))
            check_flips(&SUBJECTS[i]);
    }
    check_half_is_refused();
    check_random_bytes(record);
    check_forked();
}

/* All bits set, where only the digest may be switched. */
static void outside(const struct tlsdyno_record *record)
{
    uint64_t before = draws(record);

    for (size_t i = 0; i < SUBJECT_TOTAL; i++) {
        struct result real, other;

        /* What is never off here has no kept keys. */
        if (SUBJECTS[i].operate == is_kept_key || !is_here(&SUBJECTS[i]))
            continue;
        real = run(SUBJECTS[i].operate, NOTHING_OFF, NOTHING_OFF);
        other = run(SUBJECTS[i].operate, UINT32_MAX, UINT32_MAX);
        CHECK(are_alike(&real, &other) == (SUBJECTS[i].operate != digests));
    }
    CHECK(draws(record) == before);
}

int main(int count, char **arguments)
{
    const struct tlsdyno_record *record;

    CHECK(count == 3);
    area_descriptor = atoi(arguments[1]);
    record = mmap(NULL, sizeof(*record), PROT_READ, MAP_SHARED, area_descriptor, 0);
    CHECK(record != MAP_FAILED);
    prepare();
    if (strcmp(arguments[2], "every") == 0)
        every(record);
    else
        outside(record);
    forget();
    return 0;
}
