//! The blocks of a record arranged as a table: configurations by rounds.

use std::collections::{BTreeMap, BTreeSet};

use tlsdyno_record::model::Experiment;
use tlsdyno_record::store::{Block, LOAD, Record, Role, UNREAD};

use super::bootstrap::Column;
use super::moment::Moment;
use super::pace::{self, Pace};
use super::robust::TRIM;
use super::rows::Rows;
use super::statement::{Metric, Ratio};
use super::sweeps::SweepCosts;

/// The usable blocks of a record, by configuration and round.
pub struct Rounds<'a> {
    record: &'a Record,
    /// One row per configuration, one place per round. A round may hold several blocks of one configuration: the
    /// server as is takes part in every comparison, so that measuring it more than once per round narrows all
    /// intervals. They count as one longer block.
    blocks: Vec<Vec<Vec<&'a Block>>>,
    numbers: Vec<u32>,
    pace: Option<Pace>,
    moment: Option<Moment>,
    /// CPU per hit from slices instead of blocks, where there are slices.
    sweeps: Option<SweepCosts>,
}

impl<'a> Rounds<'a> {
    /// Only what a statement may use: usable blocks.
    pub fn of(record: &'a Record) -> Rounds<'a> {
        let mut by_round: BTreeMap<u32, Vec<&Block>> = BTreeMap::new();
        // Blocks under valgrind count instructions; their times say nothing.
        for block in record.blocks.iter().filter(|block| block.instructions.is_none()) {
            by_round.entry(block.round).or_default().push(block);
        }
        // Ctrl-C and the bound of measuring end it in the middle of a round: what is compared is whole rounds only.
        // A configuration that failed its preflight has no blocks in any round.
        let valid: BTreeSet<usize> =
            (0..record.configurations.len()).filter(|&index| record.configurations[index].valid).collect();
        let whole = |blocks: &Vec<&Block>| {
            let measured: BTreeSet<usize> = blocks.iter().map(|block| block.configuration).collect();
            measured.is_superset(&valid)
        };
        let has_slices = |blocks: &Vec<&Block>| blocks.iter().any(|block| !block.slices.is_empty());
        // The bound cuts rounds of one server only, and leaves no slices of a sweep that it has cut.
        let keeps = |blocks: &Vec<&Block>| {
            record.finished && (record.kind_part.of::<Experiment>().is_none() || has_slices(blocks))
        };
        let is_cut = |blocks: &Vec<&Block>| !whole(blocks) && !keeps(blocks);
        if by_round.values().next_back().is_some_and(is_cut) {
            by_round.pop_last();
        }
        let numbers = by_round.keys().copied().collect();
        let mut table = vec![vec![Vec::new(); by_round.len()]; record.configurations.len()];
        for (column, blocks) in by_round.into_values().enumerate() {
            for block in blocks.into_iter().filter(|block| usable(record, block)) {
                table[block.configuration][column].push(block);
            }
        }
        let pace = Pace::of(table.iter().flatten().flatten().copied());
        let sweeps = SweepCosts::of(record, table.iter().flatten().flatten().copied());
        let moment = with_machines(record)
            .and_then(|bases| Moment::of(table.iter().flatten().flatten().copied(), |index| bases[index]));
        Rounds { record, blocks: table, numbers, pace, moment, sweeps }
    }

    pub fn record(&self) -> &'a Record {
        self.record
    }

    pub fn experiment(&self) -> Option<&'a Experiment> {
        self.record.kind_part.of()
    }

    /// `None` unless the pace was sampled.
    pub fn pace(&self) -> Option<&Pace> {
        self.pace.as_ref()
    }

    /// `None` unless the experiment is on machines.
    pub fn moment(&self) -> Option<&Moment> {
        self.moment.as_ref()
    }

    /// Index of the first valid configuration with this role that has at least one usable block.
    pub fn find(&self, role: &Role) -> Option<usize> {
        let configurations = &self.record.configurations;
        configurations
            .iter()
            .position(|configuration| configuration.role == *role && configuration.valid)
            .filter(|&index| self.of_configuration(index).next().is_some())
    }

    pub fn named(&self, name: &str) -> Option<usize> {
        let configurations = &self.record.configurations;
        configurations
            .iter()
            .position(|configuration| configuration.name == name && configuration.valid)
            .filter(|&index| self.of_configuration(index).next().is_some())
    }

    pub fn of_configuration(&self, index: usize) -> impl Iterator<Item = &'a Block> {
        self.blocks[index].iter().flatten().copied()
    }

    /// Rounds or slices, by which the columns of this metric are divided.
    pub fn rows(&self, metric: Metric) -> &Rows {
        match (metric, &self.sweeps) {
            (Metric::Cpu, Some(sweeps)) => sweeps.rows(),
            _ => &Rows::Rounds,
        }
    }

    /// The cost per hit of a configuration in each row, nanoseconds at the machine's mean pace; of CPU from slices,
    /// where there are any.
    pub fn cost(&self, index: usize, metric: Metric) -> Column {
        match (metric, &self.sweeps) {
            (Metric::Cpu, Some(sweeps)) => sweeps.of_configuration(index).clone(),
            _ => self.blocks[index].iter().map(|blocks| self.cost_per_hit(blocks, metric)).collect(),
        }
    }

    pub fn cost_by_round(&self, index: usize, metric: Metric) -> Column {
        self.rows(metric).of_rounds(&self.cost(index, metric)).to_vec()
    }

    pub fn cpu(&self, index: usize) -> Column {
        self.cost_by_round(index, Metric::Cpu)
    }

    /// CPU per hit of a configuration in the blocks of each round, nanoseconds, even where there are slices.
    pub fn cpu_in_blocks(&self, index: usize) -> Column {
        self.blocks[index].iter().map(|blocks| self.cost_per_hit(blocks, Metric::Cpu)).collect()
    }

    pub fn client_cost(&self, index: usize) -> Column {
        let per_hit = |blocks: &Vec<&Block>| {
            let sum = |field: fn(&Block) -> u64| blocks.iter().map(|block| field(block)).sum::<u64>() as f64;
            (!blocks.is_empty()).then(|| sum(|block| block.client_cpu_ns) / sum(|block| block.hits))
        };
        self.blocks[index].iter().map(per_hit).collect()
    }

    /// One value per round from a configuration alone, where its block has one: of several blocks the first.
    pub fn values(&self, index: usize, value: impl Fn(&Block) -> Option<f64>) -> Column {
        self.blocks[index].iter().map(|blocks| value(blocks.first()?)).collect()
    }

    /// Ratio of the work of `b` to that of `a` for the same cost. `None` without a common round.
    pub fn times(&self, a: usize, b: usize, metric: Metric) -> Option<Ratio> {
        let column = self.paired(a, b, metric, |a, b| (a / b).ln());
        let pairs = self.pairs(a, b, metric);
        if pairs == 0 {
            return None;
        }
        let estimate = self.rows(metric).estimate(&column);
        let [at_most, at_least] = [a, b].map(|index| metric == Metric::Throughput && self.client_bound(&[index]));
        Some(Ratio::of_logarithm(estimate, pairs, at_most, at_least))
    }

    pub fn paired(&self, as_is: usize, other: usize, metric: Metric, value: impl Fn(f64, f64) -> f64) -> Column {
        let (a, b) = (self.cost(as_is, metric), self.cost(other, metric));
        a.into_iter().zip(b).map(|(a, b)| Some(value(a?, b?))).collect()
    }

    pub fn costs(&self, configurations: &[usize], metric: Metric) -> Vec<Option<Vec<f64>>> {
        transposed(configurations.iter().map(|&index| self.cost(index, metric)).collect())
    }

    pub fn costs_by_round(&self, configurations: &[usize], metric: Metric) -> Vec<Option<Vec<f64>>> {
        transposed(configurations.iter().map(|&index| self.cost_by_round(index, metric)).collect())
    }

    /// Cost per hit of the blocks of one configuration in one round, which count as one longer block.
    fn cost_per_hit(&self, blocks: &[&Block], metric: Metric) -> Option<f64> {
        let blocks: Vec<&Block> = blocks.iter().copied().filter(|block| block.slices.is_empty()).collect();
        let cost = |block: &&Block| {
            // A moment tells how fast the machine was, too: it is told once.
            let excess_ns = match (metric, &self.moment) {
                (Metric::Throughput, Some(moment)) => moment.excess_ns(block),
                _ => self.pace.as_ref().map_or(0.0, |pace| pace.excess_ns(block, metric)),
            };
            (pace::per_hit(block, metric) - excess_ns) * block.hits as f64
        };
        let hits: u64 = blocks.iter().map(|block| block.hits).sum();
        (!blocks.is_empty()).then(|| blocks.iter().map(cost).sum::<f64>() / hits as f64)
    }

    /// Something else than the server limited one of these configurations: more of its blocks than a trimmed mean
    /// leaves out.
    pub fn client_bound(&self, configurations: &[usize]) -> bool {
        configurations.iter().any(|&index| {
            let (bound, all) = self
                .of_configuration(index)
                .filter(|block| block.slices.is_empty())
                .fold((0, 0), |(bound, all), block| (bound + usize::from(block.client_bound), all + 1));
            bound as f64 > TRIM * all as f64
        })
    }

    pub fn pairs(&self, a: usize, b: usize, metric: Metric) -> u32 {
        let both = self.paired(a, b, metric, |_, _| 0.0);
        self.rows(metric).pairs(&[&both])
    }

    pub fn sweeps(&self) -> u32 {
        self.sweeps.as_ref().map_or(0, SweepCosts::sweeps)
    }

    /// Rounds by which costs are compared: of slices, where there are any.
    pub fn compared(&self) -> u32 {
        if self.sweeps() > 0 { self.numbers.len() as u32 } else { self.measured() }
    }

    /// Rounds with blocks; without any, all rounds.
    pub fn told(&self) -> u32 {
        match self.measured() {
            0 => self.numbers.len() as u32,
            with_blocks => with_blocks,
        }
    }

    /// Complete rounds of blocks (an unusable block counts as measured), without those of slices.
    pub fn measured(&self) -> u32 {
        let has_blocks = |round: &usize| {
            let of_round = self.record.blocks.iter().filter(|block| block.round == self.numbers[*round]);
            // Without slices, and without time: what is left of slices that do not count.
            of_round.into_iter().any(|block| block.slices.is_empty() && block.elapsed_ns > 0)
        };
        (0..self.numbers.len()).filter(has_blocks).count() as u32
    }
}

fn transposed(columns: Vec<Column>) -> Vec<Option<Vec<f64>>> {
    let rows = columns.first().map_or(0, Vec::len);
    (0..rows).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// In an experiment on machines: for each configuration the index of the one that it is on a machine, or its own.
fn with_machines(record: &Record) -> Option<Vec<usize>> {
    let experiment = record.kind_part.of::<Experiment>().filter(|experiment| !experiment.machines.is_empty())?;
    let names: Vec<&str> = record.configurations.iter().map(|configuration| configuration.name.as_str()).collect();
    let base = |(index, name): (usize, &&str)| {
        let model = experiment.configurations.iter().find(|model| model.name == **name);
        let base = model.and_then(|model| model.base.as_deref());
        base.and_then(|base| names.iter().position(|name| *name == base)).unwrap_or(index)
    };
    Some(names.iter().enumerate().map(base).collect())
}

fn usable(record: &Record, block: &Block) -> bool {
    let valid_configuration =
        record.configurations.get(block.configuration).is_some_and(|configuration| configuration.valid);
    // What a server behind a URL costs is not known, nor that of one on another machine.
    let is_unseen = record.kind_part.field() == LOAD || record.manifest.cpu_accounting == UNREAD;
    let costs = block.server_cpu_ns > 0 || is_unseen;
    valid_configuration && block.valid && block.hits > 0 && block.elapsed_ns > 0 && costs
}
