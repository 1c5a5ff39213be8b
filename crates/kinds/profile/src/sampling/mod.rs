//! Where a process spends its CPU time, seen from outside: the kernel notes, every tenth of a millisecond of CPU time
//! of each of its threads, what it executes and a piece of its stack (perf_event_open(2), clock of the CPU: no hardware
//! counters are needed, which virtual machines lack). The stack is unwound here, by the tables that libraries carry for
//! exceptions, so that nothing needs frame pointers or debug information.

#[cfg(feature = "sampling")]
mod calls;
#[cfg(feature = "sampling")]
mod elf;
// Counted instructions are in the same areas as samples, so that they need half of it.
#[cfg_attr(not(feature = "sampling"), allow(dead_code))]
mod groups;
#[cfg(feature = "sampling")]
mod sampler;
#[cfg(feature = "sampling")]
mod space;
#[cfg(not(feature = "sampling"))]
mod without_sampler;

pub use groups::{area_of, stage_of_trampoline};
#[cfg(feature = "sampling")]
pub use sampler::Sampler;
#[cfg(not(feature = "sampling"))]
pub use without_sampler::Sampler;

/// For each trampoline between libcrypto and its provider its stage.
pub type Trampolines = Vec<Option<&'static str>>;
