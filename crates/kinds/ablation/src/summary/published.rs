//! A paper's published numbers beside ours: throughput relative to plain HTTP, shares, setup against data, and the
//! order of the components. Its shares are those it prints, else computed from its throughputs by the papers' own
//! arithmetic.

use serde::Serialize;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Paper, PublishedNumber, Quantity, ShareModel};
use tlsdyno_record::store::{Record, Role};
use tlsdyno_stats::papers::{relative_cost, relative_throughput, share_saved};
use tlsdyno_stats::remainders::MISSING;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{Direction, Metric, Ratio};
use tlsdyno_tls::Stage;

use super::findings::Findings;
use super::shares::Shares;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedConfiguration {
    pub configuration: String,
    /// The paper's name of the configuration, where it differs.
    pub label: Option<String>,
    /// Hits per second for each machine; NaN (JSON: null) where not published.
    pub hits_per_s: Vec<f64>,
    /// Per cent of the throughput of [`Published::reference`] on that machine; NaN (JSON: null) where not published.
    pub percent_of_reference: Vec<f64>,
    /// Our hits per second by those of the reference; `None` for itself, and where one of them was not measured.
    pub ratio: Option<Ratio>,
    /// `ratio` from CPU per hit; `None` also where the reference is not plain HTTP, as processors differ then.
    pub by_cpu: Option<Ratio>,
}

/// A share of the paper; ours is in the record's shares under the same name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedShare {
    pub share: String,
    /// The paper's, per cent for each machine, as a range where it prints one; NaN (JSON: null) where not published.
    pub percent: Vec<PublishedNumber>,
    pub computed: Vec<bool>,
    /// Our interval by time, the papers' metric, against the range of the paper's numbers.
    pub by_time: Option<Direction>,
    pub by_cpu: Option<Direction>,
}

impl PublishedShare {
    /// Range over all machines.
    pub fn number(&self) -> PublishedNumber {
        let numbers = || self.percent.iter().filter(|number| number.is_known());
        PublishedNumber {
            low: numbers().map(|number| number.low).fold(f64::INFINITY, f64::min),
            high: numbers().map(|number| number.high).fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Connection setup against data exchange from the paper's throughputs (Coarfa et al. 2006 section 3.10), per cent for
/// each machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedSetupAndData {
    /// Cost of TLS; NaN (JSON: null) where plain HTTP's throughput was not published.
    pub whole: Vec<f64>,
    pub setup: Vec<f64>,
    pub data: Vec<f64>,
    pub discrepancy: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Authors, year, figures.
    pub source: String,
    pub machines: Vec<String>,
    /// What throughputs are told as parts of: plain HTTP on the untouched server's processors, else the first
    /// configuration that the paper has numbers of; empty where it has none.
    pub reference: String,
    pub configurations: Vec<PublishedConfiguration>,
    pub shares: Vec<PublishedShare>,
    /// `None` unless the experiment has minimal set-up, plain data and plain HTTP.
    pub setup_and_data: Option<PublishedSetupAndData>,
    pub differences: Vec<String>,
}

impl Published {
    /// `None` where the experiment names no paper.
    pub(super) fn of(rounds: &Rounds, shares: &Shares, findings: &Findings) -> Option<Published> {
        let experiment = rounds.experiment()?;
        let paper = experiment.paper.as_ref()?;
        let published = Beside { experiment, paper };
        let reference = published.reference().unwrap_or_default();
        let configurations = experiment.configurations.iter().filter_map(|model| {
            let (hits_per_s, percent_of_reference) = published.throughput(model, reference)?;
            let [ratio, by_cpu] = ratios(rounds, findings, reference, &model.name);
            let (configuration, label) = (model.name.clone(), model.label.clone());
            Some(PublishedConfiguration { configuration, label, hits_per_s, percent_of_reference, ratio, by_cpu })
        });
        Some(Published {
            source: paper.source.clone(),
            machines: paper.machines.clone(),
            reference: reference.to_owned(),
            configurations: configurations.collect(),
            shares: experiment.shares.iter().filter_map(|model| published.share(model, shares)).collect(),
            setup_and_data: (!findings.setup_and_data.is_empty())
                .then(|| published.setup_and_data(rounds.record()))
                .flatten(),
            differences: paper.differences.clone(),
        })
    }

    /// Throughput of plain HTTP by that of the server as is, for each machine that both are published of.
    pub fn tls_factors(&self, as_is: &str, plain: &str) -> Vec<f64> {
        let hits = |name: &str| {
            let row = self.configurations.iter().find(|row| row.configuration == name);
            row.map_or(&[][..], |row| &row.hits_per_s)
        };
        let factors = hits(plain).iter().zip(hits(as_is)).map(|(plain, as_is)| plain / as_is);
        factors.filter(|factor| factor.is_finite()).collect()
    }
}

fn ratios(rounds: &Rounds, findings: &Findings, reference: &str, name: &str) -> [Option<Ratio>; 2] {
    if rounds.find(&Role::PlainHttp).is_some_and(|plain| rounds.named(reference) == Some(plain)) {
        let relative = findings.relative.iter().find(|relative| relative.configuration == name);
        return [relative.map(|relative| relative.ratio), relative.map(|relative| relative.by_cpu)];
    }
    let pair = rounds.named(reference).zip(rounds.named(name)).filter(|(reference, other)| reference != other);
    [pair.and_then(|(reference, other)| rounds.times(reference, other, Metric::Throughput)), None]
}

struct Beside<'a> {
    experiment: &'a Experiment,
    paper: &'a Paper,
}

impl Beside<'_> {
    fn hits(&self, name: &str, machine: usize) -> f64 {
        self.paper.row(Quantity::HitsPerS, name).map_or(f64::NAN, |numbers| numbers[machine])
    }

    fn ends(&self, name: &str, machine: usize) -> [f64; 2] {
        let row = self.paper.numbers.get(&Quantity::HitsPerS).and_then(|rows| rows.get(name));
        row.map_or([f64::NAN; 2], |row| [row[machine].low, row[machine].high])
    }

    fn machines(&self) -> std::ops::Range<usize> {
        0..self.paper.machines.len()
    }

    fn name(&self, is: impl Fn(&ConfigurationModel) -> bool) -> &str {
        let found = self.experiment.configurations.iter().find(|model| is(model));
        found.map_or("", |model| model.name.as_str())
    }

    fn as_is(&self) -> &str {
        self.name(ConfigurationModel::is_untouched)
    }

    fn plain(&self) -> &str {
        self.name(|model| model.plain_http && model.processors.is_none())
    }

    fn reference(&self) -> Option<&str> {
        let published = |name: &&str| self.paper.row(Quantity::HitsPerS, name).is_some();
        let names = self.experiment.configurations.iter().map(|model| model.name.as_str());
        std::iter::once(self.plain()).chain(names).find(published)
    }

    fn throughput(&self, model: &ConfigurationModel, reference: &str) -> Option<(Vec<f64>, Vec<f64>)> {
        let hits = self.paper.row(Quantity::HitsPerS, &model.name)?;
        let part = |machine: usize| 100.0 * relative_throughput(hits[machine], self.hits(reference, machine));
        let percent = self.machines().map(part).collect();
        Some((hits, percent))
    }

    fn share(&self, model: &ShareModel, ours: &Shares) -> Option<PublishedShare> {
        let printed = self.paper.numbers.get(&Quantity::SharesPercent).and_then(|rows| rows.get(&model.name));
        let of_machine = |machine: usize| match printed.map(|row| row[machine]).filter(PublishedNumber::is_known) {
            Some(printed) => (printed, false),
            None => {
                let computed = self.computed_share(model, machine);
                (computed, computed.is_known())
            }
        };
        let (percent, computed): (Vec<PublishedNumber>, Vec<bool>) = self.machines().map(of_machine).unzip();
        if !percent.iter().any(PublishedNumber::is_known) {
            return None;
        }
        let published = PublishedShare { share: model.name.clone(), percent, computed, by_time: None, by_cpu: None };
        let against = |metric| {
            let of = ours.by(metric).find(|share| share.stage == model.name && share.stage != MISSING)?;
            let direction = Direction::against([of.low, of.high], published.number().rounded());
            Some(if of.bound { Direction::Undecided } else { direction })
        };
        let [by_cpu, by_time] = Metric::ALL.map(against);
        Some(PublishedShare { by_time, by_cpu, ..published })
    }

    /// Per cent, from published hits per second; a range where these are ranges.
    fn computed_share(&self, model: &ShareModel, machine: usize) -> PublishedNumber {
        let ends = |name: &str| self.ends(name, machine);
        let as_is = self.hits(self.as_is(), machine);
        // What is taken from the untouched server is the same number, not another one of the same range.
        let on = if model.on == self.as_is() { [as_is; 2] } else { ends(&model.on) };
        let part = |on: f64, off: Option<f64>| match off {
            Some(off) => relative_cost(as_is, on, off),
            None => relative_throughput(as_is, on),
        };
        let off = model.off.as_deref().map(ends);
        let offs: Vec<Option<f64>> = off.map_or(vec![None], |ends| ends.map(Some).to_vec());
        let parts = on.iter().flat_map(|&on| offs.iter().map(move |&off| 100.0 * part(on, off)));
        let parts: Vec<f64> = parts.collect();
        if parts.iter().any(|part| part.is_nan()) {
            return PublishedNumber::number(f64::NAN);
        }
        let low = parts.iter().copied().fold(f64::INFINITY, f64::min);
        PublishedNumber { low, high: parts.iter().copied().fold(f64::NEG_INFINITY, f64::max) }
    }

    fn setup_and_data(&self, record: &Record) -> Option<PublishedSetupAndData> {
        let off = |stage| {
            let role = Role::StageOff(stage);
            record.configurations.iter().find(|configuration| configuration.role == role)
        };
        let (setup, data) = (off(Stage::Setup)?, off(Stage::Marshalling)?);
        let saved = |name: &str| -> Vec<f64> {
            let share = |machine| 100.0 * share_saved(self.hits(self.as_is(), machine), self.hits(name, machine));
            self.machines().map(share).collect()
        };
        let (whole, setup, data) = (saved(self.plain()), saved(&setup.name), saved(&data.name));
        if setup.iter().chain(&data).all(|share| share.is_nan()) {
            return None;
        }
        let discrepancy = self.machines().map(|machine| whole[machine] - setup[machine] - data[machine]).collect();
        Some(PublishedSetupAndData { whole, setup, data, discrepancy })
    }
}
