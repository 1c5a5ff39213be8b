/* Parameters without some of them. */
#include "wrapping.h"

#include <string.h>

static bool is_listed(const char *key, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(key, *names) == 0)
            return true;
    }
    return false;
}

/* Copies `params` without those in `names` (ended by NULL). The values are shared. */
bool params_without(OSSL_PARAM filtered[PARAMS_MAX], const OSSL_PARAM *params, const char *const *names)
{
    size_t next = 0;

    for (; params != NULL && params->key != NULL; params++) {
        if (is_listed(params->key, names))
            continue;
        if (next == PARAMS_MAX - 1) {
            raise_error(REASON_UNSUPPORTED_USE, "more than %d parameters in one call", PARAMS_MAX - 1);
            return false;
        }
        filtered[next++] = *params;
    }
    filtered[next] = OSSL_PARAM_construct_end();
    return true;
}
