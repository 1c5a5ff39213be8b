/*
 * Whether the tlsdyno process that owns a shared file (record.h, shim_record.h) still lives: what provider and shim ask before they act.
 *
 * In a header, because each library is linked from its own folder.
 */
#ifndef TLSDYNO_OWNER_H
#define TLSDYNO_OWNER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads /proc/PID/stat into `text`, which is then terminated. */
static inline bool read_process_status(char *text, size_t size, uint64_t pid)
{
    char path[64];
    ssize_t length;
    int descriptor;

    snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    length = read(descriptor, text, size - 1);
    close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Whether the process lives and is the one that started at `start_ticks`: a pid alone may have been given to another. */
static inline bool process_lives(uint64_t pid, uint64_t start_ticks)
{
    enum { STATE_TO_START_FIELDS = 19 }; /* proc(5): state is field 3, start time field 22 */
    char text[1024];
    char *field;

    if (!read_process_status(text, sizeof(text), pid))
        return false;
    field = strrchr(text, ')'); /* the command name before it may hold spaces and brackets */
    if (field == NULL || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
        return false;
    field += 2;
    for (int i = 0; i < STATE_TO_START_FIELDS; i++) {
        field = strchr(field, ' ');
        if (field == NULL)
            return false;
        field++;
    }
    return strtoull(field, NULL, 10) == start_ticks;
}

#endif
