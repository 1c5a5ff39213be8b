/*
 * What a private-key operation (a signature, the decryption of a static-RSA pre-master secret) costs besides its
 * computation: its time in an emulated accelerator, and CPU time burnt on purpose. The data path is not touched here.
 */
#include "provider.h"

void private_key_operation(bool authentication_off)
{
    const struct configuration *configuration = settings();
    uint64_t burn_ns = burn_ns_now(configuration->burn_ns);

    if (authentication_off && configuration->accelerator_engines != 0)
        accelerator_operate(configuration->accelerator_engines, configuration->accelerator_operation_ns);
    if (burn_ns != 0)
        burn_cpu(burn_ns);
    if (!authentication_off && configuration->burn_instructions != 0)
        burn_instructions(configuration->burn_instructions);
}
