//! From slices to the cost of each step, and of what the steps differ in.

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate};
use tlsdyno_record::store::{Record, Warning};
use tlsdyno_stats::Metric;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::summary::few_rounds;
use tlsdyno_tls::Version;
use tlsdyno_traffic::network::certificate::Certificate;

use crate::part_id::PartId;
use crate::parts::{self, Part, PartCost};
use crate::side_by_side::{self, PartDifference};
use crate::sum::Seen;
use crate::{CostRecord, Identity, Measured};

/// Name of the cost where the server's CPU time is read.
const CPU: &str = "server CPU";
/// Name of the cost where it is not read.
const WAIT: &str = "client's wait";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSummary {
    pub servers: Vec<ServerCost>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<PartDifference>,
    /// Requests a second of the reader's site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_s: Option<f64>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerCost {
    #[serde(flatten)]
    pub identity: Identity,
    #[serde(skip)]
    pub version: Option<Version>,
    /// What is told of connections: `server CPU`, or `client's wait` where the CPU time of the server is not read.
    pub cost: &'static str,
    pub steps: Vec<StepCost>,
    /// Differences between steps.
    pub parts: Vec<PartCost>,
    /// Parts whose steps the server takes, but which had no turn in the same round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<PartId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepCost {
    pub step: String,
    /// Of one connection, nanoseconds.
    pub cost_ns: Estimate,
    pub connections: u64,
    /// Bytes of response bodies per connection.
    pub body_bytes: f64,
}

impl CostSummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<CostSummary> {
        let of = record.kind_part.understood::<CostRecord>()?;
        let rounds = Rounds::of(record);
        let metric = of.servers.first().map_or(Metric::Cpu, Measured::metric);
        let columns: Vec<Column> = (0..record.configurations.len()).map(|index| rounds.cost(index, metric)).collect();
        let rows = rounds.rows(metric);
        let (mut rest, mut seen): (&[Column], Vec<Seen>) = (&columns, Vec::new());
        for of in &of.servers {
            let (own, others) = rest.split_at(of.steps.len().min(rest.len()));
            seen.push((of, own));
            rest = others;
        }
        let parts = parts::decomposed(&seen, rows);
        let server = |number: usize| {
            let first = seen[..number].iter().map(|(of, _)| of.steps.len()).sum();
            ServerCost::of(of.servers[number].identity(number), seen[number], &parts[number], &rounds, first)
        };
        let servers = (0..seen.len()).map(server).collect();
        let differences = side_by_side::differences(&seen, &parts, rows);
        Ok(CostSummary {
            servers,
            differences,
            rate_per_s: of.experiment.cost.rate_per_s,
            connections_per_s: of.experiment.cost.connections_per_s(),
            rounds: rounds.told(),
            warnings: record.warnings.iter().cloned().chain(few_rounds(record, rounds.told())).collect(),
        })
    }
}

impl ServerCost {
    fn of(
        identity: Identity,
        (measured, columns): Seen<'_>,
        parts: &[Part],
        rounds: &Rounds<'_>,
        first: usize,
    ) -> ServerCost {
        let rows = rounds.rows(measured.metric());
        let step = |(index, column): (usize, &Column)| {
            let blocks = || rounds.of_configuration(first + index);
            let connections: u64 = blocks().map(|block| block.connections).sum();
            let body_bytes = blocks().map(|block| block.body_bytes).sum::<u64>() as f64 / connections.max(1) as f64;
            let step = measured.steps[index].name.clone();
            StepCost { step, cost_ns: rows.estimate(column), connections, body_bytes }
        };
        // Of a run that was short or stopped early some steps have no slice.
        let steps = columns.iter().enumerate().map(step).filter(|of| of.cost_ns.value.is_finite());
        ServerCost {
            identity,
            version: measured.version(),
            cost: if measured.is_seen() { CPU } else { WAIT },
            steps: steps.collect(),
            parts: parts::costs((measured, columns), parts, rows),
            unmeasured: parts::unmeasured((measured, columns), parts, rows),
            certificate: measured.certificate.clone(),
        }
    }

    /// The costs are CPU time of the server, not the client's wait.
    pub fn is_cpu(&self) -> bool {
        self.cost == CPU
    }

    pub fn part(&self, id: &PartId) -> Option<&PartCost> {
        self.parts.iter().find(|part| part.id == *id)
    }
}
