/* Operation CIPHER: which file wraps which algorithm. Stages cipher and mac. */
#include "provider.h"

const OSSL_ALGORITHM *cipher_algorithms(const OSSL_ALGORITHM *originals)
{
    static const struct wrapping wrappings[] = {
        {"AES-128-GCM", aead_wrap},
        {"AES-256-GCM", aead_wrap},
        {"ChaCha20-Poly1305", aead_wrap},
        {"AES-128-CBC", cbc_wrap},
        {"AES-256-CBC", cbc_wrap},
        {"AES-128-CBC-HMAC-SHA1", stitched_wrap},
        {"AES-256-CBC-HMAC-SHA1", stitched_wrap},
        {"AES-128-CBC-HMAC-SHA256", stitched_wrap},
        {"AES-256-CBC-HMAC-SHA256", stitched_wrap},
        /*
         * For encrypt-then-MAC, only in later versions and on some machines; what they do differently is not known
         * here.
         */
        {"AES-128-CBC-HMAC-SHA1-ETM", hide_algorithm},
        {"AES-192-CBC-HMAC-SHA1-ETM", hide_algorithm},
        {"AES-256-CBC-HMAC-SHA1-ETM", hide_algorithm},
        {"AES-128-CBC-HMAC-SHA256-ETM", hide_algorithm},
        {"AES-192-CBC-HMAC-SHA256-ETM", hide_algorithm},
        {"AES-256-CBC-HMAC-SHA256-ETM", hide_algorithm},
        {"AES-128-CBC-HMAC-SHA512-ETM", hide_algorithm},
        {"AES-192-CBC-HMAC-SHA512-ETM", hide_algorithm},
        {"AES-256-CBC-HMAC-SHA512-ETM", hide_algorithm},
    };

    if (!aead_find_streams(originals))
        return NULL;
    return algorithms_wrap(originals, wrappings, sizeof(wrappings) / sizeof(wrappings[0]));
}
