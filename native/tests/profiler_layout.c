/* Prints the layout of native/profiler_record.h; a test compares it with dyno/src/native/profiler.rs. */
#include <stdio.h>

#include "../profiler_record.h"

int main(void)
{
    printf("abi_version %u\n", PROFILER_ABI_VERSION);
    printf("slots_used_at %zu\n", offsetof(struct profiler_record, slots_used));
    printf("claims_at %zu\n", offsetof(struct profiler_record, claims));
    printf("clock_at %zu\n", offsetof(struct profiler_record, clock));
    printf("ticks_per_s_at %zu\n", offsetof(struct profiler_record, ticks_per_s));
    printf("empty_ticks_at %zu\n", offsetof(struct profiler_record, empty_ticks));
    printf("trampoline_classes_at %zu\n", offsetof(struct profiler_record, trampoline_classes));
    printf("trampolines %u\n", PROFILER_TRAMPOLINES);
    printf("slot_claims_at %zu\n", offsetof(struct profiler_record, slot_claims));
    printf("sees_interruptions_at %zu\n", offsetof(struct profiler_record, sees_interruptions));
    printf("slots_at %zu\n", offsetof(struct profiler_record, slots));
    printf("slots %u\n", PROFILER_SLOTS);
    printf("classes_max %u\n", PROFILER_CLASSES_MAX);
    printf("class_size %zu\n", sizeof(struct profiler_count));
    printf("slot_size %zu\n", sizeof(struct profiler_slot));
    printf("interrupted_at %zu\n", offsetof(struct profiler_slot, interrupted));
    printf("size %zu\n", sizeof(struct profiler_record));
    printf("mode_timed %u\n", PROFILER_MODE_TIMED);
    printf("short_every %u\n", PROFILER_SHORT_EVERY);
    printf("magic %s\n", PROFILER_MAGIC);
#define PRINT_CLASS(id, stage, name, is_short) printf("class " #stage " " name " " #is_short "\n");
    PROFILER_CLASSES(PRINT_CLASS)
    return 0;
}
