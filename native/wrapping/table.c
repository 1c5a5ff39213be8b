/* Copies of the wrapped provider's tables. They are allocated in init and live as long as the process, on purpose. */
#include "wrapping.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

function *table_find(const OSSL_DISPATCH *table, int id)
{
    for (; table->function_id != 0; table++) {
        if (table->function_id == id)
            return table->function;
    }
    return NULL;
}

static size_t table_length(const OSSL_DISPATCH *table)
{
    size_t length = 0;

    while (table[length].function_id != 0)
        length++;
    return length;
}

/*
 * The allow-list rule (wrapping.h): an entry is handed out if it is in `allowed` and the original has it too; then it
 * is our function or, where the list says KEEP, the original.
 */
OSSL_DISPATCH *table_allow(const OSSL_DISPATCH *original, const OSSL_DISPATCH *allowed)
{
    OSSL_DISPATCH *table = calloc(table_length(allowed) + 1, sizeof(*table));
    size_t next = 0;

    if (table == NULL) {
        raise_error(REASON_NO_MEMORY, "function table");
        return NULL;
    }
    for (; allowed->function_id != 0; allowed++) {
        function *kept = table_find(original, allowed->function_id);

        if (kept == NULL)
            continue;
        table[next].function_id = allowed->function_id;
        table[next].function = allowed->function == KEEP ? kept : allowed->function;
        next++;
    }
    return table;
}

/* Puts the functions in `own` in place of those of `table`, where it has such entries. */
void table_override(OSSL_DISPATCH *table, const OSSL_DISPATCH *own)
{
    for (; table->function_id != 0; table++) {
        function *instead = table_find(own, table->function_id);

        if (instead != NULL)
            table->function = instead;
    }
}

/* The list's entries, with the functions in `own` in place of what it says. */
const OSSL_DISPATCH *table_allow_with(const OSSL_DISPATCH *original, const OSSL_DISPATCH *allowed,
                                      const OSSL_DISPATCH *own)
{
    OSSL_DISPATCH *table = table_allow(original, allowed);

    if (table != NULL)
        table_override(table, own);
    return table;
}

OSSL_DISPATCH *table_copy(const OSSL_DISPATCH *original)
{
    size_t length = table_length(original);
    OSSL_DISPATCH *table = calloc(length + 1, sizeof(*table));

    if (table == NULL) {
        raise_error(REASON_NO_MEMORY, "function table");
        return NULL;
    }
    memcpy(table, original, length * sizeof(*table));
    return table;
}

/*
 * The original table with the functions in `own` in place of its own. For operations whose contexts are the wrapped
 * provider's, so that no function can meet a context that it does not know.
 */
const OSSL_DISPATCH *table_replace(const OSSL_DISPATCH *original, const OSSL_DISPATCH *own)
{
    OSSL_DISPATCH *table = table_copy(original);

    if (table != NULL)
        table_override(table, own);
    return table;
}

/* `algorithm_names` holds names and object identifiers separated by colons. */
bool algorithm_is(const OSSL_ALGORITHM *algorithm, const char *name)
{
    const char *candidate = algorithm->algorithm_names;
    size_t wanted = strlen(name);

    while (true) {
        size_t length = strcspn(candidate, ":");

        if (length == wanted && strncasecmp(candidate, name, length) == 0)
            return true;
        if (candidate[length] == '\0')
            return false;
        candidate += length + 1;
    }
}

const OSSL_ALGORITHM *algorithm_find(const OSSL_ALGORITHM *algorithms, const char *name)
{
    for (; algorithms->algorithm_names != NULL; algorithms++) {
        if (algorithm_is(algorithms, name))
            return algorithms;
    }
    return NULL;
}

static const struct wrapping *wrapping_for(const OSSL_ALGORITHM *algorithm, const struct wrapping *wrappings,
                                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (algorithm_is(algorithm, wrappings[i].name))
            return &wrappings[i];
    }
    return NULL;
}

OSSL_ALGORITHM *algorithms_copy(const OSSL_ALGORITHM *originals)
{
    size_t total = 0;
    OSSL_ALGORITHM *algorithms;

    while (originals[total].algorithm_names != NULL)
        total++;
    algorithms = calloc(total + 1, sizeof(*algorithms));
    if (algorithms == NULL) {
        raise_error(REASON_NO_MEMORY, "algorithm table");
        return NULL;
    }
    memcpy(algorithms, originals, total * sizeof(*algorithms));
    return algorithms;
}

const OSSL_ALGORITHM *algorithms_wrap(const OSSL_ALGORITHM *originals, const struct wrapping *wrappings, size_t count)
{
    size_t next = 0;
    OSSL_ALGORITHM *algorithms = algorithms_copy(originals);

    if (algorithms == NULL)
        return NULL;
    for (size_t i = 0; originals[i].algorithm_names != NULL; i++) {
        const struct wrapping *wrapping = wrapping_for(&originals[i], wrappings, count);
        bool hide = false;

        algorithms[next] = originals[i];
        if (wrapping != NULL) {
            algorithms[next].implementation = wrapping->wrap(&originals[i], &hide);
            if (algorithms[next].implementation == NULL && !hide)
                return NULL;
        }
        if (!hide)
            next++;
    }
    memset(&algorithms[next], 0, sizeof(algorithms[next]));
    return algorithms;
}
