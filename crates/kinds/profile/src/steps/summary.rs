//! From the blocks of handshakes step by step to what each message costs at both ends, by key and chain.

use anyhow::Result;
use itertools::Itertools;
use serde::Serialize;
use tlsdyno_record::model::{Paper, Quantity};
use tlsdyno_record::store::{Block, Flow, Record, StepSum, StepsBlock, Warning};
use tlsdyno_stats::Metric;
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_stats::scoreboard::{Claim, Ours, Unit};
use tlsdyno_stats::summary::few_rounds;

use crate::profile::file::Handshakes;
use crate::steps::StepsRecord;
use crate::steps::file::{StepsCell, chain_name};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsSummary {
    pub cells: Vec<StepsCellSummary>,
    /// The paper's numbers beside ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    #[serde(skip)]
    pub paper: Option<Paper>,
    #[serde(skip)]
    pub rounds: u32,
    /// What the reader must know.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Times are per connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsCellSummary {
    #[serde(flatten)]
    pub cell: StepsCell,
    pub connections: u64,
    /// CPU time of the server from its first call for the handshake to the end of it, nanoseconds.
    pub server_ns: Estimate,
    /// CPU time of the server for the whole connection, nanoseconds.
    pub server_hit_ns: Estimate,
    /// `server_hit_ns` less `server_ns`: accepting, the request, closing.
    pub server_rest_ns: Estimate,
    /// CPU time of the client for the handshake, nanoseconds.
    pub client_ns: Estimate,
    /// CPU time of both ends for the handshake, nanoseconds.
    pub both_ns: Estimate,
    /// From the server's first call to the end of the handshake, waiting included, nanoseconds.
    pub handshake_ns: Estimate,
    /// Messages at the server.
    pub server: Vec<StepSummary>,
    /// Messages at the client.
    pub client: Vec<StepSummary>,
    /// The message whose computation uses the private key.
    pub private_key_message: &'static str,
    /// Bytes sent and received, counted by the server.
    pub server_bytes: [f64; 2],
    /// Bytes sent and received, counted by the client.
    pub client_bytes: [f64; 2],
    /// Connections without the server's steps, which were lost.
    pub lost_count: u64,
    /// Events of the connections that were kept.
    pub flows: Vec<Flow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// The message, and what was done with it.
    pub name: String,
    /// Number per connection.
    pub count: f64,
    pub cpu_ns: Estimate,
    pub elapsed_ns: f64,
    /// Per connection, where they are known.
    pub bytes: f64,
}

impl StepsSummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<StepsSummary> {
        let of = record.kind_part.understood::<StepsRecord>()?;
        let cells: Vec<StepsCellSummary> =
            (0..of.cells.len()).filter_map(|index| StepsCellSummary::of(record, of, index)).collect();
        let mut warnings = record.warnings.clone();
        let lost: u64 = cells.iter().map(|cell| cell.lost_count).sum();
        if lost > 0 {
            let what =
                format!("the server's steps of {lost} connections were lost: its ring had no room, or one took 4.29 s");
            warnings.push(Warning::new("steps_lost", what).with_remedy("Measure shorter (--time), or fewer cells"));
        }
        let rounds = record.blocks.iter().map(|block| block.round + 1).max().unwrap_or(0);
        warnings.extend(few_rounds(record, rounds));
        let paper = of.experiment.paper.clone();
        Ok(StepsSummary {
            claims: paper.iter().flat_map(|paper| claims(paper, &cells)).collect(),
            cells,
            paper,
            rounds,
            warnings,
        })
    }
}

/// For each cell; a paper's handshake is CPU time of both ends together.
fn claims(paper: &Paper, cells: &[StepsCellSummary]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in cells {
        let (kind, chain) = (of.cell.handshakes.name(), chain_name(of.cell.chain_count));
        let published = |quantity| paper.number(quantity, kind, &chain);
        let claim = |what: &str, quantity, unit, estimate, metric| {
            let about = format!("{what}, {}", of.cell);
            Some(Claim::published(about, published(quantity)?, unit, Some(Ours { estimate, metric })))
        };
        let sent = |bytes: f64| Estimate { value: bytes, low: bytes, high: bytes };
        let (ms, server, client) = (of.both_ns.scaled(1e-6), sent(of.server_bytes[0]), sent(of.client_bytes[0]));
        claims.extend(claim("both ends", Quantity::HandshakeMs, Unit::Milliseconds, ms, Metric::Cpu));
        claims.extend(claim("the server sends", Quantity::ServerBytes, Unit::Bytes, server, Metric::Throughput));
        claims.extend(claim("the client sends", Quantity::ClientBytes, Unit::Bytes, client, Metric::Throughput));
        let full_cell = StepsCell { handshakes: Handshakes::Full, ..of.cell };
        let full = cells.iter().find(|full| full.cell == full_cell && of.cell != full_cell);
        let full_ms = paper.number(Quantity::HandshakeMs, Handshakes::Full.name(), &chain);
        claims.extend(full.zip(full_ms.zip(published(Quantity::HandshakeMs))).map(|(full, (full_ms, ms))| {
            let about = format!("full by resumed, {}, {chain}", of.cell.key);
            Claim::of_two(about, [full_ms, ms], [full.both_ns, of.both_ns], Metric::Cpu)
        }));
    }
    claims
}

/// The client's steps outside of the handshake (`run/exchange.rs`, `doing`).
pub const OUTSIDE: [&str; 2] = ["connect", "request and response"];

/// A block with the steps that were seen in it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    block: &'a Block,
    steps: &'a StepsBlock,
}

impl Seen<'_> {
    /// Number of connections, all of which the client saw.
    fn connections(&self) -> f64 {
        self.block.hits as f64
    }

    /// Number of connections whose steps at the server are known.
    fn stamped(&self) -> f64 {
        (self.connections() - self.steps.lost_count as f64).max(1.0)
    }
}

/// Mean over blocks, with its interval.
fn mean(blocks: &[Seen], value: impl Fn(&Seen) -> f64) -> Estimate {
    estimate_sum(&[(&column(blocks, value), 1.0)])
}

/// One value for each block, of which each round has one.
fn column(blocks: &[Seen], value: impl Fn(&Seen) -> f64) -> Column {
    blocks.iter().map(|block| Some(value(block))).collect()
}

impl StepsCellSummary {
    fn of(record: &Record, of: &StepsRecord, index: usize) -> Option<StepsCellSummary> {
        let blocks = record.blocks.iter().filter(|block| block.configuration == index && block.valid && block.hits > 0);
        let seen = |block| Some(Seen { block, steps: block.profile.as_ref()?.steps.as_ref()? });
        let blocks: Vec<Seen> = blocks.filter_map(seen).collect();
        if blocks.is_empty() {
            return None;
        }
        let hit = column(&blocks, |of| of.block.server_cpu_ns as f64 / of.connections());
        let handshake = column(&blocks, |of| of.steps.handshake_cpu_ns as f64 / of.stamped());
        let of_client = |of: &Seen| {
            let inside = of.steps.client.iter().filter(|sum| !OUTSIDE.contains(&sum.name.as_str()));
            inside.map(|sum| sum.cpu_ns as f64).sum::<f64>() / of.connections()
        };
        let client = column(&blocks, of_client);
        let each = |bytes: fn(&StepsBlock) -> u64, count: fn(&Seen) -> f64| {
            blocks.iter().map(|of| bytes(of.steps) as f64).sum::<f64>() / blocks.iter().map(count).sum::<f64>()
        };
        let (cell, tls) = (of.cells[index], &of.experiment.tls);
        Some(StepsCellSummary {
            cell,
            connections: blocks.iter().map(|of| of.block.hits).sum(),
            server_hit_ns: estimate_sum(&[(&hit, 1.0)]),
            server_ns: estimate_sum(&[(&handshake, 1.0)]),
            server_rest_ns: estimate_sum(&[(&hit, 1.0), (&handshake, -1.0)]),
            client_ns: estimate_sum(&[(&client, 1.0)]),
            both_ns: estimate_sum(&[(&handshake, 1.0), (&client, 1.0)]),
            handshake_ns: mean(&blocks, |of| of.steps.handshake_ns as f64 / of.stamped()),
            server: messages(&blocks, |steps| &steps.server, |of| of.stamped()),
            client: messages(&blocks, |steps| &steps.client, |of| of.connections()),
            private_key_message: cell.message_of_private_key(tls.version, tls.suite),
            server_bytes: [
                each(|of| of.sent_bytes, |of| of.stamped()),
                each(|of| of.received_bytes, |of| of.stamped()),
            ],
            client_bytes: [
                each(|of| of.client_sent_bytes, |of| of.connections()),
                each(|of| of.client_received_bytes, |of| of.connections()),
            ],
            lost_count: blocks.iter().map(|of| of.steps.lost_count).sum(),
            flows: blocks.iter().flat_map(|of| of.steps.flows.iter().cloned()).collect(),
        })
    }

    /// The message that costs the server most, with its part of the handshake's CPU time.
    pub fn dearest(&self) -> Option<(&StepSummary, f64)> {
        let step = self.server.iter().max_by(|a, b| a.cpu_ns.value.total_cmp(&b.cpu_ns.value))?;
        Some((step, step.cpu_ns.value / self.server_ns.value.max(1.0)))
    }
}

/// Each message of one end over all blocks, in the order in which they came first. `count`: how many connections of a
/// block its sums are of.
fn messages(blocks: &[Seen], sums: fn(&StepsBlock) -> &[StepSum], count: fn(&Seen) -> f64) -> Vec<StepSummary> {
    let names = blocks.iter().flat_map(|of| sums(of.steps)).map(|sum| &sum.name).unique();
    let all: f64 = blocks.iter().map(count).sum();
    let message = |name: &String| {
        let value = |of: &Seen, value: fn(&StepSum) -> u64| {
            sums(of.steps).iter().find(|sum| sum.name == *name).map_or(0.0, |sum| value(sum) as f64)
        };
        let each = |of_sum: fn(&StepSum) -> u64| blocks.iter().map(|of| value(of, of_sum)).sum::<f64>() / all;
        StepSummary {
            name: name.clone(),
            count: each(|sum| sum.count),
            cpu_ns: mean(blocks, |of| value(of, |sum| sum.cpu_ns) / count(of)),
            elapsed_ns: each(|sum| sum.elapsed_ns),
            bytes: each(|sum| sum.bytes),
        }
    };
    names.map(message).collect()
}

impl StepsSummary {
    /// The smallest RSA key from which on the private-key operation is the costliest step of full handshakes at the
    /// server; `None`: not even for the largest.
    pub fn dearest_from(&self) -> Option<StepsCell> {
        let full = self.cells.iter().filter(|of| of.cell.handshakes == Handshakes::Full && of.cell.key.is_rsa());
        let shortest = full.clone().map(|of| of.cell.chain_count).min()?;
        let mut cells: Vec<&StepsCellSummary> = full.filter(|of| of.cell.chain_count == shortest).collect();
        cells.sort_by_key(|of| std::cmp::Reverse(of.cell.key.rsa_bits()));
        let is_dearest =
            |of: &&&StepsCellSummary| of.dearest().is_some_and(|(step, _)| step.name == of.private_key_message);
        cells.iter().take_while(is_dearest).last().map(|of| of.cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::file::{Steps, StepsExperiment};
    use tlsdyno_record::model::{CertificateKind, Measure, Server, Tls};
    use tlsdyno_record::store::{KindPart, ProfileBlock};
    use tlsdyno_tls::Version;

    /// Two keys; the private-key operation is the costliest step of the larger one.
    fn record() -> Record {
        let steps = Steps { keys: vec![CertificateKind::Rsa512, CertificateKind::Rsa2048], ..Steps::default() };
        let experiment = StepsExperiment {
            question: "?".to_owned(),
            steps,
            server: Server::default(),
            tls: Tls { version: Version::Tls12, ..Tls::default() },
            measure: Measure::default(),
            paper: None,
        };
        let cells = experiment.cells();
        let mut record = Record::begun_now("?", 1);
        let sum = |name: &str, cpu_ns| StepSum { name: name.to_owned(), count: 10, cpu_ns, ..StepSum::default() };
        for round in 0..4 {
            for (configuration, cell) in cells.iter().enumerate() {
                let key_ns = if cell.key == CertificateKind::Rsa2048 { 4_000 } else { 500 };
                let steps = StepsBlock {
                    server: vec![sum("ClientHello", 1_000), sum("ServerKeyExchange", key_ns)],
                    client: vec![sum("connect", 700), sum("Certificate", 300)],
                    handshake_cpu_ns: 1_000 + key_ns,
                    handshake_ns: 9_000,
                    sent_bytes: 20_000,
                    ..StepsBlock::default()
                };
                record.blocks.push(Block {
                    round,
                    configuration,
                    hits: 10,
                    server_cpu_ns: 2_000 + key_ns,
                    valid: true,
                    profile: Some(ProfileBlock { steps: Some(steps), ..ProfileBlock::default() }),
                    ..Block::default()
                });
            }
        }
        record.kind_part = KindPart::from(StepsRecord { experiment, cells });
        record
    }

    #[test]
    fn parts_are_the_whole_and_the_private_key_is_found() {
        let summary = StepsSummary::of(&record()).unwrap();
        assert_eq!(summary.cells.len(), 4);
        let of = summary.cells.iter().find(|of| of.cell.key == CertificateKind::Rsa2048).unwrap();
        let parts: f64 = of.server.iter().map(|step| step.cpu_ns.value).sum();
        assert!((parts - of.server_ns.value).abs() < 1e-6 && (parts - 500.0).abs() < 1e-6, "{of:?}");
        assert!((of.server_rest_ns.value - 100.0).abs() < 1e-6 && (of.client_ns.value - 30.0).abs() < 1e-6, "{of:?}");
        assert_eq!((of.server_bytes[0], of.dearest().unwrap().0.name.as_str()), (2_000.0, "ServerKeyExchange"));
        assert_eq!(summary.dearest_from().unwrap().key, CertificateKind::Rsa2048, "not with 512 bits");
    }
}
