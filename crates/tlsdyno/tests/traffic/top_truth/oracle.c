// Preloaded into a server: adds up the CPU time of each thread and what of it is spent in calls of libssl, for a test
// that compares it with what `tlsdyno top` says; and does work of a known amount where the test asks for it.
// AREA is the path of a file of 64-bit numbers that the test reads and writes while the server runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 64, SIGNATURE = 0, AGREEMENT = 1, PAGE = 2 };

struct slot {
	_Atomic uint64_t tls_ns, cpu_ns, calls;
	_Atomic uint64_t reads, read_ns;           // cost of reading the clock, tried now and then
	_Atomic uint64_t unused[3];
};

struct area {
	_Atomic uint64_t slots, asked_ns[3];       // threads so far; work to do at each such place
	_Atomic uint64_t times[3], done_ns[3];     // how often such a place was passed; CPU time of the work
	_Atomic uint64_t unused[6];
	struct slot of[SLOTS];
};

static struct area *area;
static double loops_per_ns;
static _Thread_local struct slot *own;
static _Thread_local int depth;

// The clock of the thread's CPU time, without the vDSO, in which stacks are unwound no further.
static uint64_t clock_ns(void)
{
	struct timespec now;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(SYS_clock_gettime), "D"(CLOCK_THREAD_CPUTIME_ID), "S"(&now)
			 : "rcx", "r11", "memory");
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void spin(uint64_t loops)
{
	for (uint64_t at = 0; at < loops; at++)
		__asm__ volatile("" : "+r"(at));
}

__attribute__((constructor)) static void begin(void)
{
	int file = open(AREA, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return;
	void *mapped = mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (mapped == MAP_FAILED)
		return;
	uint64_t before = clock_ns();
	spin(20000000);
	loops_per_ns = 20000000.0 / (double)(clock_ns() - before);
	area = mapped;
}

static uint64_t enter(void)
{
	if (!area || depth++)
		return 0;
	if (!own) {
		uint64_t at = area->slots++;
		own = &area->of[at < SLOTS ? at : SLOTS - 1];
	}
	uint64_t now = clock_ns();
	if (own->calls % 32 == 0) {
		own->read_ns += clock_ns() - now;
		own->reads++;
	}
	return now;
}

static void leave(uint64_t since)
{
	if (!area || --depth)
		return;
	uint64_t now = clock_ns();
	own->tls_ns += now - since;
	own->calls++;
	own->cpu_ns = now;
}

static void work(int at)
{
	if (!area)
		return;
	area->times[at]++;
	uint64_t ns = area->asked_ns[at];
	if (!ns)
		return;
	uint64_t before = clock_ns();
	spin((uint64_t)((double)ns * loops_per_ns));
	area->done_ns[at] += clock_ns() - before;
}

#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) \
		*(void **)&real = dlsym(RTLD_NEXT, #name)

#define WRAP(result, name, parameters, arguments) \
	result name parameters; \
	result name parameters \
	{ \
		REAL(name); \
		uint64_t since = enter(); \
		result got = real arguments; \
		leave(since); \
		return got; \
	}

#define WRAP_VOID(name, parameters, arguments) \
	void name parameters; \
	void name parameters \
	{ \
		REAL(name); \
		uint64_t since = enter(); \
		real arguments; \
		leave(since); \
	}

WRAP(void *, SSL_new, (void *context), (context))
WRAP_VOID(SSL_free, (void *ssl), (ssl))
WRAP(int, SSL_clear, (void *ssl), (ssl))
WRAP(int, SSL_accept, (void *ssl), (ssl))
WRAP(int, SSL_do_handshake, (void *ssl), (ssl))
WRAP(int, SSL_read, (void *ssl, void *to, int most), (ssl, to, most))
WRAP(int, SSL_read_ex, (void *ssl, void *to, size_t most, size_t *got_bytes), (ssl, to, most, got_bytes))
WRAP(int, SSL_read_early_data, (void *ssl, void *to, size_t most, size_t *got_bytes), (ssl, to, most, got_bytes))
WRAP(int, SSL_peek, (void *ssl, void *to, int most), (ssl, to, most))
WRAP(int, SSL_write, (void *ssl, const void *from, int bytes), (ssl, from, bytes))
WRAP(int, SSL_write_ex, (void *ssl, const void *from, size_t bytes, size_t *sent), (ssl, from, bytes, sent))
WRAP(int, SSL_shutdown, (void *ssl), (ssl))
WRAP_VOID(SSL_SESSION_free, (void *session), (session))

int EVP_DigestSign(void *context, unsigned char *signature, size_t *bytes, const unsigned char *of, size_t of_bytes);
int EVP_DigestSign(void *context, unsigned char *signature, size_t *bytes, const unsigned char *of, size_t of_bytes)
{
	REAL(EVP_DigestSign);
	if (signature)
		work(SIGNATURE);
	return real(context, signature, bytes, of, of_bytes);
}

int EVP_PKEY_derive(void *context, unsigned char *key, size_t *bytes);
int EVP_PKEY_derive(void *context, unsigned char *key, size_t *bytes)
{
	REAL(EVP_PKEY_derive);
	if (key)
		work(AGREEMENT);
	return real(context, key, bytes);
}

// nginx reads a file for each page; whoever else serves pages has a connection for it.
ssize_t pread64(int file, void *to, size_t most, off64_t from)
{
	REAL(pread64);
	work(PAGE);
	return real(file, to, most, from);
}

int accept4(int listener, struct sockaddr *from, socklen_t *bytes, int flags)
{
	REAL(accept4);
	int got = real(listener, from, bytes, flags);
	int kept = errno;
	if (got >= 0)
		work(PAGE);
	errno = kept;
	return got;
}
