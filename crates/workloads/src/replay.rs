//! `--trace`: an access log as traffic. docs/WORKLOADS.md gives the rules and their reasons.
//!
//! The log is read once, line by line. What stays in memory grows with users, objects and hits (12 bytes each), not
//! with the text. [`objects`] and [`sessions`] give objects their files and users their requests.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use indexmap::{IndexMap, IndexSet};
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::workload::{NamesSpec, ReplaySpec};

use super::log_summary::{LogSummary, busiest};
use super::logged::{Hit, Replay, Targets, place};
use super::unsent::{Unsent, is_sent, note};
use super::{Parts, objects, reading, sessions};

/// Makes the workload of the log at `path`, without what `exclude` names. Answers what was found in the log too, and
/// how many bytes of the file were read if it can be read again.
pub(super) fn make(path: &Path, exclude: &[String], rules: &ReplaySpec) -> Result<(Parts, LogSummary, Option<u64>)> {
    // Users, by name, and their requests.
    let mut users: IndexMap<Box<[u8]>, u64> = IndexMap::new();
    let mut targets = Targets::new();
    let mut replays: IndexSet<Replay> = IndexSet::new();
    let mut hits: Vec<Hit> = Vec::new();
    let mut unsent = Unsent::new();
    let (mut read, file_bytes) = reading::for_each_request(path, exclude, rules, |entry, at_s| {
        ensure!(hits.len() < u32::MAX as usize, "more requests than fit a workload (2^32 - 1); use a part of the log");
        if !is_sent(entry.method, rules.names, &rules.send_methods, &mut unsent) {
            return Ok(());
        }
        let (user, target) = (place(&mut users, &entry.client), place(&mut targets, entry.target));
        let bytes = entry.bytes.unwrap_or(0);
        let replay = match rules.names {
            NamesSpec::Files => Replay::new(target, entry.method, entry.status, bytes),
            NamesSpec::AsRecorded => Replay::as_recorded(target, entry.method, entry.status, bytes),
        };
        users[user as usize] += 1;
        targets[target as usize].note(&replay, bytes);
        hits.push(Hit { user, object: replays.insert_full(replay).0 as u32, at_s });
        Ok(())
    })?;
    ensure!(!hits.is_empty(), "nothing of the log {} is left: {}", path.display(), note(&unsent).unwrap_or_default());
    let replays: Vec<Replay> = replays.into_iter().collect();
    read.busiest_clients = busiest(users.iter().map(|(name, hits)| (*hits, &**name)));
    let mut replayed_as: BTreeMap<&'static str, u64> = BTreeMap::new();
    for hit in &hits {
        *replayed_as.entry(replays[hit.object as usize].kind()).or_default() += 1;
    }
    let objects = objects::make(&targets, &replays, rules.names);
    let (requests, users, order) = sessions::make(&hits, users.len(), &objects.embedded, rules);
    let at_ms = sessions::times(&hits, &order);
    let workload = Workload { objects: objects.objects, requests, users, order, at_ms };
    let summary = LogSummary {
        read,
        unsent,
        replayed_as,
        renamed_files: objects.renamed,
        files_of_varying_size: objects.of_varying_size,
        files_of_unknown_size: objects.unknown_size_count,
    };
    Ok((Parts { workload, files: objects.files }, summary, file_bytes))
}

#[cfg(test)]
mod tests;
