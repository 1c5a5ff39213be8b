/*
 * Emulation of a cryptographic accelerator: N engines, shared by all processes of the server, each of which works for k
 * on one private-key operation, or on a batch of them. The CPU has nothing to do meanwhile. Where the operation runs in
 * an OpenSSL job (haproxy with ssl-mode-async), the server goes on and is called back through a timer descriptor;
 * elsewhere the thread sleeps.
 */
#include "provider.h"

#include "engines.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <openssl/async.h>

enum { NS_PER_S = 1000000000 };

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static struct timespec instant(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/*
 * By default the kernel may be 50 us late, as much as a fast operation takes. The precision stays with the thread: its
 * other timers become more precise too, which costs nothing worth mentioning.
 */
static void want_precise_timers(void)
{
    static _Thread_local bool asked;

    if (!asked)
        prctl(PR_SET_TIMERSLACK, 1L, 0L, 0L, 0L);
    asked = true;
}

static void sleep_until(uint64_t done_ns)
{
    struct timespec until = instant(done_ns);

    want_precise_timers();
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static void close_timer(ASYNC_WAIT_CTX *context, const void *key, OSSL_ASYNC_FD timer, void *data)
{
    (void)context;
    (void)key;
    (void)data;
    close(timer);
}

/*
 * One timer for each wait context, which lives as long as its connection: haproxy does not survive a descriptor that is
 * taken out of the context and closed after each operation. -1 where none can be had.
 */
static int timer_of(ASYNC_WAIT_CTX *context)
{
    static const char KEY[] = "tlsdyno accelerator";
    OSSL_ASYNC_FD timer = -1;
    void *data = NULL;

    if (ASYNC_WAIT_CTX_get_fd(context, KEY, &timer, &data))
        return timer;
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer >= 0 && !ASYNC_WAIT_CTX_set_wait_fd(context, KEY, timer, NULL, close_timer)) {
        close(timer);
        timer = -1;
    }
    return timer;
}

/* Whether the timer has fired; then it is made unreadable, else the server would be called back for ever. */
static bool has_fired(int timer)
{
    uint64_t times;

    return read(timer, &times, sizeof(times)) == (ssize_t)sizeof(times);
}

/* Lets the server go on with other connections until the operation is done. */
static bool pause_until(ASYNC_JOB *job, uint64_t done_ns)
{
    struct itimerspec setting = {.it_value = instant(done_ns)};
    int timer = timer_of(ASYNC_get_wait_ctx(job));

    if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL) != 0)
        return false;
    count_call(TLSDYNO_COUNT_ACCELERATED_ASYNC);
    /* The server may call back for other reasons than the timer. */
    do {
        if (!ASYNC_pause_job())
            return false;
    } while (!has_fired(timer));
    return true;
}

void accelerator_operate(const struct tlsdyno_accelerator *is)
{
    int kept_errno = errno;
    uint64_t asked_ns = now_ns();
    uint64_t word = engines_reserve(engine_words(), is, asked_ns), done_ns = engines_done_ns(word);
    ASYNC_JOB *job = ASYNC_get_current_job();

    count_call(TLSDYNO_COUNT_ACCELERATED);
    if ((word & ENGINES_MEMBERS_MASK) == 1)
        count_call(TLSDYNO_COUNT_ACCELERATOR_BATCHES);
    count_amount(TLSDYNO_COUNT_ACCELERATOR_WAIT_NS, done_ns - asked_ns);
    if (job == NULL || !pause_until(job, done_ns))
        sleep_until(done_ns);
    errno = kept_errno;
}
