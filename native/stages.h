/*
 * The stages, and what provider, doubler and profiler count of them: the one list from which the enumerations in C and,
 * by layout.c, the tables in Rust are made. What a stage is says crates/tls/src/noop.rs, in the same order; a test
 * compares them.
 */
#ifndef TLSDYNO_STAGES_H
#define TLSDYNO_STAGES_H

/*
 * Of the provider, in the order of the bits of a mode.
 *     X(name in C, name in reports)
 */
#define TLSDYNO_STAGES(X)                                                                                              \
    X(AUTHENTICATION, "authentication")                                                                                \
    X(KEY_AGREEMENT, "key_agreement")                                                                                  \
    X(CIPHER, "cipher")                                                                                                \
    X(MAC, "mac")                                                                                                      \
    X(DIGEST, "digest")                                                                                                \
    X(KDF, "kdf")                                                                                                      \
    X(RANDOMNESS, "randomness")

/* Of the shim, each a bit of `stages_off` and of the mode. */
#define TLSDYNO_SHIM_STAGES(X)                                                                                         \
    X(SESSION_CACHE, "session_cache")                                                                                  \
    X(MARSHALLING, "marshalling")                                                                                      \
    X(HANDSHAKE, "handshake")                                                                                          \
    X(ROUND_TRIP, "round_trip")                                                                                        \
    X(SETUP, "setup")

enum stage {
#define TLSDYNO_STAGE_ID(id, name) STAGE_##id,
    TLSDYNO_STAGES(TLSDYNO_STAGE_ID)
#undef TLSDYNO_STAGE_ID
    STAGE_TOTAL
};

enum tlsdyno_shim_stage {
#define TLSDYNO_SHIM_STAGE_ID(id, name) SHIM_STAGE_##id,
    TLSDYNO_SHIM_STAGES(TLSDYNO_SHIM_STAGE_ID)
#undef TLSDYNO_SHIM_STAGE_ID
    SHIM_STAGE_TOTAL
};

/*
 * Calls that provider and doubler count; size queries are not counted.
 *     X(name in C, stage, name in reports)
 */
#define TLSDYNO_CALLS(X)                                                                                               \
    X(SIGN, AUTHENTICATION, "sign")                                                                                    \
    X(RSA_DECRYPT, AUTHENTICATION, "rsa_decrypt")                                                                      \
    X(KEY_GENERATE, KEY_AGREEMENT, "key_generate")                                                                     \
    X(KEY_DERIVE, KEY_AGREEMENT, "key_derive")                                                                         \
    X(KEY_DECODE, KEY_AGREEMENT, "key_decode")                                                                         \
    X(KEY_VALIDATE, KEY_AGREEMENT, "key_validate")                                                                     \
    X(ENCAPSULATE, KEY_AGREEMENT, "encapsulate")                                                                       \
    X(DECAPSULATE, KEY_AGREEMENT, "decapsulate")                                                                       \
    X(AEAD_ENCRYPT, CIPHER, "aead_encrypt")                                                                            \
    X(AEAD_DECRYPT, CIPHER, "aead_decrypt")                                                                            \
    X(CBC_ENCRYPT, CIPHER, "cbc_encrypt")                                                                              \
    X(CBC_DECRYPT, CIPHER, "cbc_decrypt")                                                                              \
    X(RECORD_HMAC, MAC, "record_hmac")                                                                                 \
    X(DIGEST, DIGEST, "digest")                                                                                        \
    X(KDF, KDF, "kdf")                                                                                                 \
    X(HANDSHAKE_HMAC, KDF, "handshake_hmac")                                                                           \
    X(GENERATE, RANDOMNESS, "generate")

/*
 * Provider: calls of replaced functions. An operation that belongs to two stages (one AEAD record) counts once for each
 * stage that is off.
 */
#define TLSDYNO_COUNTERS(X)                                                                                            \
    TLSDYNO_CALLS(X)                                                                                                   \
    X(VERIFY, AUTHENTICATION, "verify")                                                                                \
    X(RSA_ENCRYPT, AUTHENTICATION, "rsa_encrypt")                                                                      \
    X(TAG_WRITE, MAC, "tag_write")                                                                                     \
    X(TAG_CHECK, MAC, "tag_check")

/*
 * Doubler: calls, whether doubled or not. An AEAD and stitched CBC belong to cipher and mac, and are doubled where both
 * are. `aead_bytes` and `cbc_bytes` are bytes of their records.
 */
#define DOUBLER_COUNTERS(X)                                                                                            \
    TLSDYNO_CALLS(X)                                                                                                   \
    X(AEAD_BYTES, CIPHER, "aead_bytes")                                                                                \
    X(CBC_BYTES, CIPHER, "cbc_bytes")

/*
 * Profiler: classes of provider functions. What does the work, and what is done around it (contexts, parameters, key
 * schedules). The HMAC of CBC records is of stage mac; that of Finished and tickets belongs to the key schedule.
 *     X(name in C, stage, name in reports, whether calls are short)
 */
#define PROFILER_CLASSES(X)                                                                                            \
    X(SIGN, AUTHENTICATION, "sign", false)                                                                             \
    X(VERIFY, AUTHENTICATION, "verify", false)                                                                         \
    X(RSA_DECRYPT, AUTHENTICATION, "rsa_decrypt", false)                                                               \
    X(SIGN_AROUND, AUTHENTICATION, "sign_around", false)                                                               \
    X(KEY_GENERATE, KEY_AGREEMENT, "key_generate", false)                                                              \
    X(KEY_DERIVE, KEY_AGREEMENT, "key_derive", false)                                                                  \
    X(KEY_VALIDATE, KEY_AGREEMENT, "key_validate", false)                                                              \
    X(KEY_DECODE, KEY_AGREEMENT, "key_decode", false)                                                                  \
    X(ENCAPSULATE, KEY_AGREEMENT, "encapsulate", false)                                                                \
    X(DECAPSULATE, KEY_AGREEMENT, "decapsulate", false)                                                                \
    X(KEY_AROUND, KEY_AGREEMENT, "key_around", true)                                                                   \
    X(CIPHER, CIPHER, "cipher", false)                                                                                 \
    X(CIPHER_KEY, CIPHER, "cipher_key", false)                                                                         \
    X(CIPHER_AROUND, CIPHER, "cipher_around", true)                                                                    \
    X(RECORD_HMAC, MAC, "record_hmac", false)                                                                          \
    X(RECORD_HMAC_AROUND, MAC, "record_hmac_around", true)                                                             \
    X(DIGEST, DIGEST, "digest", true)                                                                                  \
    X(DIGEST_AROUND, DIGEST, "digest_around", true)                                                                    \
    X(DERIVE, KDF, "derive", false)                                                                                    \
    X(HMAC, KDF, "hmac", false)                                                                                        \
    X(KDF_AROUND, KDF, "kdf_around", true)                                                                             \
    X(GENERATE, RANDOMNESS, "generate", false)

#endif
