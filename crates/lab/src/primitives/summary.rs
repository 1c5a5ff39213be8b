//! From the blocks of primitives to Mb/s by block size, what a call costs whatever its size, what a TLS record costs
//! beside the bare primitive, and whether `openssl speed` says the same.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_record::model::{Paper, PublishedNumber, Quantity};
use tlsdyno_record::store::warning::code;
use tlsdyno_record::store::{Record, Warning};
use tlsdyno_stats::Metric;
use tlsdyno_stats::bootstrap::{Column, Estimate, RESAMPLES, SEED, estimate_function, estimate_sum};
use tlsdyno_stats::scoreboard::{Claim, Ours, Unit};

use crate::primitives::PrimitivesRecord;
use crate::primitives::file::{Algorithm, MeasuredBy, PrimitiveCell, size_name};

/// How far `openssl speed` may be away, per cent.
const CHECK_PERCENT: f64 = 5.0;
/// The size at which records are held beside bare primitives, where it was measured.
const RECORD_BYTES: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrimitivesSummary {
    pub libcrypto: String,
    pub libcrypto_version: String,
    pub algorithms: Vec<AlgorithmSummary>,
    /// Records beside bare primitives, at one size.
    pub records: Vec<RecordSummary>,
    /// `openssl speed` beside ours.
    pub checks: Vec<SpeedCheck>,
    /// The paper's numbers beside ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    #[serde(skip)]
    pub paper: Option<Paper>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlgorithmSummary {
    pub algorithm: Algorithm,
    /// Bare calls, by size.
    pub bare: Vec<SizeSummary>,
    /// Records, by size.
    pub records: Vec<SizeSummary>,
    /// What a call costs whatever its size, nanoseconds: the time of the smallest less what its bytes take at the
    /// largest size; `None` with one size, and where that cannot be told apart from nothing. RC4 on a processor with
    /// AVX-512 takes no longer for a byte in small calls than in large ones.
    pub call_ns: Option<Estimate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeSummary {
    pub size_bytes: u64,
    /// CPU time of a call, nanoseconds.
    pub ns: Estimate,
    /// Million bits a second of CPU time.
    pub mbit_per_s: Estimate,
}

/// A record beside what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RecordSummary {
    pub algorithm: Algorithm,
    /// What does its MAC, where that is another call.
    pub mac: Option<Algorithm>,
    /// Bytes of its contents.
    pub size_bytes: u64,
    /// Bare primitives, nanoseconds: cipher and MAC.
    pub bare_ns: Estimate,
    /// The record as libssl writes it, nanoseconds.
    pub record_ns: Estimate,
    /// The second less the first, nanoseconds: header, nonce, tag, padding, libssl.
    pub around_ns: Estimate,
}

/// `openssl speed` beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedCheck {
    pub algorithm: Algorithm,
    pub size_bytes: u64,
    /// Ours, million bits a second.
    pub ours_mbit_per_s: Estimate,
    /// What `openssl speed` says.
    pub theirs_mbit_per_s: Estimate,
    /// By how much ours is more, per cent of theirs.
    pub difference_percent: Estimate,
    /// It is within 5 %.
    pub agrees: bool,
}

impl PrimitivesSummary {
    /// Of a record of primitives; `None`: it is of something else.
    pub fn of(record: &Record) -> Result<PrimitivesSummary> {
        let of = record.kind_part.understood::<PrimitivesRecord>()?;
        let rounds = Rounds::of(record, of);
        let paper = of.experiment.paper.clone();
        let mut algorithms: Vec<Algorithm> = of.cells.iter().map(|cell| cell.algorithm).collect();
        algorithms.dedup();
        let mut warnings = record.warnings.clone();
        let checks: Vec<SpeedCheck> = of.cells.iter().filter_map(|cell| rounds.check(cell)).collect();
        warnings.extend(checks.iter().filter(|check| !check.agrees).map(|check| {
            let what = format!(
                "{} at {} B: `openssl speed` says {:.0} Mb/s, {:.1} % away (allowed: {CHECK_PERCENT} %){}",
                check.algorithm,
                check.size_bytes,
                check.theirs_mbit_per_s.value,
                check.difference_percent.value,
                why_other(check.algorithm)
            );
            Warning::new(code::MISSED, what)
        }));
        let summaries: Vec<_> = algorithms.iter().map(|algorithm| rounds.algorithm(*algorithm)).collect();
        Ok(PrimitivesSummary {
            libcrypto: of.libcrypto.clone(),
            libcrypto_version: of.libcrypto_version.clone(),
            records: algorithms.iter().filter_map(|algorithm| rounds.record(*algorithm)).collect(),
            claims: paper.iter().flat_map(|paper| claims(paper, &summaries)).collect(),
            algorithms: summaries,
            checks,
            paper,
            rounds: rounds.count,
            warnings,
        })
    }
}

/// The paper's rates beside ours, then how many times as fast its largest size of a call is as its smallest.
fn claims(paper: &Paper, algorithms: &[AlgorithmSummary]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in algorithms {
        let published = |size: &SizeSummary| {
            let number = paper.number(Quantity::MbitPerS, of.algorithm.name(), &size_name(size.size_bytes))?;
            Some((number, *size))
        };
        let both: Vec<(PublishedNumber, SizeSummary)> = of.bare.iter().filter_map(published).collect();
        claims.extend(both.iter().map(|(number, size)| {
            let about = format!("{}, {}", of.algorithm, size_name(size.size_bytes));
            let ours = Ours { estimate: size.mbit_per_s, metric: Metric::Cpu };
            Claim::published(about, *number, Unit::MbitPerS, Some(ours))
        }));
        if let [(first, small), .., (last, large)] = &both[..] {
            let [small_name, large_name] = [small, large].map(|size| size_name(size.size_bytes));
            let about = format!("{}, {large_name} by {small_name}", of.algorithm);
            claims.push(Claim::of_two(about, [*last, *first], [large.mbit_per_s, small.mbit_per_s], Metric::Cpu));
        }
    }
    claims
}

/// Why `openssl speed` may do something else.
fn why_other(algorithm: Algorithm) -> &'static str {
    match algorithm {
        // Seen under callgrind with OpenSSL 3.0.19 (docs/PROFILE.md, "Primitives").
        Algorithm::Aes128Gcm | Algorithm::Aes256Gcm => {
            "; newer ones set key and nonce anew in each call of AES-GCM, where a connection goes on with its key"
        }
        _ => "",
    }
}

/// Million bits a second, from nanoseconds of a call.
fn rate(size_bytes: u64, ns: Estimate) -> Estimate {
    let of = |ns: f64| 8e3 * size_bytes as f64 / ns;
    // A time may be infinite or not known in the one direction, a rate then in the other.
    let low = if ns.high.is_finite() { of(ns.high) } else { f64::NEG_INFINITY };
    let high = if ns.low.is_finite() && ns.low > 0.0 { of(ns.low) } else { f64::INFINITY };
    Estimate { value: of(ns.value), low, high }
}

/// CPU time of a call by cell and round, nanoseconds.
struct Rounds<'a> {
    cells: &'a [PrimitiveCell],
    columns: Vec<Column>,
    count: u32,
}

impl Rounds<'_> {
    fn of<'a>(record: &Record, of: &'a PrimitivesRecord) -> Rounds<'a> {
        let mut rounds: BTreeMap<u32, Vec<Option<f64>>> = BTreeMap::new();
        for block in record.blocks.iter().filter(|block| block.valid && block.hits > 0) {
            let round = rounds.entry(block.round).or_insert_with(|| vec![None; of.cells.len()]);
            round[block.configuration] = Some(block.server_cpu_ns as f64 / block.hits as f64);
        }
        let column = |index: usize| rounds.values().map(|round| round[index]).collect();
        let columns = (0..of.cells.len()).map(column).collect();
        Rounds { cells: &of.cells, columns, count: rounds.len() as u32 }
    }

    fn column(&self, algorithm: Algorithm, by: MeasuredBy, size_bytes: u64) -> Option<&Column> {
        let index = self.cells.iter().position(|cell| *cell == PrimitiveCell { algorithm, by, size_bytes })?;
        Some(&self.columns[index]).filter(|column| column.iter().any(Option::is_some))
    }

    /// The sizes that were measured so, ascending.
    fn sizes(&self, algorithm: Algorithm, by: MeasuredBy) -> Vec<(u64, &Column)> {
        let of_it = self.cells.iter().filter(|cell| cell.algorithm == algorithm && cell.by == by);
        of_it.filter_map(|cell| Some((cell.size_bytes, self.column(algorithm, by, cell.size_bytes)?))).collect()
    }

    fn algorithm(&self, algorithm: Algorithm) -> AlgorithmSummary {
        let of_size = |(size_bytes, column): &(u64, &Column)| {
            let ns = estimate_sum(&[(column, 1.0)]);
            SizeSummary { size_bytes: *size_bytes, ns, mbit_per_s: rate(*size_bytes, ns) }
        };
        let (bare, records) = (self.sizes(algorithm, MeasuredBy::Bare), self.sizes(algorithm, MeasuredBy::Record));
        let ends = bare.first().zip(bare.last()).filter(|(first, last)| first.0 < last.0);
        let at_no_bytes = ends.map(|(first, last)| {
            // The line through both ends.
            let (small, large) = (first.0 as f64, last.0 as f64);
            estimate_sum(&[(first.1, large / (large - small)), (last.1, -small / (large - small))])
        });
        AlgorithmSummary {
            algorithm,
            bare: bare.iter().map(of_size).collect(),
            records: records.iter().map(of_size).collect(),
            call_ns: at_no_bytes.filter(|call| call.low > 0.0),
        }
    }

    fn record(&self, algorithm: Algorithm) -> Option<RecordSummary> {
        let (_, mac) = algorithm.record_suite()?;
        let sizes = self.sizes(algorithm, MeasuredBy::Record);
        let (size_bytes, record) = *sizes.iter().find(|(size, _)| *size == RECORD_BYTES).or(sizes.last())?;
        let parts: Vec<&Column> = [Some(algorithm), mac]
            .into_iter()
            .flatten()
            .map(|part| self.column(part, MeasuredBy::Bare, size_bytes))
            .collect::<Option<_>>()?;
        let parts = |weight: f64| parts.iter().map(move |column| (*column, weight));
        let around: Vec<(&Column, f64)> = [(record, 1.0)].into_iter().chain(parts(-1.0)).collect();
        Some(RecordSummary {
            algorithm,
            mac,
            size_bytes,
            record_ns: estimate_sum(&[(record, 1.0)]),
            bare_ns: estimate_sum(&parts(1.0).collect::<Vec<_>>()),
            around_ns: estimate_sum(&around),
        })
    }

    fn check(&self, cell: &PrimitiveCell) -> Option<SpeedCheck> {
        let PrimitiveCell { algorithm, by: MeasuredBy::OpensslSpeed, size_bytes } = *cell else { return None };
        let ours = self.column(algorithm, MeasuredBy::Bare, size_bytes)?;
        let theirs = self.column(algorithm, MeasuredBy::OpensslSpeed, size_bytes)?;
        // Times stand in the reverse ratio of rates.
        let percent = |means: &[f64]| 100.0 * (means[1] / means[0] - 1.0);
        let difference_percent = estimate_function(&[ours.clone(), theirs.clone()], percent, RESAMPLES, SEED);
        let of = |column| rate(size_bytes, estimate_sum(&[(column, 1.0)]));
        Some(SpeedCheck {
            algorithm,
            size_bytes,
            ours_mbit_per_s: of(ours),
            theirs_mbit_per_s: of(theirs),
            difference_percent,
            agrees: difference_percent.value.abs() <= CHECK_PERCENT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::file::{Primitives, PrimitivesExperiment};
    use tlsdyno_record::model::{Measure, Server};
    use tlsdyno_record::store::{Block, KindPart};

    /// A record in which each cell takes what `ns` says, in six rounds.
    fn record(ns: impl Fn(&PrimitiveCell) -> f64) -> Record {
        let primitives = Primitives {
            algorithms: vec![Algorithm::Aes128Cbc, Algorithm::HmacSha1],
            sizes_bytes: vec![8, 4096],
            ..Primitives::default()
        };
        let question = "?".to_owned();
        let experiment = PrimitivesExperiment {
            question,
            primitives,
            server: Server::default(),
            measure: Measure::default(),
            paper: None,
        };
        let cells = experiment.cells();
        let mut record = Record::begun_now("?", 1);
        for round in 0..6 {
            record.blocks.extend(cells.iter().enumerate().map(|(configuration, cell)| Block {
                round,
                configuration,
                hits: 1_000,
                server_cpu_ns: (1_000.0 * ns(cell)) as u64,
                valid: true,
                ..Block::default()
            }));
        }
        let (libcrypto, libcrypto_version) = (String::new(), String::new());
        record.kind_part = KindPart::from(PrimitivesRecord { experiment, cells, libcrypto, libcrypto_version });
        record
    }

    #[test]
    fn a_call_that_costs_nothing_beside_its_bytes_is_not_told_apart() {
        // A small call takes no longer for a byte than a large one: RC4 on a processor with AVX-512.
        let summary = PrimitivesSummary::of(&record(|cell| match cell.size_bytes {
            8 => 18.0,
            _ => 10_195.0,
        }));
        let summary = summary.unwrap();
        assert!(summary.algorithms.iter().all(|of| of.call_ns.is_none()), "{:?}", summary.algorithms);
        let answer = crate::primitives::page::answer(&summary);
        assert!(answer.contains("With calls of 8 B") && !answer.contains("as a call alone"), "{answer}");
    }

    #[test]
    fn calls_records_and_checks_are_told_apart() {
        // A call takes 100 ns and a byte 1 ns; a record 500 ns more than cipher and MAC; openssl speed is 10 % slower.
        let summary = PrimitivesSummary::of(&record(|cell| {
            let bare = 100.0 + cell.size_bytes as f64;
            match cell.by {
                MeasuredBy::Bare => bare,
                MeasuredBy::Record => 2.0 * bare + 500.0,
                MeasuredBy::OpensslSpeed => 1.1 * bare,
            }
        }))
        .unwrap();
        let of = &summary.algorithms[0];
        let call_ns = of.call_ns.unwrap();
        assert!((call_ns.value - 100.0).abs() < 0.01 && call_ns.low <= call_ns.high, "{call_ns:?}");
        assert!((of.bare[1].mbit_per_s.value - 8e3 * 4096.0 / 4196.0).abs() < 1.0, "{:?}", of.bare);
        assert_eq!(summary.records.len(), 1);
        assert!((summary.records[0].around_ns.value - 500.0).abs() < 0.1, "{:?}", summary.records);
        assert_eq!(summary.checks.len(), 2);
        let check = &summary.checks[0];
        assert!(!check.agrees && (check.difference_percent.value - 10.0).abs() < 0.01, "{check:?}");
        assert!(summary.warnings.iter().any(|warning| warning.code == code::MISSED));
        let agreeing = PrimitivesSummary::of(&record(|cell| 100.0 + cell.size_bytes as f64)).unwrap();
        assert!(agreeing.checks.iter().all(|check| check.agrees) && agreeing.warnings.is_empty());
    }
}
