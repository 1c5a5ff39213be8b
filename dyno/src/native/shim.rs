//! The shim that is preloaded over libssl and replaces TLS stages above the primitives: unpacked for one configuration, its settings, and
//! what it recorded.
//!
//! The library is compiled from `native/shim` by the build script and embedded here. For a configuration it is written, with the area that
//! all processes of the server map, into a private directory; a server started with [`ShimInjection::environment`] then loads it. The
//! area's layout is declared in `native/shim_record.h` and mirrored here; what the stages put on the wire is in `docs/NOOP.md`.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::ops::Sub;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tlsdyno_tls::{Stage, StageSet, Suite, Version};

use super::{SharedHead, create_shared_file, random_run_id, write_file};

/// The shim, an ELF shared library.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-shim.so"));

/// Mirror of `struct tlsdyno_shim_area` in `native/shim_record.h`; integers are in the machine's byte order.
pub mod layout {
    use tlsdyno_tls::Stage;

    pub use super::super::provider::layout::{
        ABI_VERSION_AT, OWNER_PID_AT, OWNER_START_TICKS_AT, RUN_ID_AT, RUN_ID_SIZE, SLOT_COUNT_AT,
    };

    /// First bytes of an area.
    pub const MAGIC: [u8; 8] = *b"TLSSHIM\0";
    /// Raised with every change of the layout.
    pub const ABI_VERSION: u32 = 1;
    /// Offset of the stages that are off, `u32`: bits in the order of [`STAGES`].
    pub const STAGES_OFF_AT: usize = 96;
    /// Offset of the flags, `u32`: bits in the order of [`FLAGS`].
    pub const FLAGS_AT: usize = 100;
    /// Offset of the suite's code point, `u16`; 0 if the experiment names none.
    pub const SUITE_AT: usize = 104;
    /// Offset of the version's code point, `u16`.
    pub const VERSION_AT: usize = 106;
    /// Offset of the number of slots claimed so far, `u32`.
    pub const SLOTS_CLAIMED_AT: usize = 108;
    /// Offset of the number of time stamps written so far, `u64`.
    pub const STAMPS_WRITTEN_AT: usize = 112;
    /// Offset of the script of full handshakes: `u32` flight count, `u32` ready_after, [`FLIGHTS`] × `u32` bytes.
    pub const FULL_SCRIPT_AT: usize = 120;
    /// Offset of the script of resumed handshakes.
    pub const RESUMED_SCRIPT_AT: usize = 160;
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
    pub const STAMP_SIZE: usize = stamp::STEPS_AT + STEPS * 8;
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
        /// Each 8 bytes: `u16` state, 2 bytes unused, `u32` nanoseconds after the start.
        pub const STEPS_AT: usize = 56;
    }
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
}

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
    /// Bytes of a server's reply at least that can hold a fast resumption's random and verify data.
    pub const FAST_REPLY_MIN: u32 = 1 + 32 + 12;
    /// Bytes of a flight at most.
    pub const FLIGHT_MAX: u32 = 65_535;

    fn check(&self) -> Result<()> {
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

/// What the shim is to do.
#[derive(Clone, Debug)]
pub struct ShimSettings {
    /// The stages that are off; those of the provider are ignored.
    pub stages: StageSet,
    /// TLS version of the experiment.
    pub version: Version,
    /// The suite of the experiment; minimal set-up (`setup` off) needs one.
    pub suite: Option<Suite>,
    /// CBC suites in minimal set-up: encrypt then MAC, not MAC then encrypt.
    pub encrypt_then_mac: bool,
    /// The universal session of TLS 1.2 is a ticket, not a session ID.
    pub tickets: bool,
    /// Sizes of full handshakes, for `handshake` off. May also be given later ([`ShimInjection::set_scripts`]).
    pub full_script: Option<Script>,
    /// Sizes of resumed handshakes, for `handshake` or `round_trip` off.
    pub resumed_script: Option<Script>,
    /// Record when each connection was set up ([`ShimInjection::time_stamps`]).
    pub time_stamps: bool,
    /// Take connections to other addresses than loopback.
    pub allow_insecure_listen: bool,
}

impl ShimSettings {
    /// `stages` off, everything else as [`tlsdyno_tls`]'s settings have it by default.
    pub fn new(stages: StageSet, version: Version) -> ShimSettings {
        ShimSettings {
            stages: stages.shim(),
            version,
            suite: None,
            encrypt_then_mac: true,
            tickets: true,
            full_script: None,
            resumed_script: None,
            time_stamps: false,
            allow_insecure_listen: false,
        }
    }

    fn stage_bits(&self) -> u32 {
        bits(layout::STAGES.map(|stage| self.stages.contains(stage)))
    }

    fn flag_bits(&self) -> u32 {
        bits([self.allow_insecure_listen, self.time_stamps, self.tickets, self.encrypt_then_mac])
    }
}

fn bits<const N: usize>(set: [bool; N]) -> u32 {
    set.iter().enumerate().map(|(bit, set)| u32::from(*set) << bit).sum()
}

/// The shim made ready for the server of one configuration.
///
/// Servers of *different* configurations need different injections, each in its own directory. Dropping it does not remove the files; the
/// directory belongs to the caller.
#[derive(Debug)]
pub struct ShimInjection {
    library: PathBuf,
    area_path: PathBuf,
    area: File,
    run_id: String,
    stages: StageSet,
}

impl ShimInjection {
    /// Writes library and area into `dir`, which must exist, be private to this run and be reachable by the user whom the server's
    /// workers become.
    ///
    /// # Errors
    /// A file cannot be written; settings that do not fit together; `dir` has a path that LD_PRELOAD cannot hold.
    pub fn prepare(dir: &Path, settings: &ShimSettings) -> Result<ShimInjection> {
        let dir = fs::canonicalize(dir).with_context(|| format!("directory for the shim: {}", dir.display()))?;
        let preloadable = dir.to_str().is_some_and(|path| !path.contains([' ', ':', '\n', '\t']));
        ensure!(
            preloadable,
            "LD_PRELOAD cannot name a file in {}; choose a directory for temporary files (TMPDIR) without blanks and colons",
            dir.display()
        );
        ensure!(
            !settings.stages.contains(Stage::Setup) || settings.suite.is_some(),
            "minimal set-up (`setup` off) protects data as a suite does that the experiment must name (--suite)"
        );
        let library = dir.join("tlsdyno-shim.so");
        let area_path = dir.join("shim-area");
        let run_id = random_run_id()?;
        if !library.exists() {
            write_file(&library, LIBRARY, 0o755)?;
        }
        let area = create_area(&area_path, &run_id, settings)?;
        let injection = ShimInjection { library, area_path, area, run_id, stages: settings.stages.shim() };
        injection.set_scripts(settings.full_script.as_ref(), settings.resumed_script.as_ref())?;
        Ok(injection)
    }

    /// Variables to add to the server's environment.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), self.library.clone().into_os_string()),
            ("TLSDYNO_SHIM".into(), self.area_path.clone().into_os_string()),
            ("TLSDYNO_SHIM_ACKNOWLEDGE".into(), self.run_id.clone().into()),
        ]
    }

    /// The shared library, as it must appear in `/proc/PID/maps` of every worker.
    pub fn library_path(&self) -> &Path {
        &self.library
    }

    /// The stages that this injection switches off.
    pub fn stages(&self) -> StageSet {
        self.stages
    }

    /// Gives the server the scripts of skeleton handshakes; also while it runs, but each only once. `None` leaves what there is.
    ///
    /// # Errors
    /// A script that cannot be; the area cannot be written.
    pub fn set_scripts(&self, full: Option<&Script>, resumed: Option<&Script>) -> Result<()> {
        for (script, at) in [(full, layout::FULL_SCRIPT_AT), (resumed, layout::RESUMED_SCRIPT_AT)] {
            let Some(script) = script else { continue };
            script.check()?;
            let mut rest = [0; 4 * (1 + layout::FLIGHTS)];
            for (field, value) in rest.chunks_exact_mut(4).zip([&script.ready_after].into_iter().chain(&script.flights))
            {
                field.copy_from_slice(&value.to_ne_bytes());
            }
            let count = script.flights.len() as u32;
            // The server looks at a script only once its count is there, so that comes last.
            self.area.write_all_at(&rest, at as u64 + 4).with_context(|| self.context())?;
            self.area.write_all_at(&count.to_ne_bytes(), at as u64).with_context(|| self.context())?;
        }
        Ok(())
    }

    /// Whether a full handshake has made the universal session (`session_cache` off).
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn universal_ready(&self) -> Result<bool> {
        let mut state = [0; 4];
        self.area.read_exact_at(&mut state, layout::SESSION_STATE_AT as u64).with_context(|| self.context())?;
        Ok(u32::from_ne_bytes(state) == layout::SESSION_READY)
    }

    /// What the server's connections were so far, over all its processes and threads.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn counters(&self) -> Result<ShimCounters> {
        let mut slots = vec![0; layout::STAMPS_AT - layout::SLOTS_AT];
        self.area.read_exact_at(&mut slots, layout::SLOTS_AT as u64).with_context(|| self.context())?;
        let mut counters = ShimCounters::default();
        for slot in slots.chunks_exact(layout::SLOT_COUNTERS * 8) {
            for (total, count) in counters.counts.iter_mut().zip(slot.chunks_exact(8)) {
                *total += u64::from_ne_bytes(count.try_into().expect("8 bytes"));
            }
        }
        Ok(counters)
    }

    /// The time stamps that are kept, oldest first: at most [`layout::STAMPS`]. Those being written at this moment are left out.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn time_stamps(&self) -> Result<Vec<TimeStamp>> {
        let mut bytes = vec![0; layout::STAMPS * layout::STAMP_SIZE];
        self.area.read_exact_at(&mut bytes, layout::STAMPS_AT as u64).with_context(|| self.context())?;
        let mut stamps: Vec<_> = bytes.chunks_exact(layout::STAMP_SIZE).filter_map(TimeStamp::read).collect();
        stamps.sort_by_key(|stamp| stamp.number);
        Ok(stamps)
    }

    fn context(&self) -> String {
        format!("shim's area {}", self.area_path.display())
    }
}

/// Writable by whoever the workers become: a process may load the shim only after it has dropped its privileges.
fn create_area(path: &Path, run_id: &str, settings: &ShimSettings) -> Result<File> {
    let head = SharedHead { magic: layout::MAGIC, abi_version: layout::ABI_VERSION, slots: layout::SLOTS };
    let mut header = head.bytes(run_id, layout::SLOTS_AT)?;
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(layout::STAGES_OFF_AT, &settings.stage_bits().to_ne_bytes());
    put(layout::FLAGS_AT, &settings.flag_bits().to_ne_bytes());
    put(layout::SUITE_AT, &settings.suite.map_or(0, Suite::code).to_ne_bytes());
    put(layout::VERSION_AT, &settings.version.code().to_ne_bytes());
    create_shared_file(path, &header, layout::SIZE)
}

/// What the server's connections were, by the shim's count. Subtract two snapshots to get those between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimCounters {
    counts: [u64; layout::COUNTERS.len()],
}

impl ShimCounters {
    /// The count under `name` (see [`layout::COUNTERS`]); `None` if there is no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, count)| count)
    }

    /// Connections that were set up, in whatever way.
    pub fn connections(&self) -> u64 {
        self.counts[..layout::KINDS].iter().sum()
    }

    /// Every counter: name, count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        layout::COUNTERS.into_iter().zip(self.counts)
    }
}

impl Sub for ShimCounters {
    type Output = ShimCounters;

    /// The counts after `earlier`. Counters only grow, so this is never negative for snapshots in order.
    fn sub(self, earlier: ShimCounters) -> ShimCounters {
        let mut difference = self;
        for (count, before) in difference.counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        difference
    }
}

impl fmt::Display for ShimCounters {
    /// The counters that are not zero, `name=count`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in self.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name}={count}")?;
            separator = " ";
        }
        Ok(())
    }
}

/// The set-up of one connection as the server did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStamp {
    /// From 1, in order of completion over all processes.
    pub number: u64,
    /// How the connection began: one of the first [`layout::KINDS`] of [`layout::COUNTERS`].
    pub kind: &'static str,
    /// Process of the server.
    pub pid: u32,
    /// Calls of the server that drove the handshake.
    pub calls: u16,
    /// Monotonic clock at the server's first call, nanoseconds.
    pub start_ns: u64,
    /// The same when the connection was set up.
    pub end_ns: u64,
    /// Bytes received until then, what was read ahead of it included.
    pub bytes_received: u64,
    /// Bytes sent until then.
    pub bytes_sent: u64,
    /// Steps of libssl's state machine: state (`OSSL_HANDSHAKE_STATE`), nanoseconds after the start. Empty where there was no real
    /// handshake; cut after [`layout::STEPS`].
    pub steps: Vec<(u16, u32)>,
}

impl TimeStamp {
    /// `None` for an entry that was never written, or is being written.
    fn read(bytes: &[u8]) -> Option<TimeStamp> {
        use layout::stamp as at;
        let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let number = u64_at(at::NUMBER_AT);
        if number == 0 {
            return None;
        }
        let steps = (u32_at(at::STEP_COUNT_AT) as usize).min(layout::STEPS);
        Some(TimeStamp {
            number,
            kind: layout::COUNTERS[..layout::KINDS].get(usize::from(u16_at(at::KIND_AT)))?,
            pid: u32_at(at::PID_AT),
            calls: u16_at(at::CALLS_AT),
            start_ns: u64_at(at::START_NS_AT),
            end_ns: u64_at(at::END_NS_AT),
            bytes_received: u64_at(at::BYTES_RECEIVED_AT),
            bytes_sent: u64_at(at::BYTES_SENT_AT),
            steps: (0..steps).map(|step| at::STEPS_AT + step * 8).map(|at| (u16_at(at), u32_at(at + 4))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        Script { flights: vec![243, 1363, 80, 510], ready_after: 3 }
    }

    #[test]
    fn an_area_holds_settings_and_scripts() {
        let dir = tempfile::tempdir().unwrap();
        let stages = StageSet::NONE.with(Stage::Marshalling).with(Stage::Handshake).with(Stage::Kdf);
        let settings = ShimSettings {
            full_script: Some(script()),
            suite: Some(Suite::RsaAes128Sha),
            ..ShimSettings::new(stages, Version::Tls12)
        };
        let injection = ShimInjection::prepare(dir.path(), &settings).unwrap();
        let bytes = fs::read(dir.path().join("shim-area")).unwrap();
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), layout::SIZE);
        assert_eq!(u32_at(layout::STAGES_OFF_AT), 0b110);
        assert_eq!(u32_at(layout::FLAGS_AT), 0b1100);
        assert_eq!(u32_at(layout::SUITE_AT), 0x0303_002f, "suite and version");
        let script_at = layout::FULL_SCRIPT_AT;
        assert_eq!([0, 4, 8, 12, 16, 20, 24].map(|field| u32_at(script_at + field)), [4, 3, 243, 1363, 80, 510, 0]);
        assert_eq!(u32_at(layout::RESUMED_SCRIPT_AT), 0);
        assert_eq!(injection.stages(), stages.without(Stage::Kdf));
        assert!(!injection.universal_ready().unwrap());
        assert_eq!(injection.counters().unwrap(), ShimCounters::default());
        assert_eq!(injection.time_stamps().unwrap(), []);
        assert_eq!(fs::read(injection.library_path()).unwrap(), LIBRARY);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |settings: &ShimSettings| ShimInjection::prepare(dir.path(), settings).unwrap_err().to_string();
        let settings = ShimSettings::new(StageSet::NONE.with(Stage::Setup), Version::Tls13);
        assert!(refused(&settings).contains("--suite"));
        let settings = ShimSettings::new(StageSet::NONE, Version::Tls13);
        let with = |edit: &dyn Fn(&mut Script)| {
            let mut script = script();
            edit(&mut script);
            refused(&ShimSettings { resumed_script: Some(script), ..settings.clone() })
        };
        assert!(with(&|script| script.flights.truncate(1)).contains("2 to 8 flights"));
        assert!(with(&|script| script.flights.resize(9, 2)).contains("2 to 8 flights"));
        assert!(with(&|script| script.flights[0] = 15).contains("at least 16 bytes"));
        assert!(with(&|script| script.flights[2] = 1).contains("2 to 65535 bytes"));
        assert!(with(&|script| script.ready_after = 5).contains("ready after 5"));
        let blank = dir.path().join("with blank");
        fs::create_dir(&blank).unwrap();
        assert!(ShimInjection::prepare(&blank, &settings).unwrap_err().to_string().contains("TMPDIR"));
    }

    #[test]
    fn counters_and_time_stamps_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let settings = ShimSettings::new(StageSet::NONE, Version::Tls13);
        let injection = ShimInjection::prepare(dir.path(), &settings).unwrap();
        for slot in [0, layout::SLOTS - 1] {
            let at = layout::SLOTS_AT + slot * layout::SLOT_COUNTERS * 8;
            injection.area.write_all_at(&3u64.to_ne_bytes(), at as u64).unwrap();
        }
        let counters = injection.counters().unwrap() - ShimCounters::default();
        assert_eq!(counters.get("full_handshakes"), Some(6));
        assert_eq!(counters.connections(), 6);
        assert_eq!(counters.get("no such counter"), None);
        assert_eq!(counters.to_string(), "full_handshakes=6");

        let last = layout::STAMPS_AT + (layout::STAMPS - 1) * layout::STAMP_SIZE;
        injection.area.write_all_at(&9u64.to_ne_bytes(), last as u64).unwrap();
        injection.area.write_all_at(&8u64.to_ne_bytes(), layout::STAMPS_AT as u64).unwrap();
        let numbers: Vec<_> = injection.time_stamps().unwrap().iter().map(|stamp| stamp.number).collect();
        assert_eq!(numbers, [8, 9]);
    }
}
