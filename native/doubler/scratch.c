/*
 * Where second results go. One buffer for each thread: the stack of an asynchronous job of libcrypto is too small for a
 * record, and nothing is allocated while data flow.
 */
#include "doubler.h"

#include <string.h>

static _Thread_local _Alignas(64) unsigned char buffer[SCRATCH_SIZE];

unsigned char *scratch(void)
{
    return buffer;
}

/* Not memset: the compiler may leave that out, for nobody reads the zeros. */
void scratch_wipe(size_t length)
{
    explicit_bzero(buffer, length < SCRATCH_SIZE ? length : SCRATCH_SIZE);
}
