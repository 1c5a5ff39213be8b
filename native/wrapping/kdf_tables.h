/* The tables of operation KDF, of the functions that the including file has (kdf.h). Once in a library. */
static const OSSL_DISPATCH *wrap(struct kdf_functions *real, OSSL_FUNC_kdf_newctx_fn *newctx,
                                 const OSSL_DISPATCH *table)
{
    /*
     * Left out: the functions that list parameters (they would receive our context), SET_SKEY and DERIVE_SKEY of later
     * versions.
     */
    const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_KDF_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_KDF_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_KDF_FREECTX, FUNCTION(FREE_CONTEXT)},
        {OSSL_FUNC_KDF_RESET, FUNCTION(reset)},
        {OSSL_FUNC_KDF_DERIVE, FUNCTION(derive)},
        {OSSL_FUNC_KDF_GET_CTX_PARAMS, FUNCTION(get_ctx_params)},
        {OSSL_FUNC_KDF_SET_CTX_PARAMS, FUNCTION(set_ctx_params)},
        {0, NULL},
    };

    KDF_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

ALGORITHM_WITH_CONTEXT(tls1_prf)
ALGORITHM_WITH_CONTEXT(tls13_kdf)
ALGORITHM_WITH_CONTEXT(hkdf)

const OSSL_ALGORITHM *kdf_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[]
        = {{"TLS1-PRF", wrap_tls1_prf}, {"TLS13-KDF", wrap_tls13_kdf}, {"HKDF", wrap_hkdf}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
