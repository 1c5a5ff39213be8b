/*
 * Which functions of which algorithms are timed, and in what class. Contexts and keys stay the wrapped provider's own,
 * so that whatever is not listed goes straight to it.
 */
#include "profiler.h"

enum { NO_LENGTH = -1 };

/*
 * A function of an operation. The length is that of what it reads or makes, where it has one. Where a call may only ask
 * for the size of the answer, that is no work, and of another class.
 */
struct rule {
    int id;
    enum profiler_class class;
    enum profiler_class class_of_size;
    int length_argument;
};

#define RULE_SIZED(OPERATION, name, class, class_of_size, length)                                                      \
    {OSSL_FUNC_##OPERATION##_##name, PROFILER_CLASS_##class, PROFILER_CLASS_##class_of_size, length}
#define RULE(OPERATION, name, class, length) RULE_SIZED(OPERATION, name, class, class, length)
#define LAST_RULE {0, PROFILER_CLASS_TOTAL, PROFILER_CLASS_TOTAL, NO_LENGTH}

static const struct rule SIGNATURE_RULES[] = {
    RULE_SIZED(SIGNATURE, SIGN, SIGN, SIGN_AROUND, 5),
    RULE_SIZED(SIGNATURE, DIGEST_SIGN_FINAL, SIGN, SIGN_AROUND, NO_LENGTH),
    RULE_SIZED(SIGNATURE, DIGEST_SIGN, SIGN, SIGN_AROUND, 5),
    RULE(SIGNATURE, VERIFY, VERIFY, 4),
    RULE(SIGNATURE, DIGEST_VERIFY_FINAL, VERIFY, NO_LENGTH),
    RULE(SIGNATURE, DIGEST_VERIFY, VERIFY, 4),
    RULE(SIGNATURE, NEWCTX, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, FREECTX, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, DUPCTX, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, SIGN_INIT, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, VERIFY_INIT, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, DIGEST_SIGN_INIT, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, DIGEST_SIGN_UPDATE, SIGN_AROUND, 2),
    RULE(SIGNATURE, DIGEST_VERIFY_INIT, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, DIGEST_VERIFY_UPDATE, SIGN_AROUND, 2),
    RULE(SIGNATURE, SET_CTX_PARAMS, SIGN_AROUND, NO_LENGTH),
    RULE(SIGNATURE, GET_CTX_PARAMS, SIGN_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule RECORD_HMAC_RULES[] = {
    RULE(SIGNATURE, DIGEST_SIGN_INIT, RECORD_HMAC, NO_LENGTH),
    RULE(SIGNATURE, DIGEST_SIGN_UPDATE, RECORD_HMAC, 2),
    RULE(SIGNATURE, DIGEST_SIGN_FINAL, RECORD_HMAC, NO_LENGTH),
    RULE(SIGNATURE, NEWCTX, RECORD_HMAC_AROUND, NO_LENGTH),
    RULE(SIGNATURE, FREECTX, RECORD_HMAC_AROUND, NO_LENGTH),
    RULE(SIGNATURE, DUPCTX, RECORD_HMAC_AROUND, NO_LENGTH),
    RULE(SIGNATURE, SET_CTX_PARAMS, RECORD_HMAC_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule ASYM_CIPHER_RULES[] = {
    RULE_SIZED(ASYM_CIPHER, DECRYPT, RSA_DECRYPT, SIGN_AROUND, 5),
    RULE(ASYM_CIPHER, NEWCTX, SIGN_AROUND, NO_LENGTH),
    RULE(ASYM_CIPHER, FREECTX, SIGN_AROUND, NO_LENGTH),
    RULE(ASYM_CIPHER, DECRYPT_INIT, SIGN_AROUND, NO_LENGTH),
    RULE(ASYM_CIPHER, SET_CTX_PARAMS, SIGN_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule KEYMGMT_RULES[] = {
    RULE(KEYMGMT, GEN, KEY_GENERATE, NO_LENGTH),
    RULE(KEYMGMT, SET_PARAMS, KEY_DECODE, NO_LENGTH),
    RULE(KEYMGMT, IMPORT, KEY_DECODE, NO_LENGTH),
    RULE(KEYMGMT, VALIDATE, KEY_VALIDATE, NO_LENGTH),
    RULE(KEYMGMT, NEW, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, FREE, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, DUP, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, GEN_INIT, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, GEN_SET_TEMPLATE, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, GEN_SET_PARAMS, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, GEN_CLEANUP, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, GET_PARAMS, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, HAS, KEY_AROUND, NO_LENGTH),
    RULE(KEYMGMT, MATCH, KEY_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule KEYEXCH_RULES[] = {
    RULE_SIZED(KEYEXCH, DERIVE, KEY_DERIVE, KEY_AROUND, NO_LENGTH),
    RULE(KEYEXCH, NEWCTX, KEY_AROUND, NO_LENGTH),
    RULE(KEYEXCH, FREECTX, KEY_AROUND, NO_LENGTH),
    RULE(KEYEXCH, INIT, KEY_AROUND, NO_LENGTH),
    RULE(KEYEXCH, SET_PEER, KEY_AROUND, NO_LENGTH),
    RULE(KEYEXCH, SET_CTX_PARAMS, KEY_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule KEM_RULES[] = {
    RULE_SIZED(KEM, ENCAPSULATE, ENCAPSULATE, KEY_AROUND, NO_LENGTH),
    RULE_SIZED(KEM, DECAPSULATE, DECAPSULATE, KEY_AROUND, NO_LENGTH),
    RULE(KEM, NEWCTX, KEY_AROUND, NO_LENGTH),
    RULE(KEM, FREECTX, KEY_AROUND, NO_LENGTH),
    RULE(KEM, ENCAPSULATE_INIT, KEY_AROUND, NO_LENGTH),
    RULE(KEM, DECAPSULATE_INIT, KEY_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule CIPHER_RULES[] = {
    RULE(CIPHER, UPDATE, CIPHER, 5),
    RULE(CIPHER, CIPHER, CIPHER, 5),
    RULE(CIPHER, FINAL, CIPHER, NO_LENGTH),
    RULE(CIPHER, ENCRYPT_INIT, CIPHER_KEY, NO_LENGTH),
    RULE(CIPHER, DECRYPT_INIT, CIPHER_KEY, NO_LENGTH),
    RULE(CIPHER, NEWCTX, CIPHER_AROUND, NO_LENGTH),
    RULE(CIPHER, FREECTX, CIPHER_AROUND, NO_LENGTH),
    RULE(CIPHER, DUPCTX, CIPHER_AROUND, NO_LENGTH),
    RULE(CIPHER, GET_CTX_PARAMS, CIPHER_AROUND, NO_LENGTH),
    RULE(CIPHER, SET_CTX_PARAMS, CIPHER_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule DIGEST_RULES[] = {
    RULE(DIGEST, UPDATE, DIGEST, 2),
    RULE(DIGEST, FINAL, DIGEST, NO_LENGTH),
    RULE(DIGEST, DIGEST, DIGEST, 2),
    RULE(DIGEST, NEWCTX, DIGEST_AROUND, NO_LENGTH),
    RULE(DIGEST, INIT, DIGEST_AROUND, NO_LENGTH),
    RULE(DIGEST, FREECTX, DIGEST_AROUND, NO_LENGTH),
    RULE(DIGEST, DUPCTX, DIGEST_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule MAC_RULES[] = {
    RULE(MAC, INIT, HMAC, NO_LENGTH),
    RULE(MAC, UPDATE, HMAC, 2),
    RULE(MAC, FINAL, HMAC, NO_LENGTH),
    RULE(MAC, NEWCTX, KDF_AROUND, NO_LENGTH),
    RULE(MAC, FREECTX, KDF_AROUND, NO_LENGTH),
    RULE(MAC, DUPCTX, KDF_AROUND, NO_LENGTH),
    RULE(MAC, SET_CTX_PARAMS, KDF_AROUND, NO_LENGTH),
    RULE(MAC, GET_CTX_PARAMS, KDF_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule KDF_RULES[] = {
    RULE(KDF, DERIVE, DERIVE, 2),
    RULE(KDF, NEWCTX, KDF_AROUND, NO_LENGTH),
    RULE(KDF, FREECTX, KDF_AROUND, NO_LENGTH),
    RULE(KDF, DUPCTX, KDF_AROUND, NO_LENGTH),
    RULE(KDF, RESET, KDF_AROUND, NO_LENGTH),
    RULE(KDF, SET_CTX_PARAMS, KDF_AROUND, NO_LENGTH),
    RULE(KDF, GET_CTX_PARAMS, KDF_AROUND, NO_LENGTH),
    LAST_RULE,
};

static const struct rule RAND_RULES[] = {RULE(RAND, GENERATE, GENERATE, 2), LAST_RULE};

/* Algorithms of TLS; those of other uses are not timed. */
static const char *const RSA_ONLY[] = {"RSA", NULL};
static const char *const SIGNATURES[]
    = {"RSA", "ECDSA", "ED25519", "ED448", "ML-DSA-44", "ML-DSA-65", "ML-DSA-87", NULL};
static const char *const HMAC_ONLY[] = {"HMAC", NULL};
static const char *const KEYS[]
    = {"X25519",      "X448",           "EC",           "ML-KEM-512",     "ML-KEM-768",
       "ML-KEM-1024", "X25519MLKEM768", "X448MLKEM1024", "SecP256r1MLKEM768", "SecP384r1MLKEM1024", NULL};
static const char *const EXCHANGES[] = {"X25519", "X448", "ECDH", NULL};
static const char *const CIPHERS[] = {"AES-128-GCM",
                                      "AES-256-GCM",
                                      "ChaCha20-Poly1305",
                                      "AES-128-CBC",
                                      "AES-256-CBC",
                                      "AES-128-CBC-HMAC-SHA1",
                                      "AES-256-CBC-HMAC-SHA1",
                                      "AES-128-CBC-HMAC-SHA256",
                                      "AES-256-CBC-HMAC-SHA256",
                                      NULL};
static const char *const DIGESTS[] = {"SHA1", "SHA2-256", "SHA2-384", "SHA2-512", "MD5-SHA1", NULL};
static const char *const KDFS[] = {"TLS1-PRF", "TLS13-KDF", "HKDF", NULL};
static const char *const DRBG[] = {"CTR-DRBG", NULL};

static const struct operation {
    int id;
    const char *const *algorithms;
    const struct rule *rules;
} OPERATIONS[] = {
    {OSSL_OP_DIGEST, DIGESTS, DIGEST_RULES},      {OSSL_OP_CIPHER, CIPHERS, CIPHER_RULES},
    {OSSL_OP_MAC, HMAC_ONLY, MAC_RULES},               {OSSL_OP_KDF, KDFS, KDF_RULES},
    {OSSL_OP_RAND, DRBG, RAND_RULES},             {OSSL_OP_KEYMGMT, KEYS, KEYMGMT_RULES},
    {OSSL_OP_KEYEXCH, EXCHANGES, KEYEXCH_RULES},  {OSSL_OP_SIGNATURE, SIGNATURES, SIGNATURE_RULES},
    {OSSL_OP_SIGNATURE, HMAC_ONLY, RECORD_HMAC_RULES}, {OSSL_OP_ASYM_CIPHER, RSA_ONLY, ASYM_CIPHER_RULES},
    {OSSL_OP_KEM, KEYS, KEM_RULES},
};

static bool is_any_of(const OSSL_ALGORITHM *algorithm, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (algorithm_is(algorithm, *names))
            return true;
    }
    return false;
}

static void time_functions(OSSL_DISPATCH *table, const struct rule *rules)
{
    for (; table->function_id != 0; table++) {
        const struct rule *rule = rules;

        while (rule->id != 0 && rule->id != table->function_id)
            rule++;
        if (rule->id != 0)
            table->function = trampoline_to(table->function, rule->class, rule->class_of_size, rule->length_argument);
    }
}

/* The random generator must not hear of a parameter; all else is the wrapped provider's. */
static OSSL_DISPATCH *copy_of(int operation, const OSSL_DISPATCH *original)
{
    return operation == OSSL_OP_RAND ? drbg_without_provider_name(original) : table_copy(original);
}

static bool time_algorithm(int operation, OSSL_ALGORITHM *algorithm)
{
    for (size_t i = 0; i < sizeof(OPERATIONS) / sizeof(OPERATIONS[0]); i++) {
        OSSL_DISPATCH *table;

        if (OPERATIONS[i].id != operation || !is_any_of(algorithm, OPERATIONS[i].algorithms))
            continue;
        table = copy_of(operation, algorithm->implementation);
        if (table == NULL)
            return false;
        if (area_is_there())
            time_functions(table, OPERATIONS[i].rules);
        algorithm->implementation = table;
        return true;
    }
    return true;
}

const OSSL_ALGORITHM *timed_algorithms(int operation, const OSSL_ALGORITHM *originals)
{
    OSSL_ALGORITHM *algorithms = algorithms_copy(originals);

    for (OSSL_ALGORITHM *next = algorithms; next != NULL && next->algorithm_names != NULL; next++) {
        if (!time_algorithm(operation, next))
            return NULL;
    }
    return algorithms;
}
