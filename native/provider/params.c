/* Constant answers and the digest sizes that several operations need. */
#include "provider.h"

#include <string.h>
#include <strings.h>

/* A no-op's constant answer of `size` bytes into a buffer with room for `room`. */
bool fill_answer(unsigned char *out, size_t *length, size_t room, size_t size, unsigned char byte)
{
    if (room < size) {
        raise_error(REASON_BUFFER_TOO_SMALL, "%zu bytes needed, room for %zu", size, room);
        return false;
    }
    memset(out, byte, size);
    *length = size;
    return true;
}

bool all_bytes_are(const unsigned char *data, size_t length, unsigned char byte)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] != byte)
            return false;
    }
    return true;
}

/* Output size of the digests that TLS uses in HMAC, under any of their names; 0 for others. */
size_t digest_size(const char *name)
{
    static const struct {
        const char *name;
        size_t size;
    } DIGESTS[] = {
        {"SHA1", 20},     {"SHA-1", 20},    {"SHA2-256", 32}, {"SHA-256", 32}, {"SHA256", 32}, {"SHA2-384", 48},
        {"SHA-384", 48},  {"SHA384", 48},   {"SHA2-512", 64}, {"SHA-512", 64}, {"SHA512", 64},
    };

    for (size_t i = 0; i < sizeof(DIGESTS) / sizeof(DIGESTS[0]); i++) {
        if (strcasecmp(name, DIGESTS[i].name) == 0)
            return DIGESTS[i].size;
    }
    return 0;
}
