/* What the programs about modes share: the owner's side of the area, by the descriptor that this process inherited. */
#ifndef TLSDYNO_TEST_MODES_H
#define TLSDYNO_TEST_MODES_H

#include <unistd.h>

#include "../provider/provider.h"
#include "check.h"

#define BIT(stage) (1u << STAGE_##stage)

static int area_descriptor;

/* As the owner does it: through the kernel. */
static inline void set_mode(uint32_t mode)
{
    CHECK(pwrite(area_descriptor, &mode, sizeof(mode), (off_t)offsetof(struct tlsdyno_record, head.mode))
          == sizeof(mode));
}

#endif
