//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::fault::{Fault, OrFault, fault_of};

/// What stopped the work, in messages.
pub const CAUSE: &str = "Ctrl-C";

/// The flag of this process: signals are the whole process's.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A flag that the first Ctrl-C or SIGTERM sets; a second one ends the process with `exit_code`. Call it once.
pub fn flag(exit_code: i32) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset and so does not end the process.
        signal_hook::flag::register_conditional_shutdown(signal, exit_code, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("failed to install the handler for Ctrl-C")?;
    }
    let _ = FLAG.set(stop.clone());
    Ok(stop)
}

/// A flag that SIGHUP sets from now on, instead of ending the process.
pub fn hangup() -> Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&told)).context("failed to install the handler for SIGHUP")?;
    Ok(told)
}

/// What a piece of work came to. Where it failed after the flag was set, that is the reason: signals break into what it
/// waits for.
///
/// # Errors
/// The error of the work, or [`Fault::Interrupted`] where the flag is set.
pub fn instead_of_failure<T>(stop: &AtomicBool, result: Result<T>) -> Result<T> {
    result.or_else(|error| check(stop).and(Err(error)))
}

/// The same of what comes before the first block; Ctrl-C costs nothing that was measured then.
pub fn before_measuring<T>(stop: &AtomicBool, result: Result<T>) -> Result<T> {
    instead_of_failure(stop, result).map_err(|error| match fault_of(&error) {
        Some(Fault::Interrupted) => error.context("stopped before anything was measured"),
        _ => error,
    })
}

/// [`check`] for those who wait deep below the one who holds the flag. Without [`flag`] a signal ends the process, and
/// there is nothing to ask.
pub fn check_this_process() -> Result<()> {
    FLAG.get().map_or(Ok(()), |stop| check(stop))
}

/// Asked between two pieces of work.
pub fn check(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(anyhow!(CAUSE)).or_fault(Fault::Interrupted);
    }
    Ok(())
}

/// A stream that becomes readable when one of `signals` arrives, to be waited for beside other things.
pub fn stream(signals: &[i32]) -> Result<UnixStream> {
    let (reader, writer) = UnixStream::pair().context("make the signals' pipe")?;
    reader.set_nonblocking(true)?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?).context("handle signals")?;
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_is_the_reason_of_what_it_breaks() {
        let failed = || Err::<(), _>(anyhow!("interrupted system call")).or_fault(Fault::Server);
        let after = |stopped, result| instead_of_failure(&AtomicBool::new(stopped), result);
        assert_eq!(fault_of(&after(true, failed()).unwrap_err()), Some(Fault::Interrupted));
        assert_eq!(fault_of(&after(false, failed()).unwrap_err()), Some(Fault::Server));
        after(true, Ok(())).unwrap();
    }
}
