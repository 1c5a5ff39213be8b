//! Hits per second, and shares of the time per hit, on each machine of an experiment, beside the paper's.
//!
//! Circle: the summary holds them, and they look up its configurations by name.

use serde::Serialize;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Machine, Paper, PublishedNumber, Quantity, ShareModel};
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_column};
use tlsdyno_stats::papers::implied_reference;
use tlsdyno_stats::remainders::MISSING;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::Ratio;
use tlsdyno_stats::summary::ConfigurationSummary;

use super::published::Published;
use super::shares::{Share, Shares};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnMachine {
    pub hits_per_s: Option<Estimate>,
    /// Something else than the server limited the hits per second.
    pub client_bound: bool,
    pub paper_hits_per_second: Option<f64>,
    /// Range that the paper's percentages leave for hits per second that it does not print.
    pub paper_implied: Option<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineRow {
    pub configuration: String,
    /// The paper's name of the configuration, where it differs.
    pub label: Option<String>,
    pub machines: Vec<OnMachine>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineShares {
    pub ours: Vec<Share>,
    /// The paper's, per cent, in the order of `ours`; `None` where it has none.
    pub paper: Vec<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machines {
    /// As `2 x 933 MHz`.
    pub machines: Vec<String>,
    /// CPU time of a hit on each machine by that without a quota, in blocks of the same rounds, all configurations
    /// together: what the emulation itself costs or spares. `None` where no configuration has both.
    pub cpu_times: Vec<Option<Ratio>>,
    /// Our hits per second for one of the paper's: by the untouched server on the first machine that both have. What
    /// charts draw the paper's bars with.
    pub scale_times: Option<f64>,
    pub rows: Vec<MachineRow>,
    pub share_names: Vec<String>,
    pub shares: Vec<MachineShares>,
}

impl Machines {
    pub fn of(
        machines: &[Machine],
        rounds: &Rounds,
        configurations: &[ConfigurationSummary],
        published: Option<&Published>,
    ) -> Option<Machines> {
        let experiment = rounds.experiment()?;
        let bases = || experiment.configurations.iter().filter(|model| is_base(experiment, model));
        let cells = |model: &ConfigurationModel| {
            let cell = |machine: &Machine| cell(experiment, configurations, model, *machine);
            machines.iter().map(cell).collect()
        };
        let rows: Vec<MachineRow> = bases()
            .map(|model| MachineRow {
                configuration: model.name.clone(),
                label: model.label.clone(),
                machines: cells(model),
            })
            .collect();
        let as_is = bases().position(ConfigurationModel::is_untouched);
        let scales = as_is.into_iter().flat_map(|at| &rows[at].machines);
        let scale = scales.filter_map(|cell| Some(cell.hits_per_s?.value / cell.paper_hits_per_second?)).next();
        let cpu_times = machines.iter().map(|machine| cpu_times(experiment, rounds, *machine)).collect();
        let shares = machines.iter().map(|machine| shares(experiment, rounds, *machine, published)).collect();
        Some(Machines {
            machines: machines.iter().map(ToString::to_string).collect(),
            cpu_times,
            scale_times: scale,
            rows,
            share_names: experiment.shares.iter().map(|share| share.name.clone()).collect(),
            shares,
        })
    }
}

fn cpu_times(experiment: &Experiment, rounds: &Rounds, machine: Machine) -> Option<Ratio> {
    let bases = experiment.configurations.iter().filter(|model| is_base(experiment, model));
    let pair = |model: &ConfigurationModel| {
        let without = rounds.named(&model.name)?;
        Some((rounds.cpu_in_blocks(without), rounds.cpu_in_blocks(rounds.named(&machine.name_of(&model.name))?)))
    };
    let pairs: Vec<(Column, Column)> = bases.filter_map(pair).collect();
    let of_round = |round: usize| {
        let times = pairs.iter().filter_map(|(without, with)| Some((with[round]? / without[round]?).ln()));
        let (sum, count) = times.fold((0.0, 0u32), |(sum, count), times| (sum + times, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    let column: Column = (0..pairs.first()?.0.len()).map(of_round).collect();
    let count = column.iter().flatten().count() as u32;
    (count > 0).then(|| Ratio::of_logarithm(estimate_column(&column), count, false, false))
}

fn is_base(experiment: &Experiment, model: &ConfigurationModel) -> bool {
    model.base.is_none() && experiment.configurations.iter().any(|other| other.base.as_ref() == Some(&model.name))
}

fn cell(
    experiment: &Experiment,
    configurations: &[ConfigurationSummary],
    model: &ConfigurationModel,
    machine: Machine,
) -> OnMachine {
    let name = machine.name_of(&model.name);
    let ours = configurations.iter().find(|of| of.name == name && of.valid && of.blocks > 0);
    let published = |paper: &Paper| paper_column(paper, machine).and_then(|column| hits(paper, &model.name, column));
    let paper = experiment.paper.as_ref().and_then(published);
    OnMachine {
        hits_per_s: ours.map(|of| of.hits_per_second),
        client_bound: ours.is_some_and(|of| of.client_bound),
        paper_hits_per_second: paper,
        paper_implied: match paper {
            None if model.plain_http => experiment.paper.as_ref().and_then(|paper| implied_plain(paper, machine)),
            _ => None,
        },
    }
}

/// The paper's column of a machine: the last that bears its name, as later papers measured with later software.
fn paper_column(paper: &Paper, machine: Machine) -> Option<usize> {
    let name = machine.to_string();
    let is = |label: &String| label.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("));
    paper.machines.iter().rposition(is)
}

fn hits(paper: &Paper, configuration: &str, column: usize) -> Option<f64> {
    paper.row(Quantity::HitsPerS, configuration).map(|numbers| numbers[column]).filter(|number| number.is_finite())
}

/// What the printed percentages leave for plain HTTP on a machine whose number was not published.
fn implied_plain(paper: &Paper, machine: Machine) -> Option<(f64, f64)> {
    let column = paper_column(paper, machine)?;
    let printed = paper.all(Quantity::PercentOfPlain).filter(|(_, at, _)| *at == paper.machines[column]);
    let printed = printed.filter_map(|(name, _, percent)| Some((hits(paper, name, column)?, percent.mean())));
    implied_reference(&printed.collect::<Vec<_>>())
}

fn shares(experiment: &Experiment, rounds: &Rounds, machine: Machine, published: Option<&Published>) -> MachineShares {
    let as_is = experiment.configurations.iter().find(|model| model.is_untouched());
    let as_is = as_is.map_or(String::new(), |model| machine.name_of(&model.name));
    let on_machine = |model: &ShareModel| ShareModel {
        name: model.name.clone(),
        on: machine.name_of(&model.on),
        off: model.off.as_ref().map(|off| machine.name_of(off)),
    };
    let models: Vec<_> = experiment.shares.iter().map(on_machine).collect();
    let column = experiment.paper.as_ref().and_then(|paper| paper_column(paper, machine));
    let printed = |name: &str| {
        let of = published?.shares.iter().find(|share| share.share == name)?;
        Some(of.percent[column?]).filter(PublishedNumber::is_known).map(|percent| percent.mean())
    };
    let mut ours = Shares::by_time(&models, rounds, &as_is);
    ours.retain(|share| share.stage != MISSING);
    MachineShares { ours, paper: experiment.shares.iter().map(|share| printed(&share.name)).collect() }
}
