/*
 * The shim: a library that is preloaded over libssl and replaces what lies above the primitives on the server side of
 * connections (docs/NOOP.md, "The stages of the shim").
 *
 * Every interposed call finds the connection's own state (struct connection) in the SSL's application data; there is no
 * other state but the area that tlsdyno made (../shim_record.h), constant settings, and the template of the universal
 * session. What the shim calls of libssl comes back through its own interposers, for libssl calls its exported
 * functions through the PLT: `depth` tells the two apart.
 */
#ifndef TLSDYNO_SHIM_H
#define TLSDYNO_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "../shim_record.h"

/* ---- real.c: the functions that the shim stands in front of ---- */

/* X(result, name, parameters) */
#define REAL_FUNCTIONS(X)                                                                                              \
    X(SSL *, SSL_new, (SSL_CTX *))                                                                                     \
    X(void, SSL_free, (SSL *))                                                                                         \
    X(int, SSL_clear, (SSL *))                                                                                         \
    X(int, SSL_do_handshake, (SSL *))                                                                                  \
    X(int, SSL_accept, (SSL *))                                                                                        \
    X(int, SSL_read_early_data, (SSL *, void *, size_t, size_t *))                                                     \
    X(int, SSL_read, (SSL *, void *, int))                                                                             \
    X(int, SSL_read_ex, (SSL *, void *, size_t, size_t *))                                                             \
    X(int, SSL_peek, (SSL *, void *, int))                                                                             \
    X(int, SSL_peek_ex, (SSL *, void *, size_t, size_t *))                                                             \
    X(int, SSL_write, (SSL *, const void *, int))                                                                      \
    X(int, SSL_write_ex, (SSL *, const void *, size_t, size_t *))                                                      \
    X(int, SSL_get_error, (const SSL *, int))                                                                          \
    X(int, SSL_pending, (const SSL *))                                                                                 \
    X(int, SSL_has_pending, (const SSL *))                                                                             \
    X(int, SSL_is_init_finished, (const SSL *))                                                                        \
    X(int, SSL_in_init, (const SSL *))                                                                                 \
    X(int, SSL_shutdown, (SSL *))                                                                                      \
    X(BIO *, SSL_get_rbio, (const SSL *))                                                                              \
    X(int, accept, (int, struct sockaddr *, socklen_t *))                                                              \
    X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                                        \
    X(ssize_t, recv, (int, void *, size_t, int))

struct real_functions {
#define REAL_FUNCTION(result, name, parameters) result(*name) parameters;
    REAL_FUNCTIONS(REAL_FUNCTION)
#undef REAL_FUNCTION
};

extern struct real_functions real;

/*
 * Of libraries that are there from the start, such variables are reached without a call; every interposed call reads
 * one.
 */
#define SHIM_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

/* Calls of libssl that are on the stack of this thread: what it calls of itself through the PLT is not the server's. */
extern SHIM_THREAD_LOCAL int depth;

/* One real call that may call other interposed functions. */
#define REALLY(result, call)                                                                                           \
    do {                                                                                                               \
        depth++;                                                                                                       \
        result = (call);                                                                                               \
        depth--;                                                                                                       \
    } while (0)

/* ---- area.c: acknowledgement, settings, counters ---- */

extern struct tlsdyno_shim_area *area; /* never NULL once that the server runs */

/* Maps the area and takes its settings if it acknowledges this run; else answers why not. */
const char *area_map(const char *descriptor, const char *run_id);

/* Whether tlsdyno still lives. Asked once for a connection and once for a handshake. */
bool acknowledged(void);

/* The settings, constant once that the server runs. */
extern uint32_t may_be_off; /* the stages of which the mode chooses */
extern uint32_t flag_bits;

/* The stages that are off for connections that begin now. A connection keeps them. */
uint32_t mode_now(void);

static inline bool is_off(uint32_t mode, enum tlsdyno_shim_stage stage)
{
    return (mode & 1u << stage) != 0;
}

static inline bool flag_is_set(enum tlsdyno_shim_flag flag)
{
    return (flag_bits & 1u << flag) != 0;
}

/* The shim, not libssl, moves the data of connections of this mode. */
static inline bool shim_moves_data(uint32_t mode)
{
    return (mode & (1u << SHIM_STAGE_MARSHALLING | 1u << SHIM_STAGE_SETUP)) != 0;
}

void count(enum tlsdyno_shim_counter counter);

/* ---- connection.c: what the shim knows of one SSL ---- */

enum phase {
    PHASE_START,   /* the server has not asked for a handshake yet */
    PHASE_REAL,    /* libssl does everything */
    PHASE_SCRIPT,  /* a skeleton handshake is under way */
    PHASE_PLAIN,   /* data in plain */
    PHASE_MINIMAL, /* data in the shim's own records */
    PHASE_BROKEN,
};

enum { RECORD_HEADER_SIZE = 5, RECORD_DATA_MAX = 16384, RECORD_SIZE_MAX = RECORD_HEADER_SIZE + RECORD_DATA_MAX + 2048 };
enum { INPUT_SIZE = 4096, FIRST_FLIGHT_MIN = 16 };

/* Fast resumption: what the server's flight has room for until the first data go with it; hybrid shares are large. */
enum { REPLY_MAX = 4096 };

/* Bytes that were read from the transport and not used yet. */
struct input {
    unsigned char *bytes;
    size_t size;
    size_t start;
    size_t end;
};

struct records;

struct connection {
    SSL *ssl;      /* whose state it is */
    uint32_t mode; /* that of the moment when the SSL was made */
    enum phase phase;
    bool set_up;     /* counted, and stamped if wanted */
    bool read_ahead; /* the server allows reading more than the record needs */
    bool failed;     /* counted as failed */
    int error;       /* what SSL_get_error answers in phases of the shim */
    struct input input;
    size_t record_left; /* boundary.c: bytes of the current record that libssl has not got */
    bool skips;         /* boundary.c: libssl shall not see the rest of this record */
    bool in_record;     /* fast.c: the client's request may begin with the header of its record */

    const struct tlsdyno_script *script; /* script.c */
    enum tlsdyno_shim_counter kind;
    uint32_t flight;
    size_t flight_done;

    unsigned char *reply; /* fast resumption: it goes, zeros behind it, in front of the first data; REPLY_MAX bytes */
    size_t reply_made;    /* bytes of it that are not zeros */
    size_t reply_size;
    size_t reply_sent;
    size_t written; /* of the server's current write, where it wants to hear only of the whole */

    struct records *records; /* records.c */
    unsigned char *sealed;   /* minimal.c: the record being sent */
    size_t sealed_size;
    size_t sealed_sent;
    size_t sealed_data; /* data bytes in it */
    unsigned char *opened;
    size_t opened_left;

    struct stamp *stamp;         /* time_stamps.c: being drawn up; NULL if none is wanted */
    unsigned char buffer[];      /* of `input`, in minimal set-up of `sealed`, with one round trip fewer of `reply` */
};

/* The state of a connection, whoever asks. */
struct connection *connection_of(const SSL *ssl);
/* The state of a server's connection if the server itself calls; NULL inside libssl, and for connections of clients. */
struct connection *outermost(const SSL *ssl);
bool connection_new(SSL *ssl);
void connection_clear(struct connection *connection);
/* What the server's first call begins; set_up() does it too. */
int begin_set_up(struct connection *connection, SSL *ssl);
int set_up(struct connection *connection, SSL *ssl, int (*drive)(SSL *));
void is_set_up(struct connection *connection, SSL *ssl, enum tlsdyno_shim_counter kind);
void follow_real_handshake(struct connection *connection, SSL *ssl, int result);
/* The client of a resumed session has sent early data, which the server may answer before the handshake ends. */
void has_early_data(struct connection *connection, SSL *ssl);
int broken(struct connection *connection, const char *why);
bool is_shims(const struct connection *connection); /* the shim, not libssl, moves this connection's bytes now */
/* The same where the shim moves data; else NULL. */
struct connection *outermost_moved(const SSL *ssl);

/* ---- boundary.c: transport, input buffer, record boundaries ---- */

bool boundary_prepare(void);
bool boundary_insert(struct connection *connection, SSL *ssl);
bool boundary_hold(struct connection *connection, SSL *ssl);
BIO *transport_in(const SSL *ssl);
BIO *transport_out(const SSL *ssl);
int transport_error(BIO *bio, int result);
int input_fill(struct connection *connection, BIO *bio, size_t wanted);
size_t input_take(struct connection *connection, void *into, size_t size);
static inline size_t input_left(const struct connection *connection)
{
    return connection->input.end - connection->input.start;
}

/* ---- plain.c ---- */

int plain_read(struct connection *connection, SSL *ssl, void *into, size_t size, bool peek, size_t *got);
int plain_write(struct connection *connection, SSL *ssl, const unsigned char *data, size_t size, size_t *put);

/* ---- script.c ---- */

int script_step(struct connection *connection, SSL *ssl);

/* ---- fast.c: libssl's resumed handshake without the client's second flight ---- */

bool is_fast(const struct connection *connection);
bool is_resumed_fast(const struct connection *connection);
bool begins_as_own_record(const struct connection *connection);
int reply_release(struct connection *connection, BIO *bio);
int unwrap_request(struct connection *connection, BIO *bio);

/* ---- sessions.c: the universal session ---- */

void sessions_begin(SSL *ssl);

/* ---- records.c, records_cbc.c: record protection with keys of zeros ---- */

enum { AEAD_TAG_SIZE = 16, CBC_BLOCK_SIZE = 16, RECORD_MAC_MAX = 32, SEQUENCE_SIZE = 8 };

/* How a suite protects records. */
struct protection {
    unsigned int suite; /* IANA code */
    const char *cipher;
    const char *stitched; /* CBC: cipher and HMAC in one */
    const char *digest;   /* CBC: of the HMAC */
    size_t key_size;
    size_t mac_size;
    size_t explicit_size; /* explicit nonce of TLS 1.2 GCM */
    bool tls13;
};

/* One direction. */
struct direction {
    EVP_CIPHER_CTX *cipher;
    uint64_t sequence;
};

struct records {
    const struct protection *protection;
    bool encrypt_then_mac;
    bool stitched; /* libssl prefers it where the processor and the provider have it */
    struct direction sealing;
    struct direction opening;
    EVP_MD_CTX *mac;      /* CBC: keyed, never finished */
    EVP_MD_CTX *mac_copy; /* finished for each record */
};

struct records *records_new(unsigned int suite, bool encrypt_then_mac);
void records_restart(struct records *records);
void records_free(struct records *records);
/* The size of the record, 0 if it cannot be made. `record` has room for RECORD_SIZE_MAX bytes. */
size_t records_seal(struct records *records, unsigned char *record, const unsigned char *data, size_t size);
/* `record` is whole and changed in place; `data` points into it. */
bool records_open(struct records *records, unsigned char *record, size_t size, unsigned char **data, size_t *data_size);

bool cbc_begin(struct records *records);
size_t cbc_seal(struct records *records, unsigned char *fragment, const unsigned char *data, size_t size);
bool cbc_open(struct records *records, unsigned char *fragment, size_t size, unsigned char **data, size_t *data_size);
void put_sequence(unsigned char *into, uint64_t sequence);

/* ---- minimal.c: connections that begin with records ---- */

int minimal_read(struct connection *connection, SSL *ssl, void *into, size_t size, bool peek, size_t *got);
int minimal_write(struct connection *connection, SSL *ssl, const unsigned char *data, size_t size, size_t *put);

/* ---- time_stamps.c ---- */

/* Where libssl's handshake is, by the numbers of OpenSSL 3.0. */
uint16_t state_of(const SSL *ssl);
struct stamp *stamp_new(void);
void stamp_begin(struct connection *connection, SSL *ssl);
void stamp_call(struct connection *connection);
void stamp_end(struct connection *connection, SSL *ssl, enum tlsdyno_shim_counter kind);

#endif
