/* A client of the system's libssl that notes what it does when. */
#ifndef TLSDYNO_STOCK_CLIENT_H
#define TLSDYNO_STOCK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <openssl/ssl.h>

#define MOMENTS_MAX 64
#define REASON_BYTES 300

/* The end of something that was done; it began where the moment before ended. */
struct moment {
    const char *what;
    uint64_t at_ns;
    uint64_t cpu_ns;
    size_t bytes;
};

/* One connection: what was done in it, or why it failed. */
struct connection {
    SSL *ssl;
    int socket;
    struct moment moments[MOMENTS_MAX];
    size_t moments_count;
    /* The state that the last moment was of. */
    OSSL_HANDSHAKE_STATE told;
    /* Bytes of messages since then. */
    size_t message_bytes;
    bool is_data;
    bool is_resumed;
    int status;
    /* Of the handshake, on the wire. */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    char reason[REASON_BYTES];
};

/* What all connections have in common. */
struct client {
    SSL_CTX *context;
    SSL_SESSION *session;
    bool resumes;
    const char *name;
    const unsigned char *request;
    size_t request_bytes;
    struct sockaddr_storage address;
    socklen_t address_bytes;
};

/* connection.c */
bool find_address(struct client *client, const char *address, const char *port);
bool connect_and_ask(struct client *client, struct connection *connection);
void say_why(char reason[REASON_BYTES], const char *what);

/* moments.c */
void note(struct connection *connection, const char *what);
void note_state(struct connection *connection);
void watch(struct connection *connection);

/* What moments are of besides messages; run/exchange.rs has the same names. */
#define BEGINNING "begin"
#define CONNECTING "connect"
#define HELLO "ClientHello made"
#define WAITING "wait and read"
#define DATA "request and response"

#endif
