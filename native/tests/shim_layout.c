/*
 * Prints the layout of native/shim_record.h; the test `layout_is_mirrored` compares it with
 * dyno/src/native/shim/layout.rs.
 */
#include <stdio.h>

#include "../shim_record.h"

int main(void)
{
    printf("too_long_ns %u\n", TLSDYNO_SHIM_TOO_LONG_NS);
    printf("abi_version %u\n", TLSDYNO_SHIM_ABI_VERSION);
    printf("abi_version_at %zu\n", offsetof(struct tlsdyno_shim_area, head.abi_version));
    printf("slot_count_at %zu\n", offsetof(struct tlsdyno_shim_area, head.slot_count));
    printf("owner_pid_at %zu\n", offsetof(struct tlsdyno_shim_area, head.owner_pid));
    printf("owner_start_ticks_at %zu\n", offsetof(struct tlsdyno_shim_area, head.owner_start_ticks));
    printf("run_id_at %zu\n", offsetof(struct tlsdyno_shim_area, head.run_id));
    printf("heartbeat_ns_at %zu\n", offsetof(struct tlsdyno_shim_area, head.heartbeat_ns));
    printf("owner_user_at %zu\n", offsetof(struct tlsdyno_shim_area, head.owner_user));
    printf("mode_at %zu\n", offsetof(struct tlsdyno_shim_area, head.mode));
    printf("run_id_size %u\n", TLSDYNO_RUN_ID_SIZE);
    printf("stages_off_at %zu\n", offsetof(struct tlsdyno_shim_area, stages_off));
    printf("flags_at %zu\n", offsetof(struct tlsdyno_shim_area, flags));
    printf("suite_at %zu\n", offsetof(struct tlsdyno_shim_area, suite));
    printf("version_at %zu\n", offsetof(struct tlsdyno_shim_area, version));
    printf("slots_claimed_at %zu\n", offsetof(struct tlsdyno_shim_area, slots_claimed));
    printf("stamps_written_at %zu\n", offsetof(struct tlsdyno_shim_area, stamps_written));
    printf("full_script_at %zu\n", offsetof(struct tlsdyno_shim_area, full));
    printf("resumed_script_at %zu\n", offsetof(struct tlsdyno_shim_area, resumed));
    printf("ready_after_at %zu\n", offsetof(struct tlsdyno_script, ready_after));
    printf("flights_at %zu\n", offsetof(struct tlsdyno_script, flights));
    printf("flights %u\n", TLSDYNO_SHIM_FLIGHTS);
    printf("modes_ignored_at %zu\n", offsetof(struct tlsdyno_shim_area, modes_ignored));
    printf("peer_count_at %zu\n", offsetof(struct tlsdyno_shim_area, peer_count));
    printf("peers_at %zu\n", offsetof(struct tlsdyno_shim_area, peers));
    printf("peer_size %zu\n", sizeof(struct tlsdyno_peer));
    printf("peers %u\n", TLSDYNO_SHIM_PEERS);
    printf("session_state_at %zu\n", offsetof(struct tlsdyno_shim_area, session.state));
    printf("session_size %u\n", TLSDYNO_SHIM_SESSION_SIZE);
    printf("session_ready %d\n", SHIM_SESSION_READY);
    printf("slots_at %zu\n", offsetof(struct tlsdyno_shim_area, slots));
    printf("slots %u\n", TLSDYNO_SHIM_SLOTS);
    printf("slot_counters %u\n", TLSDYNO_SHIM_SLOT_COUNTERS);
    printf("stamps_at %zu\n", offsetof(struct tlsdyno_shim_area, stamps));
    printf("stamps %u\n", TLSDYNO_SHIM_STAMPS);
    printf("stamp_size %zu\n", sizeof(struct tlsdyno_stamp));
    printf("steps %u\n", TLSDYNO_SHIM_STEPS);
    printf("size %zu\n", sizeof(struct tlsdyno_shim_area));
    printf("stamp number %zu\n", offsetof(struct tlsdyno_stamp, number));
    printf("stamp start_ns %zu\n", offsetof(struct tlsdyno_stamp, start_ns));
    printf("stamp end_ns %zu\n", offsetof(struct tlsdyno_stamp, end_ns));
    printf("stamp bytes_received %zu\n", offsetof(struct tlsdyno_stamp, bytes_received));
    printf("stamp bytes_sent %zu\n", offsetof(struct tlsdyno_stamp, bytes_sent));
    printf("stamp pid %zu\n", offsetof(struct tlsdyno_stamp, pid));
    printf("stamp kind %zu\n", offsetof(struct tlsdyno_stamp, kind));
    printf("stamp calls %zu\n", offsetof(struct tlsdyno_stamp, calls));
    printf("stamp step_count %zu\n", offsetof(struct tlsdyno_stamp, step_count));
    printf("stamp cpu_ns %zu\n", offsetof(struct tlsdyno_stamp, cpu_ns));
    printf("step_size %zu\n", sizeof(struct tlsdyno_step));
    printf("stamp steps %zu\n", offsetof(struct tlsdyno_stamp, steps));
    printf("magic %s\n", TLSDYNO_SHIM_MAGIC);
#define PRINT(word, id, name) printf(word " " name "\n");
#define PRINT_STAGE(id, name) PRINT("stage", id, name)
#define PRINT_FLAG(id, name) PRINT("flag", id, name)
#define PRINT_KIND(id, name) PRINT("kind", id, name)
#define PRINT_EVENT(id, name) PRINT("event", id, name)
    TLSDYNO_SHIM_STAGES(PRINT_STAGE)
    TLSDYNO_SHIM_FLAGS(PRINT_FLAG)
    TLSDYNO_SHIM_KINDS(PRINT_KIND)
    TLSDYNO_SHIM_EVENTS(PRINT_EVENT)
    return 0;
}
