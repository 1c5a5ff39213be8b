/*
 * Loads libcrypto privately, as Python does, so that what it loads does not find its functions by their names, and
 * draws from the random generator of the provider that OPENSSL_CONF names. With a path: a copy of that libcrypto too,
 * from there.
 *
 *     private_libcrypto [PATH]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/opensslv.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "failed: %s: %s\n", what, dlerror());
    exit(1);
}

/* Whether random bytes can be drawn. */
static int draws(const char *libcrypto)
{
    void *handle = dlopen(libcrypto, RTLD_NOW | RTLD_LOCAL);
    int (*draw)(unsigned char *, int);
    unsigned char bytes[16] = {0};
    void *function;

    check(handle != NULL, libcrypto);
    function = dlsym(handle, "RAND_bytes");
    check(function != NULL, "RAND_bytes");
    memcpy(&draw, &function, sizeof(draw));
    return draw(bytes, sizeof(bytes)) == 1;
}

static void copy_of(void *function, const char *path)
{
    static char bytes[65536];
    Dl_info file;
    FILE *from, *to;
    size_t size;

    check(dladdr(function, &file) != 0, "dladdr");
    from = fopen(file.dli_fname, "rb");
    to = fopen(path, "wb");
    check(from != NULL && to != NULL, path);
    while ((size = fread(bytes, 1, sizeof(bytes), from)) > 0)
        check(fwrite(bytes, 1, size, to) == size, path);
    check(fclose(to) == 0 && fclose(from) == 0, path);
}

int main(int count, char **arguments)
{
    const char *libcrypto = "libcrypto.so." TEXT(OPENSSL_SHLIB_VERSION);

    printf("first %d\n", draws(libcrypto));
    if (count > 1) {
        copy_of(dlsym(dlopen(libcrypto, RTLD_NOW | RTLD_NOLOAD), "RAND_bytes"), arguments[1]);
        printf("second %d\n", draws(arguments[1]));
        printf("first %d\n", draws(libcrypto));
    }
    return 0;
}
