/* Usage: tlsdyno-stock-client ADDRESS PORT VERSION CIPHERS SUITES GROUPS NAME CA REQUEST
 *
 * A client made of the system's libssl and nothing else, which says what it did when. VERSION is 1.2 or 1.3; CIPHERS
 * are those of TLS 1.2, SUITES those of 1.3, REQUEST a file; `-` stands for the library's default, and as CA for none.
 * Says the version of the library first. Then each line of standard input, `KIND LEAST MOST NANOSECONDS`, with KIND
 * `full` or `resumed`, asks for connections, one after the other, for so long and at least and at most so many. Each is
 * answered by its moments, `m AT_NS CPU_NS BYTES WHAT`, and `c RESUMED STATUS SENT RECEIVED`; all of them by `.` or by
 * `! REASON`. Ends with its input. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "stock_client.h"

#include "../clock.h"

#define REQUEST_MAX 65536

static bool is_default(const char *text)
{
    return strcmp(text, "-") == 0;
}

static bool read_request(const char *path, struct client *client)
{
    static unsigned char request[REQUEST_MAX];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        return false;
    }
    client->request = request;
    client->request_bytes = fread(request, 1, sizeof(request), file);
    return fclose(file) == 0 && client->request_bytes > 0;
}

/* Keeps the newest session that was given; the library keeps none. */
static int at_session(SSL *ssl, SSL_SESSION *session)
{
    struct client *client = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

    SSL_SESSION_free(client->session);
    client->session = session;
    return 1;
}

static SSL_CTX *settings(char **arguments, struct client *client)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int version = strcmp(arguments[3], "1.2") == 0 ? TLS1_2_VERSION : TLS1_3_VERSION;

    if (context == NULL || SSL_CTX_set_min_proto_version(context, version) != 1 ||
        SSL_CTX_set_max_proto_version(context, version) != 1 ||
        (!is_default(arguments[4]) && SSL_CTX_set_cipher_list(context, arguments[4]) != 1) ||
        (!is_default(arguments[5]) && SSL_CTX_set_ciphersuites(context, arguments[5]) != 1) ||
        (!is_default(arguments[6]) && SSL_CTX_set1_groups_list(context, arguments[6]) != 1)) {
        return NULL;
    }
    if (!is_default(arguments[8])) {
        if (SSL_CTX_load_verify_locations(context, arguments[8], NULL) != 1) {
            return NULL;
        }
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, at_session);
    SSL_CTX_set_app_data(context, client);
    client->name = arguments[7];
    return context;
}

static void print(const struct connection *connection)
{
    for (size_t index = 0; index < connection->moments_count; index++) {
        const struct moment *moment = &connection->moments[index];

        (void)printf("m %llu %llu %zu %s\n", (unsigned long long)moment->at_ns, (unsigned long long)moment->cpu_ns,
                     moment->bytes, moment->what);
    }
    (void)printf("c %d %d %llu %llu\n", connection->is_resumed ? 1 : 0, connection->status,
                 (unsigned long long)connection->sent_bytes, (unsigned long long)connection->received_bytes);
}

static void answer(struct client *client, const char *line)
{
    static struct connection connection;
    char kind[16];
    unsigned long long least = 0;
    unsigned long long most = 0;
    unsigned long long for_ns = 0;
    uint64_t until_ns;

    if (sscanf(line, "%15s %llu %llu %llu", kind, &least, &most, &for_ns) != 4) {
        (void)printf("! not a command: %s\n", line);
        return;
    }
    client->resumes = strcmp(kind, "resumed") == 0;
    /* What resumes begins with a session of a connection that is not told. */
    if (client->resumes && client->session == NULL && !connect_and_ask(client, &connection)) {
        (void)printf("! %s\n", connection.reason);
        return;
    }
    until_ns = clock_ns(CLOCK_MONOTONIC) + for_ns;
    for (unsigned long long number = 0; number < most && (number < least || clock_ns(CLOCK_MONOTONIC) < until_ns);
         number++) {
        if (!connect_and_ask(client, &connection)) {
            (void)printf("! %s\n", connection.reason);
            return;
        }
        print(&connection);
    }
    (void)printf(".\n");
}

int main(int count, char **arguments)
{
    struct client client = {.session = NULL};
    char line[256];

    if (count != 10) {
        (void)fprintf(stderr, "usage: tlsdyno-stock-client ADDRESS PORT VERSION CIPHERS SUITES GROUPS NAME CA "
                              "REQUEST\n");
        return 2;
    }
    /* A server that resets a connection is an error of that connection. */
    (void)signal(SIGPIPE, SIG_IGN);
    client.context = settings(arguments, &client);
    if (client.context == NULL || !find_address(&client, arguments[1], arguments[2]) ||
        !read_request(arguments[9], &client)) {
        char reason[REASON_BYTES];

        say_why(reason, "it cannot be set up");
        (void)printf("! %s\n", reason);
        return 1;
    }
    (void)printf("%s\n", OpenSSL_version(OPENSSL_VERSION));
    (void)fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        answer(&client, line);
        (void)fflush(stdout);
    }
    SSL_SESSION_free(client.session);
    SSL_CTX_free(client.context);
    return 0;
}
