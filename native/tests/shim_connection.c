/*
 * The C parts of the shim over memory: linked into this program, its interposers stand in front of libssl for the
 * program itself and for libssl. An SSL of a server is fed by hand, in pieces of every size, with writes that take few
 * bytes at a time, and with garbage; the area that the environment names says what is off.
 *
 *     shim_connection plain|script|fast|minimal|modes CERTIFICATE KEY
 */
#include "shim_wire.h"

enum { FEW = 7 };

/* ---- Plain data after a real handshake with libssl's own client ---- */

/* The client's Finished and its request arrive together, in pieces. */
static void plain_connection(size_t piece, bool read_ahead, int version, size_t write_max)
{
    static struct wire wire;
    SSL *server = new_server(&wire, read_ahead, write_max);
    struct client client = new_client(version, NULL);
    unsigned char byte;
    size_t before;

    shake_hands(server, &client, &wire);
    send_request(&wire);
    feed(server, &wire, piece);
    CHECK(SSL_version(server) == version);
    shuttle(&client, &wire);
    if (version == TLS1_3_VERSION) /* the tickets: real records in front of the plain data */
        CHECK(SSL_read(client.ssl, &byte, 1) <= 0 && SSL_get_error(client.ssl, -1) == SSL_ERROR_WANT_READ);
    before = wire.from_server_size;
    write_answer(server);
    check_answer(wire.from_server + before, wire.from_server_size - before);
    check_end(server, &wire);
    SSL_free(server);
    SSL_free(client.ssl);
}

static void plain(void)
{
    for (size_t piece = 1; piece < 500; piece = piece < 20 ? piece + 1 : piece * 2) {
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            plain_connection(piece, false, version, 0);
            plain_connection(piece, true, version, 0);
        }
    }
    plain_connection(100, true, TLS1_3_VERSION, FEW);
    SSL_CTX_set_mode(server_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    plain_connection(100, true, TLS1_2_VERSION, FEW);
}

/* ---- Skeletons ---- */

static size_t first_flight(unsigned char *flight, const struct tlsdyno_script *script, unsigned char kind)
{
    size_t size = script->flights[0];

    memset(flight, 0, size);
    flight[0] = 0x16;
    flight[1] = 3;
    flight[2] = 1;
    flight[3] = (unsigned char)((size - 5) >> 8);
    flight[4] = (unsigned char)(size - 5);
    flight[5] = 0xd5;
    flight[6] = kind;
    return size;
}

/* Checks and skips a flight of the server. */
static const unsigned char *skip(const unsigned char *at, size_t size)
{
    CHECK(at[0] == 0x16);
    for (size_t i = 1; i < size; i++)
        CHECK(at[i] == 0);
    return at + size;
}

static void script_connection(const struct tlsdyno_script *script, unsigned char kind, size_t piece, bool read_ahead,
                              size_t write_max)
{
    static struct wire wire;
    static unsigned char flight[BUFFER_MAX];
    SSL *server = new_server(&wire, read_ahead, write_max);
    const unsigned char *at = wire.from_server;
    bool fast = kind == 2;
    uint32_t flights = fast ? 2 : script->flight_count;

    send_to(&wire, flight, first_flight(flight, script, kind));
    for (uint32_t i = 2; i < flights; i += 2) {
        memset(flight, 0, script->flights[i]);
        flight[0] = 0x16;
        send_to(&wire, flight, script->flights[i]);
    }
    send_request(&wire);
    feed(server, &wire, piece);
    CHECK(!fast || wire.from_server_size == 0);
    write_answer(server);
    for (uint32_t i = 1; i < flights; i += 2)
        at = skip(at, script->flights[i]);
    check_answer(at, wire.from_server_size - (size_t)(at - wire.from_server));
    check_end(server, &wire);
    SSL_free(server);
}

/* Whatever is not of the script ends the handshake, for good. */
static void broken_flight(const unsigned char *data, size_t size)
{
    static struct wire wire;
    SSL *server = new_server(&wire, false, 0);
    unsigned char byte;

    send_to(&wire, data, size);
    wire.allowed = size;
    CHECK(SSL_do_handshake(server) == -1 && SSL_get_error(server, -1) == SSL_ERROR_SSL);
    CHECK(SSL_read(server, &byte, 1) == -1 && SSL_get_error(server, -1) == SSL_ERROR_SSL);
    CHECK(SSL_write(server, &byte, 1) == -1 && SSL_do_handshake(server) == -1 && !SSL_is_init_finished(server));
    CHECK(ERR_peek_error() != 0);
    ERR_clear_error();
    SSL_free(server);
}

static void script_garbage(unsigned char unknown_kind)
{
    static unsigned char flight[BUFFER_MAX];
    size_t size = first_flight(flight, &area->full, 0);
    size_t with_third = size + area->full.flights[2];

    memset(flight + size, 0, area->full.flights[2]);
    flight[size] = 0x17; /* the third flight does not begin as one */
    broken_flight(flight, with_third);
    flight[size] = 0x16;
    flight[with_third - 1] = 1; /* nor end */
    broken_flight(flight, with_third);
    for (size_t at = 0; at < 7; at++) { /* anything else in the beginning */
        size = first_flight(flight, &area->full, 0);
        flight[at] = (unsigned char)(flight[at] + 100);
        broken_flight(flight, size);
    }
    size = first_flight(flight, &area->full, 0);
    flight[size - 1] = 1;
    broken_flight(flight, size);
    broken_flight(flight, first_flight(flight, &area->resumed, unknown_kind));
    memset(flight, 0xff, sizeof(flight));
    broken_flight(flight, 100);
}

static void early_end(void)
{
    static struct wire wire;
    unsigned char flight[BUFFER_MAX];
    SSL *server = new_server(&wire, false, 0);

    send_to(&wire, flight, first_flight(flight, &area->full, 0));
    wire.allowed = 40;
    wire.ended = true;
    CHECK(SSL_do_handshake(server) == -1 && SSL_get_error(server, -1) == SSL_ERROR_SYSCALL);
    SSL_free(server);
}

static void scripts(unsigned char resumed_kind, unsigned char unknown_kind)
{
    for (size_t piece = 1; piece < 2000; piece = piece < 20 ? piece + 1 : piece * 2) {
        script_connection(&area->full, 0, piece, piece % 2 == 0, 0);
        script_connection(&area->resumed, resumed_kind, piece, piece % 2 == 1, 0);
    }
    script_connection(&area->full, 0, 50, false, FEW);
    script_connection(&area->resumed, resumed_kind, 50, true, FEW);
    SSL_CTX_set_mode(server_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    script_connection(&area->resumed, resumed_kind, 50, true, FEW);
    script_garbage(unknown_kind);
    early_end();
}

/* An SSL that is used again begins anew. */
static void reuse(void)
{
    static struct wire wire;
    unsigned char flight[BUFFER_MAX];
    SSL *server = new_server(&wire, true, 0);

    for (int round = 0; round < 2; round++) {
        send_to(&wire, flight, first_flight(flight, &area->full, 0));
        memset(flight, 0, area->full.flights[2]);
        flight[0] = 0x16;
        send_to(&wire, flight, area->full.flights[2]);
        send_request(&wire);
        feed(server, &wire, 64);
        CHECK(SSL_clear(server) == 1 && !SSL_is_init_finished(server));
        SSL_set_accept_state(server);
    }
    SSL_free(server);
}

static void script(void)
{
    scripts(1, 2);
    reuse();
}

static void fast(void)
{
    scripts(2, 1);
}

/* ---- Minimal connections ---- */

static void minimal_connection(size_t piece, bool read_ahead, size_t write_max)
{
    static struct wire wire;
    static unsigned char record[RECORD_SIZE_MAX], answer[ANSWER_SIZE];
    struct records *client = records_new(area->suite, flag_is_set(SHIM_FLAG_ENCRYPT_THEN_MAC));
    unsigned char request[REQUEST_SIZE];
    unsigned char *data, *at = wire.from_server;
    size_t size, have = 0;
    SSL *server = new_server(&wire, read_ahead, write_max);

    CHECK(client != NULL);
    pattern(request, sizeof(request), 3);
    for (size_t done = 0; done < sizeof(request); done += 100) /* three records, and an empty one */
        send_to(&wire, record, records_seal(client, record, request + done, 100));
    send_to(&wire, record, records_seal(client, record, request, 0));
    feed(server, &wire, piece);
    write_answer(server);
    while (at < wire.from_server + wire.from_server_size) {
        size_t length = RECORD_HEADER_SIZE + ((size_t)at[3] << 8 | at[4]);

        CHECK(records_open(client, at, length, &data, &size) && have + size <= sizeof(answer));
        memcpy(answer + have, data, size);
        have += size;
        at += length;
    }
    check_answer(answer, have);
    read_request(server, &(size_t){0}); /* takes the empty record */
    check_end(server, &wire);
    records_free(client);
    SSL_free(server);
}

static void broken_record(const unsigned char *data, size_t size)
{
    static struct wire wire;
    SSL *server = new_server(&wire, true, 0);
    unsigned char byte;

    send_to(&wire, data, size);
    wire.allowed = size;
    CHECK(SSL_do_handshake(server) == 1);
    CHECK(SSL_read(server, &byte, 1) == -1 && SSL_get_error(server, -1) == SSL_ERROR_SSL);
    ERR_clear_error();
    SSL_free(server);
}

/*
 * Records of every length up to a few blocks, whole in themselves and not protected; and good ones with one bit wrong.
 */
static void minimal_garbage(void)
{
    static unsigned char record[RECORD_SIZE_MAX];
    struct records *client = records_new(area->suite, flag_is_set(SHIM_FLAG_ENCRYPT_THEN_MAC));
    size_t size = records_seal(client, record, (const unsigned char *)"data", 4);

    CHECK(size > 0);
    for (size_t at = RECORD_HEADER_SIZE; at < size; at++) {
        record[at] ^= 1;
        broken_record(record, size);
        record[at] ^= 1;
    }
    for (size_t length = 0; length < 100; length++) {
        memset(record, (int)length, sizeof(record));
        memcpy(record, "\x17\x03\x03\x00", 4);
        record[4] = (unsigned char)length;
        broken_record(record, RECORD_HEADER_SIZE + length);
    }
    memcpy(record, "\x17\x03\x03\xff\xff", 5);
    broken_record(record, 2000);
    memcpy(record, "\x16\x03\x01\x00\x05", 5);
    broken_record(record, 10);
    records_free(client);
}

static void minimal(void)
{
    for (size_t piece = 1; piece < 500; piece = piece < 40 ? piece + 1 : piece * 2) {
        minimal_connection(piece, false, 0);
        minimal_connection(piece, true, 0);
    }
    minimal_connection(50, true, FEW);
    SSL_CTX_set_mode(server_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    minimal_connection(50, true, FEW);
    minimal_garbage();
}

/* ---- Modes ---- */

/* With nothing off: libssl moves the data, and a late close_notify goes out. */
static void real_connection(int version)
{
    static struct wire wire;
    static unsigned char answer[ANSWER_SIZE];
    SSL *server = new_server(&wire, true, 0);
    struct client client = new_client(version, NULL);
    unsigned char request[REQUEST_SIZE], record[2 * REQUEST_SIZE], byte;
    size_t have = 0;
    int size;

    shake_hands(server, &client, &wire);
    pattern(request, sizeof(request), 3);
    CHECK(SSL_write(client.ssl, request, sizeof(request)) == sizeof(request));
    size = BIO_read(client.out, record, sizeof(record));
    CHECK(size > REQUEST_SIZE);
    send_to(&wire, record, (size_t)size);
    feed(server, &wire, 64);
    write_answer(server);
    CHECK(SSL_shutdown(server) == 0);
    shuttle(&client, &wire);
    while (have < sizeof(answer)) {
        size = SSL_read(client.ssl, answer + have, (int)(sizeof(answer) - have));
        CHECK(size > 0);
        have += (size_t)size;
    }
    check_answer(answer, have);
    CHECK(SSL_read(client.ssl, &byte, 1) == 0 && SSL_get_error(client.ssl, 0) == SSL_ERROR_ZERO_RETURN);
    SSL_free(server);
    SSL_free(client.ssl);
}

static void real_way(void)
{
    real_connection(TLS1_2_VERSION);
    real_connection(TLS1_3_VERSION);
}

static void plain_way(void)
{
    plain_connection(64, true, TLS1_2_VERSION, 0);
    plain_connection(64, true, TLS1_3_VERSION, 0);
}

static void script_way(void)
{
    script_connection(&area->full, 0, 64, true, 0);
    script_connection(&area->resumed, 1, 64, true, FEW);
    reuse();
}

static void fast_way(void)
{
    script_connection(&area->resumed, 2, 64, true, 0);
}

static void minimal_way(void)
{
    minimal_connection(64, true, FEW);
}

/* Connections of each mode while the mode is another; among the words are such as are no modes by themselves. */
static void modes(void)
{
    enum {
        PLAIN = 1 << SHIM_STAGE_MARSHALLING,
        SCRIPT = 1 << SHIM_STAGE_HANDSHAKE,
        FAST = 1 << SHIM_STAGE_ROUND_TRIP,
        MINIMAL = 1 << SHIM_STAGE_SETUP,
    };
    static const struct {
        uint32_t mode;
        void (*connect)(void);
    } WAYS[] = {
        {0, real_way},
        {PLAIN, plain_way},
        {PLAIN | SCRIPT, script_way},
        {SCRIPT, script_way},
        {PLAIN | SCRIPT | FAST, fast_way},
        {MINIMAL, minimal_way},
        {MINIMAL | PLAIN | SCRIPT, minimal_way},
        {FAST, real_way},
        {1u << 31, real_way},
    };

    for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
        for (size_t j = 0; j < sizeof(WAYS) / sizeof(WAYS[0]); j++) {
            first_mode = WAYS[i].mode;
            next_mode = WAYS[j].mode;
            WAYS[i].connect();
        }
    }
}

int main(int argument_count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } SECTIONS[] = {{"plain", plain}, {"script", script}, {"fast", fast}, {"minimal", minimal}, {"modes", modes}};
    bool found = false;

    CHECK(argument_count == 4);
    make_contexts(arguments[2], arguments[3]);
    for (size_t i = 0; i < sizeof(SECTIONS) / sizeof(SECTIONS[0]); i++) {
        if (strcmp(arguments[1], SECTIONS[i].name) == 0) {
            SECTIONS[i].run();
            found = true;
        }
    }
    CHECK(found);
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
    return 0;
}
