//! What becomes of sessions that another proxy of an array issued: ticket keys of its own, shared by all, or of its own
//! behind a dispatcher that passes connections on by session; and what each costs in CPU time.

use serde::Serialize;

use crate::kinds::array::file::{ArrayExperiment, ArrayPlace, Spread};
use crate::stats::bootstrap::{Column, Combination, Estimate, RESAMPLES, SEED, estimate};
use crate::stats::statement::Ratio;
use crate::store::{Block, Record};

/// So many proxies, clients spread over them in one way, at one reuse.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeySharing {
    /// Proxies.
    pub proxies: u32,
    /// How clients are spread over them, which says whose their ticket keys are.
    pub spread: Spread,
    /// Reuse asked for, per cent.
    pub asked_percent: f64,
    /// Sessions that were accepted, of those offered again, per cent.
    pub accepted_percent: Estimate,
    /// CPU time of the proxies for a page with its part of handshakes, nanoseconds.
    pub proxy_cpu_ns_per_hit: Estimate,
    /// CPU time of the dispatcher for it, nanoseconds.
    pub dispatcher_cpu_ns_per_hit: Estimate,
    /// CPU time of both by that of the experiment's first spread at the same place; `null` for that one.
    pub cpu_times: Option<Ratio>,
}

impl KeySharing {
    /// CPU time of proxies and dispatcher for a page, nanoseconds.
    pub fn cpu_ns_per_hit(&self) -> f64 {
        self.proxy_cpu_ns_per_hit.value + self.dispatcher_cpu_ns_per_hit.value
    }
}

/// Where several ways of spreading clients are compared: a row for each place in which sessions were offered again, one
/// place's below each other.
pub(super) fn all(record: &Record, experiment: &ArrayExperiment, rounds: u32) -> Vec<KeySharing> {
    let first = match experiment.array.spread[..] {
        [first, _, ..] => first,
        _ => return Vec::new(),
    };
    let places: Vec<(usize, ArrayPlace)> = experiment.places().into_iter().enumerate().collect();
    let offering = |(index, place): &&(usize, ArrayPlace)| {
        place.proxies > 1 && place.percent.is_some() && blocks(record, *index).any(|block| block.resumed_offered > 0)
    };
    let mut rows: Vec<KeySharing> = Vec::new();
    for (index, place) in places.iter().filter(offering) {
        let is_first = |(_, other): &&(usize, ArrayPlace)| *other == ArrayPlace { spread: first, ..*place };
        let by = places.iter().find(is_first).map(|(by, _)| *by).filter(|by| by != index);
        rows.push(row(record, rounds, *index, *place, by));
    }
    rows.sort_by(|a, b| (a.proxies, a.asked_percent).partial_cmp(&(b.proxies, b.asked_percent)).expect("numbers"));
    rows
}

/// Those of a place in which nothing died.
fn blocks(record: &Record, index: usize) -> impl Iterator<Item = &Block> {
    let is_whole = record.configurations.get(index).is_some_and(|place| place.valid);
    record.blocks.iter().filter(move |block| is_whole && block.configuration == index && block.valid && block.hits > 0)
}

fn row(record: &Record, rounds: u32, index: usize, place: ArrayPlace, by: Option<usize>) -> KeySharing {
    let column = |index: usize, value: &dyn Fn(&Block) -> f64| {
        let mut column: Column = vec![None; rounds as usize];
        for block in blocks(record, index) {
            column[block.round as usize] = Some(value(block)).filter(|value| value.is_finite());
        }
        column
    };
    let found = |column: Column| estimate(&[column], &[Combination::column(0)], RESAMPLES, SEED)[0];
    let of_dispatcher = |block: &Block| block.cluster.as_ref().map_or(0, |parts| parts.dispatcher_cpu_ns);
    let per_hit = |ns: u64, block: &Block| ns as f64 / block.hits as f64;
    let both = |block: &Block| per_hit(block.server_cpu_ns + of_dispatcher(block), block);
    let cpu_times = by.and_then(|by| {
        let pairs = column(by, &both).into_iter().zip(column(index, &both));
        let logarithms: Column = pairs.map(|(by, of)| Some((of? / by?).ln())).collect();
        let count = logarithms.iter().flatten().count() as u32;
        (count > 0).then(|| Ratio::of_logarithm(found(logarithms), count, false, false))
    });
    KeySharing {
        proxies: place.proxies,
        spread: place.spread,
        asked_percent: place.percent.unwrap_or(0.0),
        accepted_percent: found(column(index, &|block| {
            100.0 * block.resumed_accepted as f64 / block.resumed_offered as f64
        })),
        proxy_cpu_ns_per_hit: found(column(index, &|block| per_hit(block.server_cpu_ns, block))),
        dispatcher_cpu_ns_per_hit: found(column(index, &|block| per_hit(of_dispatcher(block), block))),
        cpu_times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::array::file::Array;
    use crate::kinds::array::summary::ArraySummary;
    use crate::kinds::array::{ArrayRecord, PageScale};
    use crate::kinds::load::curve::file::ReuseAxis;
    use crate::store::{ClusterBlock, Configuration, Measured};

    #[test]
    fn what_is_accepted_and_what_it_costs_stand_beside_each_other() {
        let experiment = ArrayExperiment {
            array: Array {
                proxies: vec![3],
                by: ReuseAxis::Connections,
                levels_percent: vec![80.0],
                spread: vec![Spread::RoundRobin, Spread::SharedKeys, Spread::Dispatcher],
                ..Array::default()
            },
            ..ArrayExperiment::default()
        };
        let mut record = Record::begun_now("q?", 1);
        let places = experiment.places();
        record.configurations = places
            .iter()
            .map(|place| Configuration::setting(experiment.name(place), place.percent.is_some(), Vec::new()))
            .collect();
        let scale = PageScale { transaction_ns: 300_000, full_handshake_cpu_ns: 0 };
        record.measured = Measured::from(ArrayRecord { experiment, scale });
        // Plain HTTP, own keys, shared keys, dispatcher: CPU time of the proxies and the dispatcher, sessions accepted.
        let each = [(100, 0, 0, 0), (900, 0, 800, 270), (500, 0, 800, 800), (500, 50, 800, 796)];
        for (configuration, (proxy_us, dispatcher_us, offered, accepted)) in each.into_iter().enumerate() {
            record.blocks.extend((0..6).map(|round| Block {
                round,
                configuration,
                hits: 1_000,
                elapsed_ns: 1_000_000_000,
                server_cpu_ns: proxy_us * 1_000_000,
                handshakes_full: 1_000 - accepted,
                resumed_offered: offered,
                resumed_accepted: accepted,
                valid: true,
                cluster: Some(ClusterBlock {
                    dispatcher_cpu_ns: dispatcher_us * 1_000_000,
                    backends: Vec::new(),
                    unserved: 0,
                }),
                ..Block::default()
            }));
        }
        let found = ArraySummary::of(&record).unwrap().ticket_keys;
        let accepted: Vec<f64> = found.iter().map(|row| row.accepted_percent.value).collect();
        assert_eq!(accepted, [33.75, 100.0, 99.5]);
        let times: Vec<Option<f64>> = found.iter().map(|row| row.cpu_times.map(|ratio| ratio.times)).collect();
        assert!(times[0].is_none() && (times[1].unwrap() - 5.0 / 9.0).abs() < 1e-9, "{times:?}");
        assert!((times[2].unwrap() - 5.5 / 9.0).abs() < 1e-9 && found[2].cpu_ns_per_hit() == 550_000.0, "{found:?}");
    }
}
