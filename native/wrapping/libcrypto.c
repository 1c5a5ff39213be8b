/*
 * The functions of libcrypto that these libraries call, each as a function of this library's own that passes the call
 * on to the libcrypto that loads it.
 *
 * No library here names a libcrypto, or the loader would bring a second one into a server of another series. Nor can
 * it leave the names undefined: where a program loads libssl privately (RTLD_LOCAL, as Python does) nobody else finds
 * them, and where it has two of them the wrong ones might be found. So init looks the functions up in the very file
 * whose code called it.
 *
 * Each definition is checked by the compiler against OpenSSL's own declaration. A function that is called and missing
 * here ends the build, as the libraries are linked with `-z defs`.
 */
#include "wrapping.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <openssl/async.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/provider.h>

/* X(`return`, or nothing where there is no answer; type of the answer, name, parameters, arguments) */
#define LIBCRYPTO_FUNCTIONS(X)                                                                                         \
    X(return, ASYNC_JOB *, ASYNC_get_current_job, (void), ())                                                          \
    X(return, ASYNC_WAIT_CTX *, ASYNC_get_wait_ctx, (ASYNC_JOB * job), (job))                                          \
    X(return, int, ASYNC_pause_job, (void), ())                                                                        \
    X(return, int, ASYNC_WAIT_CTX_get_fd, (ASYNC_WAIT_CTX * wait, const void *key, OSSL_ASYNC_FD *fd, void **data),    \
      (wait, key, fd, data))                                                                                           \
    X(return, int, ASYNC_WAIT_CTX_set_wait_fd,                                                                         \
      (ASYNC_WAIT_CTX * wait, const void *key, OSSL_ASYNC_FD fd, void *data,                                           \
       void (*cleanup)(ASYNC_WAIT_CTX *, const void *, OSSL_ASYNC_FD, void *)),                                        \
      (wait, key, fd, data, cleanup))                                                                                  \
    X(, void, ERR_clear_error, (void), ())                                                                             \
    X(return, int, ERR_get_next_error_library, (void), ())                                                             \
    X(return, int, ERR_load_strings, (int number, ERR_STRING_DATA *texts), (number, texts))                            \
    X(, void, ERR_new, (void), ())                                                                                     \
    X(return, unsigned long, ERR_peek_last_error_all,                                                                  \
      (const char **file, int *line, const char **in, const char **data, int *flags), (file, line, in, data, flags))   \
    X(return, int, ERR_pop_to_mark, (void), ())                                                                        \
    X(return, const char *, ERR_reason_error_string, (unsigned long error), (error))                                   \
    X(, void, ERR_set_debug, (const char *file, int line, const char *in), (file, line, in))                           \
    X(return, int, ERR_set_mark, (void), ())                                                                           \
    X(, void, ERR_vset_error, (int number, int reason, const char *format, va_list arguments),                         \
      (number, reason, format, arguments))                                                                             \
    X(, void, OSSL_LIB_CTX_free, (OSSL_LIB_CTX * context), (context))                                                  \
    X(return, OSSL_LIB_CTX *, OSSL_LIB_CTX_new, (void), ())                                                            \
    X(return, OSSL_PARAM, OSSL_PARAM_construct_end, (void), ())                                                        \
    X(return, OSSL_PARAM, OSSL_PARAM_construct_int, (const char *key, int *value), (key, value))                       \
    X(return, OSSL_PARAM, OSSL_PARAM_construct_octet_string, (const char *key, void *value, size_t size),              \
      (key, value, size))                                                                                              \
    X(return, OSSL_PARAM, OSSL_PARAM_construct_utf8_ptr, (const char *key, char **value, size_t size),                 \
      (key, value, size))                                                                                              \
    X(return, OSSL_PARAM, OSSL_PARAM_construct_utf8_string, (const char *key, char *value, size_t size),               \
      (key, value, size))                                                                                              \
    X(return, int, OSSL_PARAM_get_size_t, (const OSSL_PARAM *param, size_t *value), (param, value))                    \
    X(return, int, OSSL_PARAM_get_uint, (const OSSL_PARAM *param, unsigned int *value), (param, value))                \
    X(return, OSSL_PARAM *, OSSL_PARAM_locate, (OSSL_PARAM * params, const char *key), (params, key))                  \
    X(return, const OSSL_PARAM *, OSSL_PARAM_locate_const, (const OSSL_PARAM *params, const char *key), (params, key)) \
    X(return, int, OSSL_PARAM_set_int, (OSSL_PARAM * param, int value), (param, value))                                \
    X(return, int, OSSL_PARAM_set_octet_ptr, (OSSL_PARAM * param, const void *value, size_t size),                     \
      (param, value, size))                                                                                            \
    X(return, int, OSSL_PARAM_set_octet_string, (OSSL_PARAM * param, const void *value, size_t size),                  \
      (param, value, size))                                                                                            \
    X(return, int, OSSL_PARAM_set_size_t, (OSSL_PARAM * param, size_t value), (param, value))                          \
    X(return, int, OSSL_PARAM_set_utf8_ptr, (OSSL_PARAM * param, const char *value), (param, value))                   \
    X(return, void *, OSSL_PROVIDER_get0_provider_ctx, (const OSSL_PROVIDER *provider), (provider))                    \
    X(return, int, OSSL_PROVIDER_get_capabilities,                                                                     \
      (const OSSL_PROVIDER *provider, const char *capability, OSSL_CALLBACK *callback, void *argument),                \
      (provider, capability, callback, argument))                                                                      \
    X(return, OSSL_PROVIDER *, OSSL_PROVIDER_load, (OSSL_LIB_CTX * context, const char *name), (context, name))        \
    X(return, const OSSL_ALGORITHM *, OSSL_PROVIDER_query_operation,                                                   \
      (const OSSL_PROVIDER *provider, int operation, int *no_cache), (provider, operation, no_cache))                  \
    X(return, int, OSSL_PROVIDER_unload, (OSSL_PROVIDER * provider), (provider))

/* Filled in init, constant afterwards. */
static struct {
    const void *base; /* where the file is mapped; NULL: none was looked for */
#define FIELD(returns, answer, name, parameters, arguments) __typeof__(&name) name;
    LIBCRYPTO_FUNCTIONS(FIELD)
#undef FIELD
} real;

#define PASS_ON(returns, answer, name, parameters, arguments)                                                          \
    answer name parameters                                                                                             \
    {                                                                                                                  \
        returns real.name arguments;                                                                                   \
    }
LIBCRYPTO_FUNCTIONS(PASS_ON)
#undef PASS_ON

static const char *const NAMES[] = {
#define NAME(returns, answer, name, parameters, arguments) #name,
    LIBCRYPTO_FUNCTIONS(NAME)
#undef NAME
};

enum { FUNCTION_TOTAL = sizeof(NAMES) / sizeof(NAMES[0]) };

/* A file of this process. */
struct file {
    Dl_info is;
    const struct link_map *map;
    void *handle; /* NULL: it was not opened again */
};

/*
 * The file is there already: nothing is loaded. The handle is kept for good, as what was found is used as long as the
 * process lives.
 */
static void *handle_of(struct file *file)
{
    bool is_program = file->map->l_name == NULL || file->map->l_name[0] == '\0';

    if (file->handle == NULL)
        file->handle = dlopen(is_program ? NULL : file->is.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return file->handle;
}

static bool is_in(const struct file *file, const void *address)
{
    Dl_info found;

    return address != NULL && dladdr(address, &found) != 0 && found.dli_fbase == file->is.dli_fbase;
}

/* What another file of the process has under the same name does not count: never more than one libcrypto. */
static void *look_up(struct file *file, const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    void *handle;

    if (is_in(file, address))
        return address;
    handle = handle_of(file);
    address = handle == NULL ? NULL : dlsym(handle, name);
    if (is_in(file, address))
        return address;
    complain("%s: the OpenSSL of this process (%s) shows no function %s to what it loads\n", this_library.not_loaded,
             file->is.dli_fname, name);
    return NULL;
}

static bool look_up_all(struct file *file)
{
    void *addresses[FUNCTION_TOTAL];
    size_t next = 0;

    for (size_t i = 0; i < FUNCTION_TOTAL; i++) {
        addresses[i] = look_up(file, NAMES[i]);
        if (addresses[i] == NULL)
            return false;
    }
/* dlsym answers an object pointer; POSIX demands that it can hold a function's address. */
#define KEEP_IT(returns, answer, name, parameters, arguments) memcpy(&real.name, &addresses[next++], sizeof(real.name));
    LIBCRYPTO_FUNCTIONS(KEEP_IT)
#undef KEEP_IT
    real.base = file->is.dli_fbase;
    return true;
}

bool libcrypto_find(function *of_it)
{
    struct file file = {.handle = NULL};
    struct link_map *map = NULL;
    int before = errno;
    bool found = false;

    if (dladdr1((const void *)of_it, &file.is, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) {
        complain("%s: no file holds the code of this process's OpenSSL\n", this_library.not_loaded);
    } else if (real.base != NULL) {
        found = real.base == file.is.dli_fbase;
        if (!found)
            complain("%s: %s is a second OpenSSL in this process\n", this_library.not_loaded, file.is.dli_fname);
    } else {
        file.map = map;
        found = look_up_all(&file);
    }
    errno = before;
    return found;
}
