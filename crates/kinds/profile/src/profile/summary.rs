//! From the blocks of a profile to what a hit costs by stage, and what is left over, for full and resumed handshakes.

pub(super) mod contradictions;
mod sampled;

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_native::ProfileCounts;
use tlsdyno_record::store::samples::Area;
use tlsdyno_record::store::stacks::Stacks;
use tlsdyno_record::store::warning::code;
use tlsdyno_record::store::{Block, Record, Slice, Warning};
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_stats::summary::time_for;
use tlsdyno_stats::sweeps::{Point, Sweeps};
use tlsdyno_tls::{Stage, StageSet};

use self::sampled::SeenRounds;
use crate::profile::caches::{CacheModel, LEAST_NS, StageTime};
use crate::profile::file::{Cell, Handshakes, Treatment};
use crate::profile::{CountedAreas, ProfileRecord};

/// What a warning says of samples that cover too little of the server's work.
const NOT_SAMPLED: &str = "Processes that begin later are not sampled, nor are threads where there are very many; \
     what is timed is not concerned";
/// Reports warn of fewer sweeps than this.
const SWEEPS_FEW: usize = 20;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileSummary {
    pub handshakes: Vec<KindSummary>,
    /// What calls were timed with.
    pub clock: &'static str,
    /// Time of one reading of the clock, nanoseconds.
    pub clock_reading_ns: f64,
    #[serde(skip)]
    pub rounds: u32,
    /// Cost of a hit on processors with other caches, by kind of handshake; empty: not simulated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<(Handshakes, CacheModel)>,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Results for one kind of handshake. Times are server CPU of a hit: a connection with its handshake and one request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindSummary {
    pub kind: Handshakes,
    /// Sweeps with a slice of this kind of handshake.
    pub sweeps: usize,
    /// CPU of a hit, nanoseconds: of the untouched server; without one, of the profiled server while nothing is timed.
    pub cpu_ns: Estimate,
    /// `cpu_ns` is of the untouched server.
    pub is_untouched: bool,
    /// Cost of the idle profiler library, nanoseconds per hit; `None` without an untouched server beside it.
    pub library_ns: Option<Estimate>,
    /// Cost of timing, in the same process, nanoseconds per hit.
    pub timing_ns: Estimate,
    /// At saturation, of the server of `cpu_ns`.
    pub hits_per_second: Option<f64>,
    pub stages: Vec<StageSummary>,
    /// Sum of the stages, nanoseconds per hit.
    pub stages_ns: Estimate,
    /// Remainder without the stages, nanoseconds per hit.
    pub other_ns: Estimate,
    /// CPU of a hit without TLS; `None`: not measured.
    pub plain_ns: Option<Estimate>,
    /// Remainder without the stages and `plain_ns`: the rest of TLS.
    pub rest_ns: Option<Estimate>,
    /// Calls into the provider per hit.
    pub calls_per_hit: f64,
    /// Those of them that were timed, per hit.
    pub timed_per_hit: f64,
    pub classes: Vec<ClassSummary>,
    /// `None`: no sampling, or the samples cover too little of the server's work.
    pub sampled: Option<SampledSummary>,
    /// Reasons why the times of calls are not what the calls cost; empty: no contradiction.
    pub contradictions: Vec<String>,
}

/// Results of sampling: costs are parts of a hit of the profiled server while nothing is timed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampledSummary {
    pub samples: u64,
    /// Cost of sampling, nanoseconds per hit.
    pub sampling_ns: Estimate,
    /// The whole that is divided: CPU of a hit of the profiled server, without timing and sampling, nanoseconds.
    pub whole_ns: f64,
    pub areas: Vec<Spent>,
    /// Named part of the cost of TLS outside of stages, per cent. `None`: plain HTTP was not sampled.
    pub named_percent: Option<f64>,
    /// The costliest functions outside of stages.
    pub functions: Vec<Spent>,
    #[serde(skip)]
    pub stacks: Stacks,
}

/// Cost of an area, a part of one, or a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spent {
    pub name: String,
    /// CPU of a hit, nanoseconds.
    pub ns: Estimate,
    /// Excess over a hit without TLS, nanoseconds. `None`: plain HTTP was not sampled, or this is a function.
    pub tls_ns: Option<Estimate>,
    /// Instructions of a hit, in user space. `None`: not counted.
    pub instructions_count: Option<f64>,
    /// The costliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Spent>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSummary {
    pub stages: StageSet,
    /// Time in its calls per hit, nanoseconds.
    pub timed_ns: Estimate,
    /// Saving of a hit without the stage, nanoseconds; `None`: not removed.
    pub removed_ns: Option<Estimate>,
    /// Additional cost of a hit with the stage computed twice, nanoseconds; `None`: not doubled.
    pub doubled_ns: Option<Estimate>,
    /// Instructions in user space within its calls, per hit; `None`: not counted.
    pub instructions_count: Option<f64>,
    /// Cost of the samples within its calls, nanoseconds per hit; `None`: no sampling.
    pub sampled_ns: Option<Estimate>,
    /// Removed less timed: cost of the stage outside of its calls, or what removing does not save.
    pub difference_ns: Option<Estimate>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassSummary {
    pub stage: Stage,
    pub name: &'static str,
    pub calls_per_hit: f64,
    /// Mean time of a call, nanoseconds.
    pub ns_per_call: f64,
    pub ns_per_hit: f64,
    /// Bytes per hit that the calls processed.
    pub bytes_per_hit: f64,
}

/// Slices of one kind of handshake, by the index of their cell. Behind the cells stand the stages of
/// [`Stage::PROVIDER`], in groups as they are removed: time in their calls, in the slices of the timed cell.
struct OfKind<'a> {
    cells: &'a [Cell],
    handshakes: Handshakes,
    sweeps: Sweeps,
}

impl ProfileSummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<ProfileSummary> {
        let profile = record.kind_part.understood::<ProfileRecord>()?;
        let kinds: BTreeSet<Handshakes> = profile.cells.iter().map(|cell| cell.handshakes).collect();
        let mut warnings = record.warnings.clone();
        let handshakes: Vec<KindSummary> =
            kinds.into_iter().filter_map(|kind| KindSummary::of(record, profile, kind, &mut warnings)).collect();
        warnings.extend(handshakes.iter().filter_map(KindSummary::contradicted));
        let few = handshakes.iter().map(|kind| kind.sweeps).min().unwrap_or(0);
        if few < SWEEPS_FEW {
            let what = format!("only {few} sweeps were measured, so that intervals mean little");
            warnings.push(Warning::new("few_sweeps", what).with_remedy(time_for(
                record,
                few as u32,
                SWEEPS_FEW as u32,
            )));
        }
        Ok(ProfileSummary {
            caches: on_other_processors(profile, &handshakes),
            handshakes,
            clock: profile.clock.name(),
            clock_reading_ns: profile.clock_reading_ps as f64 / 1e3,
            rounds: record.blocks.iter().map(|block| block.round + 1).max().unwrap_or(0),
            warnings,
        })
    }

    /// For one kind of handshake at least, the times of calls are not what the calls cost.
    pub fn is_contradicted(&self) -> bool {
        self.handshakes.iter().any(|kind| !kind.contradictions.is_empty())
    }
}

/// The model of caches, fitted on the stages of all kinds of handshakes.
fn on_other_processors(profile: &ProfileRecord, handshakes: &[KindSummary]) -> Vec<(Handshakes, CacheModel)> {
    let of = |kind: Handshakes| profile.counted.iter().find(|counted| counted.handshakes == kind);
    let stages: Vec<StageTime> = handshakes
        .iter()
        .filter_map(|kind| Some((kind, of(kind.kind)?)))
        .flat_map(|(kind, counted)| kind.stages.iter().filter_map(move |stage| stage.simulated(kind.kind, counted)))
        .collect();
    let model = |kind: &KindSummary| {
        let kernel = kind.sampled.as_ref()?.areas.iter().find(|area| area.name == Area::Kernel.name())?;
        let kernel_ns = [kernel.ns.value, kernel.ns.value - kernel.tls_ns?.value];
        CacheModel::of(stages.clone(), &of(kind.kind)?.caches, kernel_ns)
    };
    handshakes.iter().filter_map(|kind| Some((kind.kind, model(kind)?))).collect()
}

impl StageSummary {
    /// `None`: not simulated, or its calls are too short.
    fn simulated(&self, kind: Handshakes, counted: &CountedAreas) -> Option<StageTime> {
        let names: Vec<&str> = self.stages.iter().map(|stage| stage.name()).collect();
        let timed_ns = self.timed_ns.value;
        let work = counted.work_of(self.stages).filter(|_| timed_ns >= LEAST_NS)?;
        Some(StageTime {
            name: format!("{}, {}", names.join(" and "), kind.name()),
            work,
            timed_ns,
            predicted_ns: None,
        })
    }
}

impl KindSummary {
    fn of(
        record: &Record,
        profile: &ProfileRecord,
        kind: Handshakes,
        warnings: &mut Vec<Warning>,
    ) -> Option<KindSummary> {
        let sweeps = OfKind::of(record, &profile.cells, kind);
        let server = sweeps.base();
        let is_untouched = server == Treatment::AsIs;
        let (whole, not_timed) = (sweeps.costs(server)?, sweeps.costs(Treatment::NotTimed)?);
        let timing = sweeps.savings(Treatment::Timed, Treatment::NotTimed)?;
        let groups: Vec<StageSet> = StageSet::groups().collect();
        let timed: Vec<Column> = (0..groups.len()).map(|group| sweeps.timed(group)).collect::<Option<_>>()?;
        let plain = sweeps.costs(Treatment::Plain);
        // What is left of a hit without its stages, and without what serving takes in plain HTTP.
        let left = |plain: Option<&Column>| {
            let less = timed.iter().chain(plain).map(|column| (column, -1.0));
            estimate_sum(&[(&whole, 1.0)].into_iter().chain(less).collect::<Vec<_>>())
        };
        let (cpu_ns, library_ns) = (estimate_sum(&[(&whole, 1.0)]), estimate_sum(&[(&not_timed, 1.0), (&whole, -1.0)]));
        let plain_ns = plain.as_ref().map(|plain| estimate_sum(&[(plain, 1.0)]));
        let mut seen_in = |treatment, column: &Column, ns| {
            let seen = sweeps.seen(record, treatment, column, ns);
            seen.map_err(|warning| warnings.push(warning)).unwrap_or_default()
        };
        let seen = seen_in(Treatment::Sampled, &not_timed, cpu_ns.value + library_ns.value);
        let seen_plain = plain.as_ref().zip(plain_ns);
        let seen_plain = seen_plain.and_then(|(plain, ns)| seen_in(Treatment::PlainSampled, plain, ns.value));
        let counted = profile.counted.iter().find(|counted| counted.handshakes == kind);
        let stages = groups.into_iter().zip(&timed).map(|(stages, timed)| StageSummary {
            sampled_ns: seen.as_ref().map(|seen| seen.of_stages(stages)),
            instructions_count: counted.map(|counted| counted.of_stages(stages)),
            ..sweeps.stage(stages, timed)
        });
        let sampling = sweeps.savings(Treatment::Sampled, Treatment::NotTimed);
        let sampled = seen.as_ref().zip(sampling);
        let sampled = sampled
            .map(|(seen, sampling)| seen.summary(estimate_sum(&[(&sampling, -1.0)]), seen_plain.as_ref(), counted));
        let counts = Counts::of(record, &profile.cells, kind);
        let summary = KindSummary {
            kind,
            sweeps: sweeps.sweeps.count(),
            cpu_ns,
            is_untouched,
            library_ns: is_untouched.then_some(library_ns),
            timing_ns: estimate_sum(&[(&timing, -1.0)]),
            hits_per_second: hits_per_second(record, &profile.cells, Cell { handshakes: kind, treatment: server }),
            stages: stages.collect(),
            stages_ns: estimate_sum(&timed.iter().map(|column| (column, 1.0)).collect::<Vec<_>>()),
            other_ns: left(None),
            plain_ns,
            rest_ns: plain.as_ref().map(|plain| left(Some(plain))),
            calls_per_hit: counts.per_hit(counts.counts.calls().0),
            timed_per_hit: counts.per_hit(counts.counts.calls().1),
            classes: counts.classes(),
            sampled,
            contradictions: Vec::new(),
        };
        Some(KindSummary { contradictions: contradictions::of(&summary), ..summary })
    }

    /// Warns that reports leave out the stages by the times of their calls; `None`: no contradiction.
    pub fn contradicted(&self) -> Option<Warning> {
        (!self.contradictions.is_empty()).then(|| {
            let what = format!(
                "{} handshakes: the times of calls are not what these cost, as {}",
                self.kind.name(),
                self.contradictions.join("; ")
            );
            let remedy = "The clock went on while other work had the processor, or calls were not seen: profile on a \
                          machine without other work; what removing, doubling and samples say stands";
            Warning::new(code::MISSED, what).with_remedy(remedy)
        })
    }

    /// Named costs outside of stages; that of serving without TLS is separate where it was measured.
    pub fn beside_stages(&self) -> Vec<(&'static str, Estimate)> {
        match (self.rest_ns, self.plain_ns) {
            (Some(rest), Some(plain)) => vec![("rest of TLS", rest), ("plain HTTP", plain)],
            _ => vec![("everything else", self.other_ns)],
        }
    }
}

impl<'a> OfKind<'a> {
    fn of(record: &'a Record, cells: &'a [Cell], handshakes: Handshakes) -> OfKind<'a> {
        let blocks =
            record.blocks.iter().filter(|block| block.valid && cells[block.configuration].handshakes == handshakes);
        let of_block = |block: &'a Block| {
            let costs = block.slices.iter().filter(|slice| slice.hits > 0).map(move |slice| Point::of(block, slice));
            let groups = stages_of(block).filter(|(slice, _)| slice.hits > 0).flat_map(move |(slice, ns)| {
                let of_group = move |(group, stages): (usize, StageSet)| {
                    let each = Stage::PROVIDER.iter().zip(ns).filter(|(stage, _)| stages.contains(**stage));
                    let ns = each.map(|(_, ns)| *ns).sum::<u64>() as f64 / f64::from(slice.hits);
                    Point { index: cells.len() + group, ns, ..Point::of(block, slice) }
                };
                StageSet::groups().enumerate().map(of_group)
            });
            costs.chain(groups)
        };
        OfKind { cells, handshakes, sweeps: Sweeps::of(blocks.flat_map(of_block)) }
    }

    /// The untouched server where there is one: all others are compared with it.
    fn base(&self) -> Treatment {
        if self.index(Treatment::AsIs).is_some() { Treatment::AsIs } else { Treatment::NotTimed }
    }

    /// `None`: nothing was measured with this treatment.
    fn index(&self, treatment: Treatment) -> Option<usize> {
        let cell = Cell { handshakes: self.handshakes, treatment };
        self.cells.iter().position(|other| *other == cell).filter(|index| self.sweeps.has(*index))
    }

    /// CPU of a hit by round, nanoseconds.
    fn costs(&self, treatment: Treatment) -> Option<Column> {
        Some(self.sweeps.costs(self.index(self.base())?, self.index(treatment)?))
    }

    /// Saving of a hit compared with the nearest slices of `host`, by round, nanoseconds.
    fn savings(&self, treatment: Treatment, host: Treatment) -> Option<Column> {
        Some(self.sweeps.savings(self.index(self.base())?, self.index(host)?, self.index(treatment)?))
    }

    /// The samples of a cell, with the cost of its hit by round and in all. `None`: no sampling. Fails where they stand
    /// for too little of the server's work.
    fn seen(
        &self,
        record: &Record,
        treatment: Treatment,
        whole: &Column,
        whole_ns: f64,
    ) -> Result<Option<SeenRounds>, Warning> {
        let cell = Cell { handshakes: self.handshakes, treatment };
        SeenRounds::of(record, self.cells, cell, &self.sweeps.numbered(whole), whole_ns)
            .map_err(|what| Warning::new("not_sampled", what).with_remedy(NOT_SAMPLED))
    }

    /// Combines removing, doubling and timing of stages that one call does.
    fn stage(&self, stages: StageSet, timed: &Column) -> StageSummary {
        let removed = self.savings(Treatment::Off(stages), Treatment::NothingOff);
        let doubled = self.savings(Treatment::Doubled(stages), Treatment::NothingDoubled);
        // Records that are computed twice are copied besides.
        let copied = self.savings(Treatment::RecordsCopied, Treatment::NothingDoubled);
        let copied = copied.as_ref().filter(|_| stages.contains(Stage::Cipher)).map(|copied| (copied, 1.0));
        StageSummary {
            stages,
            timed_ns: estimate_sum(&[(timed, 1.0)]),
            removed_ns: removed.as_ref().map(|removed| estimate_sum(&[(removed, 1.0)])),
            difference_ns: removed.as_ref().map(|removed| estimate_sum(&[(removed, 1.0), (timed, -1.0)])),
            doubled_ns: doubled
                .as_ref()
                .map(|doubled| estimate_sum(&[(doubled, -1.0)].into_iter().chain(copied).collect::<Vec<_>>())),
            sampled_ns: None,
            instructions_count: None,
        }
    }

    /// Time in the calls of a group of stages per hit, by round, nanoseconds.
    fn timed(&self, group: usize) -> Option<Column> {
        let host = self.index(Treatment::NotTimed)?;
        Some(self.sweeps.parts(self.index(self.base())?, host, self.cells.len() + group))
    }
}

/// Each slice of a block with its times by stage.
fn stages_of(block: &Block) -> impl Iterator<Item = (&Slice, &[u64])> {
    let profile = block.profile.iter().flat_map(|profile| profile.stages_ns.iter().map(Vec::as_slice));
    block.slices.iter().zip(profile)
}

/// Counts of the timed cell of one kind of handshake.
struct Counts {
    counts: ProfileCounts,
    hits: u64,
}

impl Counts {
    fn of(record: &Record, cells: &[Cell], kind: Handshakes) -> Counts {
        let cell = Cell { handshakes: kind, treatment: Treatment::Timed };
        let mut counts = Counts { counts: ProfileCounts::default(), hits: 0 };
        for block in record.blocks.iter().filter(|block| block.valid && cells[block.configuration] == cell) {
            if let Some(profile) = &block.profile {
                counts.counts.add(&profile.counts);
                counts.hits += block.hits;
            }
        }
        counts
    }

    fn per_hit(&self, count: u64) -> f64 {
        count as f64 / self.hits.max(1) as f64
    }

    fn classes(&self) -> Vec<ClassSummary> {
        let class = |(stage, name, count): (Stage, &'static str, tlsdyno_native::ClassCount)| ClassSummary {
            stage,
            name,
            calls_per_hit: self.per_hit(count.calls),
            ns_per_call: count.ns as f64 / count.timed_count.max(1) as f64,
            ns_per_hit: count.all_ns() / self.hits.max(1) as f64,
            bytes_per_hit: self.per_hit(count.bytes),
        };
        self.counts.iter().map(class).collect()
    }
}

/// From blocks without slices; `None`: no such block.
fn hits_per_second(record: &Record, cells: &[Cell], cell: Cell) -> Option<f64> {
    let is_whole = |block: &&Block| block.valid && block.slices.is_empty() && cells[block.configuration] == cell;
    let (hits, ns) = record
        .blocks
        .iter()
        .filter(is_whole)
        .fold((0, 0), |(hits, ns), block| (hits + block.hits, ns + block.elapsed_ns));
    (ns > 0).then(|| hits as f64 * 1e9 / ns as f64)
}
