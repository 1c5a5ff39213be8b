/*
 * Flips of the mode without draining, in the middle of connections: two ends of this process, over memory. A connection
 * that is set up goes on as it began: kept records both ways, a late close_notify. A flip in the middle of a handshake
 * may break it, for its contexts are then of two modes; nothing crashes, and the next connection is a good one.
 *
 * With a doubler instead nothing may break, whatever flips.
 *
 *     modes_tls DESCRIPTOR CERTIFICATE KEY           modes of the provider
 *     modes_tls DESCRIPTOR CERTIFICATE KEY doubled   modes of the doubler
 */
#include <stdbool.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "modes.h"

enum { TRANSPORT_SIZE = 1 << 17, STEPS_MAX = 12, RECORD_MAX = 16384, NOTHING_OFF = 0 };
enum { EVERYTHING = (1 << STAGE_TOTAL) - 1 };

struct kind {
    int version;
    const char *suite;
    uint64_t options;
    bool stitched; /* no encrypt-then-MAC: a half alone is refused where libssl takes stitched code */
};

static const struct kind KINDS[] = {
    {TLS1_3_VERSION, "TLS_AES_128_GCM_SHA256", 0, false},
    {TLS1_3_VERSION, "TLS_CHACHA20_POLY1305_SHA256", 0, false},
    {TLS1_2_VERSION, "ECDHE-RSA-AES256-GCM-SHA384", 0, false},
    {TLS1_2_VERSION, "ECDHE-RSA-CHACHA20-POLY1305", 0, false},
    {TLS1_2_VERSION, "AES128-SHA", 0, false},
    {TLS1_2_VERSION, "AES256-SHA256", SSL_OP_NO_ENCRYPT_THEN_MAC, true},
};

#define BIT_OF(id, name) BIT(id),
static const uint32_t MODES[] = {NOTHING_OFF, EVERYTHING, TLSDYNO_STAGES(BIT_OF) BIT(CIPHER) | BIT(MAC)};
enum { KIND_TOTAL = sizeof(KINDS) / sizeof(KINDS[0]), MODE_TOTAL = sizeof(MODES) / sizeof(MODES[0]) };

static bool doubled;

struct ends {
    SSL_CTX *server_context, *client_context;
};

struct pair {
    SSL *server, *client;
};

static struct ends make_ends(const struct kind *kind, const char *certificate, const char *key)
{
    struct ends ends = {SSL_CTX_new(TLS_server_method()), SSL_CTX_new(TLS_client_method())};
    SSL_CTX *both[] = {ends.server_context, ends.client_context};

    for (size_t i = 0; i < 2; i++) {
        CHECK(SSL_CTX_set_min_proto_version(both[i], kind->version) == 1);
        CHECK(SSL_CTX_set_max_proto_version(both[i], kind->version) == 1);
        SSL_CTX_set_security_level(both[i], 0);
        SSL_CTX_set_options(both[i], kind->options);
        if (kind->version == TLS1_3_VERSION)
            CHECK(SSL_CTX_set_ciphersuites(both[i], kind->suite) == 1);
        else
            CHECK(SSL_CTX_set_cipher_list(both[i], kind->suite) == 1);
    }
    CHECK(SSL_CTX_use_certificate_chain_file(ends.server_context, certificate) == 1);
    CHECK(SSL_CTX_use_PrivateKey_file(ends.server_context, key, SSL_FILETYPE_PEM) == 1);
    return ends;
}

static void free_ends(struct ends ends)
{
    SSL_CTX_free(ends.server_context);
    SSL_CTX_free(ends.client_context);
}

static struct pair connect_ends(struct ends ends)
{
    struct pair pair = {SSL_new(ends.server_context), SSL_new(ends.client_context)};
    BIO *at_server, *at_client;

    CHECK(pair.server != NULL && pair.client != NULL);
    CHECK(BIO_new_bio_pair(&at_server, TRANSPORT_SIZE, &at_client, TRANSPORT_SIZE) == 1);
    SSL_set_bio(pair.server, at_server, at_server);
    SSL_set_bio(pair.client, at_client, at_client);
    SSL_set_accept_state(pair.server);
    SSL_set_connect_state(pair.client);
    return pair;
}

static void free_pair(struct pair pair)
{
    SSL_free(pair.server);
    SSL_free(pair.client);
    ERR_clear_error();
}

/* One turn of one end; whether it is broken. */
static bool is_broken(SSL *ssl)
{
    int result = SSL_do_handshake(ssl);

    return result != 1 && SSL_get_error(ssl, result) != SSL_ERROR_WANT_READ;
}

/* A handshake whose turn number `flip_at` and later ones are in the mode `next`. Whether it came to its end. */
static bool shake_hands(struct pair pair, uint32_t next, int flip_at)
{
    for (int step = 0; step < STEPS_MAX; step++) {
        if (step == flip_at)
            set_mode(next);
        if (is_broken(step % 2 == 0 ? pair.client : pair.server))
            return false;
    }
    return SSL_is_init_finished(pair.server) && SSL_is_init_finished(pair.client);
}

static void send_data(SSL *from, SSL *to, size_t size)
{
    static unsigned char sent[RECORD_MAX], got[RECORD_MAX];
    size_t done = 0, all = 0;

    memset(sent, (int)size, size);
    CHECK(SSL_write_ex(from, sent, size, &done) == 1 && done == size);
    while (all < size) {
        CHECK(SSL_read_ex(to, got + all, sizeof(got) - all, &done) == 1);
        all += done;
    }
    CHECK(all == size && memcmp(sent, got, size) == 0);
}

static void send_both_ways(struct pair pair)
{
    static const size_t SIZES[] = {1, 100, RECORD_MAX};

    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        send_data(pair.client, pair.server, SIZES[i]);
        send_data(pair.server, pair.client, SIZES[i]);
    }
}

/* A half of AEADs and stitched code; with a doubler it is not doubled. */
static bool is_half(uint32_t mode)
{
    return !doubled && ((mode & BIT(CIPHER)) != 0) != ((mode & BIT(MAC)) != 0);
}

/* A connection of the mode `first`, kept over flips to `next` and back. */
static void keep_over_flips(const struct kind *kind, struct ends ends, uint32_t first, uint32_t next)
{
    struct pair pair = connect_ends(ends);
    bool done;

    set_mode(first);
    done = shake_hands(pair, first, 0);
    if (kind->stitched && is_half(first)) { /* completes where the processor has no stitched code */
        if (!done) {
            free_pair(pair);
            return;
        }
    }
    CHECK(done);
    send_both_ways(pair);
    set_mode(next);
    send_both_ways(pair);
    set_mode(first);
    send_both_ways(pair);
    set_mode(next);
    CHECK(SSL_shutdown(pair.server) == 0 && SSL_shutdown(pair.client) == 0); /* sent; the answer is not there yet */
    CHECK(SSL_shutdown(pair.client) == 1 && SSL_shutdown(pair.server) == 1);
    free_pair(pair);
}

/* New keys on a kept connection are of the mode of their moment. */
static void new_keys_after_a_flip(struct ends ends, uint32_t first, uint32_t next)
{
    struct pair pair = connect_ends(ends);

    set_mode(first);
    CHECK(shake_hands(pair, first, 0));
    send_both_ways(pair);
    set_mode(next);
    CHECK(SSL_key_update(pair.server, SSL_KEY_UPDATE_REQUESTED) == 1);
    send_both_ways(pair);
    send_both_ways(pair);
    free_pair(pair);
}

static void flip_in_handshake(const struct kind *kind, struct ends ends, uint32_t first, uint32_t next)
{
    for (int flip_at = 1; flip_at <= 3; flip_at++) {
        struct pair pair = connect_ends(ends);
        unsigned char byte;
        size_t done;

        set_mode(first);
        /* What such a connection answers is nobody's promise; that it answers is. */
        if (doubled) {
            CHECK(shake_hands(pair, next, flip_at));
            send_both_ways(pair);
        } else if (shake_hands(pair, next, flip_at)) {
            (void)(SSL_write_ex(pair.client, "x", 1, &done) == 1 && SSL_read_ex(pair.server, &byte, 1, &done) == 1);
            (void)SSL_shutdown(pair.server);
        }
        free_pair(pair);
    }
    if (!kind->stitched || !is_half(next)) {
        struct pair pair = connect_ends(ends);

        set_mode(next);
        CHECK(shake_hands(pair, next, 0));
        send_both_ways(pair);
        free_pair(pair);
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 4 || count == 5);
    doubled = count == 5;
    area_descriptor = atoi(arguments[1]);
    for (size_t i = 0; i < KIND_TOTAL; i++) {
        const struct kind *kind = &KINDS[i];

        for (size_t j = 0; j < MODE_TOTAL; j++) {
            /* Each to nothing, to everything, and to its neighbour. */
            const uint32_t others[] = {NOTHING_OFF, EVERYTHING, MODES[(j + 1) % MODE_TOTAL]};
            struct ends ends = make_ends(kind, arguments[2], arguments[3]);

            for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
                keep_over_flips(kind, ends, MODES[j], others[k]);
                flip_in_handshake(kind, ends, MODES[j], others[k]);
                if (kind->version == TLS1_3_VERSION)
                    new_keys_after_a_flip(ends, MODES[j], others[k]);
            }
            free_ends(ends);
        }
    }
    return 0;
}
