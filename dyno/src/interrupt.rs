//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Exit;

/// A flag that the first Ctrl-C or SIGTERM sets; a second one ends the process with [`Exit::Interrupted`]. Call it once.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset and so does not end the process.
        signal_hook::flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("failed to install the handler for Ctrl-C")?;
    }
    Ok(stop)
}
