/*
 * The shim's area: one sealed memory file, made by tlsdyno for one configuration of one run and mapped (MAP_SHARED) by
 * the shim in every process of the server. It is the shim's acknowledgement (owner.h), its settings, and the place of
 * the universal session, the counters and the time stamps.
 *
 * tlsdyno learns this layout from layout.c. Whoever changes it raises TLSDYNO_SHIM_ABI_VERSION. Nobody resets the area:
 * a server may load the shim again (haproxy re-executes its master).
 */
#ifndef TLSDYNO_SHIM_RECORD_H
#define TLSDYNO_SHIM_RECORD_H

#include "owner.h"
#include "stages.h"

#define TLSDYNO_SHIM_MAGIC "TLSSHIM" /* with its NUL: 8 bytes */
#define TLSDYNO_SHIM_ABI_VERSION 8u
#define TLSDYNO_SHIM_FLIGHTS 8u
#define TLSDYNO_SHIM_SESSION_SIZE 2048u /* DER of a session without certificates has 130 to 300 bytes */
#define TLSDYNO_SHIM_SLOTS 256u
#define TLSDYNO_SHIM_SLOT_COUNTERS 32u
#define TLSDYNO_SHIM_STAMPS 4096u
#define TLSDYNO_SHIM_STEPS 24u
#define TLSDYNO_SHIM_PEERS 48u
#define TLSDYNO_SHIM_TOO_LONG_NS UINT32_MAX /* in a time stamp: 4.29 s or more */

/* Bits of `flags`. */
#define TLSDYNO_SHIM_FLAGS(X) X(ALLOW_OPEN) X(TIME_STAMPS) X(TICKETS) X(ENCRYPT_THEN_MAC)

/* How a connection began: X(name in C, name in reports). Each is also a counter, of the same number and name. */
#define TLSDYNO_SHIM_KINDS(X)                                                                                          \
    X(FULL, "full_handshakes")              /* real, a new session */                                                  \
    X(RESUMED, "resumed_handshakes")        /* real, a session resumed */                                              \
    X(SKELETON_FULL, "skeleton_full")       /* first flight of kind 0 */                                               \
    X(SKELETON_RESUMED, "skeleton_resumed") /* kind 1 */                                                               \
    X(SKELETON_FAST, "skeleton_fast")       /* kind 2 */                                                               \
    X(FAST_RESUME, "fast_resume")           /* real, resumed without the client's second flight */                     \
    X(MINIMAL, "minimal")                   /* no handshake at all */

/* Events besides. */
#define TLSDYNO_SHIM_EVENTS(X)                                                                                         \
    X(FAILED, "failed_handshakes")        /* real or skeleton, broken off with an error */                             \
    X(PLAIN, "plain_connections")         /* data in plain after whatever set-up */                                    \
    X(UNIVERSAL_HIT, "universal_hits")    /* the universal session was offered, and taken from the perfect cache */    \
    X(UNIVERSAL_MISS, "universal_misses") /* another session was offered */                                            \
    X(REFUSED, "refused_connections")     /* neither loopback nor a permitted peer, or tlsdyno has ended */

enum tlsdyno_shim_flag {
#define TLSDYNO_SHIM_ID(id) SHIM_FLAG_##id,
    TLSDYNO_SHIM_FLAGS(TLSDYNO_SHIM_ID)
#undef TLSDYNO_SHIM_ID
};

enum tlsdyno_shim_counter {
#define TLSDYNO_SHIM_ID(id, name) SHIM_COUNT_##id,
    TLSDYNO_SHIM_KINDS(TLSDYNO_SHIM_ID)
    TLSDYNO_SHIM_EVENTS(TLSDYNO_SHIM_ID)
#undef TLSDYNO_SHIM_ID
    SHIM_COUNTER_TOTAL
};

/* Message sizes of a real handshake, recorded by tlsdyno: the client's first flight, then alternating. */
struct tlsdyno_script {
    _Atomic uint32_t flight_count; /* 0: there is no such script (yet); written last */
    uint32_t ready_after;          /* flights after which the client may send data */
    uint32_t flights[TLSDYNO_SHIM_FLIGHTS]; /* bytes */
};

enum tlsdyno_session_state { SHIM_SESSION_EMPTY, SHIM_SESSION_CLAIMED, SHIM_SESSION_READY };

/* The session of the perfect cache: claimed by the first full handshake that a server completes, then never changed. */
struct tlsdyno_universal_session {
    _Atomic uint32_t state;
    uint32_t size;                                      /* bytes of `der` */
    unsigned char der[TLSDYNO_SHIM_SESSION_SIZE]; /* i2d_SSL_SESSION; TLS 1.2 ticket: the state in the ticket */
};

/* An address from which connections may come though it is not loopback: of IPv6, or of IPv4 mapped into it. */
struct tlsdyno_peer {
    unsigned char address[16]; /* in6_addr */
};

/* The counters of one thread. A slot is shared by several threads once all are claimed, so every access is atomic. */
struct tlsdyno_shim_slot {
    _Atomic uint64_t counts[TLSDYNO_SHIM_SLOT_COUNTERS];
};

/* One handshake message or other step of libssl's state machine. */
struct tlsdyno_step {
    uint16_t state; /* OSSL_HANDSHAKE_STATE, openssl/ssl.h of OpenSSL 3.0 */
    uint16_t reserved;
    uint32_t after_ns; /* since start_ns, or TLSDYNO_SHIM_TOO_LONG_NS */
    uint32_t cpu_ns;   /* CPU time of the process since then, or TLSDYNO_SHIM_TOO_LONG_NS */
};

/* The set-up of one connection. */
struct tlsdyno_stamp {
    _Atomic uint64_t number; /* from 1, in order of completion over all processes; 0 while it is being written */
    uint64_t start_ns;       /* CLOCK_MONOTONIC at the server's first call */
    uint64_t end_ns;         /* the same at completion */
    uint64_t bytes_received; /* by the transport until completion, what was read ahead included */
    uint64_t bytes_sent;
    uint32_t pid;
    uint16_t kind;  /* one of TLSDYNO_SHIM_KINDS */
    uint16_t calls; /* of the server that drove the handshake; UINT16_MAX: so many or more */
    uint32_t step_count;
    uint32_t cpu_ns; /* CPU time of the process from the first call to completion, or TLSDYNO_SHIM_TOO_LONG_NS */
    struct tlsdyno_step steps[TLSDYNO_SHIM_STEPS];
};

struct tlsdyno_shim_area {
    struct tlsdyno_head head;
    uint32_t stages_off; /* those that a mode may switch off */
    uint32_t flags;
    uint16_t suite;   /* IANA code of the experiment's suite; 0: none was named */
    uint16_t version; /* 0x0303 or 0x0304: of the experiment */
    _Atomic uint64_t stamps_written;
    struct tlsdyno_script full;
    struct tlsdyno_script resumed;
    _Atomic uint32_t peer_count; /* 0 while they are written */
    struct tlsdyno_peer peers[TLSDYNO_SHIM_PEERS];
    unsigned char reserved[1024 - 228 - 16 * TLSDYNO_SHIM_PEERS];
    struct tlsdyno_universal_session session;
    unsigned char reserved_too[4096 - 1024 - 2056];
    struct tlsdyno_shim_slot slots[TLSDYNO_SHIM_SLOTS];
    struct tlsdyno_stamp stamps[TLSDYNO_SHIM_STAMPS];
};

static_assert(SHIM_COUNTER_TOTAL <= TLSDYNO_SHIM_SLOT_COUNTERS, "a slot is too small");
static_assert(sizeof(struct tlsdyno_shim_slot) == 256, "slots are multiples of a cache line");
static_assert(sizeof(struct tlsdyno_script) == 4 * (2 + TLSDYNO_SHIM_FLIGHTS), "layout");
static_assert(offsetof(struct tlsdyno_shim_area, session) == 1024, "layout");
static_assert(offsetof(struct tlsdyno_shim_area, slots) == 4096, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
              "shared between processes, so it must be lock-free");

#endif
