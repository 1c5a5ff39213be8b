//! From what was read and measured to a decision, in the units of the server's owner. All of it comes from the record.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_base::verdict::{Direction, Lies};
use tlsdyno_record::model::{ConfigurationModel, Experiment, RemedyId, RemedyModel, TlsChange};
use tlsdyno_record::store::{Configuration, Record, Role};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{FEW_ROUNDS, direction};

use crate::record::{AdviceModel, ConsideredModel};

/// Cost of a hit in each round, of the first configuration that satisfies the predicate.
type ColumnOf<'a> = dyn Fn(&dyn Fn(&Configuration) -> bool) -> Option<Column> + 'a;

/// Minimum saving, as a part of a CPU, for a remedy to be worth a change for its CPU time alone.
const WORTH_CPUS: f64 = 0.05;
/// Maximum measuring time that is suggested for one remedy, seconds.
const LONGEST_S: f64 = 3_600.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    #[serde(flatten)]
    pub read: AdviceModel,
    /// Server CPU time of a hit, nanoseconds; `None`: no round was complete.
    pub hit_ns: Option<Estimate>,
    /// TLS part of `hit_ns`; `None`: plain HTTP was not measured.
    pub tls_ns: Option<Estimate>,
    /// The measured remedies, in the order of advice.
    pub remedies: Vec<Saving>,
    pub together: Option<Together>,
    /// Limit of the measuring time, seconds.
    pub time_s: f64,
}

/// Saving of several remedies together, nanoseconds per hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Together {
    /// Sum of the savings of the single remedies.
    pub predicted_ns: Estimate,
    pub measured_ns: Estimate,
    /// Measured less predicted.
    pub more_ns: Estimate,
    /// Whether they save more together than predicted.
    pub direction: Direction,
    pub names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Saving {
    #[serde(skip)]
    pub id: RemedyId,
    pub name: String,
    /// Server CPU time saved per hit, nanoseconds; below 0: the remedy costs more.
    pub ns: Estimate,
    /// Bigger: it saves. All texts follow this one verdict.
    pub direction: Direction,
    /// Rounds that have both configurations.
    pub rounds: u32,
    /// Measuring time until the saving is decided, seconds; `None`: it is decided already, or needs more than an hour.
    pub needs_s: Option<f64>,
    pub price: String,
    pub lines: Vec<String>,
}

impl Advice {
    /// Of a record of an installed server; `None`: no advice was requested.
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
            let id = of.id()?;
            let remedy = experiment.remedies.iter().find(|remedy| remedy.id() == Some(id))?;
            let other = column(&|configuration| configuration.name == remedy.configuration)?;
            let rounds =
                as_is.iter().zip(&other).filter(|(one, other)| one.is_some() && other.is_some()).count() as u32;
            let ns = less(&other);
            let direction = direction(ns, rounds);
            let needs_s = (direction == Direction::Undecided).then(|| needed_s(ns, rounds, time_s)).flatten();
            let (name, price, lines) = (of.name.clone(), of.price.clone(), of.lines.clone());
            (rounds > 0).then_some(Saving { id, name, ns, direction, rounds, needs_s, price, lines })
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

    /// The remedy saves something beyond doubt.
    pub fn saves(&self, id: RemedyId) -> bool {
        self.remedies.iter().any(|of| of.id == id && of.direction == Direction::Bigger)
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

    /// `best`: the remedy that saves most, beyond doubt.
    fn verdict(&self, best: &Saving, hit_ns: Estimate) -> String {
        let rivals = self.remedies.iter().filter(|of| of.id != best.id && of.ns.high >= best.ns.low);
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

/// Measured by the configuration whose changes are not those of any single remedy.
fn together(experiment: &Experiment, as_is: &Column, column: &ColumnOf<'_>) -> Option<Together> {
    let models = || experiment.configurations.iter().filter(|model| model.tls != TlsChange::default());
    let of_one = |model: &&ConfigurationModel| experiment.remedies.iter().any(|of| of.configuration == model.name);
    let all = models().find(|model| !of_one(model))?;
    let is_in = |model: &&ConfigurationModel| of_one(model) && model.tls.over(&all.tls) == all.tls;
    let chosen: Vec<&ConfigurationModel> = models().filter(is_in).collect();
    let measured = column(&|of| of.name == all.name)?;
    let single: Vec<Column> = chosen.iter().filter_map(|one| column(&|of| of.name == one.name)).collect();
    let count = chosen.len() as f64;
    let singles = |weight: f64| single.iter().map(move |of| (of, weight));
    let predicted: Vec<(&Column, f64)> = [(as_is, count)].into_iter().chain(singles(-1.0)).collect();
    let more: Vec<(&Column, f64)> = [(as_is, 1.0 - count), (&measured, -1.0)].into_iter().chain(singles(1.0)).collect();
    let rounds = measured.iter().flatten().count() as u32;
    let more_ns = estimate_sum(&more);
    let is_chosen = |of: &&RemedyModel| chosen.iter().any(|one| one.name == of.configuration);
    let names = experiment.remedies.iter().filter(is_chosen).map(|of| of.title().to_owned()).collect();
    (single.len() == chosen.len() && more_ns.value.is_finite()).then(|| Together {
        predicted_ns: estimate_sum(&predicted),
        measured_ns: estimate_sum(&[(as_is, 1.0), (&measured, -1.0)]),
        direction: direction(more_ns, rounds),
        more_ns,
        names,
    })
}

/// Measuring time until a saving is decided, seconds: five rounds, or as many as make its interval narrower than the
/// saving. `None`: more than an hour.
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

/// CPU time per hit times the rate of hits, with its interval.
pub(crate) fn cpus(ns: Estimate, rate: f64) -> String {
    ns.scaled(rate / 1e9).with_interval(|cpus| format!("{cpus:.3}"))
}

#[cfg(test)]
mod tests {
    use crate::record::Here;
    use serde_json::Value;
    use tlsdyno_record::store::Block;

    use super::*;

    fn us([value, low, high]: [f64; 3]) -> Estimate {
        Estimate { value: value * 1e3, low: low * 1e3, high: high * 1e3 }
    }

    fn advice(saves_us: [f64; 3], rounds: u32, rate_per_s: Option<f64>) -> Advice {
        let ns = us(saves_us);
        let direction = direction(ns, rounds);
        let needs_s = (direction == Direction::Undecided).then(|| needed_s(ns, rounds, 30.0)).flatten();
        let id = RemedyId::EcdsaCertificate;
        let name = id.remedy().title.to_owned();
        let saving = Saving { id, name, ns, direction, rounds, needs_s, price: String::new(), lines: Vec::new() };
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

    /// Three remedies, each of which saves something; the last two are also measured together.
    fn record() -> Record {
        let ids = [RemedyId::EcdsaCertificate, RemedyId::Tickets, RemedyId::Tls13];
        let considered = ids.map(|id| ConsideredModel {
            id: Some(id),
            name: id.remedy().title.to_owned(),
            here: Here::ToTry,
            why: String::new(),
            price: String::new(),
            lines: Vec::new(),
        });
        let read = AdviceModel {
            server: "nginx".to_owned(),
            reading: Vec::new(),
            notes: Vec::new(),
            considered: considered.into(),
            rate_per_s: None,
        };
        let named =
            |name: &str, tls| ConfigurationModel { name: name.to_owned(), tls, ..ConfigurationModel::default() };
        let [first, second, third] = ids.map(|id| id.remedy().change.clone());
        let mut configurations = vec![named("as is", TlsChange::default())];
        configurations.extend(ids.map(|id| named(id.remedy().title, id.remedy().change.clone())));
        configurations.push(named("together", second.over(&third)));
        assert_ne!(first, second);
        let remedy = |id: RemedyId| RemedyModel {
            name: id.name().to_owned(),
            configuration: id.remedy().title.to_owned(),
            over: None,
            bound: false,
        };
        let experiment = Experiment {
            remedies: ids.map(remedy).into(),
            advice: Some(serde_json::to_value(read).unwrap()),
            configurations,
            ..Experiment::default()
        };
        let mut record = Record::begun_now("What should be changed?", 1);
        for model in &experiment.configurations {
            record.configurations.push(Configuration::setting(&model.name, true, Vec::new()));
        }
        record.configurations[0].role = Role::AsIs;
        for (round, configuration) in (0..8).flat_map(|round| (0..5).map(move |configuration| (round, configuration))) {
            let server_cpu_ns = 100 * (200_000 - 20_000 * configuration as u64) + u64::from(round);
            let of_round = Block { round, configuration, server_cpu_ns, valid: true, ..Block::default() };
            record.blocks.push(Block { hits: 100, connections: 100, elapsed_ns: 1_000_000, ..of_round });
        }
        Record { finished: true, kind_part: experiment.into(), ..record }
    }

    /// The titles of remedies may change, and older records have titles only.
    #[test]
    fn advice_finds_remedies_by_their_ids_and_those_of_old_by_their_titles() {
        let numbers = |record: &Record| {
            let advice = Advice::of(record).unwrap();
            let savings: Vec<_> = advice.remedies.iter().map(|of| (of.id, of.ns, of.direction)).collect();
            (savings, advice.together.map(|of| (of.predicted_ns, of.measured_ns, of.direction, of.names.len())))
        };
        let record = record();
        let told = numbers(&record);
        assert_eq!(told.0.iter().map(|of| of.0).collect::<Vec<_>>()[0], RemedyId::Tls13, "it saves most");
        assert!(told.0.len() == 3 && told.1.as_ref().is_some_and(|of| of.3 == 2), "{told:?}");
        let mut reworded = serde_json::to_value(&record).unwrap();
        let mut old = reworded.clone();
        for at in 0..3 {
            let considered = |of: &mut Value, field: &str, to: Value| {
                of["experiment"]["advice"]["considered"][at][field] = to;
            };
            considered(&mut reworded, "name", "another title".into());
            considered(&mut old, "id", Value::Null);
            old["experiment"]["remedy"][at]["name"] = old["experiment"]["remedy"][at]["configuration"].take();
            old["experiment"]["remedy"][at]["configuration"] = old["experiment"]["remedy"][at]["name"].clone();
        }
        for at in 1..5 {
            let name = format!("configuration {at}");
            reworded["configurations"][at]["name"] = name.clone().into();
            reworded["experiment"]["configuration"][at]["name"] = name.clone().into();
            if at < 4 {
                reworded["experiment"]["remedy"][at - 1]["configuration"] = name.into();
            }
        }
        for other in [reworded, old] {
            assert_eq!(numbers(&serde_json::from_value(other).unwrap()), told);
        }
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
        assert!(two.remedies[0].direction == Direction::Undecided && !two.saves(RemedyId::EcdsaCertificate));
        assert!(two.told().ends_with("2 of 5 rounds were complete. Measure longer: --time 90."), "{}", two.told());
        let none = Advice { hit_ns: None, remedies: Vec::new(), ..two };
        let wanted = "Nothing could be compared: no round was complete in 30 s. Give it more time: --time 120.";
        assert_eq!(none.told(), wanted);
    }
}
