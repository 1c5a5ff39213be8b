/*
 * Fast resumption with the perfect cache (stage round_trip off, handshake on): the client's first flight names the
 * universal session and is followed at once by the request; the reply, in front of the response, proves that the server
 * knows the session's master key. The computation is that of a resumed TLS 1.2 handshake at its least.
 *
 * First flight, of the size of the resumed script's first: 16 03 01, length, d5 03 (kind 3), 32 bytes client random,
 * 1 byte length and the universal session's ID, zeros. In TLS 1.3 the ticket stands for the ID; with a TLS 1.2 ticket
 * its first 32 bytes, key name and IV. Reply, of the size of the resumed script's second flight: 16, 32 bytes server
 * random from the server's random generator, 12 bytes verify data, zeros.
 *
 * PRF is TLS1-PRF with SHA-256 (RFC 5246 section 5). S is the universal session's master key (TLS 1.3: the PSK). Both
 * ends compute PRF(S, "key expansion", server random, client random) to the length of the suite's key block (TLS 1.3
 * suites: 2 * (key + 12)), which they drop. Verify data = PRF(S, "server finished", SHA-256(first flight, server
 * random)), which the client checks.
 */
#include "shim.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

enum { RANDOM_SIZE = 32, VERIFY_SIZE = 12, FLIGHT_HEAD = 7, NAME_SIZE_AT = FLIGHT_HEAD + RANDOM_SIZE, HASH_SIZE = 32 };
enum { KEY_BLOCK_MAX = 2 * (32 + 32 + 16) };

/* TLS1-PRF with SHA-256, RFC 5246 section 5: P_SHA256(secret, label + seed). */
static bool prf(const SSL_SESSION *session, const char *label, const unsigned char *seed, size_t seed_size,
                unsigned char *out, size_t size)
{
    unsigned char secret[SSL_MAX_MASTER_KEY_LENGTH];
    size_t secret_size = SSL_SESSION_get_master_key(session, secret, sizeof(secret));
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA2-256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, secret, secret_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, (void *)(uintptr_t)label, strlen(label)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, (void *)(uintptr_t)seed, seed_size),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_TLS1_PRF, NULL); /* as libssl: fetched for each use */
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);
    bool done = context != NULL && EVP_KDF_derive(context, out, size, params) == 1;

    OPENSSL_cleanse(secret, sizeof(secret));
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done;
}

/* SHA-256 of the client's first flight and the server's random. */
static bool transcript(const unsigned char *flight, size_t size, const unsigned char *server_random,
                       unsigned char *hash)
{
    EVP_MD *digest = EVP_MD_fetch(NULL, "SHA2-256", NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool done = digest != NULL && context != NULL && EVP_DigestInit_ex(context, digest, NULL) == 1
                && EVP_DigestUpdate(context, flight, size) == 1
                && EVP_DigestUpdate(context, server_random, RANDOM_SIZE) == 1
                && EVP_DigestFinal_ex(context, hash, NULL) == 1;

    EVP_MD_CTX_free(context);
    EVP_MD_free(digest);
    return done;
}

/*
 * Bytes of key material that the session's suite takes, RFC 5246 section 6.3: MAC keys, keys, and of AEADs fixed IVs.
 */
static size_t key_block_size(const SSL_SESSION *session)
{
    const SSL_CIPHER *suite = SSL_SESSION_get0_cipher(session);
    int cipher = suite == NULL ? NID_undef : SSL_CIPHER_get_cipher_nid(suite);
    size_t key = cipher == NID_aes_128_gcm || cipher == NID_aes_128_cbc ? 16 : 32;

    if (suite == NULL || !SSL_CIPHER_is_aead(suite))
        return 2 * (key + (suite != NULL && SSL_CIPHER_get_digest_nid(suite) == NID_sha1 ? 20 : 32));
    if (SSL_SESSION_get_protocol_version(session) == TLS1_3_VERSION || cipher == NID_chacha20_poly1305)
        return 2 * (key + 12);
    return 2 * (key + 4);
}

static bool names_universal_session(const unsigned char *flight, size_t size)
{
    const struct tlsdyno_universal_session *session = &area->session;

    return NAME_SIZE_AT + 1 + session->name_size <= size && flight[NAME_SIZE_AT] == session->name_size
           && memcmp(flight + NAME_SIZE_AT + 1, session->name, session->name_size) == 0;
}

static bool make_reply(struct connection *connection, const SSL_SESSION *session, const unsigned char *flight,
                       size_t size)
{
    unsigned char *server_random = connection->reply + 1;
    unsigned char *verify = server_random + RANDOM_SIZE;
    unsigned char randoms[2 * RANDOM_SIZE], hash[HASH_SIZE], keys[KEY_BLOCK_MAX];

    if (RAND_bytes(server_random, RANDOM_SIZE) != 1)
        return false;
    memcpy(randoms, server_random, RANDOM_SIZE);
    memcpy(randoms + RANDOM_SIZE, flight + FLIGHT_HEAD, RANDOM_SIZE);
    return prf(session, "key expansion", randoms, sizeof(randoms), keys, key_block_size(session))
           && transcript(flight, size, server_random, hash)
           && prf(session, "server finished", hash, sizeof(hash), verify, VERIFY_SIZE);
}

/* The first flight, all of which must be in the input buffer, is answered by a reply that waits for the first data. */
int fast_resume_begin(struct connection *connection)
{
    const unsigned char *flight = connection->input.bytes + connection->input.start;
    size_t size = connection->script->flights[0];
    const SSL_SESSION *session = universal_session();

    if (session == NULL || !names_universal_session(flight, size)) {
        count(SHIM_COUNT_UNIVERSAL_MISS);
        return broken(connection, "the client wants to resume another session than the universal one");
    }
    if (connection->script->flights[1] < FAST_REPLY_SIZE)
        return broken(connection, "the reply of the script is too short for a fast resumption");
    if (!make_reply(connection, session, flight, size))
        return broken(connection, "the keys of a fast resumption cannot be made");
    count(SHIM_COUNT_UNIVERSAL_HIT);
    connection->reply[0] = flight[0];
    connection->reply_size = connection->script->flights[1];
    return 1;
}
