//! The flights of a real handshake, as the shim plays them.

use anyhow::{Result, ensure};

use super::layout;

/// Message sizes of a real handshake, which skeleton handshakes imitate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Bytes of each flight, records whole: the client's first, then alternating.
    pub flights: Vec<u32>,
    /// Flights after which the client may send data.
    pub ready_after: u32,
}

impl Script {
    /// Bytes of a first flight at least: header, kind.
    pub const FIRST_FLIGHT_MIN: u32 = 16;
    /// Bytes of a flight at most.
    pub const FLIGHT_MAX: u32 = 65_535;

    pub(super) fn check(&self) -> Result<()> {
        let count = self.flights.len();
        ensure!((2..=layout::FLIGHTS).contains(&count), "a script has 2 to {} flights, not {count}", layout::FLIGHTS);
        let first = self.flights[0];
        ensure!(
            first >= Script::FIRST_FLIGHT_MIN,
            "a script's first flight has at least {} bytes, not {first}",
            Script::FIRST_FLIGHT_MIN
        );
        ensure!(
            self.flights.iter().all(|bytes| (2..=Script::FLIGHT_MAX).contains(bytes)),
            "a script's flights have 2 to {} bytes: {:?}",
            Script::FLIGHT_MAX,
            self.flights
        );
        ensure!(
            self.ready_after as usize <= count,
            "a script of {count} flights cannot be ready after {}",
            self.ready_after
        );
        Ok(())
    }
}
