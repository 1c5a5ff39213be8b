/*
 * Prints the layout of the areas, and what stands in their slots, as Rust. dyno/build.rs compiles and runs this;
 * native/src/layout.rs includes what it prints. The types in areas have the same size everywhere, so that this may
 * run on another machine than the libraries.
 */
#include <stdio.h>

#include "doubler_record.h"
#include "profiler_record.h"
#include "record.h"
#include "shim_record.h"

#define CONSTANT(type, name, value) printf("pub const " #name ": " #type " = %llu;\n", (unsigned long long)(value));
#define NUMBER(name, value) CONSTANT(usize, name, value)
/* Where a field stands in the structure that AREA names. */
#define AT(name, field) NUMBER(name##_AT, offsetof(struct AREA, field))

#define LIST(name, type, total, items)                                                                                 \
    printf("pub const " #name ": [" #type "; %d] = [", total);                                                         \
    items printf("];\n");
#define OF_STAGE(id, stage, name, ...) printf("(Some(Stage::PROVIDER[%d]), \"" name "\"),", STAGE_##stage);
#define OF_NO_STAGE(id, name) printf("(None, \"" name "\"),");
#define IS_SHORT(id, stage, name, is_short) printf(#is_short ",");
#define NAME(id, name) printf("\"" name "\",");
#define FLAG(id) CONSTANT(u32, FLAG_##id, 1u << SHIM_FLAG_##id)

/* A module for each area, with the head that all have. */
static void begin_area(const char *name, const char *magic, unsigned int abi_version)
{
    printf("}\npub mod %s {\nuse super::*;\npub use super::head::*;\n", name);
    printf("pub const MAGIC: [u8; 8] = *b\"%s\\0\";\npub const ABI_VERSION: u32 = %u;\n", magic, abi_version);
}

int main(void)
{
    printf("pub mod head {\n");
#define AREA tlsdyno_head
    AT(ABI_VERSION, abi_version) AT(SLOT_COUNT, slot_count) AT(OWNER_PID, owner_pid)
    AT(OWNER_START_TICKS, owner_start_ticks) AT(RUN_ID, run_id) AT(HEARTBEAT_NS, heartbeat_ns)
    AT(OWNER_USER, owner_user) AT(MODE, mode)
    NUMBER(RUN_ID_SIZE, TLSDYNO_RUN_ID_SIZE)
#undef AREA

    begin_area("provider", TLSDYNO_MAGIC, TLSDYNO_ABI_VERSION);
#define AREA tlsdyno_record
    AT(SLOTS_CLAIMED, slots_claimed) AT(MODES_IGNORED, modes_ignored) AT(BURN_NS, burn_ns) AT(SLOTS, slots)
    NUMBER(ENGINES_MAX, TLSDYNO_ENGINES_MAX)
    NUMBER(SLOTS, TLSDYNO_SLOTS) NUMBER(SLOT_COUNTERS, TLSDYNO_SLOT_COUNTERS) NUMBER(SIZE, sizeof(struct AREA))
    LIST(STAGES, &str, STAGE_TOTAL, TLSDYNO_STAGES(NAME))
    LIST(COUNTERS, Name, TLSDYNO_COUNTER_TOTAL, TLSDYNO_COUNTERS(OF_STAGE) TLSDYNO_HARDWARE_COUNTERS(OF_NO_STAGE))
#undef AREA

    begin_area("doubler", DOUBLER_MAGIC, DOUBLER_ABI_VERSION);
#define AREA doubler_record
    AT(SLOTS_CLAIMED, slots_claimed) AT(MODES_IGNORED, modes_ignored) AT(SLOTS, slots)
    NUMBER(SLOTS, DOUBLER_SLOTS) NUMBER(SLOT_COUNTERS, DOUBLER_SLOT_COUNTERS) NUMBER(SIZE, sizeof(struct AREA))
    CONSTANT(u32, MODE_COPIES, DOUBLER_MODE_COPIES)
    LIST(COUNTERS, Name, DOUBLER_COUNTER_TOTAL, DOUBLER_COUNTERS(OF_STAGE) DOUBLER_EVENTS(OF_NO_STAGE))
#undef AREA

    begin_area("profiler", PROFILER_MAGIC, PROFILER_ABI_VERSION);
#define AREA profiler_record
    AT(SLOTS_USED, slots_used) AT(CLOCK, clock) AT(TICKS_PER_S, ticks_per_s) AT(EMPTY_TICKS, empty_ticks)
    AT(TRAMPOLINE_CLASSES, trampoline_classes) AT(SLOT_CLAIMS, slot_claims)
    AT(SEES_INTERRUPTIONS, sees_interruptions) AT(SLOTS, slots)
    NUMBER(TRAMPOLINES, PROFILER_TRAMPOLINES) NUMBER(SLOTS, PROFILER_SLOTS) NUMBER(SIZE, sizeof(struct AREA))
    NUMBER(CLASSES_MAX, PROFILER_CLASSES_MAX) NUMBER(CLASS_NUMBERS, sizeof(struct profiler_count) / 8)
    NUMBER(SLOT_NUMBERS, sizeof(struct profiler_slot) / 8)
    CONSTANT(u32, MODE_TIMED, PROFILER_MODE_TIMED)
    LIST(CLASSES, Name, PROFILER_CLASS_TOTAL, PROFILER_CLASSES(OF_STAGE))
    LIST(IS_SHORT, bool, PROFILER_CLASS_TOTAL, PROFILER_CLASSES(IS_SHORT))
#undef AREA

    begin_area("shim", TLSDYNO_SHIM_MAGIC, TLSDYNO_SHIM_ABI_VERSION);
#define AREA tlsdyno_shim_area
    AT(STAGES_OFF, stages_off) AT(FLAGS, flags) AT(SUITE, suite) AT(VERSION, version) AT(FULL_SCRIPT, full)
    AT(RESUMED_SCRIPT, resumed) AT(SLOTS_CLAIMED, slots_claimed) AT(MODES_IGNORED, modes_ignored)
    AT(PEER_COUNT, peer_count) AT(PEERS, peers) AT(SESSION_STATE, session.state) AT(SLOTS, slots) AT(STAMPS, stamps)
    NUMBER(PEER_SIZE, sizeof(struct tlsdyno_peer)) NUMBER(PEERS, TLSDYNO_SHIM_PEERS)
    NUMBER(FLIGHTS, TLSDYNO_SHIM_FLIGHTS) CONSTANT(u32, SESSION_READY, SHIM_SESSION_READY)
    NUMBER(SLOTS, TLSDYNO_SHIM_SLOTS) NUMBER(SLOT_COUNTERS, TLSDYNO_SHIM_SLOT_COUNTERS)
    NUMBER(STAMPS, TLSDYNO_SHIM_STAMPS) NUMBER(STAMP_SIZE, sizeof(struct tlsdyno_stamp))
    NUMBER(STEPS, TLSDYNO_SHIM_STEPS) NUMBER(STEP_SIZE, sizeof(struct tlsdyno_step))
    NUMBER(SIZE, sizeof(struct AREA)) CONSTANT(u32, TOO_LONG_NS, TLSDYNO_SHIM_TOO_LONG_NS)
    TLSDYNO_SHIM_FLAGS(FLAG)
    LIST(STAGES, &str, SHIM_STAGE_TOTAL, TLSDYNO_SHIM_STAGES(NAME))
    LIST(COUNTERS, Name, SHIM_COUNTER_TOTAL, TLSDYNO_SHIM_KINDS(OF_NO_STAGE) TLSDYNO_SHIM_EVENTS(OF_NO_STAGE))
    /* The first counters say how connections began. */
    NUMBER(KINDS, SHIM_COUNT_FAILED)
#undef AREA

    printf("pub mod stamp {\n");
#define AREA tlsdyno_stamp
    AT(NUMBER, number) AT(START_NS, start_ns) AT(END_NS, end_ns) AT(BYTES_RECEIVED, bytes_received)
    AT(BYTES_SENT, bytes_sent) AT(PID, pid) AT(KIND, kind) AT(CALLS, calls) AT(STEP_COUNT, step_count)
    AT(CPU_NS, cpu_ns) AT(STEPS, steps)
    printf("}\n}\n");
    return 0;
}
