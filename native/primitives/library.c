/* The libraries that are measured. Nothing here is linked with OpenSSL: the functions of the files named on the command
 * line are called, and no others. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "primitives.h"

struct functions lib;

/* POSIX has dlsym() answer a function as a pointer to data; copied, not converted, as ISO C demands. */
static bool find(void *library, const char *name, void *function, char *reason, size_t size)
{
    void *found = dlsym(library, name);

    if (found == NULL) {
        (void)snprintf(reason, size, "it has no %s: OpenSSL 3.0 or later is needed", name);
        return false;
    }
    memcpy(function, &found, sizeof(found));
    return true;
}

static void *opened(const char *path, char *reason, size_t size)
{
    /* libssl, and providers, find the libcrypto that was opened before them by its name. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        (void)snprintf(reason, size, "%s", dlerror());
    }
    return library;
}

bool open_libraries(const char *libcrypto, const char *libssl, char *reason, size_t size)
{
    void *crypto = opened(libcrypto, reason, size);
    void *ssl = crypto == NULL ? NULL : opened(libssl, reason, size);

    if (ssl == NULL) {
        return false;
    }
#define FIND(name) && find(library, #name, &lib.name, reason, size)
    void *library = crypto;
    bool found = true CRYPTO_FUNCTIONS(FIND);

    library = ssl;
    found = found SSL_FUNCTIONS(FIND);
#undef FIND
    return found;
}
