/*
 * How a provider of tlsdyno wraps OpenSSL's default provider: it loads that into a private library context, hands out
 * its provider context as its own, and its tables with single functions replaced. Nothing here replaces anything; what
 * does is in the folders of the three libraries that are linked with this one, `provider`, `doubler` and `profiler`.
 *
 * Rule of the allow-list. Where the context of an operation is ours, an algorithm hands out only those dispatch
 * functions that its list names, never "all but the replaced ones". A later OpenSSL adds functions: one that we do not
 * know would receive our context and take it for its own (DIGEST COPYCTX of 3.5 did), or be a way round what is
 * replaced (KEYEXCH DERIVE_SKEY). libcrypto falls back by itself where one is absent.
 */
#ifndef TLSDYNO_WRAPPING_H
#define TLSDYNO_WRAPPING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/types.h>

#include "../owner.h"
#include "../stages.h"

/* Numbered reasons; printed by openssl, nginx and others like their own (errors.c holds the texts). */
enum reason {
    REASON_CONFIGURATION = 1,
    REASON_NOT_ACKNOWLEDGED,
    REASON_NO_MEMORY,
    REASON_WRAPPED_PROVIDER,
    REASON_PEER_HAS_STAGE_ON,
    REASON_BUFFER_TOO_SMALL,
    REASON_UNSUPPORTED_USE,
    REASON_NO_ANSWER,
};

/* errors.c */
void errors_load(void);
/* Says something on standard error, unless descriptor 2 is something else by now (a daemon's socket). */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* `what` went wrong, because of the last error raised. */
void errors_complain(const char *what);
void raise_error_at(const char *file, int line, const char *function_name, enum reason reason, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
#define raise_error(reason, ...) raise_error_at(__FILE__, __LINE__, __func__, reason, __VA_ARGS__)

/* wrapped.c: the default provider in a library context of its own. */
struct wrapped {
    OSSL_LIB_CTX *private_context;
    OSSL_PROVIDER *provider;
    void *context; /* its own, handed out as ours */
};

bool wrap_default(struct wrapped *into);
/* After a failed init. Tables already built stay allocated: they are small, and a retry is rare. */
void unwrap_default(struct wrapped *wrapped);

/* table.c */
typedef void function(void);
#define FUNCTION(f) ((function *)(f))
#define KEEP NULL /* in an allow-list: hand out the wrapped provider's own function */

struct wrapping {
    const char *name; /* one of the algorithm's names */
    /* The table to hand out instead, or NULL with *hide set to leave the algorithm out, or NULL on failure (raised). */
    const OSSL_DISPATCH *(*wrap)(const OSSL_ALGORITHM *original, bool *hide);
};

function *table_find(const OSSL_DISPATCH *table, int id);
OSSL_DISPATCH *table_allow(const OSSL_DISPATCH *original, const OSSL_DISPATCH *allowed);
const OSSL_DISPATCH *table_allow_with(const OSSL_DISPATCH *original, const OSSL_DISPATCH *allowed,
                                      const OSSL_DISPATCH *own);
OSSL_DISPATCH *table_copy(const OSSL_DISPATCH *original);
void table_override(OSSL_DISPATCH *table, const OSSL_DISPATCH *own);
const OSSL_DISPATCH *table_replace(const OSSL_DISPATCH *original, const OSSL_DISPATCH *own);
bool algorithm_is(const OSSL_ALGORITHM *algorithm, const char *name);
const OSSL_ALGORITHM *algorithm_find(const OSSL_ALGORITHM *algorithms, const char *name);
OSSL_ALGORITHM *algorithms_copy(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *algorithms_wrap(const OSSL_ALGORITHM *originals, const struct wrapping *wrappings, size_t count);

/*
 * A list of the functions of an operation that a file calls: X(operation, OPERATION, function, FUNCTION), as OpenSSL
 * names them. The list becomes the fields of a structure, and what fills them from `table` into `real`.
 */
#define FUNCTION_FIELD(operation, OPERATION, name, NAME) OSSL_FUNC_##operation##_##name##_fn *name;
#define FIND_FUNCTION(operation, OPERATION, name, NAME)                                                                \
    real->name = (OSSL_FUNC_##operation##_##name##_fn *)table_find(table, OSSL_FUNC_##OPERATION##_##NAME);

/* The same list as an allow-list, for a file that has a function of its own under the name of each. */
#define OWN_FUNCTION(operation, OPERATION, name, NAME) {OSSL_FUNC_##OPERATION##_##NAME, FUNCTION(name)},

/*
 * The list of parameters of a wrapped algorithm: `own` asks `listed` of the wrapped provider without the context, which
 * is ours.
 */
#define PARAMETER_LIST(own, listed)                                                                                    \
    static const OSSL_PARAM *own(void *context, void *provider)                                                        \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        return (listed)(NULL, provider);                                                                               \
    }

/*
 * What has no context yet gets no hint which algorithm it is for, so each has its own NEWCTX. The file has
 * `new_context`, and `wrap`, which makes the table.
 */
#define ALGORITHM_WITH_CONTEXT(name)                                                                                   \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return new_context(&name, provider);                                                                           \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, original->implementation);                                                   \
    }

/*
 * libcrypto.c: finds the functions of the libcrypto that holds `of_it`, before any of them is called. False (complained
 * of): it has not all of them, or those of another one are in use.
 */
bool libcrypto_find(function *of_it);

/* entry.c: the library's section of openssl.cnf, to be read in init only. */
struct section {
    const OSSL_CORE_HANDLE *core;
    OSSL_FUNC_core_get_params_fn *get_params;
};
/* NULL (raised) where the section has no such parameter. The text is libcrypto's. */
const char *section_want(const struct section *section, const char *name);

/* What a library says of itself; each defines `this_library`. */
struct library {
    const char *description; /* answers whoever asks for the provider's name */
    const char *not_loaded; /* the complaint when it does not load */
    /*
     * Reads the section and takes the area, before any table is built. `again`: for another library context of this
     * process, of which all share one state. False (raised): the library does not load.
     */
    bool (*begin)(const struct section *section, bool again);
    void (*undo)(void); /* what `begin` did, where the tables cannot be built; NULL: it may stay */
    /* The algorithms of an operation to hand out, `originals` where nothing is wrapped, NULL on failure (raised). */
    const OSSL_ALGORITHM *(*wrap)(int operation, const OSSL_ALGORITHM *originals);
};
extern const struct library this_library;

/* area.c: the area that the section names. NULL (raised) where it does not acknowledge this run. */
void *area_map(const struct area_kind *kind, const struct section *section);
/*
 * The same for libraries without which a server is no worse: its error queue stays as it was, and a complaint says what
 * follows (`otherwise`).
 */
void *area_find(const struct area_kind *kind, const struct section *section, const char *otherwise);

/* A library that reads it in every call, and has few bytes of such storage, defines this to be static. */
#ifndef SLOT_STORAGE
#define SLOT_STORAGE _Thread_local
#endif
/* One more than the number of the calling thread's slot; 0: it has claimed none. */
extern SLOT_STORAGE uint32_t slot_after_claim;

/* The number of the calling thread's slot, which may be beyond the last. The first call claims it. */
static inline uint32_t slot_number(_Atomic uint32_t *claimed)
{
    if (slot_after_claim == 0)
        slot_after_claim = atomic_fetch_add_explicit(claimed, 1, memory_order_relaxed) + 1;
    return slot_after_claim - 1;
}

/*
 * keymgmt.c: what OpenSSL 3.0 has of operation KEYMGMT. Left out: GEN_GET_PARAMS and GEN_GETTABLE_PARAMS of later
 * versions (the generation context is ours), and whatever else came since.
 */
extern const OSSL_DISPATCH KEYMGMT_OF_3_0[];
/* Those of them that a wrapper calls. */
#define KEYMGMT_FUNCTIONS(X)                                                                                           \
    X(keymgmt, KEYMGMT, gen_init, GEN_INIT)                                                                            \
    X(keymgmt, KEYMGMT, gen_set_template, GEN_SET_TEMPLATE)                                                            \
    X(keymgmt, KEYMGMT, gen_set_params, GEN_SET_PARAMS)                                                                \
    X(keymgmt, KEYMGMT, gen_settable_params, GEN_SETTABLE_PARAMS)                                                      \
    X(keymgmt, KEYMGMT, gen, GEN)                                                                                      \
    X(keymgmt, KEYMGMT, gen_cleanup, GEN_CLEANUP)                                                                      \
    X(keymgmt, KEYMGMT, free, FREE)                                                                                    \
    X(keymgmt, KEYMGMT, get_params, GET_PARAMS)                                                                        \
    X(keymgmt, KEYMGMT, set_params, SET_PARAMS)                                                                        \
    X(keymgmt, KEYMGMT, validate, VALIDATE)

/*
 * One file per operation of provider and doubler: the algorithms to hand out, or NULL on failure (raised).
 */
const OSSL_ALGORITHM *signature_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *asym_cipher_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *keymgmt_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *keyexch_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *kem_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *cipher_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *digest_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *mac_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *kdf_algorithms(const OSSL_ALGORITHM *originals);
const OSSL_ALGORITHM *rand_algorithms(const OSSL_ALGORITHM *originals);

/* drbg.c: the table of CTR-DRBG without what libcrypto from 3.5 on tells it. */
OSSL_DISPATCH *drbg_without_provider_name(const OSSL_DISPATCH *original);

/* params.c */
enum { PARAMS_MAX = 32 };
bool params_without(OSSL_PARAM filtered[PARAMS_MAX], const OSSL_PARAM *params, const char *const *names);

#endif
