//! What a record with one server says: shares, findings, what each configuration did, and what the reader must know
//! before believing it.

pub mod accelerators;
pub mod between_runs;
pub mod calibration;
pub mod compared_shares;
pub mod counts;
pub mod findings;
pub mod libraries;
pub mod loaded;
pub mod machines;
pub mod methods;
pub mod published;
pub mod scoreboard;
pub mod share_ranges;
pub mod shares;
pub mod traffic;

use serde::Serialize;
use tlsdyno_record::model::{Experiment, Question};
use tlsdyno_record::store::warning::{self, Places, code};
use tlsdyno_record::store::{Block, Record, Role, Warning};
use tlsdyno_stats::moment::Moment;
use tlsdyno_stats::pace::Pace;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::summary::{failures, few_rounds, stolen};
use tlsdyno_stats::{ConfigurationSummary, Metric};

use between_runs::{BetweenRuns, between_runs};
use calibration::Detection;
use counts::Counts;

pub use findings::Findings;
use libraries::Libraries;
pub use loaded::Loaded;
use machines::Machines;
use methods::ByMethods;
pub use published::Published;
pub use shares::{Share, Shares};
use traffic::Traffic;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Requested half width of intervals, percentage points.
    pub wanted_percent: f64,
    /// Half width of the widest interval of a step, percentage points.
    pub reached_percent: f64,
    pub used_s: f64,
}

impl Precision {
    fn of(record: &Record, shares: &Shares) -> Option<Precision> {
        let measure = &record.kind_part.of::<Experiment>()?.measure;
        let timed = record.blocks.iter().filter(|block| block.instructions.is_none());
        let end_ns = timed.map(|block| block.started_ns + block.elapsed_ns).max()?;
        Some(Precision {
            wanted_percent: measure.until_percent?,
            reached_percent: shares.widest_points()?,
            used_s: end_ns as f64 / 1e9,
        })
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfQuestion {
    Libraries(Libraries),
    /// Results from traffic of a site's own clients.
    Traffic(Traffic),
    Machines(Machines),
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub shares: Shares,
    /// Over all runs of this experiment on this machine; empty while there are too few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub between_runs: Vec<BetweenRuns>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_methods: Vec<ByMethods>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counts>,
    #[serde(flatten)]
    pub of_question: Option<OfQuestion>,
    #[serde(flatten)]
    pub findings: Findings,
    /// `None` where the experiment names no paper.
    #[serde(rename = "paper")]
    pub published: Option<Published>,
    pub configurations: Vec<ConfigurationSummary>,
    #[serde(skip)]
    pub rounds: u32,
    /// Sweeps of slices, by which CPU per hit is told; 0: rounds tell it.
    #[serde(skip)]
    pub sweeps: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
    #[serde(skip)]
    pub precision: Option<Precision>,
    #[serde(flatten)]
    pub detection: Detection,
    pub pace: Option<Pace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
    /// What the configuration that tells the instrument's own cost has loaded, where there is one.
    #[serde(skip)]
    pub loaded: Loaded,
}

impl Summary {
    /// The result depends on the record alone.
    pub fn of(record: &Record) -> Summary {
        let rounds = Rounds::of(record);
        let shares = Shares::of(&rounds);
        let mut warnings = record.warnings.clone();
        // It speaks of the rest between the stages, which an experiment without stages does not have.
        warnings.retain(|warning| warning.code != code::NO_PLAIN_HTTP || has_stages(record));
        for warning in derived_warnings(record, &rounds, &shares) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let indices = 0..record.configurations.len();
        let configurations: Vec<_> = indices.map(|index| ConfigurationSummary::of(&rounds, index)).collect();
        let findings = Findings::of(&rounds);
        let published = Published::of(&rounds, &shares, &findings);
        let of_question = match rounds.experiment().map(Experiment::asks) {
            Some(Question::ForeignTraffic(_)) => Traffic::of(record).map(OfQuestion::Traffic),
            Some(Question::Libraries) => Libraries::of(&rounds).map(OfQuestion::Libraries),
            Some(Question::Machines(machines)) => {
                let on_machines = Machines::of(machines, &rounds, &configurations, published.as_ref());
                on_machines.map(OfQuestion::Machines)
            }
            _ => None,
        };
        let detection = Detection::of(record);
        warnings.extend(detection.below(&shares));
        let counted = Counts::of(record);
        warnings.extend(counted.as_ref().and_then(|counted| counted.impossible(record)));
        let precision = Precision::of(record, &shares);
        Summary {
            precision,
            between_runs: between_runs(&shares, &record.manifest.earlier_runs),
            by_methods: methods::by_methods(&rounds, counted.as_ref()),
            counted,
            of_question,
            shares,
            findings,
            published,
            configurations,
            rounds: rounds.told(),
            sweeps: rounds.sweeps(),
            warnings,
            detection,
            pace: rounds.pace().cloned(),
            moment: rounds.moment().cloned(),
            loaded: Loaded::of(record),
        }
    }

    /// Blocks measured hits per second.
    pub fn has_rates(&self) -> bool {
        self.configurations.iter().any(|of| of.hits_per_second.is_known())
    }

    /// Without configurations that are variants of others on a machine.
    pub fn off_machines(&self) -> impl Iterator<Item = &ConfigurationSummary> {
        self.configurations.iter().filter(|of| of.base.is_none())
    }

    /// `None` unless its blocks can be used.
    pub fn configuration(&self, role: &Role) -> Option<&ConfigurationSummary> {
        self.configurations
            .iter()
            .find(|configuration| configuration.role == *role && configuration.valid && configuration.blocks > 0)
    }
}

fn derived_warnings(record: &Record, rounds: &Rounds, shares: &Shares) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let measured = rounds.measured();
    let asks = record.kind_part.of::<Experiment>().map(Experiment::asks);
    let compares = matches!(asks, Some(Question::Costs | Question::Libraries | Question::Machines(_)));
    if rounds.compared() > 0 && compares {
        warnings.extend(few_rounds(record, rounds.compared()));
    }
    if let Some(as_is) = rounds.find(&Role::AsIs) {
        for (index, configuration) in
            record.configurations.iter().enumerate().filter(|(_, configuration)| configuration.valid)
        {
            let dropped = measured.saturating_sub(rounds.pairs(as_is, index, Metric::Throughput));
            if dropped > 0 {
                let what = format!(
                    "{dropped} of {measured} rounds were left out because the block of \"{}\" was missing or invalid",
                    configuration.name
                );
                let remedy = "The warnings of its blocks in the record say why.";
                warnings.push(Warning::new("rounds_dropped", what).with_remedy(remedy));
            }
        }
    }
    let has_plain_http = record.configurations.iter().any(|configuration| configuration.role == Role::PlainHttp);
    if has_stages(record) && !has_plain_http && compares {
        warnings.push(warning::no_plain_http());
    }
    // Where no stage is asked for, no reader looks for their shares.
    let of_stages = |share: &&Share| has_stages(record) && !share.without.is_empty();
    if let Some(share) = shares.by(Metric::Cpu).find(of_stages) {
        warnings.push(without_share(share));
    }
    // Where neither side was busy that is told with its cause.
    let is_told = |index: usize| {
        let is_unsaturated = |block: &Block| block.configuration == index && block.unsaturated;
        record.warnings.iter().any(|warning| warning.code == code::UNSATURATED)
            && record.blocks.iter().any(is_unsaturated)
    };
    let bound = record.configurations.iter().enumerate();
    let bound = bound.filter(|&(index, _)| rounds.client_bound(&[index]) && !is_told(index));
    let bound: Vec<String> = bound.map(|(_, configuration)| configuration.name.clone()).collect();
    if !bound.is_empty() {
        warnings.push(client_bound(&bound, record));
    }
    warnings.extend(stolen(record));
    warnings.extend(unsteady(rounds));
    warnings.extend(failures(&record.blocks));
    warnings
}

/// Warns that stages have no share of their own, so that this one includes their cost.
fn without_share(share: &Share) -> Warning {
    let holder = match share.stage.as_str() {
        "rest" => "rest",
        "missing_to_100" => "missing to 100 %",
        _ => "rest of TLS",
    };
    let what = format!(
        "no share of its own for {}: not selected, or the configuration failed its checks. \"{holder}\" holds that \
         cost too",
        share.without.join(", ").replace('_', " ")
    );
    Warning::new("unmeasured", what).with_remedy("Measure all stages, or see what is said of those configurations.")
}

/// The server was not the bottleneck in these configurations. A lower effort of the load may help where it was in none.
fn client_bound(configurations: &[String], record: &Record) -> Warning {
    let all = record.configurations.len();
    let what = format!(
        "something else than the server was the limit in {} (the load client, or requests that wait for each other): \
         hits per second and shares from throughput are bounds there. CPU per hit stays valid.",
        Places(configurations, all as u32)
    );
    let more = match record.manifest.effort.as_str() {
        _ if configurations.len() < all => "",
        "honest" => " Give the client more CPUs, or --effort lean.",
        _ => " Give the client more CPUs.",
    };
    Warning::new("client_bound", what + more)
}

fn has_stages(record: &Record) -> bool {
    record.configurations.iter().any(|configuration| matches!(configuration.role, Role::StageOff(_) | Role::Doubled(_)))
}

/// Minimum ratio of the dearest round to the cheapest for a warning about the machine's pace.
const UNSTEADY_TIMES: f64 = 1.3;

/// Warns where the same work cost much more in some rounds. Only slices do the same work in each round.
fn unsteady(rounds: &Rounds) -> Option<Warning> {
    let as_is = rounds.find(&Role::AsIs).filter(|_| rounds.sweeps() > 0)?;
    let costs: Vec<f64> = rounds.cost_by_round(as_is, Metric::Cpu).into_iter().flatten().collect();
    let (least_ns, most_ns) = (costs.iter().copied().reduce(f64::min)?, costs.iter().copied().reduce(f64::max)?);
    let what = format!(
        "a hit of the server as is cost from {:.0} to {:.0} µs of CPU time by round: this machine's pace changes, for \
         others use its caches and CPUs. Shares were compared within milliseconds and stand this; µs per hit do not",
        least_ns / 1e3,
        most_ns / 1e3
    );
    let warning = || Warning::new("unsteady_pace", what).with_remedy("Measure on a quieter or dedicated machine.");
    (most_ns >= UNSTEADY_TIMES * least_ns).then(warning)
}
