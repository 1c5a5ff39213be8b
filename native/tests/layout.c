/* Prints the layout of native/record.h; the test `layout_is_mirrored` compares it with dyno/src/native/provider.rs. */
#include <stdio.h>

#include "../record.h"

int main(void)
{
    printf("abi_version %u\n", TLSDYNO_ABI_VERSION);
    printf("abi_version_at %zu\n", offsetof(struct tlsdyno_record, head.abi_version));
    printf("slot_count_at %zu\n", offsetof(struct tlsdyno_record, head.slot_count));
    printf("owner_pid_at %zu\n", offsetof(struct tlsdyno_record, head.owner_pid));
    printf("owner_start_ticks_at %zu\n", offsetof(struct tlsdyno_record, head.owner_start_ticks));
    printf("run_id_at %zu\n", offsetof(struct tlsdyno_record, head.run_id));
    printf("heartbeat_ns_at %zu\n", offsetof(struct tlsdyno_record, head.heartbeat_ns));
    printf("owner_user_at %zu\n", offsetof(struct tlsdyno_record, head.owner_user));
    printf("mode_at %zu\n", offsetof(struct tlsdyno_record, head.mode));
    printf("run_id_size %u\n", TLSDYNO_RUN_ID_SIZE);
    printf("slots_claimed_at %zu\n", offsetof(struct tlsdyno_record, slots_claimed));
    printf("modes_ignored_at %zu\n", offsetof(struct tlsdyno_record, modes_ignored));
    printf("engine_busy_until_ns_at %zu\n", offsetof(struct tlsdyno_record, engine_busy_until_ns));
    printf("engines_max %u\n", TLSDYNO_ENGINES_MAX);
    printf("slots_at %zu\n", offsetof(struct tlsdyno_record, slots));
    printf("slots %u\n", TLSDYNO_SLOTS);
    printf("slot_counters %u\n", TLSDYNO_SLOT_COUNTERS);
    printf("size %zu\n", sizeof(struct tlsdyno_record));
    printf("magic %s\n", TLSDYNO_MAGIC);
#define PRINT_COUNTER(id, stage, name) printf("counter " #stage " " name "\n");
    TLSDYNO_COUNTERS(PRINT_COUNTER)
#define PRINT_HARDWARE_COUNTER(id, name) printf("hardware counter " name "\n");
    TLSDYNO_HARDWARE_COUNTERS(PRINT_HARDWARE_COUNTER)
    return 0;
}
