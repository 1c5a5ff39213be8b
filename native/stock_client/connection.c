/* One connection with one request, whose response ends with it. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>

#include "stock_client.h"

#define PATIENCE_MS 5000
#define BUFFER_BYTES 16384

void say_why(char reason[REASON_BYTES], const char *what)
{
    char text[200] = "";
    unsigned long error = ERR_get_error();

    if (error != 0) {
        ERR_error_string_n(error, text, sizeof(text));
    } else {
        (void)snprintf(text, sizeof(text), "%s", errno == 0 ? "no more is known" : strerror(errno));
    }
    ERR_clear_error();
    (void)snprintf(reason, REASON_BYTES, "%s: %s", what, text);
}

bool find_address(struct client *client, const char *address, const char *port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    if (getaddrinfo(address, port, &hints, &found) != 0) {
        return false;
    }
    memcpy(&client->address, found->ai_addr, found->ai_addrlen);
    client->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* Waits for what the last call wants; whether it came in time. */
static bool wait_for(const struct connection *connection, int returned)
{
    int error = SSL_get_error(connection->ssl, returned);
    struct pollfd wanted = {.fd = connection->socket, .events = error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};

    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        return false;
    }
    return poll(&wanted, 1, PATIENCE_MS) == 1;
}

static bool open_socket(const struct client *client, struct connection *connection)
{
    int one = 1;

    connection->socket = socket(client->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connection->socket >= 0 &&
           connect(connection->socket, (const struct sockaddr *)&client->address, client->address_bytes) == 0 &&
           setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0 &&
           fcntl(connection->socket, F_SETFL, O_NONBLOCK) == 0;
}

static bool shake_hands(struct connection *connection)
{
    int returned;

    while ((returned = SSL_connect(connection->ssl)) != 1) {
        if (SSL_get_state(connection->ssl) != connection->told) {
            note_state(connection);
        }
        if (!wait_for(connection, returned)) {
            return false;
        }
        note(connection, WAITING);
    }
    note_state(connection);
    connection->is_data = true;
    connection->is_resumed = SSL_session_reused(connection->ssl) == 1;
    connection->sent_bytes = BIO_number_written(SSL_get_wbio(connection->ssl));
    connection->received_bytes = BIO_number_read(SSL_get_rbio(connection->ssl));
    return true;
}

/* Sends the request and reads to the end; the status is that of the first line. */
static bool ask(const struct client *client, struct connection *connection)
{
    static char response[BUFFER_BYTES];
    size_t first_bytes = 0;
    int error;
    int returned = SSL_write(connection->ssl, client->request, (int)client->request_bytes);

    if (returned != (int)client->request_bytes) {
        return false;
    }
    for (;;) {
        /* The head is kept; of the body each part takes the place of the one before. */
        size_t kept = first_bytes < BUFFER_BYTES / 2 ? first_bytes : BUFFER_BYTES / 2;

        returned = SSL_read(connection->ssl, response + kept, (int)(BUFFER_BYTES - 1 - kept));
        if (returned > 0) {
            first_bytes = kept + (size_t)returned;
            continue;
        }
        error = SSL_get_error(connection->ssl, returned);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
            break;
        }
        if (!wait_for(connection, returned)) {
            return false;
        }
    }
    if (error != SSL_ERROR_ZERO_RETURN) {
        /* Servers that close without a close_notify have answered too. Nothing may be written after an error, and the
         * session is good all the same. */
        SSL_set_quiet_shutdown(connection->ssl, 1);
    }
    response[first_bytes] = '\0';
    note(connection, DATA);
    return sscanf(response, "HTTP/1.%*d %d", &connection->status) == 1;
}

bool connect_and_ask(struct client *client, struct connection *connection)
{
    bool done;

    *connection = (struct connection){.socket = -1, .reason = "no memory"};
    connection->ssl = SSL_new(client->context);
    if (connection->ssl == NULL) {
        return false;
    }
    watch(connection);
    note(connection, BEGINNING);
    errno = 0;
    done = open_socket(client, connection);
    if (done) {
        note(connection, CONNECTING);
        done = SSL_set_fd(connection->ssl, connection->socket) == 1 &&
               SSL_set_tlsext_host_name(connection->ssl, client->name) == 1 &&
               SSL_set1_host(connection->ssl, client->name) == 1 &&
               (!client->resumes || client->session == NULL ||
                SSL_set_session(connection->ssl, client->session) == 1) &&
               shake_hands(connection) && ask(client, connection);
    }
    if (done) {
        (void)SSL_shutdown(connection->ssl);
    } else {
        say_why(connection->reason, "a connection of the stock client failed");
    }
    SSL_free(connection->ssl);
    ERR_clear_error();
    if (connection->socket >= 0) {
        (void)close(connection->socket);
    }
    return done;
}
