/*
 * Asks the agent of this machine (`tlsdyno cryptoserver agent`) over its socket. A thread keeps a connection to it, and
 * so does a connection of the server that runs in OpenSSL jobs: there the server goes on and is called back when the
 * answer is there. No operation leaves a thread, a timer or anything else behind that a fork would tear apart.
 */
#include "cryptoserver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <openssl/async.h>

#include "../clock.h"

enum {
    NS_PER_MS = 1000000,
    LENGTH_SIZE = 2,
    REQUEST_HEAD = 4 + 1 + IDENTIFIER_SIZE + 2, /* tag, operation, key, detail */
    ANSWER_HEAD = 4 + 1, /* tag, status */
    /* The agent answers sooner, if with an error: longer than it waits for a cryptoserver. */
    PATIENCE_MS = 8000,
    CONNECT_S = 1,
    COMPLAINTS_EVERY_S = 60,
};

static const char REMEDY[] = "start it there: tlsdyno cryptoserver agent";

/* Taken in init, constant afterwards. */
static struct sockaddr_un address = {.sun_family = AF_UNIX};

bool agent_take_socket(const struct section *section, bool again)
{
    const char *path = section_want(section, "socket");

    if (path == NULL)
        return false;
    if (strlen(path) >= sizeof(address.sun_path)) {
        raise_error(REASON_CONFIGURATION, "`socket`: a path of more than %zu bytes", sizeof(address.sun_path) - 1);
        return false;
    }
    if (again && strcmp(path, address.sun_path) != 0) {
        raise_error(REASON_CONFIGURATION, "`socket` is %s for one library context and %s for another", address.sun_path,
                    path);
        return false;
    }
    if (!again)
        strcpy(address.sun_path, path);
    return true;
}

/* On the error queue each time; on standard error, for servers that print no queue, once a minute and process. */
static void no_answer(const char *what, int number)
{
    static _Atomic time_t last;
    time_t now = time(NULL), before = last;

    raise_error(REASON_NO_ANSWER, "%s %s: %s; %s", address.sun_path, what, number == 0 ? "gone" : strerror(number),
                REMEDY);
    if (now - before >= COMPLAINTS_EVERY_S && atomic_compare_exchange_strong(&last, &before, now))
        complain("tlsdyno: no cryptoserver: %s %s: %s; %s\n", address.sun_path, what,
                 number == 0 ? "gone" : strerror(number), REMEDY);
}

/* A new connection; -1 (errno). It does not wait later, as it may not in a job. */
static int connect_to_agent(void)
{
    struct timeval patience = {.tv_sec = CONNECT_S};
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int number;

    if (made < 0)
        return -1;
    /* A full queue of the agent must not hold the server for ever. */
    if (setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0
        && connect(made, (const struct sockaddr *)&address, sizeof(address)) == 0
        && fcntl(made, F_SETFL, O_NONBLOCK) == 0)
        return made;
    number = errno;
    close(made);
    errno = number;
    return -1;
}

/* What the thread keeps, and the process that made it: a child must not talk on its parent's connection. */
static _Thread_local struct {
    int socket; /* one more than the descriptor; 0: none */
    pid_t process;
} kept;

static void drop_kept(void)
{
    if (kept.socket != 0)
        close(kept.socket - 1);
    kept.socket = 0;
}

static pthread_key_t at_thread_end;

static void thread_ends(void *unused)
{
    (void)unused;
    drop_kept();
}

static void make_key(void)
{
    pthread_key_create(&at_thread_end, thread_ends);
}

/* The thread's connection, made anew where there is none of this process; -1 (errno). */
static int kept_connection(bool *is_new)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pid_t process = getpid();
    int made;

    if (kept.socket != 0 && kept.process != process)
        drop_kept();
    *is_new = kept.socket == 0;
    if (kept.socket != 0)
        return kept.socket - 1;
    pthread_once(&once, make_key);
    made = connect_to_agent();
    if (made < 0)
        return -1;
    kept.socket = made + 1;
    kept.process = process;
    pthread_setspecific(at_thread_end, &kept);
    return made;
}

static void close_of_job(ASYNC_WAIT_CTX *context, const void *key, OSSL_ASYNC_FD descriptor, void *data)
{
    (void)context;
    (void)key;
    (void)data;
    close(descriptor);
}

/*
 * One connection for each wait context, which lives as long as the server's own connection: haproxy does not survive a
 * descriptor that is taken out of the context earlier. -1 (errno) where none can be had.
 */
static int connection_of(ASYNC_WAIT_CTX *context)
{
    static const char KEY[] = "tlsdyno cryptoserver";
    OSSL_ASYNC_FD found = -1;
    void *data = NULL;

    if (ASYNC_WAIT_CTX_get_fd(context, KEY, &found, &data))
        return found;
    found = connect_to_agent();
    if (found >= 0 && !ASYNC_WAIT_CTX_set_wait_fd(context, KEY, found, NULL, close_of_job)) {
        close(found);
        errno = ENOMEM;
        return -1;
    }
    return found;
}

/* Waits until the connection can do `events`; with a job the server goes on meanwhile. False (errno): too late. */
static bool wait_for(int connection, short events, ASYNC_JOB *job, uint64_t until_ns)
{
    struct pollfd poll_for = {.fd = connection, .events = events};
    uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    int found;

    if (now_ns >= until_ns) {
        errno = ETIMEDOUT;
        return false;
    }
    if (job != NULL && events == POLLIN) {
        bool is_back = ASYNC_pause_job() != 0;

        errno = ECANCELED;
        return is_back;
    }
    found = poll(&poll_for, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
    return found >= 0 || errno == EINTR;
}

/* All bytes in the one direction or the other; false (errno, 0 for an end). */
static bool transfer(int connection, bool sends, unsigned char *bytes, size_t length, ASYNC_JOB *job, uint64_t until_ns)
{
    size_t done = 0;

    while (done < length) {
        ssize_t part = sends ? send(connection, bytes + done, length - done, MSG_NOSIGNAL)
                             : recv(connection, bytes + done, length - done, 0);

        if (part > 0) {
            done += (size_t)part;
        } else if (part == 0) {
            errno = 0;
            return false;
        } else if (errno == EAGAIN) {
            if (!wait_for(connection, sends ? POLLOUT : POLLIN, job, until_ns))
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static size_t two_bytes(const unsigned char *at)
{
    return (size_t)at[0] << 8 | at[1];
}

/* LENGTH, tag 0, operation, key, detail, message: numbers in network order. Its length. */
static size_t write_frame(unsigned char frame[LENGTH_SIZE + REQUEST_HEAD + MESSAGE_MAX],
                          const struct remote_request *request)
{
    size_t length = REQUEST_HEAD + request->length;
    unsigned char *at = frame + LENGTH_SIZE;

    frame[0] = (unsigned char)(length >> 8);
    frame[1] = (unsigned char)length;
    memset(at, 0, 4);
    at[4] = (unsigned char)request->kind;
    memcpy(at + 5, request->key, IDENTIFIER_SIZE);
    at[5 + IDENTIFIER_SIZE] = (unsigned char)(request->detail >> 8);
    at[6 + IDENTIFIER_SIZE] = (unsigned char)request->detail;
    memcpy(at + REQUEST_HEAD, request->message, request->length);
    return LENGTH_SIZE + length;
}

struct answer {
    unsigned char bytes[ANSWER_HEAD + ANSWER_MAX];
    size_t length;
};

/* False (errno, 0 for an end). */
static bool receive(int connection, struct answer *answer, ASYNC_JOB *job, uint64_t until_ns)
{
    unsigned char head[LENGTH_SIZE];

    if (!transfer(connection, false, head, sizeof(head), job, until_ns))
        return false;
    answer->length = two_bytes(head);
    if (answer->length < ANSWER_HEAD || answer->length > sizeof(answer->bytes)) {
        errno = EPROTO;
        return false;
    }
    return transfer(connection, false, answer->bytes, answer->length, job, until_ns);
}

/* On the thread's connection; once more on a new one where an agent has gone since that was made. */
static bool exchange_blocking(unsigned char *frame, size_t length, struct answer *answer)
{
    /* An agent that stands still would hold the server up for each visitor in turn. */
    static _Atomic uint64_t fail_until_ns;
    bool is_new = false;

    if (clock_ns(CLOCK_MONOTONIC) < fail_until_ns) {
        errno = ETIMEDOUT;
        return false;
    }
    while (!is_new) {
        int connection = kept_connection(&is_new);
        uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)PATIENCE_MS * NS_PER_MS;

        if (connection < 0)
            return false;
        if (transfer(connection, true, frame, length, NULL, until_ns) && receive(connection, answer, NULL, until_ns))
            return true;
        /* What it may still answer must not be taken for the answer to the next request. */
        drop_kept();
        if (errno == ETIMEDOUT) {
            fail_until_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)PATIENCE_MS * NS_PER_MS;
            return false;
        }
    }
    return false;
}

/*
 * In a job, on a connection that was never used. The job pauses once whatever happens: haproxy knows the descriptor
 * from then on, and crashes at the end of its own connection where it does not. After a failure it is readable, too, so
 * that haproxy comes back, and nothing more is read from it.
 */
static bool exchange_in_job(unsigned char *frame, size_t length, struct answer *answer, ASYNC_JOB *job)
{
    int connection = connection_of(ASYNC_get_wait_ctx(job));
    uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)PATIENCE_MS * NS_PER_MS;
    bool is_answered;
    int number;

    if (connection < 0)
        return false;
    is_answered = transfer(connection, true, frame, length, job, until_ns);
    number = errno;
    if (!is_answered)
        shutdown(connection, SHUT_RDWR);
    is_answered = ASYNC_pause_job() && is_answered;
    if (is_answered) {
        is_answered = receive(connection, answer, job, until_ns);
        number = errno;
    }
    /* The descriptor stays as long as the server's own connection; the agent need not keep its end of it. */
    shutdown(connection, SHUT_RDWR);
    errno = number;
    return is_answered;
}

static bool take_answer(const struct answer *from, unsigned char answer[ANSWER_MAX], size_t *length)
{
    size_t said = from->length - ANSWER_HEAD;

    if (from->bytes[ANSWER_HEAD - 1] != 0) {
        raise_error(REASON_NO_ANSWER, "the agent at %s says: %.*s", address.sun_path, (int)said,
                    (const char *)from->bytes + ANSWER_HEAD);
        return false;
    }
    memcpy(answer, from->bytes + ANSWER_HEAD, said);
    *length = said;
    return true;
}

bool agent_ask(const struct remote_request *request, unsigned char answer[ANSWER_MAX], size_t *length)
{
    unsigned char frame[LENGTH_SIZE + REQUEST_HEAD + MESSAGE_MAX];
    struct answer taken;
    ASYNC_JOB *job = ASYNC_get_current_job();
    int kept_errno = errno;
    size_t frame_length = write_frame(frame, request);
    bool is_answered = job == NULL ? exchange_blocking(frame, frame_length, &taken)
                                   : exchange_in_job(frame, frame_length, &taken, job);

    if (!is_answered)
        no_answer("does not answer", errno);
    else
        is_answered = take_answer(&taken, answer, length);
    explicit_bzero(&taken, sizeof(taken));
    errno = kept_errno;
    return is_answered;
}
