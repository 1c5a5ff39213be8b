/* The table of real functions, filled in before the server's first instruction and constant afterwards. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct real_functions real;
SHIM_THREAD_LOCAL int depth;

enum { EXIT_REFUSED = 78 }; /* EX_CONFIG, sysexits(3) */

/*
 * Says why and ends the process: a server that goes on without what the shim was to do would be measured as something
 * else.
 */
static void end_process(const char *reason, const char *detail)
{
    char text[512];
    int length = snprintf(text, sizeof(text), "tlsdyno shim: %s%s\n", reason, detail);

    if (length > (int)sizeof(text) - 1)
        length = (int)sizeof(text) - 1;
    if (write(STDERR_FILENO, text, (size_t)length) < 0) { /* nobody is there to hear it */
    }
    _exit(EXIT_REFUSED);
}

static void resolve_real_functions(void)
{
    void *function;

/* dlsym answers an object pointer; POSIX demands that it can hold a function's address. */
#define RESOLVE(result, name, parameters)                                                                              \
    function = dlsym(RTLD_NEXT, #name);                                                                                \
    if (function == NULL)                                                                                              \
        end_process("the server's libraries have no function " #name, "");                                             \
    memcpy(&real.name, &function, sizeof(function));
    REAL_FUNCTIONS(RESOLVE)
#undef RESOLVE
}

/* Other libraries' constructors may come first; what they can reach needs no table (see sockets.c). */
__attribute__((constructor)) static void load(void)
{
    int before = errno;
    const char *descriptor = getenv("TLSDYNO_SHIM");
    const char *run_id = getenv("TLSDYNO_SHIM_ACKNOWLEDGE");
    const char *fault = NULL;

    resolve_real_functions();
    /* lighttpd clears the environment of CGI programs but for LD_PRELOAD: what is not the server is left as it is. */
    if (descriptor != NULL || run_id != NULL)
        fault = area_map(descriptor, run_id);
    if (fault != NULL)
        end_process("refuses to act, and the server with it: ", fault);
    errno = before;
}
