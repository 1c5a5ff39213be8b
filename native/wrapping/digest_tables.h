/* The tables of operation DIGEST, of the functions that the including file has (digest.h). Once in a library. */
static const OSSL_DISPATCH *wrap(struct digest_functions *real, OSSL_FUNC_digest_newctx_fn *newctx,
                                 OSSL_FUNC_digest_digest_fn *in_one_call, const OSSL_DISPATCH *table)
{
    /*
     * Left out: SET_CTX_PARAMS (`ssl3-ms` of SHA-1, for SSL 3 only), COPYCTX, SERIALIZE and SQUEEZE of later versions.
     */
    const OSSL_DISPATCH allowed[] = {
        {OSSL_FUNC_DIGEST_NEWCTX, FUNCTION(newctx)},
        {OSSL_FUNC_DIGEST_INIT, FUNCTION(init)},
        {OSSL_FUNC_DIGEST_UPDATE, FUNCTION(update)},
        {OSSL_FUNC_DIGEST_FINAL, FUNCTION(final)},
        {OSSL_FUNC_DIGEST_DIGEST, FUNCTION(in_one_call)},
        {OSSL_FUNC_DIGEST_FREECTX, FUNCTION(FREE_CONTEXT)},
        {OSSL_FUNC_DIGEST_DUPCTX, FUNCTION(dupctx)},
        {OSSL_FUNC_DIGEST_GET_PARAMS, KEEP},
        {OSSL_FUNC_DIGEST_GETTABLE_PARAMS, KEEP},
        {0, NULL},
    };

    DIGEST_FUNCTIONS(FIND_FUNCTION)
    return table_allow(table, allowed);
}

/* NEWCTX and DIGEST get no hint which algorithm they are for, so each has its own. */
#define ALGORITHM(name)                                                                                                \
    static void *name##_newctx(void *provider)                                                                         \
    {                                                                                                                  \
        return new_context(&name, provider);                                                                           \
    }                                                                                                                  \
    static int name##_digest(void *provider, const unsigned char *in, size_t length, unsigned char *out,               \
                             size_t *out_length, size_t room)                                                          \
    {                                                                                                                  \
        return digest(&name, provider, in, length, out, out_length, room);                                             \
    }                                                                                                                  \
    static const OSSL_DISPATCH *wrap_##name(const OSSL_ALGORITHM *original, bool *hide)                                \
    {                                                                                                                  \
        (void)hide;                                                                                                    \
        return wrap(&name, name##_newctx, name##_digest, original->implementation);                                    \
    }

ALGORITHM(sha1)
ALGORITHM(sha256)
ALGORITHM(sha384)

const OSSL_ALGORITHM *digest_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"SHA1", wrap_sha1}, {"SHA2-256", wrap_sha256}, {"SHA2-384", wrap_sha384}};

    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
