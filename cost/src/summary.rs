//! From slices to the cost of each step, and of what the steps differ in.

use anyhow::Result;
use serde::Serialize;
use tlsdyno_record::store::{Record, Warning};
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_stats::rounds::Rounds;

use crate::CostRecord;
use crate::steps::{MORE_REQUESTS, WHOLE};

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSummary {
    /// Server CPU of a connection of each step.
    pub steps: Vec<StepCost>,
    /// What steps differ in.
    pub parts: Vec<PartCost>,
    /// Steps that the server does not take, and why.
    pub refused: Vec<(String, String)>,
    /// New connections a second that costs are told for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Rounds measured.
    #[serde(skip)]
    pub rounds: u32,
    /// What the reader must know.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepCost {
    /// Which.
    pub step: String,
    /// Server CPU of a connection, nanoseconds.
    pub cpu_ns: Estimate,
    /// Connections measured.
    pub connections: u64,
}

/// What steps differ in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartCost {
    /// What it is.
    pub part: &'static str,
    /// How it follows from the steps.
    pub of: String,
    /// Server CPU, nanoseconds.
    pub cpu_ns: Estimate,
}

/// A whole handshake, without TCP.
pub const FULL: &str = "full handshake, TLS 1.3";
/// The same where a session is resumed.
pub const RESUMED: &str = "resumed handshake, TLS 1.3";

/// A part: its name, and the steps that it is the sum of, with their signs.
type Part = (&'static str, &'static [(&'static str, f64)]);

/// Reading the hello and answering it with an alert.
const REFUSED: &str = "hello without a usable suite";
/// The whole of a connection with a full handshake and a request, in the order of its life. They add up to it.
pub const LIFE: [&str; 6] = [
    "accepting and closing",
    "reading the hello",
    "key agreement and key schedule, together",
    "certificate and signature",
    "client's Finished, tickets",
    "the request",
];

/// In the order of a connection's life, then what whole handshakes cost, and what else there is.
const PARTS: [Part; 13] = [
    (LIFE[0], &[("TCP", 1.0)]),
    (LIFE[1], &[(REFUSED, 1.0), ("TCP", -1.0)]),
    (LIFE[2], &[("TLS 1.3, resumed, server's flight", 1.0), (REFUSED, -1.0)]),
    (LIFE[3], &[("TLS 1.3, server's flight", 1.0), ("TLS 1.3, resumed, server's flight", -1.0)]),
    (LIFE[4], &[("TLS 1.3, handshake", 1.0), ("TLS 1.3, server's flight", -1.0)]),
    (LIFE[5], &[(WHOLE, 1.0), ("TLS 1.3, handshake", -1.0)]),
    (FULL, &[("TLS 1.3, handshake", 1.0), ("TCP", -1.0)]),
    (RESUMED, &[("TLS 1.3, resumed, handshake", 1.0), ("TCP", -1.0)]),
    ("full handshake, TLS 1.2", &[("TLS 1.2, handshake", 1.0), ("TCP", -1.0)]),
    ("resumed handshake, TLS 1.2", &[("TLS 1.2, resumed, handshake", 1.0), ("TCP", -1.0)]),
    (
        "a second hello (HelloRetryRequest)",
        &[("TLS 1.3, server's flight after a retry", 1.0), ("TLS 1.3, server's flight", -1.0)],
    ),
    (
        "next request on the connection",
        &[("TLS 1.3, 16 more requests", 1.0 / MORE_REQUESTS as f64), (WHOLE, -1.0 / MORE_REQUESTS as f64)],
    ),
    ("saved by resumption", &[("TLS 1.3, handshake", 1.0), ("TLS 1.3, resumed, handshake", -1.0)]),
];

/// What another choice of the client costs more, beside the steps that it differs from.
const CHOICES: [Part; 5] = [
    ("P-256 in place of X25519", &[("TLS 1.3, server's flight, P-256", 1.0), ("TLS 1.3, server's flight", -1.0)]),
    ("P-384 in place of X25519", &[("TLS 1.3, server's flight, P-384", 1.0), ("TLS 1.3, server's flight", -1.0)]),
    (
        "X25519MLKEM768 in place of X25519",
        &[("TLS 1.3, server's flight, X25519MLKEM768", 1.0), ("TLS 1.3, server's flight", -1.0)],
    ),
    ("AES-256 in place of AES-128", &[("TLS 1.3, request, TLS_AES_256_GCM_SHA384", 1.0), (WHOLE, -1.0)]),
    ("ChaCha20 in place of AES-128", &[("TLS 1.3, request, TLS_CHACHA20_POLY1305_SHA256", 1.0), (WHOLE, -1.0)]),
];

impl CostSummary {
    /// Of such a record.
    ///
    /// # Errors
    /// It is of something else.
    pub fn of(record: &Record) -> Result<CostSummary> {
        let of = record.kind_part.understood::<CostRecord>()?;
        let rounds = Rounds::of(record);
        let columns: Vec<Column> = (0..record.configurations.len()).map(|index| rounds.cpu(index)).collect();
        let number = |name: &str| of.steps.iter().position(|step| step.name == name);
        let step = |(index, column): (usize, &Column)| StepCost {
            step: of.steps[index].name.clone(),
            cpu_ns: estimate_sum(&[(column, 1.0)]),
            connections: rounds.of_configuration(index).map(|block| block.connections).sum(),
        };
        let part = |(part, terms): &Part| {
            let columns: Option<Vec<(&Column, f64)>> =
                terms.iter().map(|(name, weight)| Some((columns.get(number(name)?)?, *weight))).collect();
            let of = terms.iter().map(|(name, weight)| format!("{} {name}", if *weight > 0.0 { "+" } else { "−" }));
            Some(PartCost { part, of: of.collect::<Vec<_>>().join(" "), cpu_ns: estimate_sum(&columns?) })
        };
        // Of a run that was stopped early some steps have no slice.
        let steps = columns.iter().enumerate().map(step).filter(|of| of.cpu_ns.value.is_finite());
        let parts = PARTS.iter().chain(&CHOICES).filter_map(part).filter(|of| of.cpu_ns.value.is_finite());
        Ok(CostSummary {
            steps: steps.collect(),
            parts: parts.collect(),
            refused: of.refused.clone(),
            rate_per_s: of.experiment.cost.rate_per_s,
            rounds: rounds.told(),
            warnings: record.warnings.clone(),
        })
    }

    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&PartCost> {
        self.parts.iter().find(|part| part.part == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Step;

    #[test]
    fn parts_are_of_steps_that_there_are() {
        let steps = Step::all();
        let mut names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        for (part, terms) in PARTS.iter().chain(&CHOICES) {
            for (name, _) in *terms {
                assert!(names.contains(name), "{part}: {name}");
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps.len(), "two steps have one name");
    }

    #[test]
    fn the_life_of_a_connection_adds_up_to_it() {
        let mut sum = std::collections::BTreeMap::new();
        for (_, terms) in PARTS.iter().filter(|(part, _)| LIFE.contains(part)) {
            terms.iter().for_each(|(name, weight)| *sum.entry(*name).or_insert(0.0) += weight);
        }
        sum.retain(|_, weight| *weight != 0.0);
        assert_eq!(sum.into_iter().collect::<Vec<_>>(), [(WHOLE, 1.0)]);
    }
}
