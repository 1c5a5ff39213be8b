/*
 * Reads the provider's section of openssl.cnf. In init only: nginx empties the environment of its workers and never
 * reads it again.
 */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

static const char *const STAGE_NAMES[STAGE_TOTAL] = {
#define STAGE_NAME(id, name) [STAGE_##id] = name,
    TLSDYNO_STAGES(STAGE_NAME)
#undef STAGE_NAME
};

static bool read_parameter(const char **into, const char *name, const OSSL_CORE_HANDLE *core,
                           OSSL_FUNC_core_get_params_fn *get_params)
{
    char *value = NULL;
    OSSL_PARAM request[2] = {OSSL_PARAM_construct_utf8_ptr(name, &value, 0), OSSL_PARAM_construct_end()};

    if (!get_params(core, request) || value == NULL || value[0] == '\0') {
        raise_error(REASON_CONFIGURATION, "`%s` is missing from the provider's section of openssl.cnf", name);
        return false;
    }
    *into = value;
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

bool configuration_read(struct configuration *into, const OSSL_CORE_HANDLE *core, OSSL_FUNC_core_get_params_fn *get_params)
{
    const char *stages;

    return read_parameter(&into->run_id, "acknowledge", core, get_params)
           && read_parameter(&into->record_path, "record", core, get_params)
           && read_parameter(&stages, "stages", core, get_params) && parse_stages(&into->off, stages);
}

/* A copy whose strings live until configuration_drop. */
bool configuration_keep(struct configuration *into, const struct configuration *from)
{
    into->off = from->off;
    into->record_path = strdup(from->record_path);
    into->run_id = strdup(from->run_id);
    if (into->record_path != NULL && into->run_id != NULL)
        return true;
    raise_error(REASON_NO_MEMORY, "configuration");
    configuration_drop(into);
    return false;
}

void configuration_drop(struct configuration *kept)
{
    free((char *)kept->record_path);
    free((char *)kept->run_id);
    *kept = (struct configuration){0};
}
