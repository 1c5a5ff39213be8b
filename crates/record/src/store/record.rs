//! The record: everything one experiment produced, as raw integers in base units, so that every summary can be made
//! again from it.
//!
//! The runner fills it, the store keeps it, the statistics and the reports read it. `docs/FORMAT.md` describes its JSON
//! form.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tlsdyno_tls::{Stage, StageSet};

use super::block::Block;
use super::calibration::Calibration;
use super::kind_part::KindPart;
use super::machine::Machine;
use super::warning::Warning;
use crate::model::without_secrets;

/// Version of the JSON form of a record and of the printed results; it changes when the meaning of a field changes.
pub const FORMAT: u32 = 1;

/// Everything one experiment produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the JSON form: [`FORMAT`].
    #[serde(deserialize_with = "this_format")]
    pub format: u32,
    /// Assigned by the store: 12 hexadecimal digits. Empty until then.
    pub id: String,
    /// When the experiment began, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// The experiment ran to its planned end.
    pub finished: bool,
    /// What the experiment asks, in one sentence ending in a question mark.
    pub question: String,
    /// Under which circumstances the experiment ran.
    pub manifest: Manifest,
    /// The configurations compared. Blocks refer to them by index.
    pub configurations: Vec<Configuration>,
    /// The measured blocks, in the order they ran.
    pub blocks: Vec<Block>,
    /// What the reader must know about the experiment as a whole.
    pub warnings: Vec<Warning>,
    /// What was measured. Any other unknown field is refused there: a record is of one kind.
    #[serde(flatten)]
    pub kind_part: KindPart,
}

fn this_format<'de, D: Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    match u32::deserialize(reader)? {
        FORMAT => Ok(FORMAT),
        other => Err(D::Error::custom(format!("format {other}, not {FORMAT}"))),
    }
}

impl Record {
    /// A record that begins now, without configurations and blocks. The seed is that of the order of its blocks.
    pub fn begun_now(question: &str, seed: u64) -> Record {
        let seeds = BTreeMap::from([("order of blocks".to_owned(), seed)]);
        Record {
            format: FORMAT,
            id: String::new(),
            created_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            finished: false,
            question: without_secrets(question),
            manifest: Manifest { seeds, ..Manifest::default() },
            configurations: Vec::new(),
            blocks: Vec::new(),
            warnings: Vec::new(),
            kind_part: KindPart::default(),
        }
    }
}

/// The circumstances of an experiment: what somebody needs to judge it and to repeat it. Unknown texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of tlsdyno.
    pub tool_version: String,
    /// The command line, program first.
    pub command_line: Vec<String>,
    /// Operating system release (`uname -sr`).
    pub kernel: String,
    /// CPU model as in /proc/cpuinfo.
    pub cpu_model: String,
    /// Frequency governor, if readable.
    pub governor: Option<String>,
    /// Logical CPUs of the machine.
    pub cpus: u32,
    /// Logical CPUs the server was confined to; empty: not confined.
    pub server_cpus: Vec<u32>,
    /// Logical CPUs the load was confined to; empty: not confined.
    pub client_cpus: Vec<u32>,
    /// How server CPU was counted: `cgroup` or `processes`; `waited`: by these and by what their parents waited for;
    /// [`UNREAD`]: not at all.
    pub cpu_accounting: String,
    /// Version of the OpenSSL that the server uses.
    pub openssl_version: String,
    /// Server under test: `builtin`, `nginx`, or its command line.
    pub server_name: String,
    /// Version of the server under test.
    pub server_version: String,
    /// Name of each generated or given configuration file and its text.
    pub server_config: BTreeMap<String, String>,
    /// The negotiated `version suite group` of the handshakes as is.
    pub negotiated: String,
    /// Certificate of the server, for example `rsa-2048`.
    pub certificate: String,
    /// Effort of the load client: `honest`, `lean`, `floor`.
    pub effort: String,
    /// The workload in one line.
    pub workload: String,
    /// Seeds of the random choices, by purpose.
    pub seeds: BTreeMap<String, u64>,
    /// Emulated hardware in words, by configuration: processors under a quota, accelerators, CPU time burnt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware: BTreeMap<String, String>,
    /// The installations of OpenSSL that the experiment named, each mapped by every process that was measured on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<LibraryUsed>,
    /// The machine of the server under test, if that is here; `None`: from before this was kept, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The last calibration of the machine before the run (`tlsdyno doctor --calibrate`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What earlier runs of the same experiment told on this machine, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_runs: Vec<EarlierRun>,
    /// How long servers were started and checked before measuring, nanoseconds; 0: not known.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub preparing_ns: u64,
    /// How long was measured, warm-ups included, nanoseconds; 0: not known.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub measuring_ns: u64,
}

/// How the CPU time of a server is counted that cannot be looked into: a record has what clients waited for.
pub const UNREAD: &str = "none";

/// An installation of OpenSSL that servers used instead of the system's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryUsed {
    /// Prefix of the installation, as the experiment names it.
    pub prefix: PathBuf,
    /// The version text inside its libcrypto.
    pub version: String,
    /// The files that were mapped: libssl, libcrypto.
    pub files: Vec<PathBuf>,
}

/// What an earlier run of the same experiment told of the shares of CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierRun {
    /// When it began, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// Shares by stage or name of the share.
    pub shares: BTreeMap<String, EarlierShare>,
}

/// One share of CPU time per hit as an earlier run told it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierShare {
    /// Estimate, per cent of the server as is.
    pub percent: f64,
    /// Half of the width of its 95 % interval, percentage points.
    pub half_width_percent: f64,
}

/// What a configuration is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The untouched server over TLS.
    AsIs,
    /// The provider is loaded, nothing is switched off: what the instrument itself costs.
    Loaded,
    /// This one stage is replaced by a no-op.
    StageOff(Stage),
    /// Every stage is replaced by a no-op.
    AllOff,
    /// These stages replaced together, but not all that the experiment also replaces one by one: in no share, only in
    /// the table of configurations.
    Several(StageSet),
    /// The doubler is loaded, and nothing is computed twice: what those with stages computed twice are compared with.
    NothingDoubled,
    /// Records are copied as for doubling, and nothing is computed twice: what doubling them is compared with.
    Copies,
    /// These stages, which cannot be taken apart, are computed twice.
    Doubled(StageSet),
    /// Everything that the experiment doubles is computed twice.
    AllDoubled,
    /// More than its stages differ: TLS settings, processors, an accelerator. In no share of a stage.
    Setting,
    /// The same server without TLS.
    PlainHttp,
}

/// One setting of the server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The name in tables: `as is`, `no authentication`, `all off`, `plain HTTP`.
    pub name: String,
    /// The stages replaced by no-ops.
    pub noop: StageSet,
    /// What the configuration is for.
    #[serde(rename = "kind")]
    pub role: Role,
    /// Whether the configuration speaks TLS.
    pub tls: bool,
    /// The configuration in whose server process it is a mode; `None`: it has a server of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_number: Option<usize>,
    /// What the preflight checked.
    pub preflight: Preflight,
    /// Whether its blocks may be used: the preflight passed.
    pub valid: bool,
    /// What the reader must know about the configuration.
    pub warnings: Vec<Warning>,
}

impl Configuration {
    /// A configuration without no-ops that has a server of its own, with the checks that it passed.
    pub fn setting(name: impl Into<String>, tls: bool, passed: Vec<String>) -> Configuration {
        Configuration {
            name: without_secrets(&name.into()),
            noop: StageSet::NONE,
            role: Role::Setting,
            tls,
            host_number: None,
            preflight: Preflight { passed, failed: Vec::new() },
            valid: true,
            warnings: Vec::new(),
        }
    }
}

/// The checks that showed that a configuration does what it says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preflight {
    /// Checks that passed, one sentence each.
    pub passed: Vec<String>,
    /// Checks that failed, one sentence each.
    pub failed: Vec<String>,
}
