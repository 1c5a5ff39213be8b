/*
 * What the shim does at sockets: it refuses connections that come from elsewhere, and all of them once that tlsdyno has
 * ended; and it lets nginx believe that a connection without handshake begins like TLS.
 *
 * Refusal is at accept, not at the SSL: mod_ssl, haproxy and others hand libssl BIOs of their own, behind which there
 * is no descriptor to ask. So it holds for whatever TCP connection a process with the shim accepts.
 */
#include "shim.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    if (address->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)
               || (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    return true; /* no network */
}

/* Whether tlsdyno permits connections from this address: it is that of a worker which makes load for it. */
static bool is_permitted(const struct sockaddr_storage *peer)
{
    uint32_t peers = atomic_load_explicit(&area->peer_count, memory_order_acquire);
    struct in6_addr address = {0};

    if (peers == 0)
        return false;
    if (peer->ss_family == AF_INET6) {
        address = ((const struct sockaddr_in6 *)peer)->sin6_addr;
    } else {
        address.s6_addr[10] = 0xff;
        address.s6_addr[11] = 0xff;
        memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)peer)->sin_addr, 4);
    }
    for (uint32_t index = 0; index < peers && index < TLSDYNO_SHIM_PEERS; index++) {
        if (memcmp(area->peers[index].address, &address, sizeof(address)) == 0)
            return true;
    }
    return false;
}

/*
 * Whether a connection may stay. A peer with a loopback address is this host itself, which saves asking for the local
 * address of nearly all connections.
 */
static bool may_stay(int descriptor, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage local = {0};
    socklen_t size = sizeof(local);

    if (flag_is_set(SHIM_FLAG_ALLOW_OPEN) || is_loopback(peer) || is_permitted(peer))
        return true;
    return getsockname(descriptor, (struct sockaddr *)&local, &size) == 0 && is_loopback(&local);
}

/* The server sees a connection that was aborted before it was accepted, as accept(2) has it. */
static int checked(int descriptor, const struct sockaddr_storage *peer, struct sockaddr *address, socklen_t *size,
                   socklen_t peer_size)
{
    if (descriptor < 0)
        return descriptor;
    if (!acknowledged() || !may_stay(descriptor, peer)) {
        count(SHIM_COUNT_REFUSED); /* first: who sees the connection closed may look at the count */
        close(descriptor);
        errno = ECONNABORTED;
        return -1;
    }
    if (address != NULL && size != NULL) {
        memcpy(address, peer, *size < peer_size ? *size : peer_size);
        *size = peer_size;
    }
    return descriptor;
}

__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    struct sockaddr_storage peer = {0};
    socklen_t peer_size = sizeof(peer);

    if (area == NULL) /* other libraries' constructors; nothing of ours is there yet */
        return (int)syscall(SYS_accept4, listener, address, size, flags);
    return checked(real.accept4(listener, (struct sockaddr *)&peer, &peer_size, flags), &peer, address, size,
                   peer_size);
}

__attribute__((visibility("default"))) int accept(int listener, struct sockaddr *address, socklen_t *size)
{
    struct sockaddr_storage peer = {0};
    socklen_t peer_size = sizeof(peer);

    if (area == NULL)
        return (int)syscall(SYS_accept4, listener, address, size, 0);
    return checked(real.accept(listener, (struct sockaddr *)&peer, &peer_size), &peer, address, size, peer_size);
}

/*
 * nginx looks at the first byte of a connection and takes it for plain HTTP unless it is that of a handshake record. A
 * minimal connection has no handshake; its first byte is that of a data record, which no HTTP request begins with.
 */
__attribute__((visibility("default"))) ssize_t recv(int descriptor, void *into, size_t size, int flags)
{
    enum { HANDSHAKE_RECORD = 0x16, DATA_RECORD = 0x17 };
    unsigned char *first = into;
    ssize_t got;

    if (area == NULL)
        return (ssize_t)syscall(SYS_recvfrom, descriptor, into, size, flags, NULL, NULL);
    got = real.recv(descriptor, into, size, flags);
    if (got == 1 && (flags & MSG_PEEK) != 0 && size == 1 && *first == DATA_RECORD
        && is_off(mode_now(), SHIM_STAGE_SETUP))
        *first = HANDSHAKE_RECORD;
    return got;
}
