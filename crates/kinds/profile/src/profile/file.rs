//! The profile as data: what the flags of `tlsdyno profile` build, and what its record says that it was.

use std::fmt;

use clap::ArgAction;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of};
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Load, Measure, Method, Server, Tls};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Effort, StageSet, Version};

/// Measuring time unless a file or --time says otherwise, seconds.
pub const TIME_S: u32 = 60;
/// Users of the one object, each with one request: blocks and slices can be cut anywhere.
const USERS: u32 = 100_000;

/// One profile of a server, as files hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileExperiment {
    pub question: String,
    pub profile: Profile,
    pub server: Server,
    /// TLS as the server is configured and as the client offers it.
    pub tls: Tls,
    pub workload: WorkloadSpec,
    pub measure: Measure,
}

impl Default for ProfileExperiment {
    fn default() -> ProfileExperiment {
        ProfileExperiment {
            question: "Where does the time of a handshake go?".to_owned(),
            profile: Profile::default(),
            server: Server::default(),
            tls: Tls::default(),
            workload: object("/object", Some(1024)),
            measure: Measure { time_s: f64::from(TIME_S), ..Measure::default() },
        }
    }
}

/// The table `profile` of a file, and its flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Connections open at once
    #[arg(short, long, value_name = "N", default_value_t = Load::default().connections, help_heading = "Load")]
    pub connections: u32,
    /// How much the client does
    #[arg(long, value_name = "EFFORT", default_value_t = Effort::Lean)]
    #[arg(value_parser = choice(Effort::ALL), help_heading = "Load")]
    pub effort: Effort,
    /// Remove no stage: all of the time for the profile itself
    // Those of a file are removed too, in a server beside it, to be compared with what timing says of them.
    #[arg(long = "no-removed", action = ArgAction::SetFalse, help_heading = "Measuring")]
    pub removed: bool,
    /// Compute each stage twice too, in a server beside it: the cost by doubling on the same line
    #[arg(long, help_heading = "Measuring")]
    pub doubled: bool,
    /// Do not sample what the server does outside of the stages
    #[arg(long = "no-sampling", action = ArgAction::SetFalse, help_heading = "Measuring")]
    pub sampled: bool,
    /// Count instructions by area too, under valgrind: some seconds more
    #[arg(long, conflicts_with = "sampled", help_heading = "Measuring")]
    pub counted: bool,
    /// Simulate the caches of several processors too, and tell what a hit costs there: a minute more
    #[arg(long, requires = "counted", help_heading = "Measuring")]
    pub caches: bool,
}

impl Default for Profile {
    fn default() -> Profile {
        defaults_of()
    }
}

/// Requested once on each connection. `bytes`: size of an object that is made.
pub fn object(path: &str, bytes: Option<u64>) -> WorkloadSpec {
    WorkloadSpec::Url { path: path.to_owned(), bytes, users: USERS, requests_per_user: 1 }
}

/// How the connections of a cell begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handshakes {
    /// Every one with a full handshake.
    Full,
    /// Every one resumes a session, the first few of each store excepted.
    Resumed,
}

impl Handshakes {
    pub const ALL: [Handshakes; 2] = [Handshakes::Full, Handshakes::Resumed];

    pub fn name(self) -> &'static str {
        match self {
            Handshakes::Full => "full",
            Handshakes::Resumed => "resumed",
        }
    }
}

/// What is done to the server in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// The untouched server.
    AsIs,
    /// The profiler is loaded, and times nothing.
    NotTimed,
    /// Calls into the provider are timed.
    Timed,
    /// The CPU is sampled, no call is timed.
    Sampled,
    /// The untouched server without TLS.
    Plain,
    /// Without TLS, with the CPU sampled.
    PlainSampled,
    /// The provider of no-ops is loaded, with all stages real.
    NothingOff,
    /// These stages are replaced by no-ops.
    Off(StageSet),
    /// The doubler is loaded, and computes nothing twice.
    NothingDoubled,
    /// The doubler copies the contents of records, as it must to compute them twice.
    RecordsCopied,
    /// These stages are computed twice.
    Doubled(StageSet),
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Treatment::AsIs => f.write_str("as is"),
            Treatment::NotTimed => f.write_str("not timed"),
            Treatment::Timed => f.write_str("timed"),
            Treatment::Sampled => f.write_str("sampled"),
            Treatment::Plain => f.write_str("plain HTTP"),
            Treatment::PlainSampled => f.write_str("plain HTTP, sampled"),
            Treatment::NothingOff => f.write_str("nothing off"),
            Treatment::Off(stages) => write!(f, "no {}", stages.to_string().replace('_', " ")),
            Treatment::NothingDoubled => f.write_str("nothing doubled"),
            Treatment::RecordsCopied => f.write_str("records copied"),
            Treatment::Doubled(stages) => write!(f, "{} doubled", stages.to_string().replace('_', " ")),
        }
    }
}

impl Treatment {
    /// The configuration of a server, or of a mode of one.
    pub fn configuration(self) -> ConfigurationModel {
        let untouched = ConfigurationModel::as_is;
        match self {
            Treatment::AsIs => untouched(),
            Treatment::NotTimed | Treatment::Timed | Treatment::Sampled => {
                ConfigurationModel { name: "profiled".to_owned(), ..untouched() }
            }
            Treatment::Plain | Treatment::PlainSampled => ConfigurationModel::plain_http(),
            Treatment::NothingOff => {
                ConfigurationModel { wrapped: StageSet::PROVIDER, ..ConfigurationModel::without("nothing off", []) }
            }
            Treatment::Off(stages) => ConfigurationModel::without(&stages.to_string(), stages.iter()),
            Treatment::NothingDoubled => ConfigurationModel::doubling("nothing doubled", StageSet::NONE),
            Treatment::RecordsCopied => {
                ConfigurationModel { name: "records copied".to_owned(), copies: true, ..untouched() }
            }
            Treatment::Doubled(stages) => ConfigurationModel::doubling(&format!("{stages} twice"), stages),
        }
    }

    /// The treatment of the same server that it is compared with.
    pub fn base(self) -> Option<Treatment> {
        match self {
            Treatment::Timed | Treatment::Sampled => Some(Treatment::NotTimed),
            Treatment::Off(_) => Some(Treatment::NothingOff),
            Treatment::PlainSampled => Some(Treatment::Plain),
            Treatment::RecordsCopied | Treatment::Doubled(_) => Some(Treatment::NothingDoubled),
            Treatment::AsIs
            | Treatment::NotTimed
            | Treatment::NothingOff
            | Treatment::NothingDoubled
            | Treatment::Plain => None,
        }
    }

    /// Whether its server speaks plain HTTP.
    pub fn is_plain(self) -> bool {
        matches!(self, Treatment::Plain | Treatment::PlainSampled)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub handshakes: Handshakes,
    pub treatment: Treatment,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.handshakes.name(), self.treatment)
    }
}

impl ProfileExperiment {
    /// Servers run beside the profiled one: a fixed port allows only one.
    pub fn has_neighbours(&self) -> bool {
        let address = self.server.address.as_deref().unwrap_or_default();
        !self.server.kind.is_users_own() || address.contains("{port}")
    }

    /// A server without TLS runs beside it: a user's own command cannot be told to do so.
    pub fn has_plain(&self) -> bool {
        !self.server.kind.is_users_own()
    }

    /// Grouped by server: first the cell that the others of the same server and kind of handshake are compared with.
    pub fn cells(&self) -> Vec<Cell> {
        let kinds = Handshakes::ALL.into_iter().filter(|kind| self.has(*kind));
        kinds
            .flat_map(|handshakes| self.treatments(handshakes).map(move |t| Cell { handshakes, treatment: t }))
            .collect()
    }

    fn has(&self, handshakes: Handshakes) -> bool {
        handshakes == Handshakes::Full || self.tls.is_resumable()
    }

    fn treatments(&self, handshakes: Handshakes) -> impl Iterator<Item = Treatment> {
        let neighbours = self.has_neighbours();
        let (removed, doubled) = (neighbours && self.profile.removed, neighbours && self.profile.doubled);
        let occurring = move || StageSet::groups().filter(move |stages| self.occurs(handshakes, *stages));
        [
            (Treatment::AsIs, neighbours),
            (Treatment::NotTimed, true),
            (Treatment::Timed, true),
            (Treatment::Sampled, self.profile.sampled),
            (Treatment::Plain, self.has_plain()),
            (Treatment::PlainSampled, self.has_plain() && self.profile.sampled),
            (Treatment::NothingOff, removed),
        ]
        .into_iter()
        .chain(occurring().map(move |stages| (Treatment::Off(stages), removed)))
        .chain([(Treatment::NothingDoubled, doubled), (Treatment::RecordsCopied, doubled)])
        .chain(occurring().map(move |stages| (Treatment::Doubled(stages), doubled)))
        .filter(|(_, wanted)| *wanted)
        .map(|(treatment, _)| treatment)
    }

    /// These stages do work in such a handshake.
    fn occurs(&self, handshakes: Handshakes, stages: StageSet) -> bool {
        let resumed = handshakes == Handshakes::Resumed;
        let exchange = match self.tls.version {
            Version::Tls12 => KeyExchange::EcdheRsa,
            Version::Tls13 => KeyExchange::Tls13,
        };
        stages.iter().any(|stage| stage.occurs(exchange, resumed))
    }

    /// The server and traffic as an experiment, which the testbed starts: the profiled server, the untouched one, those
    /// without TLS, with the no-ops and with the doubler, each with its modes.
    pub fn of_servers(&self) -> Experiment {
        let treatments = [Treatment::NotTimed].into_iter().chain(self.cells().into_iter().map(|cell| cell.treatment));
        let configurations = treatments.map(Treatment::configuration).unique_by(|of| of.name.clone()).collect();
        Experiment {
            question: self.question.clone(),
            server: self.server.clone(),
            tls: self.tls.clone(),
            workload: self.workload.clone(),
            load: Load {
                connections: self.profile.connections,
                requests_per_connection: Some(1),
                reuse_percent: Some(if self.tls.is_resumable() { 100.0 } else { 0.0 }),
                effort: self.profile.effort,
                ..Load::default()
            },
            measure: self.measure.clone(),
            configurations,
            // What is counted and what is timed is to be the same code.
            methods: if self.profile.counted {
                vec![Method::Removing, Method::Counting]
            } else {
                vec![Method::Removing]
            },
            ..Experiment::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::model::ServerName;

    use super::*;

    fn names(experiment: &ProfileExperiment) -> Vec<String> {
        experiment.cells().iter().map(Cell::to_string).collect()
    }

    #[test]
    fn stages_are_removed_where_they_occur() {
        let names13 = names(&ProfileExperiment::default());
        assert!(names13.contains(&"full, no authentication".to_owned()), "{names13:?}");
        assert!(!names13.contains(&"resumed, no authentication".to_owned()), "{names13:?}");
        assert!(names13.contains(&"resumed, no key agreement".to_owned()), "{names13:?}");
        assert!(names13.contains(&"full, plain HTTP, sampled".to_owned()), "{names13:?}");
        assert!(!names13.iter().any(|name| name.contains("doubled")), "{names13:?}");
        let doubled = names(&ProfileExperiment {
            profile: Profile { doubled: true, ..Profile::default() },
            ..ProfileExperiment::default()
        });
        assert!(doubled.contains(&"resumed, kdf doubled".to_owned()), "{doubled:?}");
        assert!(!doubled.contains(&"resumed, authentication doubled".to_owned()), "{doubled:?}");
        let tls = Tls { version: Version::Tls12, ..Tls::default() };
        assert!(
            !names(&ProfileExperiment { tls, ..ProfileExperiment::default() })
                .contains(&"resumed, no key agreement".to_owned())
        );
    }

    #[test]
    fn a_fixed_port_has_one_server() {
        let address = Some("127.0.0.1:8443".to_owned());
        let server = Server { kind: ServerName::Command, address, ..Server::default() };
        let alone = ProfileExperiment { server, ..ProfileExperiment::default() };
        let full = ["full, not timed", "full, timed", "full, sampled"];
        assert_eq!(names(&alone)[..3], full);
        assert_eq!(names(&alone).len(), 6);
        assert_eq!(alone.of_servers().configurations.len(), 1);
    }
}
