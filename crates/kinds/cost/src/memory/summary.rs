//! From the points of rising series to the memory of a connection.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::exchange::Reach;
use tlsdyno_base::verdict::Direction;
use tlsdyno_record::model::CertificateKind;
use tlsdyno_record::store::{Block, MemoryPoint, Record, Warning};
use tlsdyno_stats::slope::{self, Point};

use super::{counting, words};
use crate::{CostRecord, Identity, Measured};

/// A rise whose halves differ by more than this part is told to be uneven.
const UNEVEN: f64 = 0.1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemorySummary {
    pub servers: Vec<ServerMemory>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerMemory {
    #[serde(flatten)]
    pub identity: Identity,
    /// Keys of its certificates, that of these connections first.
    pub keys: Vec<CertificateKind>,
    pub states: Vec<StateMemory>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateMemory {
    /// Letter and name of the server.
    #[serde(skip)]
    pub server: String,
    /// Where connections stayed.
    pub state: Reach,
    /// Largest number of connections that were open.
    pub connections: u32,
    /// Of the server's processes for one connection.
    pub bytes: Estimate,
    /// Whether it is more than nothing.
    pub direction: Direction,
    /// Of the kernel for one connection; `None`: no control group accounts for it.
    pub kernel_bytes: Option<Estimate>,
    /// Of each series alone.
    pub series_bytes: Vec<f64>,
    /// From the first point that counts to the middle, and from there on.
    pub halves_bytes: [Option<Estimate>; 2],
    /// How much more than the first server's in the same state; `None`: it is the first, or has no such state.
    pub more_bytes: Option<Estimate>,
}

impl MemorySummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<MemorySummary> {
        let of = record.kind_part.understood::<CostRecord>()?;
        let (mut first, mut servers) = (0, Vec::<ServerMemory>::new());
        for (number, measured) in of.servers.iter().enumerate() {
            let mut server = ServerMemory::of(measured.identity(number), measured, record, first);
            for state in &mut server.states {
                let others = servers.first().map_or(&[][..], |of| &of.states);
                let same = others.iter().find(|other| other.state == state.state);
                state.more_bytes = same.map(|other| state.bytes.less(other.bytes));
            }
            first += measured.steps.len();
            servers.push(server);
        }
        let series = |configuration| series_of(record, configuration).count() as u32;
        let rounds = (0..record.configurations.len()).map(series).max().unwrap_or(0);
        let of_states = servers.iter().flat_map(|server| server.states.iter().filter_map(StateMemory::uneven));
        let of_all = record.warnings.iter().chain(record.configurations.iter().flat_map(|of| &of.warnings));
        let mut seen = BTreeSet::new();
        let told = of_all.chain(record.blocks.iter().flat_map(|block| &block.warnings)).cloned().chain(of_states);
        // Each series of a state ends at the same limit of the server.
        let warnings = told.filter(|warning| seen.insert(warning.to_string())).collect();
        Ok(MemorySummary { servers, rounds, warnings })
    }
}

/// The blocks of a configuration that are series.
pub(super) fn series_of(record: &Record, configuration: usize) -> impl Iterator<Item = &Block> {
    let is_of = move |block: &&Block| block.configuration == configuration && block.valid && !block.memory.is_empty();
    record.blocks.iter().filter(is_of)
}

impl ServerMemory {
    /// `first`: index of its first configuration.
    fn of(identity: Identity, measured: &Measured, record: &Record, first: usize) -> ServerMemory {
        let called = format!("{}: {}", identity.label, identity.called());
        let state = |(index, reach): (usize, Reach)| StateMemory::of(&called, reach, record, first + index);
        let states = measured.steps.iter().map(|step| step.id.reach).enumerate().filter_map(state).collect();
        ServerMemory { identity, keys: measured.keys.clone(), states }
    }

    pub fn state(&self, state: Reach) -> Option<&StateMemory> {
        self.states.iter().find(|of| of.state == state)
    }
}

impl StateMemory {
    /// `None`: there is no series of it.
    fn of(server: &str, state: Reach, record: &Record, configuration: usize) -> Option<StateMemory> {
        let series: Vec<Vec<MemoryPoint>> =
            series_of(record, configuration).map(|block| counting(&block.memory).copied().collect()).collect();
        let of_bytes = |point: &MemoryPoint| (f64::from(point.connections), point.pss_bytes as f64);
        let bytes: Vec<Vec<Point>> = series.iter().map(|points| points.iter().map(of_bytes).collect()).collect();
        let of_kernel = |point: &MemoryPoint| Some((f64::from(point.connections), point.kernel_bytes? as f64));
        let kernel: Option<Vec<Vec<Point>>> =
            series.iter().map(|points| points.iter().map(of_kernel).collect()).collect();
        let all = slope::shared(&bytes)?;
        let connections = series.iter().flatten().map(|point| point.connections).max()?;
        // The middle one belongs to both.
        let half = |of: fn(&[Point]) -> &[Point]| {
            slope::shared(&bytes.iter().map(|points| of(points).to_vec()).collect::<Vec<_>>())
        };
        Some(StateMemory {
            server: server.to_owned(),
            state,
            connections,
            bytes: all,
            direction: all.direction(),
            kernel_bytes: kernel.and_then(|kernel| slope::shared(&kernel)),
            series_bytes: bytes.iter().map(|points| slope::of_series(points)).collect(),
            halves_bytes: [
                half(|points| &points[..points.len().div_ceil(2)]),
                half(|points| &points[points.len() / 2..]),
            ],
            more_bytes: None,
        })
    }

    /// It is more than nothing, as it must be.
    pub fn is_known(&self) -> bool {
        self.direction == Direction::Bigger
    }

    /// Says so where the halves of the rise differ.
    fn uneven(&self) -> Option<Warning> {
        let [Some(lower), Some(upper)] = self.halves_bytes else { return None };
        let is_uneven = (upper.value - lower.value).abs() > UNEVEN * self.bytes.value.abs();
        let kib = |bytes: f64| format!("{:.2} KiB", bytes / 1024.0);
        (is_uneven && self.is_known()).then(|| {
            let (server, state) = (&self.server, words(self.state));
            let what = format!(
                "{server}, {state}: memory does not rise evenly: {} for each of the first half of the connections, {} \
                 for each of the second",
                kib(lower.value),
                kib(upper.value)
            );
            Warning::new("uneven_rise", what).with_remedy("A garbage collector does so: measure more --series")
        })
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::store::{Configuration, KindPart};
    use tlsdyno_tls::Version;

    use super::*;
    use crate::file::{Cost, CostExperiment, Measure, STATES};
    use crate::memory::page;
    use crate::steps::StepId;

    const KIB: f64 = 1024.0;

    /// Two servers with these KiB of a connection in each state, in three series, of which one is a little dearer.
    fn record(of_servers: [[f64; 4]; 2]) -> Record {
        let mut record = Record::begun_now("What does a connection take?", 1);
        let steps = STATES.map(|state| StepId::new(Version::Tls13, state).step());
        let server = |address: &str| Measured {
            address: address.to_owned(),
            accounting: "processes".to_owned(),
            negotiated: "1.3 TLS_AES_128_GCM_SHA256 X25519".to_owned(),
            keys: vec![CertificateKind::P256],
            steps: steps.to_vec(),
            ..Measured::default()
        };
        let cost = Cost { measure: Measure::Memory, ..Cost::default() };
        let experiment = CostExperiment { question: "?".to_owned(), cost, measure: Default::default() };
        let servers = ["127.0.0.1:1", "127.0.0.1:2"].map(server).to_vec();
        record.kind_part = KindPart::from(CostRecord { experiment, servers });
        for (configuration, kib) in of_servers.into_iter().flatten().enumerate() {
            record.configurations.push(Configuration::setting("x", true, Vec::new()));
            for round in 0..3 {
                let point = |eighth: u32| MemoryPoint {
                    connections: 100 * eighth,
                    // The first hundred take much more.
                    pss_bytes: (KIB * (5e3 + kib * (100 * eighth + eighth.min(1) * 900 + round) as f64)) as u64,
                    ..MemoryPoint::default()
                };
                let memory = (0..=8).map(point).collect();
                record.blocks.push(Block { round, configuration, valid: true, memory, ..Block::default() });
            }
        }
        record
    }

    #[test]
    fn each_state_has_the_slope_of_its_series_and_stands_beside_the_first_server() {
        let summary = MemorySummary::of(&record([[0.5, 42.5, 14.0, 14.5], [0.5, 8.0, 5.0, 5.5]])).unwrap();
        let found: Vec<f64> =
            summary.servers.iter().flat_map(|of| &of.states).map(|state| state.bytes.value / KIB).collect();
        for (found, wanted) in found.iter().zip([0.5, 42.5, 14.0, 14.5, 0.5, 8.0, 5.0, 5.5]) {
            assert!((found - wanted).abs() < 0.01, "{found} {wanted}");
        }
        let half_open = summary.servers[1].state(Reach::Flight).unwrap();
        assert!((half_open.more_bytes.unwrap().value / KIB + 34.5).abs() < 0.01, "{half_open:?}");
        assert!(half_open.is_known() && half_open.kernel_bytes.is_none() && half_open.connections == 800);
        assert!(summary.warnings.is_empty() && summary.rounds == 3, "{:?}", summary.warnings);
        let answer = page::answer(&summary);
        assert!(answer.contains("127.0.0.1:1 14.00 KiB") && answer.contains("127.0.0.1:2 5.00 KiB"), "{answer}");
    }

    #[test]
    fn nothing_is_undecided_and_an_uneven_rise_is_told() {
        let mut record = record([[0.0, 42.5, 14.0, 14.5]; 2]);
        // A collector ran at the end of each series of the third state.
        for block in record.blocks.iter_mut().filter(|block| block.configuration == 2) {
            block.memory[5..].iter_mut().for_each(|point| point.pss_bytes /= 2);
        }
        let summary = MemorySummary::of(&record).unwrap();
        let states = &summary.servers[0].states;
        assert!(!states[0].is_known() && states[1].is_known(), "{states:?}");
        assert!(!states[2].is_known() || summary.warnings.iter().any(|of| of.code == "uneven_rise"), "{states:?}");
        record.blocks.clear();
        let summary = MemorySummary::of(&record).unwrap();
        assert!(summary.servers.iter().all(|server| server.states.is_empty()));
        assert_eq!(page::answer(&summary), "No memory was measured.");
    }
}
