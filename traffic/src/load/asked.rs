//! What a run was asked for and can miss.

/// What a run was asked for and can miss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Resumed share of connections, percent.
    pub reuse_percent: Option<f64>,
    /// Requests a second in an open loop.
    pub rate_per_second: Option<f64>,
    /// Requests for each full handshake.
    pub hits_per_handshake: Option<u32>,
    /// Users: as many sessions may be incomplete when the run ends.
    pub users: u32,
    /// Status of a hit; `None`: any.
    pub status: Option<u16>,
    /// Requests that travel with the hello.
    pub early_data: bool,
}
