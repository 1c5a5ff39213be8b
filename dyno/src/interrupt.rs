//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Exit, OrExit};

/// What stopped the work, in messages.
pub const CAUSE: &str = "Ctrl-C";

/// The flag of this process: signals are the whole process's.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A flag that the first Ctrl-C or SIGTERM sets; a second one ends the process with [`Exit::Interrupted`]. Call it once.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset and so does not end the process.
        signal_hook::flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("failed to install the handler for Ctrl-C")?;
    }
    let _ = FLAG.set(stop.clone());
    Ok(stop)
}

/// [`check`] for those who wait deep below the one who holds the flag. Without [`flag`] a signal ends the process, and there is nothing to ask.
///
/// # Errors
/// The flag is set.
pub fn check_this_process() -> Result<()> {
    FLAG.get().map_or(Ok(()), |stop| check(stop))
}

/// Asked between two pieces of work.
///
/// # Errors
/// The flag is set.
pub fn check(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(anyhow!(CAUSE)).or_exit(Exit::Interrupted);
    }
    Ok(())
}
