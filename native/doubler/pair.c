/* Contexts of ours: one of the wrapped provider's that answers, and perhaps its twin (doubler.h). */
#include "doubler.h"

#include <stdlib.h>

#include <openssl/err.h>

void *pair_make(size_t size, const void *functions, void (*free_one)(void *), void *real, bool wanted, void *twin)
{
    struct pair *pair = real == NULL ? NULL : calloc(1, size);

    if (pair == NULL) {
        raise_error(REASON_NO_MEMORY, "context");
        if (real != NULL)
            free_one(real);
        if (twin != NULL)
            free_one(twin);
        return NULL;
    }
    *pair = (struct pair){.functions = functions, .free_one = free_one, .real = real, .twin = twin};
    if (wanted && twin == NULL)
        pair_drop_twin(pair, true);
    return pair;
}

void pair_free(void *context)
{
    struct pair *pair = context;

    if (pair == NULL)
        return;
    pair->free_one(pair->real);
    if (pair->twin != NULL)
        pair->free_one(pair->twin);
    free(pair);
}

void *pair_copy(size_t size, const struct pair *pair, void *(*copy_one)(void *))
{
    bool wanted = pair->twin != NULL && area_is_alive();
    void *real = copy_one(pair->real);

    return pair_make(size, pair->functions, pair->free_one, real, wanted,
                     wanted && real != NULL ? copy_one(pair->twin) : NULL);
}

/*
 * The wrapped provider clears what is secret in a context that it frees. A failure leaves errors on the queue of which
 * the real context, which succeeded, left none; so whatever stands there is the twin's.
 */
void pair_drop_twin(struct pair *pair, bool lost)
{
    if (pair->twin != NULL)
        pair->free_one(pair->twin);
    pair->twin = NULL;
    if (!lost)
        return;
    ERR_clear_error();
    count_calls(DOUBLER_COUNT_LOST, 1);
}
