/*
 * The perfect session cache (stage session_cache): one universal session, which every process of the server knows from
 * the area. The first full handshake makes it; from then on every look-up of it hits, and nothing is stored any more.
 *
 * Session IDs and the stateful tickets of TLS 1.3 go through the callback that looks sessions up; the tickets of
 * TLS 1.2 through the callback that protects them, with keys of zeros. Callbacks and options are set when a handshake
 * begins, not when the server makes its context: by then it is known to be a server's, and what the server has set
 * itself is overridden.
 */
#include "shim.h"

#include <string.h>
#include <time.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>

enum { TICKET_NAME_SIZE = 16, TICKET_IV_SIZE = 16, TICKET_KEY_SIZE = 32, TEN_YEARS_S = 10 * 365 * 86400 };

static const unsigned char SESSION_CONTEXT[] = "tlsdyno";

/* The universal session of this process. Set once; leaked at exit on purpose, for exit order is not ours. */
static _Atomic(SSL_SESSION *) template;

static bool is_ready(void)
{
    return atomic_load_explicit(&area->session.state, memory_order_acquire) == SHIM_SESSION_READY;
}

static bool uses_tickets(void)
{
    return flag_is_set(SHIM_FLAG_TICKETS) && area->version < TLS1_3_VERSION;
}

static SSL_SESSION *read_template(void)
{
    const unsigned char *der = area->session.der;
    SSL_SESSION *session = d2i_SSL_SESSION(NULL, &der, (long)area->session.size);

    if (session == NULL)
        return NULL;
    SSL_SESSION_set_time(session, (long)time(NULL));
    SSL_SESSION_set_timeout(session, TEN_YEARS_S);
    SSL_SESSION_set1_id_context(session, SESSION_CONTEXT, sizeof(SESSION_CONTEXT) - 1);
    return session;
}

static const SSL_SESSION *universal_session(void)
{
    SSL_SESSION *known = atomic_load(&template);
    SSL_SESSION *made;

    if (known != NULL || !is_ready())
        return known;
    made = read_template();
    if (made != NULL && !atomic_compare_exchange_strong(&template, &known, made)) {
        SSL_SESSION_free(made); /* another thread was faster */
        return known;
    }
    return made;
}

/* Puts the session into the area if none is there yet. */
static bool keep(const SSL_SESSION *session)
{
    struct tlsdyno_universal_session *universal = &area->session;
    uint32_t expected = SHIM_SESSION_EMPTY;
    unsigned char *der = universal->der;
    int size = i2d_SSL_SESSION(session, NULL);

    if (size <= 0 || size > (int)sizeof(universal->der)
        || !atomic_compare_exchange_strong(&universal->state, &expected, SHIM_SESSION_CLAIMED))
        return false;
    i2d_SSL_SESSION(session, &der);
    universal->size = (uint32_t)size;
    atomic_store_explicit(&universal->state, SHIM_SESSION_READY, memory_order_release);
    return true;
}

/* A new session. 0: libssl keeps its reference. */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    unsigned int size = 0;

    (void)ssl;
    SSL_SESSION_get_id(session, &size);
    if (!is_ready() && size > 0)
        keep(session);
    return 0;
}

/*
 * The session that a client offers: a copy, for libssl marks those of TLS 1.3 as used. The server's session context is
 * made to be that of the session; servers have different ones for each name or host.
 */
static SSL_SESSION *on_look_up(SSL *ssl, const unsigned char *id, int size, int *copy)
{
    const SSL_SESSION *known = universal_session();
    unsigned int known_size = 0;
    const unsigned char *known_id = known == NULL ? NULL : SSL_SESSION_get_id(known, &known_size);

    *copy = 0;
    if (known == NULL || known_size != (unsigned int)size || memcmp(known_id, id, known_size) != 0
        || SSL_SESSION_get_protocol_version(known) != SSL_version(ssl)) {
        count(SHIM_COUNT_UNIVERSAL_MISS);
        return NULL;
    }
    count(SHIM_COUNT_UNIVERSAL_HIT);
    SSL_set_session_id_context(ssl, SESSION_CONTEXT, sizeof(SESSION_CONTEXT) - 1);
    return SSL_SESSION_dup(known);
}

/* A cipher that pads: libssl refuses a null cipher, whose last step yields no byte. */
static int prepare_ticket(EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, const unsigned char *iv, int sealing)
{
    unsigned char key[TICKET_KEY_SIZE] = {0};
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key, sizeof(key)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA2-256", 0),
        OSSL_PARAM_construct_end(),
    };

    if (EVP_CipherInit_ex(cipher, EVP_aes_128_cbc(), NULL, key, iv, sealing) != 1
        || EVP_MAC_CTX_set_params(mac, params) != 1)
        return -1;
    return 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3). 0: sealing, an empty ticket; opening, a full handshake. */
static int on_ticket_key(SSL *ssl, unsigned char *key_name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                         int sealing)
{
    if (sealing) {
        memcpy(key_name, area->head.run_id, TICKET_NAME_SIZE);
        memset(iv, 0, TICKET_IV_SIZE);
        return keep(SSL_get0_session(ssl)) ? prepare_ticket(cipher, mac, iv, sealing) : 0;
    }
    if (memcmp(key_name, area->head.run_id, TICKET_NAME_SIZE) != 0) {
        count(SHIM_COUNT_UNIVERSAL_MISS);
        return 0;
    }
    count(SHIM_COUNT_UNIVERSAL_HIT);
    return prepare_ticket(cipher, mac, iv, sealing);
}

/*
 * Several threads may come here at once; they all store the same values. The look-up is stored last, so that whoever
 * sees it sees the others.
 */
static void prepare_context(SSL_CTX *context)
{
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_new_session);
    SSL_CTX_sess_set_remove_cb(context, NULL);
    if (uses_tickets())
        SSL_CTX_set_tlsext_ticket_key_evp_cb(context, on_ticket_key);
    SSL_CTX_sess_set_get_cb(context, on_look_up);
}

void sessions_begin(SSL *ssl)
{
    SSL_CTX *context = SSL_get_SSL_CTX(ssl);

    if (SSL_CTX_sess_get_get_cb(context) != on_look_up)
        prepare_context(context);
    if (uses_tickets())
        SSL_clear_options(ssl, SSL_OP_NO_TICKET);
    else
        SSL_set_options(ssl, SSL_OP_NO_TICKET); /* TLS 1.3: tickets are session IDs then */
    SSL_set_num_tickets(ssl, is_ready() ? 0 : 1);
}
