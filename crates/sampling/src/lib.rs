//! Where processes spend their CPU time, seen from outside: the kernel notes, at a period of CPU time of each of their
//! threads, what it executes and a piece of its stack (perf_event_open(2), clock of the CPU: no hardware counters are
//! needed, which virtual machines lack). The stack is unwound here, by the tables that libraries carry for exceptions,
//! so that nothing needs frame pointers or debug information. What a stack means, the caller decides.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[cfg(feature = "sampling")]
mod calls;
#[cfg(feature = "sampling")]
mod elf;
#[cfg(feature = "sampling")]
mod go;
#[cfg(feature = "sampling")]
mod sampler;
#[cfg(feature = "sampling")]
mod space;
#[cfg(not(feature = "sampling"))]
mod without_sampler;

#[cfg(feature = "sampling")]
pub use sampler::Sampler;
#[cfg(not(feature = "sampling"))]
pub use without_sampler::Sampler;

/// What is sampled, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPU time between two samples of a thread, nanoseconds.
    pub period_ns: u64,
    /// Bytes of the stack in a sample, a power of two, below 64 KiB.
    pub stack_bytes: u32,
    /// Bytes of the ring in which the samples of a thread wait to be read, a power of two. Where there are many threads
    /// there is room for seven samples.
    pub ring_bytes: usize,
    /// Beginnings of the names of files with code that carries no tables for unwinding, as assembler may be. Their
    /// stacks are searched for the next return address in one of `callers`.
    pub without_tables: Vec<String>,
    /// Beginnings of the names of files that call such code.
    pub callers: Vec<String>,
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// File without directories; empty: the place is in no file.
    pub file: String,
    /// `None`: the file does not name it.
    pub function: Option<String>,
    /// Function of another file that this frame calls.
    pub calls: Option<String>,
    /// Function of the same file that this frame calls by its address.
    pub calls_within: Option<String>,
}

/// What a thread did at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'s> {
    /// The kernel worked for it.
    pub is_kernel: bool,
    /// Its stack in user space, innermost first.
    pub frames: &'s [Frame],
}
