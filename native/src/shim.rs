//! The shim that is preloaded over libssl and replaces TLS stages above the primitives: unpacked for one configuration,
//! its settings, and what it recorded.
//!
//! The library is compiled from `native/shim` by the build script and embedded here. For a configuration it is written
//! into a private directory; a server that is started with [`Unpacked::handed`] then loads it and maps the area,
//! which is also the acknowledgement ([`super::area`]). What the stages put on the wire is in `docs/NOOP.md`.

mod script;
mod time_stamp;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tlsdyno_tls::{Script, Stage, StageSet, Suite, Version};

pub use time_stamp::{Step, TimeStamp};

use crate::area::mode_bits;
use crate::counts::Counts;
use crate::layout::shim as layout;
use crate::unpacked::{Library, Unpacked};

static LIBRARY: Library = Library {
    name: "shim",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-shim.so")),
    layout: &layout::AREA,
};

#[derive(Clone, Debug)]
pub struct ShimSettings {
    /// The stages that are off; those of the provider are ignored.
    pub stages: StageSet,
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

    fn flag_bits(&self) -> u32 {
        let flags = [
            (self.allow_insecure_listen, layout::FLAG_ALLOW_OPEN),
            (self.time_stamps, layout::FLAG_TIME_STAMPS),
            (self.tickets, layout::FLAG_TICKETS),
            (self.encrypt_then_mac, layout::FLAG_ENCRYPT_THEN_MAC),
        ];
        flags.into_iter().map(|(is_set, flag)| if is_set { flag } else { 0 }).sum()
    }
}

/// What the server's connections were, by the shim's count.
pub type ShimCounters = Counts<{ layout::COUNTERS.len() }>;

impl ShimCounters {
    pub fn connections(&self) -> u64 {
        self.iter().take(layout::KINDS).map(|(.., count)| count).sum()
    }
}

/// The shim made ready for the server of one configuration.
///
/// Servers of *different* configurations need different injections, each in its own directory. Dropping it does not
/// remove the files; the directory belongs to the caller.
#[derive(Debug)]
pub struct ShimInjection {
    pub(super) unpacked: Unpacked,
    stages: StageSet,
}

impl ShimInjection {
    /// Writes the library into `dir`, which must exist and be closed to others
    /// (`servers::run_directory::make_private`), and makes the area. Only this user and the group of `dir` can
    /// read the file.
    pub fn prepare(dir: &Path, settings: &ShimSettings) -> Result<ShimInjection> {
        let dir = fs::canonicalize(dir).with_context(|| format!("directory for the shim: {}", dir.display()))?;
        let preloadable = dir.to_str().is_some_and(|path| !path.contains([' ', ':', '\n', '\t']));
        ensure!(
            preloadable,
            "LD_PRELOAD cannot name a file in {}; choose a directory for temporary files (TMPDIR) without blanks and \
             colons",
            dir.display()
        );
        ensure!(
            !settings.stages.contains(Stage::Setup) || settings.suite.is_some(),
            "minimal set-up (`setup` off) protects data as a suite does that the experiment must name (--suite)"
        );
        let mode = mode_bits(&Stage::SHIM, settings.stages);
        let mut unpacked = LIBRARY.unpack(&dir, mode)?;
        unpacked.area.write_u32(layout::STAGES_OFF_AT, mode)?;
        unpacked.area.write_u32(layout::FLAGS_AT, settings.flag_bits())?;
        unpacked.area.write(layout::SUITE_AT, &settings.suite.map_or(0, Suite::code).to_ne_bytes())?;
        unpacked.area.write(layout::VERSION_AT, &settings.version.code().to_ne_bytes())?;
        unpacked.add_to_environment("LD_PRELOAD", unpacked.library_path().to_owned());
        unpacked.add_to_environment("TLSDYNO_SHIM", unpacked.area.descriptor().to_string());
        unpacked.add_to_environment("TLSDYNO_SHIM_ACKNOWLEDGE", unpacked.area.run_id().to_owned());
        let injection = ShimInjection { unpacked, stages: settings.stages.shim() };
        injection.set_scripts(settings.full_script.as_ref(), settings.resumed_script.as_ref())?;
        Ok(injection)
    }

    /// The stages that this injection may switch off; all of them are off until [`ShimInjection::set_mode`] says
    /// otherwise.
    pub fn stages(&self) -> StageSet {
        self.stages
    }

    /// Switches the shim's stages in `off` off, and the others on, for connections that the server begins from now on;
    /// stages of the provider are ignored. A connection keeps the mode in which it began. `session_cache` is no mode:
    /// it rewrites the server's own cache for good, and stays off where [`ShimInjection::stages`] has it.
    pub fn set_mode(&self, off: StageSet) -> Result<()> {
        ensure!(
            off.contains(Stage::SessionCache) || !self.stages.contains(Stage::SessionCache),
            "`session_cache` cannot be switched on again in a server: it needs a process of its own"
        );
        self.area.set_mode(&Stage::SHIM, self.stages, off.shim())
    }

    /// Gives the server the scripts of skeleton handshakes; also while it runs, but each only once. `None` leaves what
    /// there is.
    pub fn set_scripts(&self, full: Option<&Script>, resumed: Option<&Script>) -> Result<()> {
        for (script, at) in [(full, layout::FULL_SCRIPT_AT), (resumed, layout::RESUMED_SCRIPT_AT)] {
            let Some(script) = script else { continue };
            script::check(script)?;
            self.area.write_u32(at + 4, script.ready_after as u32)?;
            for (flight, bytes) in script.flights.iter().enumerate() {
                self.area.write_u32(at + 8 + 4 * flight, *bytes)?;
            }
            // The server looks at a script only once its count is there, so that comes last.
            self.area.write_u32(at, script.flights.len() as u32)?;
        }
        Ok(())
    }

    /// Lets connections come from these addresses, and from no others beyond this host's loopback; also while the
    /// server runs. They take the place of those that were let in before.
    pub fn permit(&self, peers: &BTreeSet<IpAddr>) -> Result<()> {
        ensure!(
            peers.len() <= layout::PEERS,
            "{} addresses are to reach a server without parts of its cryptography; there is room for {}",
            peers.len(),
            layout::PEERS
        );
        // A server that looks meanwhile lets none of them in.
        self.area.write_u32(layout::PEER_COUNT_AT, 0)?;
        for (index, peer) in peers.iter().enumerate() {
            let mapped = match peer.to_canonical() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            self.area.write(layout::PEERS_AT + index * layout::PEER_SIZE, &mapped.octets())?;
        }
        // The server looks at as many as this says, so that it comes last.
        self.area.write_u32(layout::PEER_COUNT_AT, peers.len() as u32)
    }

    /// What the server's connections were so far, over all its processes and threads.
    pub fn counters(&self) -> Result<ShimCounters> {
        Ok(ShimCounters::new(&layout::COUNTERS, &self.area.totals()?))
    }

    /// The time stamps that are kept, oldest first: at most [`layout::STAMPS`]. Those being written at this moment are
    /// left out.
    pub fn time_stamps(&self) -> Result<Vec<TimeStamp>> {
        let mut bytes = vec![0; layout::STAMPS * layout::STAMP_SIZE];
        self.area.read(layout::STAMPS_AT, &mut bytes)?;
        let mut stamps: Vec<_> = bytes.chunks_exact(layout::STAMP_SIZE).filter_map(TimeStamp::read).collect();
        stamps.sort_by_key(|stamp| stamp.number);
        Ok(stamps)
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
        let bytes = fs::read(injection.area_path()).unwrap();
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), layout::AREA.size);
        assert_eq!(u32_at(layout::STAGES_OFF_AT), 0b110);
        assert_eq!(u32_at(layout::FLAGS_AT), 0b1100);
        assert_eq!(u32_at(layout::SUITE_AT), 0x0303_002f, "suite and version");
        let script_at = layout::FULL_SCRIPT_AT;
        assert_eq!([0, 4, 8, 12, 16, 20, 24].map(|field| u32_at(script_at + field)), [4, 3, 243, 1363, 80, 510, 0]);
        assert_eq!(u32_at(layout::RESUMED_SCRIPT_AT), 0);
        assert_eq!(injection.stages(), stages.without(Stage::Kdf));
        assert_eq!(injection.counters().unwrap().to_string(), "");
        assert_eq!(injection.time_stamps().unwrap(), []);
        injection.permit(&["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()].into()).unwrap();
        let bytes = fs::read(injection.area_path()).unwrap();
        assert_eq!(bytes[layout::PEER_COUNT_AT..layout::PEERS_AT], 2_u32.to_ne_bytes());
        assert_eq!(bytes[layout::PEERS_AT + 10..][..6], [0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(bytes[layout::PEERS_AT + layout::PEER_SIZE..][..4], [0x20, 1, 0xd, 0xb8]);
        let many = (0..=layout::PEERS as u32).map(|number| IpAddr::from(number.to_be_bytes()));
        assert!(injection.permit(&many.collect()).unwrap_err().to_string().contains("room for 48"));
        assert_eq!(fs::read(injection.library_path()).unwrap(), LIBRARY.image);
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
        injection.area.write_u32(layout::SLOTS_CLAIMED_AT, layout::AREA.slots as u32).unwrap();
        for slot in [0, layout::AREA.slots - 1] {
            let at = layout::AREA.slots_at + slot * layout::AREA.slot_numbers * 8;
            injection.area.write_u64(at, 3).unwrap();
        }
        let counters = injection.counters().unwrap();
        assert_eq!(counters.get("full_handshakes"), Some(6));
        assert_eq!(counters.connections(), 6);
        assert_eq!(counters.get("no such counter"), None);
        assert_eq!(counters.to_string(), "full_handshakes=6");

        let last = layout::STAMPS_AT + (layout::STAMPS - 1) * layout::STAMP_SIZE;
        injection.area.write_u64(last, 9).unwrap();
        injection.area.write_u64(layout::STAMPS_AT, 8).unwrap();
        let numbers: Vec<_> = injection.time_stamps().unwrap().iter().map(|stamp| stamp.number).collect();
        assert_eq!(numbers, [8, 9]);
    }
}
