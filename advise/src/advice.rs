//! From what was measured to a decision, in the units of the server's owner.

use tlsdyno_base::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_base::verdict::{Direction, Lies};
use tlsdyno_record::model::{ConfigurationModel, Experiment, TlsChange};
use tlsdyno_record::store::{Configuration, Record, Role};
use tlsdyno_stats::rounds::Rounds;

use crate::remedies::{Considered, TOGETHER};

/// What a hit of the first configuration that this is true of costs in each round.
type ColumnOf<'a> = dyn Fn(&dyn Fn(&Configuration) -> bool) -> Option<Column> + 'a;

/// A remedy that saves less than this part of a CPU is not worth a change for its CPU time alone.
const WORTH_CPUS: f64 = 0.05;

/// What was found.
pub(crate) struct Advice {
    /// Server CPU of a hit, nanoseconds.
    pub hit_ns: Estimate,
    /// What of that is TLS; `None`: plain HTTP was not measured.
    pub tls_ns: Option<Estimate>,
    /// By what they save, the most first.
    pub remedies: Vec<Saving>,
    /// What the chosen ones save together.
    pub together: Option<Together>,
    /// Requests a second of the reader's site.
    pub rate_per_s: Option<f64>,
}

/// What several remedies save together, nanoseconds of a hit.
pub(crate) struct Together {
    /// What the single ones save, added up.
    pub predicted_ns: Estimate,
    pub measured_ns: Estimate,
    /// Measured less predicted.
    pub more_ns: Estimate,
    pub names: Vec<String>,
}

/// What a remedy saves.
pub(crate) struct Saving {
    pub name: &'static str,
    /// Server CPU of a hit, nanoseconds; below 0: it costs more.
    pub ns: Estimate,
    pub price: &'static str,
}

impl Advice {
    /// Of a record of an installed server; `None`: too little was measured.
    pub fn of(record: &Record, considered: &[Considered], rate_per_s: Option<f64>) -> Option<Advice> {
        let rounds = Rounds::of(record);
        let configurations = &record.configurations;
        let column = |is: &dyn Fn(&Configuration) -> bool| -> Option<Column> {
            Some(rounds.cpu(configurations.iter().position(|of| of.valid && is(of))?))
        };
        let as_is = column(&|of| of.role == Role::AsIs)?;
        let less = |other: &Column| estimate_sum(&[(&as_is, 1.0), (other, -1.0)]);
        let hit_ns = estimate_sum(&[(&as_is, 1.0)]);
        let tls_ns = column(&|of| of.role == Role::PlainHttp).map(|plain| less(&plain));
        let saving = |of: &Considered| {
            let ns = less(&column(&|configuration| configuration.name == of.name)?);
            ns.value.is_finite().then_some(Saving { name: of.name, ns, price: of.price })
        };
        let mut remedies: Vec<Saving> = considered.iter().filter_map(saving).collect();
        remedies.sort_by(|one, other| other.ns.value.total_cmp(&one.ns.value));
        let together = Advice::together(record, &as_is, &column);
        hit_ns.value.is_finite().then_some(Advice { hit_ns, tls_ns, remedies, together, rate_per_s })
    }

    /// Whether a remedy surely saves something.
    pub fn saves(&self, name: &str) -> bool {
        self.remedies.iter().any(|of| of.name == name && of.ns.direction() == Direction::Bigger)
    }

    /// The chosen ones: those whose changes the configuration of all has.
    fn together(record: &Record, as_is: &Column, column: &ColumnOf<'_>) -> Option<Together> {
        let experiment = record.kind_part.of::<Experiment>()?;
        let models = || experiment.configurations.iter().filter(|model| model.tls != TlsChange::default());
        let all = models().find(|model| model.name == TOGETHER)?;
        let is_in = |model: &&ConfigurationModel| model.name != TOGETHER && model.tls.over(&all.tls) == all.tls;
        let names: Vec<String> = models().filter(is_in).map(|model| model.name.clone()).collect();
        let measured = column(&|of| of.name == TOGETHER)?;
        let single: Vec<Column> = names.iter().filter_map(|name| column(&|of| of.name == *name)).collect();
        let count = names.len() as f64;
        let singles = |weight: f64| single.iter().map(move |of| (of, weight));
        let predicted: Vec<(&Column, f64)> = [(as_is, count)].into_iter().chain(singles(-1.0)).collect();
        let more: Vec<(&Column, f64)> =
            [(as_is, 1.0 - count), (&measured, -1.0)].into_iter().chain(singles(1.0)).collect();
        (single.len() == names.len()).then(|| Together {
            predicted_ns: estimate_sum(&predicted),
            measured_ns: estimate_sum(&[(as_is, 1.0), (&measured, -1.0)]),
            more_ns: estimate_sum(&more),
            names,
        })
    }

    /// The decision, in a few sentences.
    pub fn told(&self) -> String {
        let whole = self.rate_per_s.map_or_else(|| self.whole_in_percent(), |rate| self.whole_at(rate));
        let verdict = match self.remedies.iter().find(|of| of.ns.direction() == Direction::Bigger) {
            Some(best) => self.verdict(best),
            None => self.without_gain(),
        };
        format!("{whole} {verdict}")
    }

    fn whole_at(&self, rate: f64) -> String {
        let tls = self.tls_ns.map_or(String::new(), |tls| format!(", {} of it for TLS", cpus(tls, rate)));
        format!("At your {} hits/s this server takes {} of a CPU{tls}.", rate_told(rate), cpus(self.hit_ns, rate))
    }

    fn whole_in_percent(&self) -> String {
        self.tls_ns.map_or(String::new(), |tls| format!("TLS takes {} of this server's CPU time.", self.percent(tls)))
    }

    fn percent(&self, ns: Estimate) -> String {
        let part = ns.divided_by(self.hit_ns).scaled(100.0);
        let format = |percent: f64| format!("{percent:.1}");
        format!("{} % {}", format(part.value), part.ends(format))
    }

    /// Of the remedy that saves most, and surely something.
    fn verdict(&self, best: &Saving) -> String {
        let Some(rate) = self.rate_per_s else {
            return format!(
                "First of all: {}, which saves {}. With --rate it is told in CPUs.",
                best.name,
                self.percent(best.ns)
            );
        };
        let saved = cpus(best.ns, rate);
        match Lies::of(best.ns.scaled(rate / 1e9).interval(), [WORTH_CPUS, WORTH_CPUS]) {
            Lies::Above => format!("First of all: {}, which saves {saved}.", best.name),
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
        let undecided = self.remedies.iter().filter(|of| of.ns.direction() == Direction::Undecided);
        let names: Vec<&str> = undecided.map(|of| of.name).collect();
        match names.as_slice() {
            [] => "Nothing that was tried saves any: you do not need to act.".to_owned(),
            names => {
                format!("Whether these save any could not be told: {}. Measure longer (--time).", names.join(", "))
            }
        }
    }
}

/// CPU time of a hit as CPUs at a rate, with its interval.
pub(crate) fn cpus(ns: Estimate, rate: f64) -> String {
    let of = ns.scaled(rate / 1e9);
    let format = |cpus: f64| format!("{cpus:.3}");
    format!("{} {}", format(of.value), of.ends(format))
}

fn rate_told(rate: f64) -> String {
    if rate < 1.0 { format!("{rate:.3}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(saves_us: [f64; 3], rate_per_s: Option<f64>) -> String {
        let us = |[value, low, high]: [f64; 3]| Estimate { value: value * 1e3, low: low * 1e3, high: high * 1e3 };
        let remedies = vec![Saving { name: "ECDSA P-256 certificate", ns: us(saves_us), price: "" }];
        let [hit_ns, tls_ns] = [[200.0, 190.0, 210.0], [120.0, 110.0, 130.0]].map(us);
        Advice { hit_ns, tls_ns: Some(tls_ns), remedies, together: None, rate_per_s }.told()
    }

    #[test]
    fn little_traffic_needs_no_change() {
        let told = advice([80.0, 70.0, 90.0], Some(300.0));
        assert!(told.contains("takes 0.060 [0.057, 0.063] of a CPU, 0.036 [0.033, 0.039] of it for TLS"), "{told}");
        assert!(told.contains("saves 0.024 [0.021, 0.027]: you do not need to act"), "{told}");
        assert!(advice([80.0, 70.0, 90.0], Some(3000.0)).contains("First of all: ECDSA P-256 certificate"));
    }

    #[test]
    fn what_is_undecided_is_not_advised() {
        for rate in [Some(3000.0), None] {
            let told = advice([10.0, -5.0, 25.0], rate);
            assert!(told.contains("could not be told: ECDSA P-256 certificate. Measure longer"), "{told}");
            let told = advice([10.0, f64::NAN, f64::NAN], rate);
            assert!(told.contains("could not be told"), "{told}");
            assert!(advice([-10.0, -15.0, -5.0], rate).contains("you do not need to act"));
        }
        let told = advice([16.0, 10.0, 25.0], Some(3000.0));
        assert!(told.contains("is not decided"), "{told}");
    }
}
