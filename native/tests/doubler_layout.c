/* Prints the layout of native/doubler_record.h; a test compares it with dyno/src/native/doubler.rs. */
#include <stdio.h>

#include "../doubler_record.h"

int main(void)
{
    printf("abi_version %u\n", DOUBLER_ABI_VERSION);
    printf("slots_claimed_at %zu\n", offsetof(struct doubler_record, slots_claimed));
    printf("modes_ignored_at %zu\n", offsetof(struct doubler_record, modes_ignored));
    printf("slots_at %zu\n", offsetof(struct doubler_record, slots));
    printf("slots %u\n", DOUBLER_SLOTS);
    printf("slot_counters %u\n", DOUBLER_SLOT_COUNTERS);
    printf("doubled_at %zu\n", offsetof(struct doubler_slot, doubled));
    printf("size %zu\n", sizeof(struct doubler_record));
    printf("mode_copies %u\n", DOUBLER_MODE_COPIES);
    printf("magic %s\n", DOUBLER_MAGIC);
#define PRINT_COUNTER(id, stage, name) printf("counter " #stage " " name "\n");
    DOUBLER_COUNTERS(PRINT_COUNTER)
#define PRINT_EVENT(id, name) printf("event " name "\n");
    DOUBLER_EVENTS(PRINT_EVENT)
    return 0;
}
