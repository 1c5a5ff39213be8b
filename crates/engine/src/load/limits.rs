//! Every limit of the load engine, and the bound on its memory that follows from them.
//!
//! The memory of a run, of each loop if there are several, is at most
//!
//! ```text
//!   RECEIVE_BUFFER_BYTES + SEND_CHUNK_BYTES + EVENTS_MAX events       (once)
//! + histograms, 7 of about 270 KiB                                   (once)
//! + histograms of two digits, 6 of about 20 KiB                       (only while a display watches)
//! + the requests in wire form: one line, Host and headers per object (once, by the workload's objects)
//! + total × (CONNECTION_BYTES_MAX + per-user stock of SESSIONS_PER_USER_MAX sessions)
//! + SESSIONS_SHARED_MAX sessions                                     (only with `Resumption::Share`)
//! + total × HTTP2_BYTES_MAX                                          (only where the server chooses HTTP/2)
//! + 16 bytes for each different latency of each slice                (only of a part of a load)
//! ```
//!
//! and so does not depend on how many users the workload has: at most `Connections::total` of them are active at once,
//! because a user only starts when a connection is free for it. `crates/engine/tests/memory.rs` measures it with 10,000
//! users.

use tlsdyno_wire::http2;

/// The one receive buffer of a loop. Sixteen full TLS records: a large object costs one system call for each 256 KiB.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Most bytes of one connection that wait for room in its socket; a request body is made in pieces of this size.
pub const SEND_CHUNK_BYTES: usize = 64 * 1024;

/// Bound on the state of one open connection, checked when it is compiled.
pub const CONNECTION_STATE_BYTES_MAX: usize = 2 * 1024;

/// Bound on what one open connection holds besides its sessions: its state, a TLS record or handshake flight that has
/// arrived in part (below 64 KiB in the lean client), and unsent bytes.
pub const CONNECTION_BYTES_MAX: usize = CONNECTION_STATE_BYTES_MAX + 64 * 1024 + 2 * SEND_CHUNK_BYTES;

/// Most requests at once on one connection.
pub const STREAMS_MAX: u32 = 1000;

/// Bound on what a connection holds besides under HTTP/2: its tables (one of the server's size, which is at most the
/// client's), a header block and a frame that arrived in part, and 256 bytes for each stream.
pub const HTTP2_BYTES_MAX: usize =
    4 * http2::TABLE_BYTES_ANNOUNCED + http2::BLOCK_BYTES_MAX + http2::FRAME_BYTES_MAX + 256 * STREAMS_MAX as usize;

/// Events taken from the system at once.
pub const EVENTS_MAX: usize = 1024;

/// Reads of one connection before others get their turn, each of up to [`RECEIVE_BUFFER_BYTES`].
pub const READS_PER_EVENT_MAX: usize = 4;

/// TLS sessions a user keeps; the oldest unused goes first. Servers issue two tickets for a full handshake and one for
/// a resumed one unless told otherwise (`SSL_CTX_set_num_tickets`): eight not used yet, one for each connection of a
/// wide page, and two that were.
pub const SESSIONS_PER_USER_MAX: usize = 10;

/// TLS sessions kept for all users together under `Resumption::Share`.
pub const SESSIONS_SHARED_MAX: usize = 1024;

/// Texts of faults of TLS, and of HTTP/2, kept apart; further ones are counted together.
pub const FAULT_TEXTS_MAX: usize = 16;

/// Combinations of version, suite and group kept apart. There are fewer that the client offers.
pub const NEGOTIATED_MAX: usize = 64;

/// Failures one after another, without a single hit between them, after which a run gives up.
pub const FAILURES_IN_A_ROW_MAX: u64 = 1000;

/// Failures for want of ports, descriptors or memory one after another until a run gives up. Each costs
/// [`RESOURCE_PAUSE_NS`]: three seconds in which not one request succeeded.
pub const RESOURCE_FAILURES_IN_A_ROW_MAX: u64 = 300;

/// So many ends of requests and connections are looked at together for a storm of errors…
pub const STORM_WINDOW_ENDS: u32 = 1000;

/// … which it is when so many of them failed.
pub const STORM_FAILURES_PER_WINDOW: u32 = 900;

/// How many time-outs may pass without a byte from the server, on any connection, until a run gives up: a server that
/// hangs would otherwise cost a time-out for each of its users.
pub const SILENT_TIMEOUTS_MAX: u64 = 2;

/// How long no connection is opened after the system refused one for want of ports, descriptors or memory, in
/// nanoseconds.
pub const RESOURCE_PAUSE_NS: u64 = 10_000_000;

/// How long a server that announced to close may take for it before the client closes, in nanoseconds.
pub const CLOSE_WAIT_NS_MAX: u64 = 1_000_000_000;

/// Longest wait for events, so that a stop is noticed even where its signal goes to another thread, in nanoseconds.
pub const WAIT_NS_MAX: u64 = 100_000_000;

/// Time slice of a loop that begins together with others, in nanoseconds: the shortest that Linux gives.
pub const START_SLICE_NS: u64 = 100_000;

/// Largest latency a histogram tells apart; longer ones count as this. One hour, in nanoseconds.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Most connections of a run: what one source address has ports for.
pub const CONNECTIONS_MAX: u32 = 65_535;

/// Most slices of a run; what comes later is in the totals only.
pub const SLICES_MAX: usize = 4096;

/// Clients whose connections are kept one by one: as many as a picture has room for.
pub const LIVES_CLIENTS: u32 = 12;

/// Most of their connections; 40 bytes each.
pub const LIVES_MAX: usize = 512;

/// Highest rate of an open loop, pages a second: far beyond what one core sends.
pub const RATE_MAX: f64 = 1e7;
