//! Every bound of the dispatcher in one place. Bytes, nanoseconds, counts. Those that a user may set are in
//! [`super::Limits`].

/// Most backends at once: sets of them are 64-bit masks.
pub const BACKENDS_MAX: usize = 64;
/// Events taken from the kernel at once.
pub const EVENTS: usize = 512;
/// Connections accepted in one turn, so that those that are open get theirs.
pub const ACCEPTS_PER_TURN: u32 = 64;
/// What is copied at once: a whole TLS record of any version (18,437 bytes, RFC 5246 section 6.2.3). A direction that
/// fills it is spliced. Also the most that a direction holds in user memory while its receiver cannot take more.
pub const COPY_BYTES: usize = 20 * 1024;
/// What is asked of one splice call; a pipe holds less.
pub const SPLICE_BYTES: usize = 1024 * 1024;
/// Size of a pipe: each 4 KiB of it hold one fragment of a segment, however short, so that the default of 64 KiB takes
/// a system call for each 40 KiB or so.
pub const PIPE_BYTES: usize = 512 * 1024;
/// A smaller pipe than this is not worth having: bytes are copied instead. Users get such pipes when theirs together
/// are too large (pipe(7), pipe-user-pages-soft).
pub const PIPE_BYTES_MIN: usize = 64 * 1024;
/// Bytes that one direction may move before others get their turn.
pub const BYTES_PER_TURN: usize = 512 * 1024;
/// A direction that moved so many bytes without a pause of [`PATIENCE_NS`] is a bulk transfer: its wake-ups are spared.
pub const BULK_AFTER_BYTES: u64 = 128 * 1024;
/// So much input of a bulk transfer wakes the loop up.
pub const BULK_WAKE_BYTES: u32 = 256 * 1024;
/// Less of it lies there for no longer than this: what is added to the end of a long answer at most.
pub const PATIENCE_NS: u64 = 200_000;
/// Empty pipes that a loop keeps for the next transfer.
pub const SPARE_PIPES: usize = 8;
/// How long no connection is accepted after descriptors ran out.
pub const ACCEPT_PAUSE_NS: u64 = 50_000_000;
/// How long a loop that found no room for a connection waits before it asks again, unless one of its own ends before.
pub const ROOM_PAUSE_NS: u64 = 1_000_000;
/// Longest time between two looks at the time-outs.
pub const SWEEP_NS_MAX: u64 = 1_000_000_000;
/// Shortest time between two looks at the time-outs.
pub const SWEEP_NS_MIN: u64 = 5_000_000;
/// Names of ticket keys that are remembered: a server has a few at a time.
pub const NAMES: usize = 4096;
/// When every backend has rejected a key so many times over, no more is tried until it is forgotten.
pub const FAILED_ROUNDS_MAX: u8 = 2;
/// After so many names that nobody had met before, tickets of this length are taken for nameless.
pub const UNLEARNABLE_AFTER: u32 = 128;
/// The count of strangers stops here, so that nameless tickets are soon recognised when they get names.
pub const UNLEARNABLE_MAX: u32 = 256;
/// A name that is met again makes up for so many strangers.
pub const UNLEARNABLE_CREDIT: u32 = 8;
/// Of tickets that are taken for nameless, one in so many is still looked at.
pub const UNLEARNABLE_SAMPLE: u32 = 8;
/// Open connections below which a backend has capacity to spare, T_low of LARD (Pai et al. 1998, section 2.4).
pub const LARD_LOW: u32 = 25;
/// Open connections above which a backend delays what it serves, T_high of LARD.
pub const LARD_HIGH: u32 = 65;
