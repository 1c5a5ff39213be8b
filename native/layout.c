/*
 * Prints the layout of the areas, and what stands in their slots, as Rust. native/build.rs compiles and runs this;
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

/* A module for each area, with the head that all have, and what is demanded of it. */
#define BEGIN_AREA(name, magic, abi_version, type)                                                                     \
    begin_area(name, magic, abi_version, sizeof(struct type), offsetof(struct type, slots),                            \
               sizeof(((struct type *)NULL)->slots), sizeof(((struct type *)NULL)->slots[0]))
static void begin_area(const char *name, const char *magic, unsigned int abi_version, size_t size, size_t slots_at,
                       size_t slots_size, size_t slot_size)
{
    printf("}\npub mod %s {\nuse super::*;\npub use super::head::*;\npub const AREA: Layout = Layout {", name);
    printf("magic: *b\"%s\\0\", abi_version: %u, size: %zu, slots: %zu, slots_at: %zu, slot_numbers: %zu};\n", magic,
           abi_version, size, slots_size / slot_size, slots_at, slot_size / 8);
}

int main(void)
{
    printf("pub mod head {\n");
#define AREA tlsdyno_head
    AT(ABI_VERSION, abi_version) AT(SLOT_COUNT, slot_count) AT(OWNER_PID, owner_pid)
    AT(OWNER_START_TICKS, owner_start_ticks) AT(RUN_ID, run_id) AT(HEARTBEAT_NS, heartbeat_ns)
    AT(OWNER_USER, owner_user) AT(MODE, mode) AT(SLOTS_CLAIMED, slots_claimed) AT(MODES_IGNORED, modes_ignored)
    NUMBER(RUN_ID_SIZE, TLSDYNO_RUN_ID_SIZE)
#undef AREA

    BEGIN_AREA("provider", TLSDYNO_MAGIC, TLSDYNO_ABI_VERSION, tlsdyno_record);
#define AREA tlsdyno_record
    AT(MAY_BE_OFF, settings.may_be_off) AT(ACCELERATOR_ENGINES, settings.accelerator.engines)
    AT(ACCELERATOR_BATCH, settings.accelerator.batch) AT(ACCELERATOR_OPERATION_NS, settings.accelerator.operation_ns)
    AT(ACCELERATOR_GATHER_NS, settings.accelerator.gather_ns) AT(BURN_NS_MOST, settings.burn_ns)
    AT(BURN_INSTRUCTIONS, settings.burn_instructions) AT(BURN_NS, burn_ns)
    NUMBER(ENGINES_MAX, TLSDYNO_ENGINES_MAX) NUMBER(BATCH_MAX, TLSDYNO_BATCH_MAX)
    LIST(STAGES, &str, STAGE_TOTAL, TLSDYNO_STAGES(NAME))
    LIST(COUNTERS, Name, TLSDYNO_COUNTER_TOTAL, TLSDYNO_COUNTERS(OF_STAGE) TLSDYNO_HARDWARE_COUNTERS(OF_NO_STAGE))
#undef AREA

    BEGIN_AREA("doubler", DOUBLER_MAGIC, DOUBLER_ABI_VERSION, doubler_record);
    NUMBER(SLOT_COUNTERS, DOUBLER_SLOT_COUNTERS)
    CONSTANT(u32, MODE_COPIES, DOUBLER_MODE_COPIES)
    LIST(COUNTERS, Name, DOUBLER_COUNTER_TOTAL, DOUBLER_COUNTERS(OF_STAGE) DOUBLER_EVENTS(OF_NO_STAGE))

    BEGIN_AREA("profiler", PROFILER_MAGIC, PROFILER_ABI_VERSION, profiler_record);
#define AREA profiler_record
    AT(CLOCK, clock) AT(TICKS_PER_S, ticks_per_s) AT(EMPTY_TICKS, empty_ticks)
    AT(TRAMPOLINE_CLASSES, trampoline_classes) AT(SLOT_CLAIMS, slot_claims)
    AT(SEES_INTERRUPTIONS, sees_interruptions)
    NUMBER(TRAMPOLINES, PROFILER_TRAMPOLINES) NUMBER(CLASSES_MAX, PROFILER_CLASSES_MAX)
    NUMBER(CLASS_NUMBERS, sizeof(struct profiler_count) / 8)
    CONSTANT(u32, MODE_TIMED, PROFILER_MODE_TIMED)
    LIST(CLASSES, Name, PROFILER_CLASS_TOTAL, PROFILER_CLASSES(OF_STAGE))
    LIST(IS_SHORT, bool, PROFILER_CLASS_TOTAL, PROFILER_CLASSES(IS_SHORT))
#undef AREA

    BEGIN_AREA("shim", TLSDYNO_SHIM_MAGIC, TLSDYNO_SHIM_ABI_VERSION, tlsdyno_shim_area);
#define AREA tlsdyno_shim_area
    AT(STAGES_OFF, stages_off) AT(FLAGS, flags) AT(SUITE, suite) AT(VERSION, version) AT(FULL_SCRIPT, full)
    AT(RESUMED_SCRIPT, resumed) AT(PEER_COUNT, peer_count) AT(PEERS, peers) AT(SESSION_STATE, session.state)
    AT(STAMPS, stamps)
    NUMBER(PEER_SIZE, sizeof(struct tlsdyno_peer)) NUMBER(PEERS, TLSDYNO_SHIM_PEERS)
    NUMBER(FLIGHTS, TLSDYNO_SHIM_FLIGHTS) CONSTANT(u32, SESSION_READY, SHIM_SESSION_READY)
    NUMBER(STAMPS, TLSDYNO_SHIM_STAMPS) NUMBER(STAMP_SIZE, sizeof(struct tlsdyno_stamp))
    NUMBER(STEPS, TLSDYNO_SHIM_STEPS) NUMBER(STEP_SIZE, sizeof(struct tlsdyno_step))
    CONSTANT(u32, TOO_LONG_NS, TLSDYNO_SHIM_TOO_LONG_NS)
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
