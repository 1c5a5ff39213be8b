/*
 * A server on GnuTLS for the interoperation tests. Arguments: SOCKET CERTIFICATE KEY PRIORITY tickets|ids. It prints
 * one line per connection: version, suite, group and whether the session was resumed, then answers requests of four
 * bytes (the big-endian length of the answer) until the client closes.
 * GnuTLS' own gnutls-serv is not used because it listens on every address of the machine.
 */
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SESSIONS 64

/* Sessions by ID; the oldest makes room. */
static struct {
    gnutls_datum_t key, data;
} sessions[SESSIONS];
static unsigned newest;

static void die(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, error < 0 ? gnutls_strerror(error) : "failed");
    exit(1);
}

static gnutls_datum_t copy(gnutls_datum_t from)
{
    /* GnuTLS frees what it gets from a store with its own allocator. */
    gnutls_datum_t to = {gnutls_malloc(from.size), from.size};
    if (to.data == NULL)
        die("memory", GNUTLS_E_MEMORY_ERROR);
    memcpy(to.data, from.data, from.size);
    return to;
}

static int store(void *unused, gnutls_datum_t key, gnutls_datum_t data)
{
    (void)unused;
    newest = (newest + 1) % SESSIONS;
    gnutls_free(sessions[newest].key.data);
    gnutls_free(sessions[newest].data.data);
    sessions[newest].key = copy(key);
    sessions[newest].data = copy(data);
    return 0;
}

static gnutls_datum_t retrieve(void *unused, gnutls_datum_t key)
{
    (void)unused;
    for (unsigned at = 0; at < SESSIONS; at++) {
        gnutls_datum_t known = sessions[at].key;
        if (known.data != NULL && known.size == key.size && memcmp(known.data, key.data, key.size) == 0)
            return copy(sessions[at].data);
    }
    return (gnutls_datum_t){NULL, 0};
}

static int forget(void *unused, gnutls_datum_t key)
{
    (void)unused;
    (void)key;
    return 0;
}

static void answer(gnutls_session_t session)
{
    unsigned char request[4];
    size_t have = 0;
    for (;;) {
        ssize_t got = gnutls_record_recv(session, request + have, sizeof request - have);
        if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED)
            continue;
        if (got <= 0)
            return;
        have += (size_t)got;
        if (have < sizeof request)
            continue;
        have = 0;
        size_t length = (size_t)request[0] << 24 | (size_t)request[1] << 16 | (size_t)request[2] << 8 | request[3];
        unsigned char *bytes = malloc(length + 1);
        if (bytes == NULL)
            die("memory", GNUTLS_E_MEMORY_ERROR);
        for (size_t index = 0; index < length; index++)
            bytes[index] = (unsigned char)(index * 7 % 251);
        for (size_t sent = 0; sent < length;) {
            ssize_t wrote = gnutls_record_send(session, bytes + sent, length - sent);
            if (wrote < 0 && wrote != GNUTLS_E_AGAIN && wrote != GNUTLS_E_INTERRUPTED)
                die("send", (int)wrote);
            sent += wrote > 0 ? (size_t)wrote : 0;
        }
        free(bytes);
    }
}

static void serve(int connection, gnutls_certificate_credentials_t credentials, gnutls_priority_t priority,
                  const gnutls_datum_t *ticket_key)
{
    gnutls_session_t session;
    gnutls_init(&session, GNUTLS_SERVER);
    gnutls_priority_set(session, priority);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    if (ticket_key->data != NULL) {
        gnutls_session_ticket_enable_server(session, ticket_key);
    } else {
        gnutls_db_set_store_function(session, store);
        gnutls_db_set_retrieve_function(session, retrieve);
        gnutls_db_set_remove_function(session, forget);
    }
    gnutls_transport_set_int(session, connection);
    int result;
    do {
        result = gnutls_handshake(session);
    } while (result < 0 && !gnutls_error_is_fatal(result));
    if (result < 0) {
        printf("failed: %s\n", gnutls_strerror(result));
    } else {
        const char *suite = gnutls_ciphersuite_get(session);
        const char *group = gnutls_group_get_name(gnutls_group_get(session));
        printf("%s %s %s %s\n", gnutls_protocol_get_name(gnutls_protocol_get_version(session)),
               suite == NULL ? "-" : suite, group == NULL ? "-" : group,
               gnutls_session_is_resumed(session) ? "true" : "false");
        answer(session);
    }
    gnutls_deinit(session);
    close(connection);
}

int main(int count, char **arguments)
{
    if (count != 6)
        die("five arguments are needed", 0);
    gnutls_certificate_credentials_t credentials;
    gnutls_certificate_allocate_credentials(&credentials);
    int error = gnutls_certificate_set_x509_key_file(credentials, arguments[2], arguments[3], GNUTLS_X509_FMT_PEM);
    if (error < 0)
        die("certificate", error);
    gnutls_priority_t priority;
    if ((error = gnutls_priority_init(&priority, arguments[4], NULL)) < 0)
        die(arguments[4], error);
    gnutls_datum_t ticket_key = {NULL, 0};
    if (strcmp(arguments[5], "tickets") == 0)
        gnutls_session_ticket_key_generate(&ticket_key);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
        die("listen", 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("listening");
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            die("accept", 0);
        serve(connection, credentials, priority, &ticket_key);
    }
}
