//! Which CPUs processes and threads may run on.

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may use.
pub fn allowed() -> Vec<usize> {
    of_process(None).unwrap_or_else(|| vec![0])
}

/// The CPUs that a process may use, `None`: this one. Nothing if the system does not tell.
pub fn of_process(pid: Option<u32>) -> Option<Vec<usize>> {
    let pid = match pid {
        Some(pid) => Some(Pid::from_raw(pid as i32)?),
        None => None,
    };
    let set = sched_getaffinity(pid).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread run on this CPU only.
pub fn stay_on(cpu: usize) -> std::io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}

/// Does something in a thread that runs on this CPU alone, so that processes that it starts do too.
pub fn on_cpu<T: Send>(cpu: usize, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || {
        stay_on(cpu).with_context(|| format!("run on CPU {cpu}"))?;
        act()
    };
    std::thread::scope(|scope| scope.spawn(pinned).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
