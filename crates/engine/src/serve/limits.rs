//! Every bound of the built-in server in one place. Bytes, nanoseconds, counts.

/// Plaintext of one TLS record (RFC 9846 section 5.1); also what one turn reads at most.
pub const RECORD_BYTES: usize = 16 * 1024;
/// Longest request head; a longer one is answered 431. nginx's default is the same in sum (4 buffers of 8 KiB).
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Files up to this size are held in memory, as long as [`MEMORY_BYTES`] lasts; others are read when requested.
pub const MEMORY_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Memory for file contents: experiments run a dozen servers over one docroot at the same time.
pub const MEMORY_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of files in a docroot.
pub const FILES_MAX: usize = 1_000_000;
/// Most records or pieces written to one connection before others get their turn.
pub const PIECES_PER_TURN: u32 = 64;
/// A connection without progress for this long is closed.
pub const IDLE_NS: u64 = 600 * 1_000_000_000;
/// How long a refused client may go on sending before the connection is closed under it.
pub const LINGER_NS: u64 = 2 * 1_000_000_000;
/// How often connections are checked for idleness.
pub const SWEEP_NS: u64 = 1_000_000_000;
/// Events taken from the kernel at once.
pub const EVENTS: usize = 512;
/// Connections accepted in one turn, so that those that are open get theirs.
pub const ACCEPTS_PER_TURN: u32 = 64;
/// Sessions kept by a listener's session cache; nginx's usual 10 MB hold about as many.
pub const SESSIONS: i32 = 40_000;
