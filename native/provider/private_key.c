/*
 * What a private-key operation (a signature, the decryption of a static-RSA pre-master secret) costs besides its
 * computation: its time in an emulated accelerator, and CPU time burnt on purpose. The data path is not touched here.
 */
#include "provider.h"

void private_key_operation(bool authentication_off)
{
    const struct tlsdyno_settings *wanted = settings();
    uint64_t burn_ns = burn_ns_now(wanted->burn_ns);

    if (authentication_off && wanted->accelerator.engines != 0)
        accelerator_operate(&wanted->accelerator);
    if (burn_ns != 0)
        burn_cpu(burn_ns);
    if (!authentication_off && wanted->burn_instructions != 0)
        burn_instructions(wanted->burn_instructions);
}
