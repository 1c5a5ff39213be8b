//! From what was read and measured to a decision, in the units of the server's owner. All of it comes from the record.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_base::verdict::{Direction, Lies};
use tlsdyno_record::model::{ConfigurationModel, Experiment, TlsChange};
use tlsdyno_record::store::{Configuration, Record, Role};
use tlsdyno_stats::advice::{AdviceModel, ConsideredModel};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{FEW_ROUNDS, direction};

use crate::remedies::TOGETHER;

/// What a hit of the first configuration that this is true of costs in each round.
type ColumnOf<'a> = dyn Fn(&dyn Fn(&Configuration) -> bool) -> Option<Column> + 'a;

/// A remedy that saves less than this part of a CPU is not worth a change for its CPU time alone.
const WORTH_CPUS: f64 = 0.05;
/// Longer than this nobody measures for one remedy, seconds.
const LONGEST_S: f64 = 3_600.0;

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// What was read.
    #[serde(flatten)]
    pub read: AdviceModel,
    /// Server CPU of a hit, nanoseconds; `None`: no round was complete.
    pub hit_ns: Option<Estimate>,
    /// What of that is TLS; `None`: plain HTTP was not measured.
    pub tls_ns: Option<Estimate>,
    /// Those that were measured, in the order in which they are advised.
    pub remedies: Vec<Saving>,
    /// What the chosen ones save together.
    pub together: Option<Together>,
    /// The bound on measuring, seconds.
    pub time_s: f64,
}

/// What several remedies save together, nanoseconds of a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Together {
    /// What the single ones save, added up.
    pub predicted_ns: Estimate,
    pub measured_ns: Estimate,
    /// Measured less predicted.
    pub more_ns: Estimate,
    /// Whether it is more.
    pub direction: Direction,
    pub names: Vec<String>,
}

/// What a remedy saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Saving {
    pub name: String,
    /// Server CPU of a hit, nanoseconds; below 0: it costs more.
    pub ns: Estimate,
    /// Bigger: it saves; the one verdict that there is.
    pub direction: Direction,
    /// Rounds that it was compared in.
    pub rounds: u32,
    /// What measuring takes until it can be decided, seconds; `None`: it is decided, or an hour does not do.
    pub needs_s: Option<f64>,
    pub price: String,
    /// What the operator writes.
    pub lines: Vec<String>,
}

impl Advice {
    /// Of a record of an installed server; `None`: nobody asked for advice.
    pub fn of(record: &Record) -> Option<Advice> {
        let experiment = record.kind_part.of::<Experiment>()?;
        let read: AdviceModel = serde_json::from_value(experiment.advice.clone()?).ok()?;
        let rounds = Rounds::of(record);
        let configurations = &record.configurations;
        let column = |is: &dyn Fn(&Configuration) -> bool| -> Option<Column> {
            Some(rounds.cpu(configurations.iter().position(|of| of.valid && is(of))?))
        };
        let as_is = column(&|of| of.role == Role::AsIs).unwrap_or_default();
        let less = |other: &Column| estimate_sum(&[(&as_is, 1.0), (other, -1.0)]);
        let hit_ns = Some(estimate_sum(&[(&as_is, 1.0)])).filter(|hit| hit.value.is_finite());
        let tls_ns = column(&|of| of.role == Role::PlainHttp).map(|plain| less(&plain));
        let tls_ns = tls_ns.filter(|tls| tls.value.is_finite());
        let time_s = experiment.measure.time_s;
        let saving = |of: &ConsideredModel| {
            let other = column(&|configuration| configuration.name == of.name)?;
            let rounds =
                as_is.iter().zip(&other).filter(|(one, other)| one.is_some() && other.is_some()).count() as u32;
            let ns = less(&other);
            let direction = direction(ns, rounds);
            let needs_s = (direction == Direction::Undecided).then(|| needed_s(ns, rounds, time_s)).flatten();
            let (name, price, lines) = (of.name.clone(), of.price.clone(), of.lines.clone());
            (rounds > 0).then_some(Saving { name, ns, direction, rounds, needs_s, price, lines })
        };
        let mut remedies: Vec<Saving> = read.considered.iter().filter_map(saving).collect();
        let rank = |of: &Saving| match of.direction {
            Direction::Bigger => (2, of.ns.value),
            // Those of few rounds stay in the order in which they were considered.
            Direction::Undecided => (1, 0.0),
            Direction::Smaller => (0, of.ns.value),
        };
        remedies.sort_by(|one, other| rank(other).partial_cmp(&rank(one)).unwrap_or(std::cmp::Ordering::Equal));
        let together = together(experiment, &as_is, &column);
        Some(Advice { read, hit_ns, tls_ns, remedies, together, time_s })
    }

    /// Whether a remedy surely saves something.
    pub fn saves(&self, name: &str) -> bool {
        self.remedies.iter().any(|of| of.name == name && of.direction == Direction::Bigger)
    }

    /// The decision, in a few sentences.
    pub fn told(&self) -> String {
        let Some(hit_ns) = self.hit_ns else {
            return format!(
                "Nothing could be compared: no round was complete in {:.0} s. Give it more time: --time {:.0}.",
                self.time_s,
                rounded_s(4.0 * self.time_s)
            );
        };
        let whole = self.read.rate_per_s.map_or_else(|| self.in_percent(hit_ns), |rate| self.in_cpus(hit_ns, rate));
        let verdict = match self.remedies.first() {
            Some(best) if best.direction == Direction::Bigger => self.verdict(best, hit_ns),
            _ => self.without_gain(),
        };
        format!("{whole} {verdict}").trim().to_owned()
    }

    fn in_cpus(&self, hit_ns: Estimate, rate: f64) -> String {
        let tls = self.tls_ns.map_or(String::new(), |tls| format!(", {} of it for TLS", cpus(tls, rate)));
        let told = if rate < 1.0 { format!("{rate:.3}") } else { format!("{rate:.0}") };
        format!("At your {told} hits/s this server takes {} of a CPU{tls}.", cpus(hit_ns, rate))
    }

    fn in_percent(&self, hit_ns: Estimate) -> String {
        self.tls_ns
            .map_or(String::new(), |tls| format!("TLS takes {} of this server's CPU time.", percent(tls, hit_ns)))
    }

    /// Of the remedy that saves most, and surely something.
    fn verdict(&self, best: &Saving, hit_ns: Estimate) -> String {
        let rivals = self.remedies.iter().filter(|of| of.name != best.name && of.ns.high >= best.ns.low);
        let rivals: Vec<&str> = rivals.map(|of| of.name.as_str()).collect();
        let as_much = match rivals.as_slice() {
            [] => String::new(),
            rivals => format!(" As much may be saved by: {}.", rivals.join(", ")),
        };
        let Some(rate) = self.read.rate_per_s else {
            let saved = percent(best.ns, hit_ns);
            return format!(
                "First of all: {}, which saves {saved}.{as_much} With --rate it is told in CPUs.",
                best.name
            );
        };
        let saved = cpus(best.ns, rate);
        match Lies::new(best.ns.scaled(rate / 1e9).interval(), [WORTH_CPUS, WORTH_CPUS]) {
            Lies::Above => format!("First of all: {}, which saves {saved}.{as_much}", best.name),
            Lies::Below => {
                format!("The best remedy, {}, saves {saved}: you do not need to act for CPU time.", best.name)
            }
            Lies::Within | Lies::Across => format!(
                "The best remedy, {}, saves {saved}. Whether that is {WORTH_CPUS} of a CPU, and worth a change, is not \
                 decided: measure longer (--time).",
                best.name
            ),
        }
    }

    fn without_gain(&self) -> String {
        let undecided: Vec<&Saving> = self.remedies.iter().filter(|of| of.direction == Direction::Undecided).collect();
        let names = undecided.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
        let needs_s = undecided.iter().filter_map(|of| of.needs_s).fold(0.0, f64::max);
        let time = if needs_s > 0.0 { format!("--time {needs_s:.0}") } else { "--time".to_owned() };
        match undecided.iter().map(|of| of.rounds).max() {
            None => "Nothing that was measured saves any: you do not need to act.".to_owned(),
            Some(rounds) if rounds < FEW_ROUNDS => {
                format!("Nothing is decided: {rounds} of {FEW_ROUNDS} rounds were complete. Measure longer: {time}.")
            }
            Some(_) => format!("Whether these save any could not be told: {names}. Measure longer ({time})."),
        }
    }
}

/// The chosen ones: those whose changes the configuration of all has.
fn together(experiment: &Experiment, as_is: &Column, column: &ColumnOf<'_>) -> Option<Together> {
    let models = || experiment.configurations.iter().filter(|model| model.tls != TlsChange::default());
    let all = models().find(|model| model.name == TOGETHER)?;
    let is_in = |model: &&ConfigurationModel| model.name != TOGETHER && model.tls.over(&all.tls) == all.tls;
    let names: Vec<String> = models().filter(is_in).map(|model| model.name.clone()).collect();
    let measured = column(&|of| of.name == TOGETHER)?;
    let single: Vec<Column> = names.iter().filter_map(|name| column(&|of| of.name == *name)).collect();
    let count = names.len() as f64;
    let singles = |weight: f64| single.iter().map(move |of| (of, weight));
    let predicted: Vec<(&Column, f64)> = [(as_is, count)].into_iter().chain(singles(-1.0)).collect();
    let more: Vec<(&Column, f64)> = [(as_is, 1.0 - count), (&measured, -1.0)].into_iter().chain(singles(1.0)).collect();
    let rounds = measured.iter().flatten().count() as u32;
    let more_ns = estimate_sum(&more);
    (single.len() == names.len() && more_ns.value.is_finite()).then(|| Together {
        predicted_ns: estimate_sum(&predicted),
        measured_ns: estimate_sum(&[(as_is, 1.0), (&measured, -1.0)]),
        direction: direction(more_ns, rounds),
        more_ns,
        names,
    })
}

/// What measuring takes until a saving is decided, seconds: five rounds, or as many as make its interval narrower than
/// it is. `None`: more than an hour.
fn needed_s(ns: Estimate, rounds: u32, time_s: f64) -> Option<f64> {
    let times = if rounds < FEW_ROUNDS || !ns.half_width().is_finite() {
        f64::from(FEW_ROUNDS + 1) / f64::from(rounds)
    } else {
        (ns.half_width() / ns.value).powi(2)
    };
    Some(rounded_s(time_s * times)).filter(|seconds| *seconds <= LONGEST_S)
}

fn rounded_s(seconds: f64) -> f64 {
    10.0 * (seconds / 10.0).ceil()
}

fn percent(ns: Estimate, of: Estimate) -> String {
    ns.divided_by(of).scaled(100.0).with_interval(|percent| format!("{percent:.1}")).replacen(' ', " % ", 1)
}

/// CPU time of a hit as CPUs at a rate, with its interval.
pub(crate) fn cpus(ns: Estimate, rate: f64) -> String {
    ns.scaled(rate / 1e9).with_interval(|cpus| format!("{cpus:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us([value, low, high]: [f64; 3]) -> Estimate {
        Estimate { value: value * 1e3, low: low * 1e3, high: high * 1e3 }
    }

    fn advice(saves_us: [f64; 3], rounds: u32, rate_per_s: Option<f64>) -> Advice {
        let ns = us(saves_us);
        let direction = direction(ns, rounds);
        let needs_s = (direction == Direction::Undecided).then(|| needed_s(ns, rounds, 30.0)).flatten();
        let name = "ECDSA P-256 certificate".to_owned();
        let saving = Saving { name, ns, direction, rounds, needs_s, price: String::new(), lines: Vec::new() };
        let [hit_ns, tls_ns] = [[200.0, 190.0, 210.0], [120.0, 110.0, 130.0]].map(|of| Some(us(of)));
        let read = AdviceModel {
            server: "nginx".to_owned(),
            reading: Vec::new(),
            notes: Vec::new(),
            considered: Vec::new(),
            rate_per_s,
        };
        Advice { read, hit_ns, tls_ns, remedies: vec![saving], together: None, time_s: 30.0 }
    }

    #[test]
    fn little_traffic_needs_no_change() {
        let told = advice([80.0, 70.0, 90.0], 9, Some(300.0)).told();
        assert!(told.contains("takes 0.060 [0.057, 0.063] of a CPU, 0.036 [0.033, 0.039] of it for TLS"), "{told}");
        assert!(told.contains("saves 0.024 [0.021, 0.027]: you do not need to act"), "{told}");
        let much = advice([80.0, 70.0, 90.0], 9, Some(3000.0)).told();
        assert!(much.contains("First of all: ECDSA P-256 certificate"), "{much}");
        let percent = advice([80.0, 70.0, 90.0], 9, None).told();
        assert!(percent.contains("which saves 40.0 % [33.3, 47.4]"), "{percent}");
    }

    #[test]
    fn what_is_undecided_is_not_advised() {
        for rate in [Some(3000.0), None] {
            let told = advice([10.0, -5.0, 25.0], 9, rate).told();
            assert!(told.contains("could not be told: ECDSA P-256 certificate. Measure longer (--time 70)"), "{told}");
            let told = advice([10.0, f64::NAN, f64::NAN], 9, rate).told();
            assert!(told.contains("could not be told"), "{told}");
            assert!(advice([-10.0, -15.0, -5.0], 9, rate).told().contains("you do not need to act"));
        }
        let told = advice([16.0, 10.0, 25.0], 9, Some(3000.0)).told();
        assert!(told.contains("is not decided"), "{told}");
    }

    #[test]
    fn two_rounds_decide_nothing() {
        let two = advice([80.0, 79.0, 81.0], 2, Some(3000.0));
        assert!(two.remedies[0].direction == Direction::Undecided && !two.saves("ECDSA P-256 certificate"));
        assert!(two.told().ends_with("2 of 5 rounds were complete. Measure longer: --time 90."), "{}", two.told());
        let none = Advice { hit_ns: None, remedies: Vec::new(), ..two };
        let wanted = "Nothing could be compared: no round was complete in 30 s. Give it more time: --time 120.";
        assert_eq!(none.told(), wanted);
    }
}
