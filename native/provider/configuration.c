/*
 * Reads the provider's section of openssl.cnf. In init only: nginx empties the environment of its workers and never
 * reads it again.
 */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t INSTRUCTIONS_MAX = 1000000000; /* of one operation */
static const uint64_t NANOSECONDS_MAX = 10000000000; /* 10 s for one operation: more is a slip of the pen */

static const char *const STAGE_NAMES[STAGE_TOTAL] = {
#define STAGE_NAME(id, name) [STAGE_##id] = name,
    TLSDYNO_STAGES(STAGE_NAME)
#undef STAGE_NAME
};

/* A whole number up to `most`; 0 where the section has no such parameter. */
static bool read_number(uint64_t *into, const char *name, uint64_t most, const struct section *section)
{
    enum { DIGITS_MAX = 18 }; /* so many digits always fit */
    const char *text = section_find(section, name);

    *into = 0;
    if (text == NULL)
        return true;
    if (strlen(text) <= DIGITS_MAX && strspn(text, "0123456789") == strlen(text))
        *into = strtoull(text, NULL, 10);
    if (*into == 0 || *into > most) {
        raise_error(REASON_CONFIGURATION, "`%s = %s`: expected a whole number from 1 to %llu", name, text,
                    (unsigned long long)most);
        return false;
    }
    return true;
}

static bool add_stage(uint32_t *off, const char *name, size_t length)
{
    for (unsigned int stage = 0; stage < STAGE_TOTAL; stage++) {
        if (strlen(STAGE_NAMES[stage]) == length && strncmp(STAGE_NAMES[stage], name, length) == 0) {
            *off |= 1u << stage;
            return true;
        }
    }
    raise_error(REASON_CONFIGURATION, "unknown stage `%.*s`", (int)length, name);
    return false;
}

/* `none`, or stage names separated by commas. */
static bool parse_stages(uint32_t *off, const char *text)
{
    *off = 0;
    if (strcmp(text, "none") == 0)
        return true;
    while (true) {
        size_t length = strcspn(text, ",");

        if (!add_stage(off, text, length))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

/* Private-key operations of an accelerator cost the server's CPU nothing, so the stage must be off at both ends. */
static bool read_accelerator(struct configuration *into, const struct section *section)
{
    uint64_t engines;

    if (!read_number(&engines, "accelerator_engines", TLSDYNO_ENGINES_MAX, section)
        || !read_number(&into->accelerator_operation_ns, "accelerator_operation_ns", NANOSECONDS_MAX, section))
        return false;
    into->accelerator_engines = (uint32_t)engines;
    if ((engines != 0) != (into->accelerator_operation_ns != 0)) {
        raise_error(REASON_CONFIGURATION, "an accelerator needs both accelerator_engines and accelerator_operation_ns");
        return false;
    }
    if (engines != 0 && (into->may_be_off & (1u << STAGE_AUTHENTICATION)) == 0) {
        raise_error(REASON_CONFIGURATION, "an accelerator needs the stage authentication switched off");
        return false;
    }
    return true;
}

bool configuration_read(struct configuration *into, const struct section *section)
{
    const char *stages;

    return (into->run_id = section_want(section, "acknowledge")) != NULL
           && (into->record_descriptor = section_want(section, "descriptor")) != NULL
           && (stages = section_want(section, "stages")) != NULL && parse_stages(&into->may_be_off, stages)
           && read_accelerator(into, section)
           && read_number(&into->burn_ns, "burn_ns", NANOSECONDS_MAX, section)
           && read_number(&into->burn_instructions, "burn_instructions", INSTRUCTIONS_MAX, section);
}

/* A copy whose strings live until configuration_drop. */
bool configuration_keep(struct configuration *into, const struct configuration *from)
{
    *into = *from;
    into->record_descriptor = strdup(from->record_descriptor);
    into->run_id = strdup(from->run_id);
    if (into->record_descriptor != NULL && into->run_id != NULL)
        return true;
    raise_error(REASON_NO_MEMORY, "configuration");
    configuration_drop(into);
    return false;
}

void configuration_drop(struct configuration *kept)
{
    free((char *)kept->record_descriptor);
    free((char *)kept->run_id);
    *kept = (struct configuration){0};
}
