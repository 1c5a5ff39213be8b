//! Clocks: monotonic, and of the CPU time of a thread or a process.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds on the monotonic clock, from an arbitrary start.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, user and system, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of another process, user and system, of all its threads that are or were, in nanoseconds. `None`: there is
/// no such process. While the process runs, the kernel brings it up to date at ticks and when it stops running.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // What clock_getcpuclockid(3) makes of a process id: its complement above three bits that say "all time of all
    // threads, as scheduled" (include/linux/posix-timers_types.h).
    const SCHEDULED_TIME: libc::clockid_t = 2;
    let clock = (!(pid as libc::clockid_t) << 3) | SCHEDULED_TIME;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a whole `timespec` that outlives the call; a clock that is none is refused.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

pub(crate) fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(monotonic_ns() - wall >= 1_000_000);
        assert!(thread_cpu_ns() > cpu);
        assert!(process_cpu_ns(std::process::id()).is_some());
    }
}
