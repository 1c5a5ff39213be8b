//! `--trace`: an access log as traffic. docs/WORKLOADS.md gives the rules and their reasons.
//!
//! The log is read once, line by line. What stays in memory grows with users, objects and hits (12 bytes each), not
//! with the text: [`Reading`] collects, [`site`](super::site) and `assemble` give objects their files and users their
//! requests.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_engine::load::Workload;

use super::access_log::{Entry, Fault};
use super::exclude::Exclude;
use super::log_summary::{Counts, LogSummary, busiest};
use super::logged::{Hit, Replay, Target};
use super::{Parts, objects, reading, sessions};
use tlsdyno_record::model::workload::ReplaySpec;

/// What a log becomes.
pub(super) struct Made {
    pub parts: Parts,
    pub summary: LogSummary,
    /// Bytes of the file that were read, if it can be read again.
    pub file_bytes: Option<u64>,
}

/// Makes the workload of the log at `path`. `excluded` is what `exclude` compiles to.
///
/// # Errors
/// The log cannot be read, holds no usable line, or nothing of it is left over.
pub(super) fn make(path: &Path, exclude: &[String], excluded: Exclude, rules: &ReplaySpec) -> Result<Made> {
    let mut reading = Reading::new(excluded);
    let read = reading::for_each_entry(path, rules, |line, entry| reading.take(line, entry))?;
    reading.counts.damage = read.damage;
    ensure_usable(path, &reading.counts, reading.hits.len() as u64, exclude)?;
    let Reading { counts, targets, replays, hits, clients, .. } = reading;
    let objects = objects::make(&targets, &replays, rules.names);
    let (requests, users, order) = sessions::make(&hits, clients.users, &objects.embedded, rules);
    let found = counts.finish(exclude, busiest(clients.hits_by_client(&hits)));
    let summary = LogSummary::of(found, &objects, &replays, &hits);
    let at_ms = sessions::times(&hits, &order);
    let workload = Workload { objects: objects.objects, requests, users, order, at_ms };
    Ok(Made { parts: Parts { workload, files: objects.files }, summary, file_bytes: read.file_bytes })
}

/// Refuses a log of which nothing can be replayed, and says what its lines lack.
pub(super) fn ensure_usable(path: &Path, counts: &Counts, hits: u64, exclude: &[String]) -> Result<()> {
    let path = path.display();
    counts.ensure_clients(&path.to_string(), hits)?;
    if hits > 0 {
        return Ok(());
    }
    if let Some(damage) = &counts.damage {
        bail!("the log {path} has no usable line: {damage}");
    }
    ensure!(counts.lines > 0, "the log {path} is empty; name one with requests in it");
    let excluded = counts.all_excluded();
    ensure!(
        excluded == 0,
        "nothing of the log {path} is left: {excluded} of its {} lines are excluded by {}; exclude less",
        counts.lines,
        exclude.join(", ")
    );
    let malformed = counts.malformed();
    let faults: Vec<String> = malformed.iter().map(ToString::to_string).collect();
    let is_json = malformed.iter().flat_map(|fault| &fault.examples).all(|example| example.text.starts_with('{'));
    let json = if is_json { "; its lines are JSON: `jq -r .log` takes them out of a file of Docker's" } else { "" };
    bail!(
        "the log {path} has no usable line; of its {} lines {}. It must be in common or combined format, like: \
         192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET /index.html HTTP/1.1\" 200 5120{json}",
        counts.lines,
        faults.join("; ")
    )
}

/// Numbers things in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Clients {
    known: HashMap<Box<[u8]>, Client>,
    users: u32,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    /// The pattern that excludes it.
    excluded: Option<usize>,
    user: Option<u32>,
}

impl Clients {
    /// Each user's name with its hits.
    fn hits_by_client(&self, hits: &[Hit]) -> Vec<(u64, &[u8])> {
        let mut counts = vec![0_u64; self.users as usize];
        hits.iter().for_each(|hit| counts[hit.user as usize] += 1);
        self.known
            .iter()
            .filter_map(|(name, client)| client.user.map(|user| (counts[user as usize], &**name)))
            .collect()
    }
}

/// What has been read of a log so far.
#[derive(Debug)]
struct Reading {
    exclude: Exclude,
    counts: Counts,
    clients: Clients,
    targets: Vec<Target>,
    target_numbers: HashMap<Box<[u8]>, u32>,
    replays: Vec<Replay>,
    replay_numbers: HashMap<Replay, u32>,
    hits: Vec<Hit>,
    /// Time of the first line; others are counted from [`MIDDLE_S`] before it.
    first_s: Option<i64>,
}

/// The first line's time among the 32 bits of [`Hit::at_s`]: 68 years of log on either side.
const MIDDLE_S: i64 = 1 << 31;

/// A time among the 32 bits of [`Hit::at_s`], where the first line's is `first_s`.
pub(super) fn relative_s(time_s: i64, first_s: i64) -> u32 {
    (time_s - first_s + MIDDLE_S).clamp(0, i64::from(u32::MAX)) as u32
}

impl Reading {
    fn new(exclude: Exclude) -> Self {
        Self {
            exclude,
            counts: Counts::default(),
            clients: Clients::default(),
            targets: Vec::new(),
            target_numbers: HashMap::new(),
            replays: Vec::new(),
            replay_numbers: HashMap::new(),
            hits: Vec::new(),
            first_s: None,
        }
    }

    fn take(&mut self, line: &[u8], entry: Result<Entry<'_>, Fault>) -> Result<()> {
        self.counts.lines += 1;
        match entry {
            Ok(entry) => self.add(&entry).with_context(|| format!("at line {} of the log", self.counts.lines)),
            Err(fault) => {
                self.counts.add_fault(fault, line);
                Ok(())
            }
        }
    }

    fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        let Some(user) = self.user(entry)? else {
            return Ok(());
        };
        self.counts.add_entry(entry);
        let target = self.target(entry.target)?;
        let replay = Replay::of(target, entry);
        self.targets[target as usize].note(&replay, entry.bytes.unwrap_or(0));
        let object = self.object(replay)?;
        let first_s = *self.first_s.get_or_insert(entry.time_s);
        let at_s = relative_s(entry.time_s, first_s);
        ensure!(
            self.hits.len() < u32::MAX as usize,
            "more requests than fit a workload (2^32 - 1); use a part of the log"
        );
        self.hits.push(Hit { user, object, at_s });
        Ok(())
    }

    /// The user that this line belongs to; none if it is excluded.
    fn user(&mut self, entry: &Entry<'_>) -> Result<Option<u32>> {
        let name: &[u8] = &entry.client;
        if !self.clients.known.contains_key(name) {
            let client = Client { excluded: self.exclude.client(name), user: None };
            self.clients.known.insert(name.into(), client);
        }
        let client = self.clients.known.get_mut(name).context("the client was just inserted")?;
        let excluded = client.excluded.or_else(|| entry.user_agent.and_then(|agent| self.exclude.agent(agent)));
        if let Some(pattern) = excluded {
            self.counts.add_excluded(pattern);
            return Ok(None);
        }
        Ok(Some(*client.user.get_or_insert_with(|| {
            self.clients.users += 1;
            self.clients.users - 1
        })))
    }

    fn target(&mut self, text: &[u8]) -> Result<u32> {
        if let Some(number) = self.target_numbers.get(text) {
            return Ok(*number);
        }
        let number = u32::try_from(self.targets.len())?;
        self.targets.push(Target::new(text));
        self.target_numbers.insert(text.into(), number);
        Ok(number)
    }

    fn object(&mut self, replay: Replay) -> Result<u32> {
        if let Some(number) = self.replay_numbers.get(&replay) {
            return Ok(*number);
        }
        let number = u32::try_from(self.replays.len())?;
        self.replays.push(replay);
        self.replay_numbers.insert(replay, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests;
