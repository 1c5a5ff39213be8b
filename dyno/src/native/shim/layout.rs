//! Mirror of `struct tlsdyno_shim_area` in `native/shim_record.h`; integers are in the machine's byte order.

use tlsdyno_tls::Stage;

pub use crate::native::area::layout::*;

/// First bytes of an area.
pub const MAGIC: [u8; 8] = *b"TLSSHIM\0";
/// Raised with every change of the layout.
pub const ABI_VERSION: u32 = 6;
/// Offset of the stages that a mode may switch off, `u32`: bits in the order of [`STAGES`].
pub const STAGES_OFF_AT: usize = 112;
/// Offset of the flags, `u32`: bits in the order of [`FLAGS`].
pub const FLAGS_AT: usize = 116;
/// Offset of the suite's code point, `u16`; 0 if the experiment names none.
pub const SUITE_AT: usize = 120;
/// Offset of the version's code point, `u16`.
pub const VERSION_AT: usize = 122;
/// Offset of the number of slots claimed so far, `u32`.
pub const SLOTS_CLAIMED_AT: usize = 124;
/// Offset of the number of time stamps written so far, `u64`.
pub const STAMPS_WRITTEN_AT: usize = 128;
/// Offset of the script of full handshakes: `u32` flight count, `u32` ready_after, [`FLIGHTS`] × `u32` bytes.
pub const FULL_SCRIPT_AT: usize = 136;
/// Offset of the script of resumed handshakes.
pub const RESUMED_SCRIPT_AT: usize = 176;
/// Offset of the number of connections that began in a mode with bits that were ignored, `u32`.
pub const MODES_IGNORED_AT: usize = 216;
/// Offset of the number of peers that are not on this host and may connect, `u32`.
pub const PEER_COUNT_AT: usize = 220;
/// Offset of the first of them; each has [`PEER_SIZE`] bytes, an IPv6 address or an IPv4 one mapped into it.
pub const PEERS_AT: usize = 224;
/// Size of a peer in bytes.
pub const PEER_SIZE: usize = 16;
/// Most peers.
pub const PEERS: usize = 48;
/// Most flights of a script.
pub const FLIGHTS: usize = 8;
/// Offset of the universal session's state, `u32`.
pub const SESSION_STATE_AT: usize = 1024;
/// Size of the universal session's DER at most.
pub const SESSION_SIZE: usize = 2048;
/// State of a universal session that is there.
pub const SESSION_READY: u32 = 2;
/// Offset of the first slot.
pub const SLOTS_AT: usize = 4096;
/// Number of slots; each thread of the server counts in one.
pub const SLOTS: usize = 256;
/// `u64` counters in a slot.
pub const SLOT_COUNTERS: usize = 32;
/// Offset of the first time stamp.
pub const STAMPS_AT: usize = SLOTS_AT + SLOTS * SLOT_COUNTERS * 8;
/// Time stamps that are kept; older ones are overwritten.
pub const STAMPS: usize = 4096;
/// Size of a time stamp in bytes.
pub const STAMP_SIZE: usize = stamp::STEPS_AT + STEPS * STEP_SIZE;
/// Size of a step of it in bytes.
pub const STEP_SIZE: usize = 12;
/// Offsets within a time stamp, by field.
pub mod stamp {
    /// `u64`; 0 while the entry is being written.
    pub const NUMBER_AT: usize = 0;
    /// `u64`.
    pub const START_NS_AT: usize = 8;
    /// `u64`.
    pub const END_NS_AT: usize = 16;
    /// `u64`.
    pub const BYTES_RECEIVED_AT: usize = 24;
    /// `u64`.
    pub const BYTES_SENT_AT: usize = 32;
    /// `u32`.
    pub const PID_AT: usize = 40;
    /// `u16`.
    pub const KIND_AT: usize = 44;
    /// `u16`.
    pub const CALLS_AT: usize = 46;
    /// `u32`.
    pub const STEP_COUNT_AT: usize = 48;
    /// `u32`.
    pub const CPU_NS_AT: usize = 52;
    /// Each [`super::STEP_SIZE`] bytes: `u16` state, 2 bytes unused, `u32` nanoseconds after the start, `u32`
    /// nanoseconds of CPU time since then.
    pub const STEPS_AT: usize = 56;
}
/// In a time stamp: so long or longer, nanoseconds.
pub const TOO_LONG_NS: u32 = u32::MAX;
/// Steps of a time stamp at most.
pub const STEPS: usize = 24;
/// Size of the file in bytes.
pub const SIZE: usize = STAMPS_AT + STAMPS * STAMP_SIZE;
/// The stages in the order of their bits.
pub const STAGES: [Stage; 5] = Stage::SHIM;
/// The flags in the order of their bits.
pub const FLAGS: [&str; 4] = ["allow_insecure_listen", "time_stamps", "tickets", "encrypt_then_mac"];
/// The counters in their order within a slot. The first [`KINDS`] say how connections began.
pub const COUNTERS: [&str; 12] = [
    "full_handshakes",
    "resumed_handshakes",
    "skeleton_full",
    "skeleton_resumed",
    "skeleton_fast",
    "fast_resume",
    "minimal",
    "failed_handshakes",
    "plain_connections",
    "universal_hits",
    "universal_misses",
    "refused_connections",
];
/// Kinds of set-up.
pub const KINDS: usize = 7;
