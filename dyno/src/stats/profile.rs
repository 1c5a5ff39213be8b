//! From the blocks of a profile to what a hit costs by stage, and what is left over, for full and resumed handshakes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tlsdyno_tls::{Stage, StageSet};

use super::bootstrap::{Column, Combination, Estimate, RESAMPLES, SEED, estimate};
use super::sweeps::{Points, mean_cost, mean_saving, point};
use crate::model::profile::{Cell, Handshakes, Treatment, removed_together};
use crate::native::ProfileCounts;
use crate::store::{Block, ProfileRecord, Record, Slice, Warning};

/// Fewer sweeps than this are told.
const SWEEPS_FEW: usize = 20;

/// What a profile found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileSummary {
    /// Full and resumed handshakes.
    pub handshakes: Vec<KindSummary>,
    /// What calls were timed with.
    pub clock: &'static str,
    /// What one reading of it takes, nanoseconds.
    pub clock_reading_ns: f64,
    /// Rounds measured.
    #[serde(skip)]
    pub rounds: u32,
    /// What the reader must know.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// What was found of one kind of handshake. Times are server CPU of a hit: a connection with its handshake and one
/// request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindSummary {
    /// Which kind.
    pub kind: Handshakes,
    /// Sweeps that say something of it.
    pub sweeps: usize,
    /// CPU of a hit, nanoseconds: of the untouched server; of the profiled one, not timed, where there is no other.
    pub cpu_ns: Estimate,
    /// Whether that is the untouched server's.
    pub is_untouched: bool,
    /// What the library costs that times nothing; `None` without an untouched server beside it.
    pub library_ns: Option<Estimate>,
    /// What timing costs, in the same process.
    pub timing_ns: Estimate,
    /// Hits per second at saturation, of the server of `cpu_ns`.
    pub hits_per_second: Option<f64>,
    /// The stages.
    pub stages: Vec<StageSummary>,
    /// What no stage accounts for.
    pub other_ns: Estimate,
    /// Calls into the provider, and how many of them were timed, per hit.
    pub calls_per_hit: f64,
    /// Of those, timed.
    pub timed_per_hit: f64,
    /// The classes of functions that were called.
    pub classes: Vec<ClassSummary>,
}

/// A stage, or two that one call does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSummary {
    /// Which.
    pub stages: StageSet,
    /// Time in its calls per hit, nanoseconds.
    pub timed_ns: Estimate,
    /// What a hit is cheaper by without it; `None`: it was not removed.
    pub removed_ns: Option<Estimate>,
    /// Removed less timed: what the stage costs outside of its calls, or how much of it removing leaves.
    pub difference_ns: Option<Estimate>,
}

/// One class of functions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassSummary {
    /// Its stage.
    pub stage: Stage,
    /// Its name.
    pub name: &'static str,
    /// Calls per hit.
    pub calls_per_hit: f64,
    /// Mean time of a call, nanoseconds.
    pub ns_per_call: f64,
    /// Time per hit, nanoseconds.
    pub ns_per_hit: f64,
    /// Bytes per hit that the calls worked on.
    pub bytes_per_hit: f64,
}

/// Sweeps of one kind of handshake.
struct Sweeps<'a> {
    cells: &'a [Cell],
    handshakes: Handshakes,
    /// Slices of each cell by sweep.
    points: Vec<BTreeMap<u32, Points>>,
    /// Time by stage per hit of the timed cell, by sweep: each of its slices.
    stages: BTreeMap<u32, Vec<[f64; Stage::PROVIDER.len()]>>,
    numbers: Vec<u32>,
}

impl ProfileSummary {
    /// `None`: it is no record of a profile.
    pub fn of(record: &Record) -> Option<ProfileSummary> {
        let profile = record.profile.as_ref()?;
        let kinds: BTreeSet<Handshakes> = profile.cells.iter().map(|cell| cell.handshakes).collect();
        let handshakes: Vec<KindSummary> =
            kinds.into_iter().filter_map(|kind| KindSummary::of(record, profile, kind)).collect();
        let mut warnings = record.warnings.clone();
        let few = handshakes.iter().map(|kind| kind.sweeps).min().unwrap_or(0);
        if few < SWEEPS_FEW {
            let what = format!("only {few} sweeps were measured, so that intervals mean little");
            warnings.push(Warning::Other { what, remedy: "Measure longer (--time)".to_owned() });
        }
        Some(ProfileSummary {
            handshakes,
            clock: profile.clock.name(),
            clock_reading_ns: profile.clock_reading_ps as f64 / 1e3,
            rounds: record.blocks.iter().map(|block| block.round + 1).max().unwrap_or(0),
            warnings,
        })
    }
}

impl KindSummary {
    fn of(record: &Record, profile: &ProfileRecord, kind: Handshakes) -> Option<KindSummary> {
        let sweeps = Sweeps::of(record, &profile.cells, kind);
        let as_is = sweeps.costs(Treatment::AsIs);
        let not_timed = sweeps.costs(Treatment::NotTimed)?;
        let is_untouched = as_is.is_some();
        let whole = as_is.clone().unwrap_or_else(|| not_timed.clone());
        // Columns: the whole, the idle library, what timing saves (less than nothing), then timed and removed stages.
        let mut columns = vec![whole, not_timed, sweeps.savings(Treatment::Timed, Treatment::NotTimed)?];
        let groups = removed_together();
        let timed = columns.len();
        columns.extend(groups.iter().map(|stages| sweeps.timed(*stages)));
        let mut removed: Vec<Option<usize>> = Vec::new();
        for stages in groups {
            let savings = sweeps.savings(Treatment::Off(stages), Treatment::NothingOff);
            removed.push(savings.is_some().then_some(columns.len()));
            columns.extend(savings);
        }
        let combination = |terms: Vec<(usize, f64)>| Combination { constant: 0.0, terms };
        let mut asked =
            vec![combination(vec![(0, 1.0)]), combination(vec![(1, 1.0), (0, -1.0)]), combination(vec![(2, -1.0)])];
        let all = (0..groups.len()).map(|group| (timed + group, -1.0));
        asked.push(combination([(0, 1.0)].into_iter().chain(all).collect()));
        for (group, removed) in removed.iter().enumerate() {
            asked.push(combination(vec![(timed + group, 1.0)]));
            asked.extend(removed.map(|removed| combination(vec![(removed, 1.0)])));
            asked.extend(removed.map(|removed| combination(vec![(removed, 1.0), (timed + group, -1.0)])));
        }
        let mut estimates = estimate(&columns, &asked, RESAMPLES, SEED).into_iter();
        let mut next = || estimates.next().expect("an estimate for each combination");
        let (cpu_ns, library_ns, timing_ns, other_ns) = (next(), next(), next(), next());
        let mut stages = Vec::new();
        for (group, removed) in groups.into_iter().zip(removed) {
            let timed_ns = next();
            let removed_ns = removed.map(|_| next());
            let difference_ns = removed.map(|_| next());
            stages.push(StageSummary { stages: group, timed_ns, removed_ns, difference_ns });
        }
        let counts = Counts::of(record, &profile.cells, kind);
        let server = if is_untouched { Treatment::AsIs } else { Treatment::NotTimed };
        Some(KindSummary {
            kind,
            sweeps: sweeps.numbers.len(),
            cpu_ns,
            is_untouched,
            library_ns: is_untouched.then_some(library_ns),
            timing_ns,
            hits_per_second: hits_per_second(record, &profile.cells, Cell { handshakes: kind, treatment: server }),
            stages,
            other_ns,
            calls_per_hit: counts.per_hit(counts.counts.calls().0),
            timed_per_hit: counts.per_hit(counts.counts.calls().1),
            classes: counts.classes(),
        })
    }

    /// The sum of all stages per hit, nanoseconds.
    pub fn stages_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.timed_ns.value).sum()
    }
}

impl<'a> Sweeps<'a> {
    fn of(record: &Record, cells: &'a [Cell], handshakes: Handshakes) -> Sweeps<'a> {
        let mut sweeps = Sweeps {
            cells,
            handshakes,
            points: vec![BTreeMap::new(); cells.len()],
            stages: BTreeMap::new(),
            numbers: Vec::new(),
        };
        for block in record.blocks.iter().filter(|block| block.valid) {
            let cell = cells[block.configuration];
            if cell.handshakes != handshakes {
                continue;
            }
            for slice in &block.slices {
                sweeps.points[block.configuration].entry(slice.sweep_number).or_default().push(point(slice));
            }
            for (slice, ns) in stages_of(block) {
                let per_hit = ns.map(|ns| ns as f64 / f64::from(slice.hits.max(1)));
                sweeps.stages.entry(slice.sweep_number).or_default().push(per_hit);
            }
        }
        let numbers: BTreeSet<u32> = sweeps.points.iter().flat_map(|of| of.keys().copied()).collect();
        sweeps.numbers = numbers.into_iter().collect();
        sweeps
    }

    fn points(&self, treatment: Treatment) -> Option<&BTreeMap<u32, Points>> {
        let cell = Cell { handshakes: self.handshakes, treatment };
        let index = self.cells.iter().position(|other| *other == cell)?;
        Some(&self.points[index]).filter(|points| !points.is_empty())
    }

    /// CPU of a hit by sweep.
    fn costs(&self, treatment: Treatment) -> Option<Column> {
        let points = self.points(treatment)?;
        Some(self.numbers.iter().map(|number| mean_cost(points.get(number)?)).collect())
    }

    /// What a hit is cheaper by than in the slices of `base` that stand nearest, by sweep.
    fn savings(&self, treatment: Treatment, base: Treatment) -> Option<Column> {
        let (points, base) = (self.points(treatment)?, self.points(base)?);
        let saving = |number: &u32| mean_saving(base.get(number)?, points.get(number)?);
        Some(self.numbers.iter().map(saving).collect())
    }

    /// Time in the calls of these stages per hit, by sweep.
    fn timed(&self, stages: StageSet) -> Column {
        let of_slice = |slice: &[f64; Stage::PROVIDER.len()]| {
            Stage::PROVIDER
                .iter()
                .zip(slice)
                .filter(|(stage, _)| stages.contains(**stage))
                .map(|(_, ns)| ns)
                .sum::<f64>()
        };
        let of_sweep = |number: &u32| {
            let slices = self.stages.get(number)?;
            Some(slices.iter().map(of_slice).sum::<f64>() / slices.len() as f64)
        };
        self.numbers.iter().map(of_sweep).collect()
    }
}

/// The slices of a block with their times by stage.
fn stages_of(block: &Block) -> impl Iterator<Item = (&Slice, [u64; Stage::PROVIDER.len()])> {
    let profile = block.profile.iter().flat_map(|profile| profile.stages_ns.iter().copied());
    block.slices.iter().zip(profile)
}

/// Counts of the timed cell of a kind.
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
                counts.counts += &profile.counts;
                counts.hits += block.hits;
            }
        }
        counts
    }

    fn per_hit(&self, count: u64) -> f64 {
        count as f64 / self.hits.max(1) as f64
    }

    fn classes(&self) -> Vec<ClassSummary> {
        let class = |(stage, name, count): (Stage, &'static str, &crate::native::ClassCount)| ClassSummary {
            stage,
            name,
            calls_per_hit: self.per_hit(count.calls),
            ns_per_call: count.ns as f64 / count.timed.max(1) as f64,
            ns_per_hit: count.all_ns() / self.hits.max(1) as f64,
            bytes_per_hit: self.per_hit(count.bytes),
        };
        self.counts.iter().filter(|(.., count)| count.calls > 0).map(class).collect()
    }
}

/// From blocks without slices. `None`: there is none.
fn hits_per_second(record: &Record, cells: &[Cell], cell: Cell) -> Option<f64> {
    let is_whole = |block: &&Block| block.valid && block.slices.is_empty() && cells[block.configuration] == cell;
    let (hits, ns) = record
        .blocks
        .iter()
        .filter(is_whole)
        .fold((0, 0), |(hits, ns), block| (hits + block.hits, ns + block.elapsed_ns));
    (ns > 0).then(|| hits as f64 * 1e9 / ns as f64)
}
