/*
 * A wrapped algorithm of operation KEYMGMT. What has no context of ours must know its algorithm by itself, and so is
 * there once for each: `set` sets parameters of `key` from `params`.
 */
#ifndef TLSDYNO_WRAPPING_KEYMGMT_H
#define TLSDYNO_WRAPPING_KEYMGMT_H

#include "wrapping.h"

#define KEYMGMT_OF(name, set)                                                                                          \
    static void *name##_gen_init(void *provider, int selection, const OSSL_PARAM params[])                             \
    {                                                                                                                  \
        return gen_init(&name, provider, selection, params);                                                           \
    }                                                                                                                  \
    PARAMETER_LIST(name##_gen_settable_params, name.gen_settable_params)                                               \
    static int name##_set_params(void *key, const OSSL_PARAM params[])                                                 \
    {                                                                                                                  \
        return set;                                                                                                    \
    }                                                                                                                  \
    static int name##_validate(const void *key, int selection, int check)                                              \
    {                                                                                                                  \
        return validate(&name, key, selection, check);                                                                 \
    }

/* What it hands out in place of the wrapped provider's functions. */
#define KEYMGMT_ENTRIES(name, cleanup)                                                                                 \
    {OSSL_FUNC_KEYMGMT_GEN_INIT, FUNCTION(name##_gen_init)},                                                           \
    {OSSL_FUNC_KEYMGMT_GEN_SET_TEMPLATE, FUNCTION(gen_set_template)},                                                  \
    {OSSL_FUNC_KEYMGMT_GEN_SET_PARAMS, FUNCTION(gen_set_params)},                                                      \
    {OSSL_FUNC_KEYMGMT_GEN_SETTABLE_PARAMS, FUNCTION(name##_gen_settable_params)},                                     \
    {OSSL_FUNC_KEYMGMT_GEN, FUNCTION(gen)},                                                                            \
    {OSSL_FUNC_KEYMGMT_GEN_CLEANUP, FUNCTION(cleanup)},                                                                \
    {OSSL_FUNC_KEYMGMT_SET_PARAMS, FUNCTION(name##_set_params)},                                                       \
    {OSSL_FUNC_KEYMGMT_VALIDATE, FUNCTION(name##_validate)},

#endif
