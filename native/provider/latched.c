/*
 * Contexts of ours round those of the wrapped provider, for operations whose no-op needs nothing of its own: what is
 * kept is whether the stage was off when the context was made.
 */
#include "provider.h"

#include <stdlib.h>

void *latch(const void *functions, void *real, void (*free_real)(void *), bool off)
{
    struct latched *latched = real == NULL ? NULL : malloc(sizeof(*latched));

    if (latched == NULL) {
        raise_error(REASON_NO_MEMORY, "context");
        if (real != NULL)
            free_real(real);
        return NULL;
    }
    *latched = (struct latched){.functions = functions, .real = real, .off = off};
    return latched;
}
