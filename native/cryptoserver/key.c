/* Tells stubs from keys: by the marker that stands in place of the secret (cryptoserver.h). */
#include "cryptoserver.h"

#include <string.h>

#include <openssl/err.h>

static const char MARKER[] = "tlsdyno-remote-1";
enum { MARKER_SIZE = sizeof(MARKER) - 1, SECRET_SIZE = MARKER_SIZE + IDENTIFIER_SIZE };

/* The secret of a key on the largest curve fits, P-521's; an RSA key's does not, and is never copied. */
enum { SECRET_MAX = 66 };

static OSSL_FUNC_keymgmt_get_params_fn *get_params[2];

static bool find(enum key_type type, const OSSL_ALGORITHM *keymgmts, const char *name)
{
    const OSSL_ALGORITHM *found = algorithm_find(keymgmts, name);

    if (found != NULL)
        get_params[type]
            = (OSSL_FUNC_keymgmt_get_params_fn *)table_find(found->implementation, OSSL_FUNC_KEYMGMT_GET_PARAMS);
    if (get_params[type] == NULL)
        raise_error(REASON_WRAPPED_PROVIDER, "it does not read keys of type %s", name);
    return get_params[type] != NULL;
}

bool key_find_functions(const OSSL_ALGORITHM *keymgmts)
{
    return find(KEY_RSA, keymgmts, "RSA") && find(KEY_EC, keymgmts, "EC");
}

/* A number in the order of this machine, which the wrapped provider writes at the end that is lowest. */
static unsigned char byte_from_below(const unsigned char *number, size_t size, size_t place)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    (void)size;
    return number[place];
#else
    return number[size - 1 - place];
#endif
}

static bool is_marker(const unsigned char *number, size_t size, unsigned char identifier[IDENTIFIER_SIZE])
{
    unsigned char secret[SECRET_SIZE];
    unsigned char above = 0;

    if (size < SECRET_SIZE)
        return false;
    for (size_t i = 0; i < SECRET_SIZE; i++)
        secret[SECRET_SIZE - 1 - i] = byte_from_below(number, size, i);
    for (size_t i = SECRET_SIZE; i < size; i++)
        above |= byte_from_below(number, size, i);
    above |= (unsigned char)(memcmp(secret, MARKER, MARKER_SIZE) != 0);
    if (above == 0)
        memcpy(identifier, secret + MARKER_SIZE, IDENTIFIER_SIZE);
    explicit_bzero(secret, sizeof(secret));
    return above == 0;
}

bool key_is_remote(enum key_type type, void *key, unsigned char identifier[IDENTIFIER_SIZE])
{
    unsigned char number[SECRET_MAX] = {0};
    OSSL_PARAM params[2] = {
        {.key = type == KEY_RSA ? OSSL_PKEY_PARAM_RSA_D : OSSL_PKEY_PARAM_PRIV_KEY,
         .data_type = OSSL_PARAM_UNSIGNED_INTEGER,
         .data = number,
         .data_size = sizeof(number),
         .return_size = OSSL_PARAM_UNMODIFIED},
        OSSL_PARAM_construct_end(),
    };
    bool is_remote;

    if (key == NULL)
        return false;
    /* The secret of an RSA key has no room: an error that is none. */
    ERR_set_mark();
    is_remote = get_params[type](key, params) && params[0].return_size != OSSL_PARAM_UNMODIFIED
                && is_marker(number, params[0].data_size, identifier);
    ERR_pop_to_mark();
    explicit_bzero(number, sizeof(number));
    return is_remote;
}
