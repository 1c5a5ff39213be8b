/* What surrounds a second computation in a context of the wrapped provider. */
#include "doubler.h"

#include <openssl/err.h>

void second_begin(void)
{
    ERR_set_mark();
}

/* A copy of the context, or NULL. */
void *second_context(void *(*copy_one)(void *), void *context)
{
    void *copy;

    ERR_set_mark();
    copy = copy_one(context);
    ERR_pop_to_mark();
    if (copy == NULL)
        count_calls(DOUBLER_COUNT_LOST, 1);
    return copy;
}

/* `length` bytes of the scratch buffer were written. */
void second_end(enum doubler_counter counter, bool done, size_t length)
{
    ERR_pop_to_mark();
    scratch_wipe(length);
    if (done)
        count_doubled(counter, 1);
    else
        count_calls(DOUBLER_COUNT_LOST, 1);
}
