//! The flights of a real handshake, as the shim plays them.

use anyhow::{Result, ensure};
use tlsdyno_tls::Script;

use crate::layout::shim as layout;

/// Bytes of a first flight at least: header, kind.
const FIRST_FLIGHT_MIN: u32 = 16;
/// Bytes of a flight at most.
const FLIGHT_MAX: u32 = 65_535;

pub(super) fn check(Script { flights, ready_after }: &Script) -> Result<()> {
    let count = flights.len();
    ensure!((2..=layout::FLIGHTS).contains(&count), "a script has 2 to {} flights, not {count}", layout::FLIGHTS);
    let first = flights[0];
    ensure!(first >= FIRST_FLIGHT_MIN, "a script's first flight has at least {FIRST_FLIGHT_MIN} bytes, not {first}");
    ensure!(
        flights.iter().all(|bytes| (2..=FLIGHT_MAX).contains(bytes)),
        "a script's flights have 2 to {FLIGHT_MAX} bytes: {flights:?}"
    );
    ensure!(*ready_after <= count, "a script of {count} flights cannot be ready after {ready_after}");
    Ok(())
}
