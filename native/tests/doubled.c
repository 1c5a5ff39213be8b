/*
 * Whatever is computed twice, and however the mode changes in the middle of it, the results are those of the default
 * provider.
 *
 *     doubled DESCRIPTOR every    every operation in and across all modes, in this process and in a forked one
 *     doubled DESCRIPTOR gone     the owner's end: prints "ready", and waits until nothing is doubled any more
 *     doubled DESCRIPTOR wiped    no second copy of a secret stays in memory
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <openssl/rand.h>

#include "../doubler_record.h"
#include "modes_operations.h"

enum { OUT_MAX = 1024, EVERYTHING = (1 << STAGE_TOTAL) - 1, COPIES = DOUBLER_MODE_COPIES };
enum { CIPHER_AND_MAC = BIT(CIPHER) | BIT(MAC) };
enum { WITHOUT_RECORDS = EVERYTHING & ~CIPHER_AND_MAC };

static const struct doubler_record *area;

static uint64_t counted(enum doubler_counter counter, bool doubled)
{
    uint64_t total = 0;

    for (size_t i = 0; i < DOUBLER_SLOTS; i++)
        total += doubled ? area->slots[i].doubled[counter] : area->slots[i].calls[counter];
    return total;
}

static uint64_t all_doubled(void)
{
    uint64_t total = 0;

    for (int counter = 0; counter < DOUBLER_COUNTER_TOTAL; counter++)
        total += counted((enum doubler_counter)counter, true);
    return total;
}

/* ---- operations whose results differ each time ---- */

static size_t signature_is_good(unsigned char *out)
{
    start();
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY *keys[] = {ec, rsa};

    for (size_t i = 0; i < 2; i++) {
        unsigned char signature[512];
        size_t size = sizeof(signature);

        start();
        CHECK(EVP_DigestSignInit_ex(context, NULL, "SHA2-256", NULL, NULL, keys[i], NULL) == 1);
        flip();
        CHECK(EVP_DigestSign(context, signature, &size, TEXT, TEXT_SIZE) == 1);
        EVP_MD_CTX_reset(context);
        CHECK(EVP_DigestVerifyInit_ex(context, NULL, "SHA2-256", NULL, NULL, keys[i], NULL) == 1);
        out[i] = EVP_DigestVerify(context, signature, size, TEXT, TEXT_SIZE) == 1;
        CHECK(out[i] == 1);
        EVP_MD_CTX_reset(context);
    }
    EVP_MD_CTX_free(context);
    return 2;
}

/* Both ends of a key agreement with fresh keys. */
static size_t secrets_agree(unsigned char *out)
{
    static const char *const GROUPS[] = {"P-256", "P-384"};

    for (size_t i = 0; i < 3; i++) {
        EVP_PKEY *keys[2];
        unsigned char both[2][64];

        for (size_t j = 0; j < 2; j++) {
            start();
            keys[j] = i < 2 ? EVP_PKEY_Q_keygen(NULL, NULL, "EC", GROUPS[i]) : EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
            CHECK(keys[j] != NULL);
        }
        for (size_t j = 0; j < 2; j++) {
            EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, keys[j], NULL);
            size_t size = sizeof(both[j]);

            CHECK(EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, keys[1 - j]) == 1);
            flip();
            CHECK(EVP_PKEY_derive(context, both[j], &size) == 1 && size >= 32);
            EVP_PKEY_CTX_free(context);
        }
        out[i] = memcmp(both[0], both[1], 32) == 0;
        CHECK(out[i] == 1);
        EVP_PKEY_free(keys[0]);
        EVP_PKEY_free(keys[1]);
    }
    return 3;
}

static bool has_kem(void)
{
    EVP_KEYMGMT *keys = EVP_KEYMGMT_fetch(NULL, "X25519MLKEM768", NULL);

    EVP_KEYMGMT_free(keys);
    ERR_clear_error();
    return keys != NULL;
}

/* As a TLS 1.3 server: the client's share decoded, a secret encapsulated to it; both ends have the same. */
static size_t encapsulated(const char *algorithm, unsigned char *out)
{
    unsigned char share[2048], sealed[2048], both[2][128];
    size_t share_size = 0, sealed_size = sizeof(sealed), sizes[2] = {sizeof(both[0]), sizeof(both[1])};
    EVP_PKEY *client, *peer = EVP_PKEY_new();
    EVP_PKEY_CTX *context;

    start();
    client = EVP_PKEY_Q_keygen(NULL, NULL, algorithm);
    CHECK(client != NULL && EVP_PKEY_copy_parameters(peer, client) == 1);
    CHECK(EVP_PKEY_get_octet_string_param(client, "encoded-pub-key", share, sizeof(share), &share_size) == 1);
    CHECK(EVP_PKEY_set1_encoded_public_key(peer, share, share_size) == 1);
    flip();
    context = EVP_PKEY_CTX_new_from_pkey(NULL, peer, NULL);
    CHECK(EVP_PKEY_encapsulate_init(context, NULL) == 1);
    CHECK(EVP_PKEY_encapsulate(context, sealed, &sealed_size, both[0], &sizes[0]) == 1);
    EVP_PKEY_CTX_free(context);
    context = EVP_PKEY_CTX_new_from_pkey(NULL, client, NULL);
    CHECK(EVP_PKEY_decapsulate_init(context, NULL) == 1);
    CHECK(EVP_PKEY_decapsulate(context, both[1], &sizes[1], sealed, sealed_size) == 1 && sizes[0] == sizes[1]);
    EVP_PKEY_CTX_free(context);
    out[0] = memcmp(both[0], both[1], sizes[0]) == 0;
    CHECK(out[0] == 1);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(client);
    return 1;
}

/* OpenSSL 3.5 and later. */
static size_t encapsulations(unsigned char *out)
{
    static const char *const ALGORITHMS[]
        = {"ML-KEM-768", "X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"};

    for (size_t i = 0; i < 4; i++)
        CHECK(encapsulated(ALGORITHMS[i], out + i) == 1);
    return 4;
}

/* A record of TLS 1.2 GCM, whose explicit nonce is another each time, there and back; and one of CBC. */
static size_t record_comes_back(unsigned char *out)
{
    enum { NONCE = 8, TAG = 16 };
    unsigned char record[NONCE + TEXT_SIZE + TAG] = {0};
    unsigned char sending[13] = {[8] = 23, [9] = 3, [10] = 3, [12] = TEXT_SIZE + NONCE};
    unsigned char receiving[13] = {[8] = 23, [9] = 3, [10] = 3, [12] = sizeof(record)};
    int done = 0;

    start();
    EVP_CIPHER_CTX *seal = cipher_context("AES-128-GCM", 1), *open = cipher_context("AES-128-GCM", 0);

    flip();
    CHECK(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_GCM_SET_IV_FIXED, 4, (void *)(uintptr_t)KEY) > 0);
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_GCM_SET_IV_FIXED, 4, (void *)(uintptr_t)KEY) > 0);
    memcpy(record + NONCE, TEXT, TEXT_SIZE);
    CHECK(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_AEAD_TLS1_AAD, sizeof(sending), sending) == TAG);
    CHECK(EVP_CipherUpdate(seal, record, &done, record, sizeof(record)) == 1 && done == sizeof(record));
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_TLS1_AAD, sizeof(receiving), receiving) == TAG);
    CHECK(EVP_CipherUpdate(open, record, &done, record, sizeof(record)) == 1 && done == TEXT_SIZE);
    CHECK(memcmp(record + NONCE, TEXT, TEXT_SIZE) == 0);
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
    memcpy(out, record + NONCE, TEXT_SIZE);
    return TEXT_SIZE;
}

/* ---- every ---- */

static operation *const OPERATIONS[] = {
    digests,        derivations,       handshake_hmac,       record_hmac,
    aeads,          aead_record,       cbc_record,           stitched_record,
    rsa_signatures, signature_is_good, takes_real_signature, decrypts_real_premaster,
    secrets,        secrets_agree,     record_comes_back,    is_constant_ecdsa_signature,
    is_kept_key,    is_clear_premaster, encapsulations,
};
enum { OPERATION_TOTAL = sizeof(OPERATIONS) / sizeof(OPERATIONS[0]) };

#define BIT_OF(id, name) BIT(id),
static const uint32_t MODES[] = {
    0, EVERYTHING, TLSDYNO_STAGES(BIT_OF) CIPHER_AND_MAC, COPIES, EVERYTHING | COPIES,
};
enum { MODE_TOTAL = sizeof(MODES) / sizeof(MODES[0]) };

static void check_same_in(operation *operate, uint32_t first, uint32_t next)
{
    unsigned char expected[OUT_MAX], seen[OUT_MAX];
    size_t size;

    first_mode = next_mode = 0;
    size = operate(expected);
    first_mode = first;
    next_mode = next;
    CHECK(operate(seen) == size && size <= OUT_MAX && memcmp(expected, seen, size) == 0);
    CHECK(ERR_peek_error() == 0);
}

static bool is_here(operation *operate)
{
    return (operate != stitched_record || has_stitched()) && (operate != encapsulations || has_kem());
}

/* Each mode kept, and flipped to nothing and to everything. */
static void check_in_all_modes(void)
{
    for (size_t i = 0; i < OPERATION_TOTAL; i++) {
        for (size_t j = 0; j < MODE_TOTAL && is_here(OPERATIONS[i]); j++) {
            const uint32_t next[] = {MODES[j], 0, EVERYTHING};

            for (size_t k = 0; k < 3; k++)
                check_same_in(OPERATIONS[i], MODES[j], next[k]);
        }
    }
}

static void check_random_bytes(void)
{
    unsigned char bytes[2][32], long_draw[40000];
    uint64_t before = counted(DOUBLER_COUNT_GENERATE, true);

    set_mode(BIT(RANDOMNESS));
    CHECK(RAND_bytes(bytes[0], 32) == 1 && RAND_bytes(bytes[1], 32) == 1);
    CHECK(memcmp(bytes[0], bytes[1], 32) != 0);
    CHECK(counted(DOUBLER_COUNT_GENERATE, true) == before + 2);
    set_mode(0);
    CHECK(RAND_bytes(long_draw, sizeof(long_draw)) == 1);
    CHECK(counted(DOUBLER_COUNT_GENERATE, true) == before + 2);
}

/* A half of an AEAD is not doubled, and counted; copying alone computes nothing. */
static void check_halves_and_copies(void)
{
    unsigned char out[OUT_MAX];
    uint64_t halves = counted(DOUBLER_COUNT_HALVES, false), doubled = counted(DOUBLER_COUNT_AEAD_BYTES, true);
    uint64_t copies = counted(DOUBLER_COUNT_COPIES, false);

    first_mode = next_mode = BIT(CIPHER);
    (void)aeads(out);
    CHECK(counted(DOUBLER_COUNT_HALVES, false) == halves + 6);
    first_mode = next_mode = COPIES;
    (void)aeads(out);
    CHECK(counted(DOUBLER_COUNT_COPIES, false) == copies + 6);
    CHECK(counted(DOUBLER_COUNT_AEAD_BYTES, true) == doubled);
    first_mode = next_mode = CIPHER_AND_MAC;
    (void)aeads(out);
    CHECK(counted(DOUBLER_COUNT_AEAD_BYTES, true) == doubled + (uint64_t)6 * TEXT_SIZE);
}

/* Bits without a meaning are ignored, and counted. */
static void check_other_bits(void)
{
    uint32_t ignored = area->head.modes_ignored;

    check_same_in(digests, UINT32_MAX, UINT32_MAX);
    CHECK(area->head.modes_ignored > ignored);
}

static void every(void)
{
    pid_t child;
    int status;

    check_in_all_modes();
    check_random_bytes();
    check_halves_and_copies();
    check_other_bits();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        check_in_all_modes();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(counted(DOUBLER_COUNT_LOST, false) == 0);
}

/* ---- gone ---- */

/* A connection's key that lives on: records of one context. */
static void seal_one(EVP_CIPHER_CTX *context)
{
    unsigned char data[TEXT_SIZE], nonce[12] = {1};
    int done = 0;

    memcpy(data, TEXT, TEXT_SIZE);
    CHECK(EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, 1) == 1);
    CHECK(EVP_CipherUpdate(context, data, &done, data, TEXT_SIZE) == 1);
    CHECK(EVP_CipherFinal_ex(context, data, &done) == 1);
}

static void gone(void)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    EVP_CIPHER_CTX *kept;
    uint64_t doubled;
    int naps = 0;

    first_mode = next_mode = EVERYTHING;
    set_mode(EVERYTHING);
    kept = cipher_context("AES-128-GCM", 1);
    doubled = counted(DOUBLER_COUNT_AEAD_ENCRYPT, true);
    seal_one(kept);
    CHECK(counted(DOUBLER_COUNT_AEAD_ENCRYPT, true) == doubled + 1);
    printf("ready\n");
    fflush(stdout);
    do {
        doubled = all_doubled();
        check_same_in(digests, EVERYTHING, EVERYTHING);
        nanosleep(&nap, NULL);
        CHECK(naps++ < 2000);
    } while (all_doubled() != doubled);
    for (size_t i = 0; i < OPERATION_TOTAL; i++) {
        if (is_here(OPERATIONS[i]))
            check_same_in(OPERATIONS[i], EVERYTHING, EVERYTHING);
    }
    seal_one(kept);
    CHECK(all_doubled() == doubled && counted(DOUBLER_COUNT_LOST, false) == 0);
    EVP_CIPHER_CTX_free(kept);
}

/* ---- wiped ---- */

enum { MASK = 0x55, SECRET_SIZE = 32 };

static size_t copies_between(const unsigned char *from, const unsigned char *to, const unsigned char *masked)
{
    size_t found = 0;

    for (; from + SECRET_SIZE <= to; from++) {
        size_t i = 0;

        while (i < SECRET_SIZE && (from[i] ^ MASK) == masked[i])
            i++;
        found += i == SECRET_SIZE;
    }
    return found;
}

/* How often what is under the mask stands in this process's memory. */
static size_t copies_in_memory(const unsigned char *masked)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    size_t found = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from, to;

        CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
        if (strstr(line, " rw-p ") != NULL && strstr(line, "[stack]") == NULL)
            found += copies_between((const unsigned char *)from, (const unsigned char *)to, masked);
    }
    fclose(maps);
    return found;
}

/* The secret is masked before anything else runs, and so only others' copies of it count. */
static size_t copies_left_by(operation *operate, uint32_t mode)
{
    unsigned char out[OUT_MAX], masked[SECRET_SIZE];

    first_mode = next_mode = mode;
    CHECK(operate(out) >= SECRET_SIZE);
    for (size_t i = 0; i < SECRET_SIZE; i++)
        masked[i] = out[i] ^ MASK;
    explicit_bzero(out, sizeof(out));
    return copies_in_memory(masked);
}

/* A record whose payload is drawn, opened in place: what the twin opened is plain text. */
static size_t opened(unsigned char *out)
{
    unsigned char data[SECRET_SIZE], tag[16];
    int done = 0;

    start();
    EVP_CIPHER_CTX *seal = cipher_context("AES-256-GCM", 1), *open = cipher_context("AES-256-GCM", 0);

    CHECK(RAND_bytes(data, SECRET_SIZE) == 1);
    CHECK(EVP_CipherUpdate(seal, data, &done, data, SECRET_SIZE) == 1 && EVP_CipherFinal_ex(seal, data, &done) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_AEAD_GET_TAG, 16, tag) > 0);
    CHECK(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_SET_TAG, 16, tag) > 0);
    CHECK(EVP_CipherUpdate(open, data, &done, data, SECRET_SIZE) == 1 && EVP_CipherFinal_ex(open, out, &done) == 1);
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
    memcpy(out, data, SECRET_SIZE);
    return SECRET_SIZE;
}

static void wiped(void)
{
    operation *const secret_operations[] = {derivations, handshake_hmac, secrets, opened};
    static unsigned char kept[SECRET_SIZE];
    unsigned char masked[SECRET_SIZE];

    for (size_t i = 0; i < sizeof(secret_operations) / sizeof(secret_operations[0]); i++) {
        size_t otherwise = copies_left_by(secret_operations[i], 0);

        CHECK(copies_left_by(secret_operations[i], EVERYTHING) == otherwise);
        CHECK(copies_left_by(secret_operations[i], WITHOUT_RECORDS | COPIES) == otherwise);
    }
    /* The search finds what is there. */
    CHECK(RAND_bytes(kept, sizeof(kept)) == 1);
    for (size_t i = 0; i < SECRET_SIZE; i++)
        masked[i] = kept[i] ^ MASK;
    CHECK(copies_in_memory(masked) == 1);
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    area_descriptor = atoi(arguments[1]);
    area = mmap(NULL, sizeof(*area), PROT_READ, MAP_SHARED, area_descriptor, 0);
    CHECK(area != MAP_FAILED);
    prepare();
    if (strcmp(arguments[2], "every") == 0)
        every();
    else if (strcmp(arguments[2], "gone") == 0)
        gone();
    else
        wiped();
    forget();
    return 0;
}
