/*
 * tlsdyno provider: wraps OpenSSL's default provider and replaces single TLS components by no-ops (docs/NOOP.md).
 *
 * Such a server has NO security whatever. The provider loads only with the acknowledgement of a running tlsdyno
 * (record.c).
 */
#ifndef TLSDYNO_PROVIDER_H
#define TLSDYNO_PROVIDER_H

#include "../record.h"
#include "../wrapping/wrapping.h"

/* Constants of the wire contract, docs/NOOP.md. */
enum {
    SIGNATURE_FILL = 0xa5,
    SECRET_FILL = 0x5a,
    KDF_FILL = 0x3c,
    MAC_FILL = 0xc3,
};

/*
 * The hybrid groups of TLS 1.3, a curve joined to ML-KEM: in OpenSSL 3.5 and later each is an algorithm of KEYMGMT and
 * one of KEM.
 *     X(name in C, name in OpenSSL)
 */
#define TLSDYNO_HYBRIDS(X)                                                                                             \
    X(x25519mlkem768, "X25519MLKEM768")                                                                                \
    X(p256mlkem768, "SecP256r1MLKEM768")                                                                               \
    X(p384mlkem1024, "SecP384r1MLKEM1024")

enum hybrid {
#define TLSDYNO_HYBRID_ID(id, name) HYBRID_##id,
    TLSDYNO_HYBRIDS(TLSDYNO_HYBRID_ID)
#undef TLSDYNO_HYBRID_ID
    HYBRID_TOTAL
};

/* record.c: maps the area that the section names, or finds that it is the one that is mapped already. */
bool record_map(const struct section *section, bool again);
void record_unmap(void);
/* Taken in init, constant afterwards. */
const struct tlsdyno_settings *settings(void);
/* Whether a mode of this run may have the stage off: what is not wrapped in init stays real for ever. */
static inline bool stage_may_be_off(enum stage stage)
{
    return (settings()->may_be_off & 1u << stage) != 0;
}
/* Whether private-key operations cost something in addition, so that they are wrapped with their stage on, too. */
static inline bool private_key_burns(void)
{
    return settings()->burn_ns != 0 || settings()->burn_instructions != 0;
}
/*
 * Whether tlsdyno still lives; raises an error if not. Each stage that is off asks it in an operation that occurs in
 * every handshake in which the stage does its work, and never for a record.
 */
bool acknowledged(void);
/*
 * The mode of this moment: a bit set of enum stage. A context of ours keeps the mode in which it was made; what has no
 * context of ours asks for it in each call.
 */
uint32_t mode_now(void);
static inline bool is_off(uint32_t mode, enum stage stage)
{
    return (mode & 1u << stage) != 0;
}
void count_call(enum tlsdyno_counter counter);
void count_amount(enum tlsdyno_counter counter, uint64_t amount);
_Atomic uint64_t *engine_words(void);
uint64_t next_counter_words(size_t words);

/* latched.c: a context of ours round one of the wrapped provider's, which keeps whether its stage was off. */
struct latched {
    const void *functions; /* of the file's own structure */
    void *real;
    bool off;
};

/* Takes over `real`; NULL (raised) where there is none, or no memory. */
void *latch(const void *functions, void *real, void (*free_real)(void *), bool off);

/* params.c */
bool fill_answer(unsigned char *out, size_t *length, size_t room, size_t size, unsigned char byte);
bool all_bytes_are(const unsigned char *data, size_t length, unsigned char byte);
size_t digest_size(const char *name);

/* private_key.c: what a private-key operation costs besides its computation. */
void private_key_operation(bool authentication_off);

/* record.c: what each private-key operation burns by now; the owner changes it, but never beyond `most_ns`. */
uint64_t burn_ns_now(uint64_t most_ns);

/* accelerator.c, burn.c */
void accelerator_operate(const struct tlsdyno_accelerator *is);
void burn_cpu(uint64_t wanted_ns);
void burn_instructions(uint64_t wanted);

/* keymgmt.c: the key pair of a hybrid group that this process keeps; NULL (raised) where none can be made. */
void *kept_hybrid_key(enum hybrid hybrid, void *provider);

/* The cipher and the signature operation are spread over several files. */
bool aead_find_streams(const OSSL_ALGORITHM *originals);
const OSSL_DISPATCH *aead_wrap(const OSSL_ALGORITHM *original, bool *hide);
const OSSL_DISPATCH *cbc_wrap(const OSSL_ALGORITHM *original, bool *hide);
const OSSL_DISPATCH *stitched_wrap(const OSSL_ALGORITHM *original, bool *hide);
const OSSL_DISPATCH *hide_algorithm(const OSSL_ALGORITHM *original, bool *hide);
const OSSL_DISPATCH *record_hmac_wrap(const OSSL_ALGORITHM *original, bool *hide);

#endif
