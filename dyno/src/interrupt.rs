//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Exit, OrExit};

/// A flag that the first Ctrl-C or SIGTERM sets; a second one ends the process with [`Exit::Interrupted`]. Call it once.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset and so does not end the process.
        signal_hook::flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("failed to install the handler for Ctrl-C")?;
    }
    Ok(stop)
}

/// Asked between two pieces of work.
///
/// # Errors
/// The flag is set.
pub fn check(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(anyhow!("Ctrl-C")).or_exit(Exit::Interrupted);
    }
    Ok(())
}
