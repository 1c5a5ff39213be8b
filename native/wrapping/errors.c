/*
 * Errors go to OpenSSL's error queue, where the server prints them like its own. Raised by libcrypto's public calls and
 * not through the core's functions: those want the handle of a provider object, of which there may be several (one for
 * each library context) with only one state behind them, and reason strings given through the core are not yet known
 * when init itself fails.
 */
#include "wrapping.h"

#include <stdarg.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>

static int library; /* the error library number of this process; written in init, under its lock */

void errors_load(void)
{
    static ERR_STRING_DATA name[] = {{0, "tlsdyno"}, {0, NULL}};
    static ERR_STRING_DATA reasons[] = {
        {REASON_CONFIGURATION, "wrong configuration"},
        {REASON_NOT_ACKNOWLEDGED, "refused, no running tlsdyno acknowledges this provider"},
        {REASON_NO_MEMORY, "out of memory"},
        {REASON_WRAPPED_PROVIDER, "the default provider cannot be wrapped"},
        {REASON_PEER_HAS_STAGE_ON, "the peer does not have this stage switched off"},
        {REASON_BUFFER_TOO_SMALL, "buffer too small"},
        {REASON_UNSUPPORTED_USE, "a use that is not covered"},
        {REASON_NO_ANSWER, "the private key is at a cryptoserver, which does not answer"},
        {0, NULL},
    };

    if (library != 0)
        return;
    library = ERR_get_next_error_library();
    name[0].error = ERR_PACK(library, 0, 0);
    ERR_load_strings(0, name);
    ERR_load_strings(library, reasons);
}

void raise_error_at(const char *file, int line, const char *function_name, enum reason reason, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    ERR_new();
    ERR_set_debug(file, line, function_name);
    ERR_vset_error(library, (int)reason, format, arguments);
    va_end(arguments);
}

void complain(const char *format, ...)
{
    struct stat status;
    va_list arguments;

    if (fstat(STDERR_FILENO, &status) != 0 || S_ISSOCK(status.st_mode))
        return;
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
}

/*
 * libcrypto drops what stands on the queue when a provider named in openssl.cnf does not load, and the server then says
 * "no ciphers" or nothing. So the reason also goes to standard error.
 */
void errors_complain(const char *what)
{
    const char *data = "";
    const char *reason;
    int flags = 0;
    unsigned long error = ERR_peek_last_error_all(NULL, NULL, NULL, &data, &flags);

    reason = ERR_reason_error_string(error);
    complain("%s: %s%s%s\n", what, reason == NULL ? "unknown error" : reason,
             (flags & ERR_TXT_STRING) != 0 ? ": " : "", (flags & ERR_TXT_STRING) != 0 ? data : "");
}
